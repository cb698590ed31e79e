"""Kernels and attention activations, each one sympy expression.

A formula is written in the inner product `s = <u, v>` and, where it needs them, the squared norms `p = |u|^2` and
`q = |v|^2`. The torch function that trains, the numpy function that plots and the LaTeX of the text all come from that
expression. The same objects serve as label kernels and as the non-linearity of attention; softmax is the exponential
with columns normalised over the context. Label laws (which need Sigma and noise) belong in `processes`.
"""

from dataclasses import dataclass, field

import numpy as np
import sympy as sp
import torch

from icfgd import checks
from icfgd.symbolic import numpy_function, torch_function

INNER = sp.Symbol("s", real=True)
LEFT = sp.Symbol("p", nonnegative=True)
RIGHT = sp.Symbol("q", nonnegative=True)
_ARGUMENTS = (INNER, LEFT, RIGHT)


@dataclass(frozen=True)
class Kernel:
    """A function of two vectors given by a sympy `expression` of `INNER`, `LEFT` and `RIGHT`.

    semidefinite: whether every Gram matrix is positive semi-definite (on all of R^d).
    normalised: whether attention divides each column by its sum over the context rows (softmax).
    parameters: name-value pairs, for display.
    """

    name: str
    expression: sp.Expr
    semidefinite: bool
    normalised: bool = False
    parameters: tuple = field(default=())

    def __post_init__(self):
        if not isinstance(self.expression, sp.Expr):
            raise ValueError(f"expression = {self.expression!r}; a sympy expression of s, p, q is required.")
        stray = self.expression.free_symbols - set(_ARGUMENTS)
        if stray:
            raise ValueError(
                f"expression = {self.expression} has free symbols {sorted(map(str, stray))}; only s, p, q are allowed."
            )
        if self.normalised and not isinstance(self.expression, sp.exp):
            raise ValueError(f"expression = {self.expression}; a normalised kernel must be an exponential.")

    def matrix(self, U, W):
        """Values K(u_i, w_j) without normalisation.

        U (..., a, d), W (..., b, d): torch tensors or numpy arrays with tokens in rows. Returns (..., a, b). Raises
        `ValueError` on tokens that are not finite or do not fit together, `FloatingPointError` if the values overflow.
        """
        checks.finite_tokens(U, W)
        return _finite(self.name, _evaluate(self.expression, U, W))

    def gram(self, X):
        """The Gram matrix (..., N, N) of tokens X (..., N, d)."""
        return self.matrix(X, X)

    def weights(self, U, W):
        """Attention weights of context tokens U (..., n, d) for tokens W (..., m, d); returns (..., n, m).

        Entrywise kernels give their values. Normalised kernels give columns that sum to one over the n context rows
        (computed without overflow). Errors as in `matrix`.
        """
        checks.finite_tokens(U, W)
        return _finite(self.name, self.unchecked_weights(U, W))

    def unchecked_weights(self, U, W):
        """As `weights` without a look at the values, for a network, which checks its own states."""
        if not self.normalised:
            return _evaluate(self.expression, U, W)
        exponent = _evaluate(self.expression.args[0], U, W)
        if isinstance(exponent, torch.Tensor):
            return torch.softmax(exponent, dim=-2)
        exponent = np.exp(exponent - exponent.max(axis=-2, keepdims=True))
        return exponent / exponent.sum(axis=-2, keepdims=True)

    def symbolic(self, u, v):
        """The exact value for sympy column vectors u and v (without normalisation)."""
        u, v = _columns(u, v)
        values = {INNER: (u.T * v)[0], LEFT: (u.T * u)[0], RIGHT: (v.T * v)[0]}
        # An inner product of 0 goes first: the limit at the zero vector, where <u,v>/(|u||v|) has no value.
        expression = self.expression.subs(INNER, 0) if values[INNER] == 0 else self.expression
        return expression.subs(values, simultaneous=True)

    def latex(self):
        """LaTeX of the formula, with the inner product and norms written out."""
        names = {INNER: r"\langle u,v\rangle", LEFT: r"\lVert u\rVert^{2}", RIGHT: r"\lVert v\rVert^{2}"}
        text = sp.latex(self.expression, symbol_names=names)
        for symbol in (LEFT, RIGHT):
            text = text.replace(f"\\sqrt{{{names[symbol]}}}", names[symbol].removesuffix("^{2}"))
        return text


