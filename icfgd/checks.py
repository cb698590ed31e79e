"""Checks of arguments. Each raises a `ValueError` that names the argument, what was got and what is allowed.

Only checks that several rooms need belong here; a check that makes sense in one room stays in that room.
"""

import difflib
from numbers import Integral, Real

import numpy as np
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
    if not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise ValueError(f"{name} has {bad} entries that are not finite (of {tensor.numel()}); all must be finite.")
    return tensor


def shape(name, tensor, expected):
    """Return `tensor` if its trailing shape is `expected`: a tuple of sizes, where None stands for any size."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is {type(tensor).__name__}; a torch tensor is required.")
    got = tuple(tensor.shape)
    tail = got[len(got) - len(expected):] if len(got) >= len(expected) else None
    if tail is None or any(e is not None and e != g for e, g in zip(expected, tail)):
        wanted = ", ".join("*" if e is None else str(e) for e in expected)
        raise ValueError(f"{name} has shape {got}; (..., {wanted}) is required.")
    return tensor


def tokens(U, W):
    """Raise unless U and W are both torch tensors or both numpy arrays, tokens in rows (..., tokens, d), that fit together."""
    for name, given in (("U", U), ("W", W)):
        if not isinstance(given, (torch.Tensor, np.ndarray)) or not isinstance(given, type(U)):
            got = type(given).__name__ + ("" if name == "U" else f" beside a {type(U).__name__}")
            raise ValueError(f"{name} is {got}; torch tensors (both) or numpy arrays (both) of tokens are required.")
        if given.ndim < 2 or 0 in given.shape[-2:]:
            raise ValueError(f"{name} has shape {tuple(given.shape)}; tokens in rows, (..., tokens, d), are required.")
    if U.shape[-1] != W.shape[-1]:
        raise ValueError(f"W has vectors of size {W.shape[-1]}; {U.shape[-1]}, the size in U, is required.")
    if isinstance(U, torch.Tensor):
        alike(U=U, W=W)
    batches(U=U.shape[:-2], W=W.shape[:-2])


def finite_tokens(U, W):
    """As `tokens`; all entries must be finite as well."""
    tokens(U, W)
    for name, given in (("U", U), ("W", W)):
        if isinstance(given, torch.Tensor):
            finite(name, given)
        elif given.dtype.kind not in "iuf" or not np.isfinite(given).all():
            raise ValueError(f"{name} has entries that are not finite real numbers; all must be finite.")


def covariates(name, tensor, queries=1, d=None):
    """Return the context length n of covariates `(..., n + queries, d)`; n and d must be at least 1."""
    finite(name, tensor)
    shape(name, tensor, (None, d))
    if tensor.shape[-1] < 1:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; vectors of size d >= 1 are required.")
    integer("queries", queries, low=1)
    n = tensor.shape[-2] - queries
    if n < 1:
        raise ValueError(
            f"{name} has {tensor.shape[-2]} tokens, of which queries = {queries}; n >= 1 context tokens are required."
        )
    return n


def labels(name, tensor, length):
    """Return `tensor` if its last dimension is `length` or more and the first `length` entries, the context, are finite.

    What comes after them (labels of queries) is never read and may hold anything.
    """
    if isinstance(tensor, torch.Tensor) and (tensor.ndim < 1 or tensor.shape[-1] < length):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; (..., {length}) or more labels are required.")
    finite(name, tensor[..., :length] if isinstance(tensor, torch.Tensor) else tensor)
    return tensor


def alike(**tensors):
    """Raise unless all `tensors` (by name) have the dtype and the device of the first."""
    (first, model), *rest = tensors.items()
    for name, tensor in rest:
        if tensor.dtype != model.dtype:
            raise ValueError(f"{name} has dtype {tensor.dtype}; {model.dtype}, that of {first}, is required.")
        if tensor.device != model.device:
            raise ValueError(f"{name} is on device {tensor.device}; {model.device}, that of {first}, is required.")


def batches(**shapes):
    """Raise unless the batch shapes (by name of their argument) broadcast with one another."""
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        got = ", ".join(f"{tuple(shape)} of {name}" for name, shape in shapes.items())
        raise ValueError(f"batch shapes {got} do not fit together; they must broadcast.") from None


def generator(name, value, device=None):
    """Return `value` if it is a `torch.Generator`, on `device` when given."""
    if not isinstance(value, torch.Generator):
        raise ValueError(f"{name} is {type(value).__name__}; a torch.Generator is required (see `device.generator`).")
    if device is not None and value.device.type != device.type:
        raise ValueError(f"{name} is on device {value.device}; {device}, that of the data, is required.")
    return value


def floating(name, dtype):
    """Return `dtype` if it is a real floating-point torch dtype."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"{name} = {dtype!r}; a floating-point torch dtype is required.")
    return dtype


def overflow(what, tensor):
    """Return the result `tensor` if it is finite; otherwise raise `FloatingPointError`: inputs were, so it overflowed."""
    if not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise FloatingPointError(f"{what}: {bad} of {tensor.numel()} values are not finite; the formula overflows there.")
    return tensor


def symmetric(name, matrix):
    """Return a finite square `matrix` (..., N, N) that equals its transpose up to rounding."""
    finite(name, matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or not matrix.numel():
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; square matrices (..., N, N), N >= 1, are required.")
    gap = (matrix - matrix.mT).abs().max()
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
    return 64 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps * float(matrix.detach().abs().max())
