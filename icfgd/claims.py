"""Checks that tie an executed cell to a numbered statement of the book.

Each function compares, prints one line `check <label> | <kind> | <what> | <verdict>` and raises `CheckFailed`
otherwise. The verdict is `holds`; of a negative control, whose claim must break, it is `fails, as it must`. The line
never holds a measured error, so that it is the same on every machine; the book collects the lines into its ledger.
Deciding which statements exist is the book's business, not this room's.
"""

import re

import sympy as sp
import torch

from icfgd import checks
from icfgd.symbolic import is_nonzero, is_zero


class CheckFailed(AssertionError):
    """A statement of the book did not survive its check."""


def exact(label, what, claim):
    """`claim` is a truth value, or sympy expressions or matrices (one, or a list) that must be identically zero."""
    items = claim if isinstance(claim, (list, tuple)) else [claim]
    if not items:
        raise CheckFailed(f"{label}: {what}: nothing to check")
    for item in items:
        _settle(label, "exact", what, _decide(label, what, item, is_zero), f"{item} is not zero")
    _report(label, "exact", what)


def close(label, what, got, want, atol=1e-11, rtol=1e-9):
    """`got` equals `want` entrywise within atol + rtol |want| (tensors, arrays or numbers; both finite)."""
    got, want = _same_shape(label, got, want)
    checks.number("atol", atol, low=0), checks.number("rtol", rtol, low=0)
    gap = (got - want).abs()
    good = bool(torch.isfinite(gap).all() and (gap <= atol + rtol * want.abs()).all()) and gap.numel() > 0
    _settle(label, "numeric", what, good, f"largest difference {_largest(gap)}, allowed {atol} + {rtol} |want|")
    _report(label, "numeric", what)


def below(label, what, value, bound, slack=1e-10):
    """`value` <= `bound` + slack entrywise (both finite); a negative slack asks for a distance."""
    value, bound = _same_shape(label, value, bound)
    checks.number("slack", slack)
    gap = value - bound
    good = bool(torch.isfinite(gap).all() and (gap <= slack).all()) and gap.numel() > 0
    _settle(label, "bound", what, good, f"exceeded by {_largest(gap)}")
    _report(label, "bound", what)


def montecarlo(label, what, mean, stderr, want, z=4.5):
    """Sample means with standard errors `stderr` lie within z standard errors of `want`; all stderr must be positive."""
    mean, stderr, want = _same_shape(label, mean, stderr, want)
    checks.number("z", z, low=0, strict=True)
    score = ((mean - want) / stderr).abs()
    good = bool((stderr > 0).all() and torch.isfinite(score).all() and (score < z).all()) and score.numel() > 0
    _settle(label, "monte carlo", what, good, f"largest z-score {_largest(score)}, allowed {z}")
    _report(label, "monte carlo", what)


def fails(label, what, got, want, at_least):
    """Negative control: finite `got` and `want` differ by at least `at_least` somewhere (a hypothesis was dropped)."""
    got, want = _same_shape(label, got, want)
    checks.number("at_least", at_least, low=0, strict=True)
    gap = (got - want).abs()
    good = bool(gap.numel() and torch.isfinite(gap).all() and gap.max() >= at_least)
    _settle(label, "control", what, good, f"differs by {_largest(gap)} only, at least {at_least} expected")
    _report(label, "control", what)


def refuted(label, what, claim):
    """Exact negative control: `claim`, an expression or matrix, is proved not to vanish, or is a false truth value."""
    if _is_truth(claim):
        good = not bool(claim)
    else:
        good = _decide(label, what, claim, is_nonzero)
    _settle(label, "control", what, good, f"{claim} is not proved to be nonzero, although a hypothesis was dropped")
    _report(label, "control", what)


def _is_truth(item):
    return isinstance(item, (bool, sp.logic.boolalg.BooleanAtom))


def _decide(label, what, item, test):
    """The truth of `item`, or of `test` (zero, nonzero) for expressions; anything else is not exact."""
    if _is_truth(item):
        return bool(item)
    if not isinstance(item, (sp.Basic, sp.MatrixBase, int)):
        raise CheckFailed(f"{label}: {what}: {type(item).__name__} is not exact; give sympy objects or a truth value")
    try:
        return test(item)
    except ValueError as error:
        raise CheckFailed(f"{label}: {what}: {error}") from None


def _tensor(label, value):
    try:
        # Not through float32, the default for Python numbers; complex numbers would lose their imaginary part.
        value = torch.as_tensor(value, dtype=None if isinstance(value, torch.Tensor) else torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckFailed(f"{label}: {type(value).__name__} is not a tensor, an array or a number: {error}") from None
    if value.is_complex():
        raise CheckFailed(f"{label}: complex numbers cannot be compared; give real and imaginary parts")
    return value.detach().to("cpu", torch.float64)


def _same_shape(label, *values):
    """All as tensors; shapes must agree, single numbers apart, so that nothing is compared by broadcasting."""
    tensors = [_tensor(label, value) for value in values]
    shapes = {tuple(t.shape) for t in tensors if t.ndim}
    if len(shapes) > 1:
        raise CheckFailed(f"{label}: shapes {' and '.join(map(str, sorted(shapes)))} cannot be compared")
    return tensors


def _largest(gap):
    return f"{float(gap.max()):.3e}" if gap.numel() else "(nothing compared)"


def _settle(label, kind, what, good, why):
    if not re.fullmatch(r"[^\s|]+", label) or not re.fullmatch(r"[^|\n]*[^|\s][^|\n]*", what):
        raise CheckFailed(f"{label!r}, {what!r}: a label without spaces and a line of text, both without '|', are required")
    if not good:
        raise CheckFailed(f"{label} ({kind}): {what}: {why}")


def _report(label, kind, what):
    verdict = "fails, as it must" if kind == "control" else "holds"
    print(f"check {label} | {kind} | {what} | {verdict}")
