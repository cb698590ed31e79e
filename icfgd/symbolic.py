"""From formula to code, and helpers for exact derivations.

A formula is one sympy expression. This room compiles it to torch and numpy through printers of our own, because the
stock ones mistranslate what the book needs: `Max` with a constant, `Heaviside` at zero, `acos` at the end points, and
constants, which must keep the shape of the arguments. It also holds the small algebra used by the proofs: generic
symmetric kernels, planar rotations, symbolic prompts and an exact test for zero. Nothing here knows about kernels or
attention.
"""

from functools import lru_cache

import numpy as np
import sympy as sp
import torch
from sympy.printing.pycode import PythonCodePrinter

REFLECTION = sp.diag(1, -1)


class _ArrayPrinter(PythonCodePrinter):
    """Prints elementwise arithmetic as calls into a namespace of functions supplied at compile time."""

    def _call(self, function, *arguments):
        return f"{function}({', '.join(self._print(a) for a in arguments)})"

    def _nested(self, function, arguments):
        head, *tail = arguments
        return f"{function}({self._print(head)}, {self._nested(function, tail)})" if tail else self._print(head)

    def _print_Max(self, expr):
        return self._nested("maximum", expr.args)

    def _print_Min(self, expr):
        return self._nested("minimum", expr.args)

    def _print_Heaviside(self, expr):
        return self._call("heaviside", expr.args[0])

    def _print_Abs(self, expr):
        return self._call("absolute", *expr.args)

    def _print_Pow(self, expr, rational=False):
        if expr.exp == sp.Rational(1, 2):
            return self._call("sqrt", expr.base)
        return super()._print_Pow(expr, rational=False)

    def _print_Rational(self, expr):
        return f"({expr.p}/{expr.q})"

    def _print_Pi(self, expr):
        return repr(float(sp.pi))

    def _print_Exp1(self, expr):
        return repr(float(sp.E))


def _printer_method(name):
    return lambda self, expr: self._call(name, *expr.args)


for _name in ("exp", "log", "sin", "cos", "tan", "acos", "asin", "sinh", "cosh", "tanh", "sqrt", "erf"):
    setattr(_ArrayPrinter, f"_print_{_name}", _printer_method(_name))


def _torch_pair(function):
    """Lift a binary torch function to tensors mixed with Python numbers."""

    def apply(a, b):
        if not isinstance(a, torch.Tensor):
            a, b = b, a
        if not isinstance(a, torch.Tensor):
            return max(a, b) if function is torch.maximum else min(a, b)
        if not isinstance(b, torch.Tensor):
            b = torch.full((), b, dtype=a.dtype, device=a.device)
        return function(a, b)

    return apply


def _torch_maximum(a, b):
    # torch.maximum halves the gradient at ties; clamp and relu use zero there, as the ReLU of deep learning does.
    for x, y in ((a, b), (b, a)):
        if isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
            return torch.relu(x) if y == 0 else torch.clamp(x, min=y)
    return _torch_pair(torch.maximum)(a, b)


def _torch_acos(x):
    # |x| may exceed 1 by rounding, and acos has an infinite slope at 1: stay one unit in the last place inside.
    edge = 1 - torch.finfo(x.dtype).eps
    return torch.acos(x.clamp(-edge, edge))


_TORCH = {
    name: getattr(torch, name)
    for name in ("exp", "log", "sin", "cos", "tan", "asin", "sinh", "cosh", "tanh", "sqrt", "erf")
}
_TORCH |= {
    "maximum": _torch_maximum,
    "minimum": _torch_pair(torch.minimum),
    "heaviside": lambda x: (x > 0).to(x.dtype),
    "absolute": torch.abs,
    "acos": _torch_acos,
}
_NUMPY = {
    name: getattr(np, name)
    for name in ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "maximum", "minimum", "absolute")
}
_NUMPY |= {
    "asin": np.arcsin,
    "acos": lambda x: np.arccos(np.clip(x, -1.0, 1.0)),
    "heaviside": lambda x: np.where(np.asarray(x) > 0, 1.0, 0.0),
}


@lru_cache(maxsize=None)
def _compiled(expression, arguments, target):
    expression = sp.sympify(expression)
    stray = expression.free_symbols - set(arguments)
    if stray:
        names = ", ".join(sorted(map(str, stray)))
        raise ValueError(f"expression has free symbols {names}; only {', '.join(map(str, arguments))} are allowed.")
    printer = _ArrayPrinter({"fully_qualified_modules": False, "strict": True})
    unknown = [f for f in expression.atoms(sp.Function) if not hasattr(printer, f"_print_{type(f).__name__}")]
    if unknown:
        raise ValueError(f"expression contains {unknown[0].func}, which has no translation to arrays.")
    return sp.lambdify(arguments, expression, modules=[dict(target)], printer=printer)


def torch_function(expression, arguments):
    """Compile a sympy `expression` of the symbols `arguments` to a function of torch tensors of one broadcast shape.

    The result always has the broadcast shape and dtype of the arguments, also for constants. `Heaviside(0)` is 0, so
    that derivatives of `Max(0, x)` agree with torch's ReLU. Raises `ValueError` on symbols or functions it cannot map.
    """
    inner = _compiled(sp.sympify(expression), tuple(arguments), tuple(_TORCH.items()))

    def call(*tensors):
        shape = torch.broadcast_shapes(*(t.shape for t in tensors))
        value = inner(*tensors)
        if not isinstance(value, torch.Tensor):
            value = torch.full((), float(value), dtype=tensors[0].dtype, device=tensors[0].device)
        return value.expand(shape) if value.shape != shape else value

    return call


def numpy_function(expression, arguments):
    """As `torch_function`, for numpy arrays (or numbers); the result is a float64 array of the broadcast shape."""
    inner = _compiled(sp.sympify(expression), tuple(arguments), tuple(_NUMPY.items()))

    def call(*arrays):
        arrays = [np.asarray(a, dtype=float) for a in arrays]
        value = np.asarray(inner(*arrays), dtype=float)
        return np.broadcast_to(value, np.broadcast_shapes(*(a.shape for a in arrays)))

    return call


def symmetric_function(name):
    """A generic symmetric kernel: a function of two tokens whose sympy value does not depend on their order."""
    function = sp.Function(name)
    return lambda u, v: function(*sorted((sp.sympify(u), sp.sympify(v)), key=sp.default_sort_key))


def rotation(theta):
    """The 2 x 2 matrix that rotates the plane by `theta` (sympy)."""
    return sp.Matrix([[sp.cos(theta), -sp.sin(theta)], [sp.sin(theta), sp.cos(theta)]])


def symbolic_prompt(d, tokens, name="x"):
    """A d x tokens matrix of real symbols, one column per token (the paper's layout)."""
    return sp.Matrix(d, tokens, lambda i, j: sp.Symbol(f"{name}{i + 1}{j + 1}", real=True))


def is_zero(expression):
    """True if every entry of an expression or matrix is exactly zero after simplification."""
    entries = list(expression) if isinstance(expression, sp.MatrixBase) else [sp.sympify(expression)]
    return all(e == 0 or sp.expand(e) == 0 or sp.simplify(sp.together(e)) == 0 for e in entries)
