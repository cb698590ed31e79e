"""Checks of arguments. Each raises a `ValueError` that names the argument, what was got and what is allowed.

Only checks that several rooms need belong here; a check that makes sense in one room stays in that room.
"""

import difflib
from numbers import Integral, Real

import torch


def one_of(name, value, allowed):
    """Return `value` if it is in `allowed` (strings); otherwise name the nearest match and the whole list."""
    allowed = list(allowed)
    if value in allowed:
        return value
    near = difflib.get_close_matches(str(value), allowed, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} = {value!r} is unknown.{hint} Allowed: {', '.join(map(repr, allowed))}.")


def integer(name, value, low=None):
    """Return `value` as an int, at least `low` when given. Booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, Integral) or (low is not None and value < low):
        bound = "" if low is None else f" of at least {low}"
        raise ValueError(f"{name} = {value!r}; an integer{bound} is required.")
    return int(value)


def number(name, value, low=None, high=None, strict=False):
    """Return `value` as a finite float in [low, high]; with `strict`, the lower bound is excluded."""
    good = isinstance(value, Real) and not isinstance(value, bool) and -float("inf") < value < float("inf")
    if good and low is not None:
        good = value > low if strict else value >= low
    if good and high is not None:
        good = value <= high
    if not good:
        parts = ([f"{'greater than' if strict else 'at least'} {low}"] if low is not None else [])
        parts += [f"at most {high}"] if high is not None else []
        raise ValueError(f"{name} = {value!r}; a finite number{' ' if parts else ''}{' and '.join(parts)} is required.")
    return float(value)


def finite(name, tensor):
    """Return `tensor` if it is a real floating-point tensor without NaN or infinity."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        got = f"a tensor of {tensor.dtype}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(f"{name} is {got}; a floating-point torch tensor is required.")
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ValueError(f"{name} has {bad} entries that are not finite (of {tensor.numel()}); all must be finite.")
    return tensor


def shape(name, tensor, expected):
    """Return `tensor` if its trailing shape is `expected`: a tuple of sizes, where None stands for any size."""
    got = tuple(tensor.shape)
    tail = got[len(got) - len(expected):] if len(got) >= len(expected) else None
    if tail is None or any(e is not None and e != g for e, g in zip(expected, tail)):
        wanted = ", ".join("*" if e is None else str(e) for e in expected)
        raise ValueError(f"{name} has shape {got}; (..., {wanted}) is required.")
    return tensor


def covariates(name, tensor, queries=1, d=None):
    """Return the context length n of covariates `(..., n + queries, d)`; n must be at least 1."""
    finite(name, tensor)
    shape(name, tensor, (None, d))
    integer("queries", queries, low=1)
    n = tensor.shape[-2] - queries
    if n < 1:
        raise ValueError(
            f"{name} has {tensor.shape[-2]} tokens, of which queries = {queries}; n >= 1 context tokens are required."
        )
    return n


def labels(name, tensor, length):
    """Return `tensor` if it is finite with last dimension `length` or more; the first `length` entries are context."""
    finite(name, tensor)
    if tensor.ndim < 1 or tensor.shape[-1] < length:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; (..., {length}) or more labels are required.")
    return tensor


def symmetric(name, matrix):
    """Return a finite square `matrix` (..., N, N) that equals its transpose up to rounding."""
    finite(name, matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; square matrices (..., N, N) are required.")
    gap = (matrix - matrix.mT).abs().max() if matrix.numel() else torch.zeros(())
    if gap > _slack(matrix):
        raise ValueError(f"{name} is not symmetric (largest difference from its transpose {float(gap):.2e}).")
    return matrix


def positive_semidefinite(name, matrix, strict=False):
    """Return a symmetric `matrix` (..., N, N) without negative eigenvalues; with `strict`, all must be positive."""
    symmetric(name, matrix)
    low = torch.linalg.eigvalsh(matrix).min()
    if low < -_slack(matrix) or (strict and low <= _slack(matrix)):
        word = "definite" if strict else "semi-definite"
        raise ValueError(f"{name} has smallest eigenvalue {float(low):.3e}; a positive {word} matrix is required.")
    return matrix


def _slack(matrix):
    scale = max(1.0, float(matrix.abs().max())) if matrix.numel() else 1.0
    return 64 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps * scale