@dataclass(frozen=True, eq=False)
class CompositeKernel:
    """The kernel `sum_h alpha_h K_h(G_h u, G_h v)` of Proposition 3 (paper item), from `terms` of (alpha, K, G).

    G is None for the identity, or a matrix (rows, d) of numbers. Semi-definite if all alpha >= 0 and all K_h are.
    Build it with `composite`, which checks the terms.
    """

    terms: tuple
    name: str = "composite"
    normalised: bool = False

    @property
    def semidefinite(self):
        """As `Kernel.semidefinite`; False also where a negative weight merely might spoil it."""
        return all(alpha >= 0 and k.semidefinite for alpha, k, _ in self.terms)

    @property
    def parameters(self):
        """Pairs of a kernel's name and its weight, for display."""
        return tuple((k.name, alpha) for alpha, k, _ in self.terms)

    def matrix(self, U, W):
        """As `Kernel.matrix`."""
        checks.finite_tokens(U, W)
        return _finite(self.name, self.unchecked_weights(U, W))

    gram = Kernel.gram

    def weights(self, U, W):
        """As `Kernel.weights`; a composite kernel is never normalised."""
        return self.matrix(U, W)

    def unchecked_weights(self, U, W):
        """As `Kernel.unchecked_weights`."""
        return sum(alpha * unchecked_weights(k, _project(U, G), _project(W, G)) for alpha, k, G in self.terms)

    def symbolic(self, u, v):
        """As `Kernel.symbolic`."""
        total = sp.Integer(0)
        for alpha, k, G in self.terms:
            left, right = _columns(u, v)
            if G is not None:
                G = sp.Matrix(G.tolist() if hasattr(G, "tolist") else G).applyfunc(sp.nsimplify)
                if G.cols != left.rows:
                    raise ValueError(f"u has {left.rows} entries; {G.cols}, the columns of G, are required.")
                left, right = G * left, G * right
            total += sp.nsimplify(alpha) * k.symbolic(left, right)
        return total

    def latex(self):
        """LaTeX of the sum, projections written as G_1, G_2, ..."""
        parts = []
        for i, (alpha, k, G) in enumerate(self.terms, start=1):
            text = k.latex()
            if G is not None:
                text = text.replace("u", f"G_{{{i}}}u").replace("v", f"G_{{{i}}}v")
            parts.append(f"{sp.latex(sp.nsimplify(alpha))}\\left({text}\\right)")
        return " + ".join(parts)


def unchecked_weights(h, U, W):
    """The attention weights of any kernel-like object: without a look at the values where the object knows how."""
    return getattr(h, "unchecked_weights", h.weights)(U, W)


def _project(X, G):
    if G is None:
        return X
    G = np.asarray(G, dtype=X.dtype) if isinstance(X, np.ndarray) else torch.as_tensor(G, dtype=X.dtype, device=X.device)
    if G.shape[-1] != X.shape[-1]:
        raise ValueError(f"tokens have size {X.shape[-1]}; {G.shape[-1]}, the columns of G, is required.")
    return X @ G.T


def _columns(u, v):
    u, v = sp.Matrix(u), sp.Matrix(v)
    if u.cols != 1 or u.shape != v.shape:
        raise ValueError(f"u and v have shapes {u.shape} and {v.shape}; two columns of one size are required.")
    return u, v


def _finite(name, values):
    checks.overflow(f"kernel {name}", torch.as_tensor(values))
    return values


def _evaluate(expression, U, W):
    checks.tokens(U, W)
    needed = expression.free_symbols
    if isinstance(U, np.ndarray):
        U, W = U.astype(float), W.astype(float)
        inner, compiled = U @ np.swapaxes(W, -1, -2), numpy_function(expression, _ARGUMENTS)
    else:
        inner, compiled = U @ W.mT, torch_function(expression, _ARGUMENTS)
    left = _squares(U)[..., :, None] if LEFT in needed else inner
    right = _squares(W)[..., None, :] if RIGHT in needed else inner
    with np.errstate(all="ignore"):  # what is not finite is reported by `_finite`
        return compiled(inner, left, right)


