"""Functional gradient descent written in function space: the independent witness of Proposition 1.

A function is an expansion f = sum_j c_j K(., x_j) with centres and coefficients; gradients, norms and steps are those of
the reproducing kernel Hilbert space. Nothing here knows about attention.
"""

from dataclasses import dataclass

import torch

from icfgd import checks


@dataclass(frozen=True)
class Expansion:
    """f = sum_j c_j K(., x_j): `kernel`, `centres` (..., n, d) and `coefficients` (..., n)."""

    kernel: object
    centres: torch.Tensor
    coefficients: torch.Tensor

    def __post_init__(self):
        checks.finite("centres", self.centres)
        checks.finite("coefficients", self.coefficients)
        if self.centres.ndim < 2 or self.coefficients.shape[-1:] != self.centres.shape[-2:-1]:
            raise ValueError(
                f"coefficients has shape {tuple(self.coefficients.shape)}; one coefficient per centre, "
                f"(..., {self.centres.shape[-2] if self.centres.ndim > 1 else '?'}), is required."
            )
        if not hasattr(self.kernel, "matrix"):
            raise ValueError(f"kernel = {self.kernel!r}; a kernel of `icfgd.kernels` is required.")
        checks.alike(centres=self.centres, coefficients=self.coefficients)
        checks.batches(centres=self.centres.shape[:-2], coefficients=self.coefficients.shape[:-1])

    def __call__(self, points):
        """Values (..., m) at points (..., m, d)."""
        return (self.kernel.matrix(points, self.centres) @ self.coefficients.unsqueeze(-1)).squeeze(-1)

    def inner(self, other):
        """The RKHS inner product (...) with another expansion of the same kernel (reproducing property)."""
        self._same_space(other)
        return (self.coefficients * other(self.centres)).sum(-1)

    def norm(self):
        """The RKHS norm (...); sqrt(c^T K c). Raises `ValueError` where an indefinite kernel makes the square negative."""
        square = self.inner(self)
        size = (self.coefficients.abs() * self._sizes()).sum(-1)
        if bool((square < -64 * torch.finfo(square.dtype).eps * size).any()):
            raise ValueError(f"kernel {self.kernel.name!r} gives a squared norm {float(square.min()):.3e}; it has no norm.")
        return square.clamp(min=0).sqrt()

    def _sizes(self):
        """sum_j |K(x_i, x_j)| |c_j|, the scale of rounding in the value at centre i."""
        return (self.kernel.gram(self.centres).abs() @ self.coefficients.abs().unsqueeze(-1)).squeeze(-1)

    def _same_space(self, other):
        if not isinstance(other, Expansion) or (other.kernel is not self.kernel and other.kernel != self.kernel):
            got = f"an expansion of {other.kernel.name!r}" if isinstance(other, Expansion) else type(other).__name__
            raise ValueError(f"other is {got}; an expansion of the kernel {self.kernel.name!r} is required.")

    def plus(self, scale, other):
        """f + scale * g, as an expansion with the centres of both (kept once when they are the same tensor)."""
        self._same_space(other)
        scale = checks.number("scale", scale)
        if other.centres is self.centres:
            return Expansion(self.kernel, self.centres, self.coefficients + scale * other.coefficients)
        centres = torch.cat([self.centres, other.centres], dim=-2)
        return Expansion(self.kernel, centres, torch.cat([self.coefficients, scale * other.coefficients], dim=-1))


def squared_loss(f, X, y):
    """L(f) = sum_i (f(x_i) - y_i)^2 of shape (...), for points X (..., n, d) and labels y (..., n or more)."""
    return (_errors(f, X, y) ** 2).sum(-1)


def functional_gradient(f, X, y):
    """The gradient 2 sum_i (f(x_i) - y_i) K(., x_i) of the squared loss in the RKHS of f (Schoelkopf and Smola 2002)."""
    return Expansion(f.kernel, X, 2 * _errors(f, X, y))


def descend(kernel, X, y, steps):
    """Iterates f_0 = 0, f_1, ..., f_k with f_{l+1} = f_l - (r_l / 2) grad L(f_l), as a list of expansions.

    X (..., n, d) and y (..., n or more; only the first n are read) are the context; steps are the k numbers r_l
    (the factor 2 of the squared loss is in them: r = 2 * step length).
    """
    checks.shape("X", checks.finite("X", X), (None, None))
    if not X.numel():
        raise ValueError(f"X has shape {tuple(X.shape)}; at least one context token of size d >= 1 is required.")
    y = _context(y, X.shape[-2])
    f = Expansion(kernel, X, torch.zeros_like(y))
    iterates = [f]
    for step in _steps(steps):
        f = f.plus(-step / 2, functional_gradient(f, X, y))
        iterates.append(f)
    return iterates


def coefficients(gram, y, steps):
    """Coefficients (k+1, ..., n) of all iterates from the context Gram matrix (..., n, n) and labels y (..., n or more).

    Raises `FloatingPointError` if the iteration diverges beyond what a number can hold.
    """
    checks.symmetric("gram", gram)
    y = _context(y, gram.shape[-1])
    checks.alike(gram=gram, y=y)
    checks.batches(gram=gram.shape[:-2], y=y.shape[:-1])
    y = y.expand(*torch.broadcast_shapes(gram.shape[:-2], y.shape[:-1]), y.shape[-1])
    alpha = torch.zeros_like(y)
    rows = [alpha]
    for step in _steps(steps):
        alpha = alpha + step * (y - (gram @ alpha.unsqueeze(-1)).squeeze(-1))
        rows.append(alpha)
    return checks.overflow("coefficients", torch.stack(rows))


def residual_polynomial(steps, spectrum):
    """p(lambda) = prod_l (1 - r_l lambda) at `spectrum` (...); residuals after k steps are p(K) y."""
    value = torch.ones_like(checks.finite("spectrum", spectrum))
    for step in _steps(steps):
        value = value * (1 - step * spectrum)
    return checks.overflow("residual polynomial", value)


def _errors(f, X, y):
    values = f(X)
    y = _context(y, values.shape[-1])
    checks.alike(X=X, y=y)
    checks.batches(X=values.shape[:-1], y=y.shape[:-1])
    return values - y


def _context(y, n):
    return checks.labels("y", y, n)[..., :n]


def _steps(steps):
    """A list of numbers from numbers or a one-dimensional tensor."""
    steps = steps.tolist() if hasattr(steps, "tolist") else steps
    if not isinstance(steps, (list, tuple, range)):
        raise ValueError(f"steps = {steps!r}; a list of numbers, one per layer, is required.")
    return [checks.number("steps", step.item() if isinstance(step, torch.Tensor) else step) for step in steps]
