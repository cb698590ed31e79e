"""From formula to code, and helpers for exact derivations.

A formula is one sympy expression. This room compiles it to torch and numpy through a printer of our own, because the
stock ones mistranslate what the book needs: `Max` with a constant, `Heaviside` at zero, `acos` at the end points, and
constants, which must keep the shape of the arguments. It also holds the small algebra used by the proofs: generic
symmetric kernels, planar rotations, symbolic prompts and exact tests for zero. Nothing here knows about kernels or
attention.
"""

import math
from functools import cache

import numpy as np
import sympy as sp
import torch
from sympy.core.function import AppliedUndef
from sympy.printing.pycode import PythonCodePrinter

from icfgd import checks

REFLECTION = sp.diag(1, -1)


UNARY = ("exp", "log", "sin", "cos", "tan", "acos", "asin", "sinh", "cosh", "tanh", "erf", "Abs", "sign")


class _ArrayPrinter(PythonCodePrinter):
    """Prints elementwise arithmetic as calls into a namespace of functions supplied at compile time."""

    def _print(self, expr, **options):
        # Constants become one literal: array functions do not take Python numbers, and Python integers may not fit.
        if isinstance(expr, sp.Expr) and expr.is_number and not (expr.is_Integer and abs(expr) < 2**53):
            return f"({_literal(expr)!r})"
        return super()._print(expr, **options)

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
        if expr.args[1:] not in ((), (sp.S.Half,), (sp.S.Zero,)):
            raise ValueError(f"expression contains {expr}; Heaviside functions that vanish at 0 are required.")
        return self._call("heaviside", expr.args[0])

    def _print_Pow(self, expr, rational=False):
        if abs(expr.exp) == sp.S.Half:
            root = self._call("sqrt", expr.base)
            return root if expr.exp > 0 else f"(1/{root})"
        return f"(({self._print(expr.base)})**({self._print(expr.exp)}))"


def _literal(constant):
    value = complex(constant.evalf(20))
    if value.imag or not math.isfinite(value.real):
        raise ValueError(f"expression contains the constant {constant}; finite real constants are required.")
    return value.real


def _printer_method(name):
    return lambda self, expr: self._call(name, *expr.args)


for _name in UNARY:
    setattr(_ArrayPrinter, f"_print_{_name}", _printer_method(_name))

_NODES = (sp.Add, sp.Mul, sp.Pow, sp.Symbol, sp.Number, sp.NumberSymbol, sp.Max, sp.Min, sp.Heaviside)
_NODES += tuple(getattr(sp, name) for name in UNARY)


def _torch_extreme(function, beyond):
    """maximum or minimum of tensors; against a number, the slope at a tie is 0, as `Heaviside(0) = 0` says."""

    def apply(a, b):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return function(a, b)
        x, number = (a, b) if isinstance(a, torch.Tensor) else (b, a)
        if number == 0 and function is torch.maximum:
            return torch.relu(x)
        return torch.where(beyond(x, number), number, x)

    return apply


def _torch_acos(x):
    # |x| may exceed 1 by rounding, and acos has an infinite slope at 1: beyond it, the value and slope of a constant.
    outside = x.abs() >= 1
    return torch.where(outside, math.pi * (x < 0).to(x.dtype), torch.acos(torch.where(outside, 0.0, x)))


_TORCH = {
    name: getattr(torch, name) for name in ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "erf", "sign")
}
_TORCH |= {
    "maximum": _torch_extreme(torch.maximum, torch.le),
    "minimum": _torch_extreme(torch.minimum, torch.ge),
    "heaviside": lambda x: (x > 0).to(x.dtype),
    "Abs": torch.abs,
    "acos": _torch_acos,
    "asin": lambda x: math.pi / 2 - _torch_acos(x),
}
_NUMPY = {
    name: getattr(np, name)
    for name in ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "maximum", "minimum", "sign")
}
_NUMPY |= {
    "heaviside": lambda x: np.where(np.asarray(x) > 0, 1.0, 0.0),
    "Abs": np.abs,
    "acos": lambda x: np.arccos(np.clip(x, -1.0, 1.0)),
    "asin": lambda x: np.arcsin(np.clip(x, -1.0, 1.0)),
    "erf": np.vectorize(math.erf, otypes=[float]),
}

_BACKENDS = {"torch": _TORCH, "numpy": _NUMPY}


@cache
def _compiled(expression, arguments, backend):
    if not isinstance(expression, sp.Expr):
        raise ValueError(f"expression is {type(expression).__name__}; a scalar sympy expression is required.")
    stray = expression.free_symbols - set(arguments)
    if stray:
        names = ", ".join(sorted(map(str, stray)))
        raise ValueError(f"expression has free symbols {names}; only {', '.join(map(str, arguments))} are allowed.")
    for node in sp.preorder_traversal(expression):
        if not node.is_number and not isinstance(node, _NODES):
            allowed = ", ".join(kind.__name__ for kind in _NODES)
            raise ValueError(f"expression contains {node.func}, which has no translation to arrays. Allowed: {allowed}.")
    printer = _ArrayPrinter({"fully_qualified_modules": False, "strict": True})
    return sp.lambdify(arguments, expression, modules=[dict(_BACKENDS[backend])], printer=printer, cse=True)