def _squares(X):
    # Never quite 0, so that formulas with <u,v>/(|u||v|) take their limit at the zero vector, and slopes stay finite.
    if isinstance(X, np.ndarray):
        return np.maximum((X * X).sum(-1), np.finfo(X.dtype).tiny)
    return (X * X).sum(-1).clamp(min=torch.finfo(X.dtype).tiny)


def _linear():
    return INNER, True


def _relu():
    return sp.Max(0, INNER), False


def _exponential(scale=1.0):
    return sp.exp(INNER / _positive("scale", scale)), True


def _gaussian(width=1.0):
    return sp.exp(-(LEFT + RIGHT - 2 * INNER) / (2 * _positive("width", width) ** 2)), True


def _arccosine():
    # E[max(<w,u>,0) max(<w,v>,0)] for standard normal w: half the order-1 arc-cosine kernel of Cho and Saul (2009).
    norm = sp.sqrt(LEFT) * sp.sqrt(RIGHT)
    angle = sp.acos(INNER / norm)
    return norm / (2 * sp.pi) * (sp.sin(angle, evaluate=False) + (sp.pi - angle) * sp.cos(angle, evaluate=False)), True


def _polynomial(degree=3):
    return INNER ** checks.integer("degree", degree, low=1), True


def _positive(name, value):
    return sp.nsimplify(checks.number(name, value, low=0, strict=True), rational=True)


_FORMULAS = {
    "linear": _linear,
    "relu": _relu,
    "exponential": _exponential,
    "gaussian": _gaussian,
    "arccosine": _arccosine,
    "polynomial": _polynomial,
}
KERNELS = tuple(_FORMULAS)
ACTIVATIONS = (*KERNELS, "softmax")


def kernel(name, **parameters):
    """The kernel called `name`: linear, relu, exponential(scale), gaussian(width), arccosine or polynomial(degree).

    exponential: exp(<u,v>/scale). gaussian: exp(-|u-v|^2/(2 width^2)). arccosine: second moment of a ReLU network.
    A `Kernel` passes through unchanged, unless it is normalised (softmax is no kernel).
    Raises `ValueError` on an unknown name or parameter.
    """
    built = _build(name, KERNELS, parameters, normalised=False)
    if getattr(built, "normalised", False):
        raise ValueError(f"name = {built.name!r} is an attention activation; a kernel without normalisation is required.")
    return built


def activation(name, **parameters):
    """As `kernel`, for the non-linearity of attention, with `softmax(scale)` added."""
    if name == "softmax":
        return _build("exponential", KERNELS, parameters, normalised=True)
    return _build(name, ACTIVATIONS, parameters, normalised=False)


def _build(name, allowed, parameters, normalised):
    if not isinstance(name, str) and hasattr(name, "weights"):
        if parameters:
            raise ValueError(f"parameters = {parameters} given beside a ready kernel; give a name, or no parameters.")
        return name
    formula = _FORMULAS[checks.one_of("name", name, allowed)]
    accepted = formula.__code__.co_varnames[: formula.__code__.co_argcount]
    for key in parameters:
        checks.one_of(f"parameter of {name}", key, accepted or ("(none)",))
    expression, semidefinite = formula(**parameters)
    shown = "softmax" if normalised else name
    return Kernel(shown, expression, semidefinite, normalised, tuple(sorted(parameters.items())))


def composite(terms):
    """A `CompositeKernel` from an iterable of (alpha, kernel or name, G or None)."""
    terms = list(terms)
    if not terms or any(not isinstance(term, (tuple, list)) or len(term) != 3 for term in terms):
        raise ValueError(f"terms = {terms!r}; a non-empty list of (alpha, kernel, G) is required.")
    built = []
    for alpha, k, G in terms:
        if G is not None:
            size = checks.finite("G", torch.as_tensor(G, dtype=torch.float64)).shape
            if len(size) != 2 or 0 in size:
                raise ValueError(f"G has shape {tuple(size)}; a matrix (rows, d) is required.")
        built.append((checks.number("alpha", alpha), kernel(k), G))
    return CompositeKernel(tuple(built))


def absolute(matrix):
    """|K| = Q |Lambda| Q^T for symmetric `matrix` (..., N, N): the covariance K_+ of the paper's ReLU labels.

    The absolute value is taken of the whole matrix; its blocks are not the absolute values of the blocks of K.
    """
    checks.symmetric("matrix", matrix)
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.abs().unsqueeze(-2)) @ vectors.mT