def _count(name, given, arguments):
    if len(given) != len(arguments):
        raise ValueError(f"{len(given)} {name} were given; one for each of {', '.join(map(str, arguments))} is required.")


def torch_function(expression, arguments):
    """Compile a sympy `expression` of the symbols `arguments` to a function of torch tensors of one broadcast shape.

    The result always has the broadcast shape and the dtype of the arguments (floating, one for all), also for constants.
    `Heaviside(0)` is 0 and `Max`, `Min` have slope 0 where they meet a constant, as torch's ReLU; where two variables tie
    each gets half. `acos` and `asin` are constant beyond 1. Outside its domain any other function gives what torch gives.
    Raises `ValueError` on symbols, functions or constants it cannot map, and on arguments that are not such tensors.
    """
    arguments = tuple(arguments)
    inner = _compiled(sp.sympify(expression), arguments, "torch")

    def call(*tensors):
        _count("tensors", tensors, arguments)
        for symbol, tensor in zip(arguments, tensors):
            if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
                got = f"a tensor of {tensor.dtype}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise ValueError(f"{symbol} is {got}; a floating-point torch tensor is required.")
        checks.alike(**{str(symbol): tensor for symbol, tensor in zip(arguments, tensors)})
        shape = checks.batches(**{str(symbol): tensor.shape for symbol, tensor in zip(arguments, tensors)})
        value = inner(*tensors)
        if not isinstance(value, torch.Tensor):
            return torch.full(shape, float(value), dtype=tensors[0].dtype, device=tensors[0].device)
        return value.expand(shape).clone() if value.shape != shape else value

    return call


def numpy_function(expression, arguments):
    """As `torch_function`, for numpy arrays (or numbers); the result is a float64 array of the broadcast shape."""
    arguments = tuple(arguments)
    inner = _compiled(sp.sympify(expression), arguments, "numpy")

    def call(*arrays):
        _count("arrays", arrays, arguments)
        try:
            arrays = [np.asarray(a, dtype=float) for a in arrays]
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{', '.join(map(str, arguments))}: {error}; real arrays of shapes that broadcast are required.") from None
        value = np.asarray(inner(*arrays), dtype=float)
        return value if value.shape == shape else np.broadcast_to(value, shape).copy()

    return call


def symmetric_function(name):
    """A generic symmetric kernel: a function of two tokens whose sympy value does not depend on their order."""
    function = sp.Function(name)
    return lambda u, v: function(*sorted((sp.sympify(u), sp.sympify(v)), key=sp.default_sort_key))


def rotation(theta):
    """The 2 x 2 matrix that rotates the plane by `theta` (a number or a sympy expression)."""
    theta = _expression("theta", theta)
    return sp.Matrix([[sp.cos(theta), -sp.sin(theta)], [sp.sin(theta), sp.cos(theta)]])


def symbolic_prompt(d, tokens, name="x"):
    """A d x tokens matrix of real symbols, one column per token (the paper's layout)."""
    d, tokens = checks.integer("d", d, low=1), checks.integer("tokens", tokens, low=1)
    return sp.Matrix(d, tokens, lambda i, j: sp.Symbol(f"{name}{i + 1}{j + 1}", real=True))


def is_zero(expression):
    """True if every entry of an expression or matrix is exactly zero after simplification.

    False means "not proved", which is not the same as "not zero": see `is_nonzero`. Raises `ValueError` on anything that
    is not a sympy expression, a number, or a matrix with entries.
    """
    return all(e == 0 or sp.expand(e) == 0 or sp.simplify(sp.together(e)) == 0 for e in _entries(expression))


def is_nonzero(expression, digits=30):
    """True if some entry of an expression or matrix is proved not to vanish identically, by its value at a point.

    Free symbols get rational values, and values of unspecified functions count as further symbols. A value above
    10^(-digits/2), computed with `digits` digits, settles it.
    """
    for entry in _entries(expression):
        for attempt in range(3):
            values = {}
            for i, atom in enumerate(sorted(entry.atoms(AppliedUndef), key=sp.default_sort_key)):
                values[atom] = sp.Rational(5 + 7 * i + 2 * attempt, 11 + 3 * i)
            point = entry.xreplace(values)
            for i, symbol in enumerate(sorted(point.free_symbols, key=sp.default_sort_key)):
                values[symbol] = sp.Rational(3 + 4 * i + attempt, 7 + 2 * i)
            number = point.xreplace(values).doit().evalf(digits)
            if number.is_number and number.is_finite and abs(number) > sp.Float(10) ** (-digits // 2):
                return True
    return False


def _entries(expression):
    if isinstance(expression, (sp.MatrixBase, sp.NDimArray)):
        entries = list(sp.flatten(expression.tolist()))
    else:
        entries = [_expression("expression", expression)]
    if not entries:
        raise ValueError("expression is an empty matrix; at least one entry is required.")
    return [_expression("expression", e) for e in entries]


def _expression(name, value):
    if not isinstance(value, str):
        try:
            value = sp.sympify(value)
        except (sp.SympifyError, TypeError, ValueError):
            pass
    if not isinstance(value, sp.Expr) or isinstance(value, sp.MatrixExpr) or value.has(sp.nan, sp.zoo):
        raise ValueError(f"{name} = {value!r}; a sympy expression or a number is required.")
    return value
