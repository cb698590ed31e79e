"""Checks that tie an executed cell to a numbered statement of the book.

Each function compares, prints one line `check <label> | <kind> | <what> | <verdict>` and raises `CheckFailed` otherwise.
The verdict is `holds`; of a negative control, whose claim must break, it is `fails, as it must`. The line never holds a measured error, so that it is the same on every machine; the book collects the lines into its ledger.
Deciding which statements exist is the book's business, not this room's.
"""

import sympy as sp
import torch

from icfgd.symbolic import is_zero


class CheckFailed(AssertionError):
    """A statement of the book did not survive its check."""


def exact(label, what, claim):
    """`claim` is a truth value, or sympy expressions or matrices (one, or a list) that must be identically zero."""
    items = claim if isinstance(claim, (list, tuple)) else [claim]
    if not items:
        raise CheckFailed(f"{label}: {what}: nothing to check")
    for item in items:
        if isinstance(item, (bool, sp.logic.boolalg.BooleanAtom)):
            good = bool(item)
        elif isinstance(item, (sp.Basic, sp.MatrixBase, int)):
            good = is_zero(item)
        else:
            raise CheckFailed(f"{label}: {what}: {type(item).__name__} is not exact; give sympy objects or a truth value")
        _settle(label, "exact", what, good, f"{item} is not zero")
    _report(label, "exact", what)


def close(label, what, got, want, atol=1e-11, rtol=1e-9):
    """`got` equals `want` entrywise within atol + rtol |want| (tensors, arrays or numbers; both finite)."""
    got, want = _pair(label, got, want)
    gap = (got - want).abs()
    good = bool(torch.isfinite(gap).all() and (gap <= atol + rtol * want.abs()).all()) and gap.numel() > 0
    _settle(label, "numeric", what, good, f"largest difference {_largest(gap)}, allowed {atol} + {rtol} |want|")
    _report(label, "numeric", what)


def below(label, what, value, bound, slack=1e-10):
    """`value` <= `bound` + slack entrywise (both finite)."""
    value, bound = _pair(label, value, bound)
    gap = value - bound
    good = bool(torch.isfinite(gap).all() and (gap <= slack).all()) and gap.numel() > 0
    _settle(label, "bound", what, good, f"exceeded by {_largest(gap)}")
    _report(label, "bound", what)


def montecarlo(label, what, mean, stderr, want, z=4.5):
    """Sample means with standard errors `stderr` lie within z standard errors of `want`; all stderr must be positive."""
    mean, stderr, want = _tensor(mean), _tensor(stderr), _tensor(want)
    score = ((mean - want) / stderr).abs()
    good = bool((stderr > 0).all() and torch.isfinite(score).all() and (score < z).all()) and score.numel() > 0
    _settle(label, "monte carlo", what, good, f"largest z-score {_largest(score)}, allowed {z}")
    _report(label, "monte carlo", what)


def fails(label, what, got, want, at_least):
    """Negative control: `got` must differ from `want` by at least `at_least` somewhere (a hypothesis was dropped)."""
    got, want = _pair(label, got, want)
    gap = (got - want).abs()
    good = bool(gap.numel() and gap.max() >= at_least)  # NaN compares false, so a broken control does not pass
    _settle(label, "control", what, good, f"differs by {_largest(gap)} only, at least {at_least} expected")
    _report(label, "control", what)


def refuted(label, what, claim):
    """Exact negative control: the sympy expression, matrix or truth value `claim` must not be zero (or true)."""
    zero = bool(claim) if isinstance(claim, (bool, sp.logic.boolalg.BooleanAtom)) else is_zero(claim)
    _settle(label, "control", what, not zero, "holds, although a hypothesis was dropped")
    _report(label, "control", what)


def _tensor(value):
    return torch.as_tensor(value, dtype=torch.float64).detach()  # the dtype spares Python numbers a detour via float32


def _pair(label, got, want):
    """Both as tensors; shapes must agree unless one is a single number, so that nothing is compared by broadcasting."""
    got, want = _tensor(got), _tensor(want)
    if got.shape != want.shape and got.ndim and want.ndim:
        raise CheckFailed(f"{label}: shapes {tuple(got.shape)} and {tuple(want.shape)} cannot be compared")
    return got, want


def _largest(gap):
    return f"{float(gap.max()):.3e}" if gap.numel() else "(nothing compared)"


def _settle(label, kind, what, good, why):
    if "|" in label + what or not label or not what:
        raise CheckFailed(f"{label!r}, {what!r}: a label and a description without '|' are required")
    if not good:
        raise CheckFailed(f"{label} ({kind}): {what}: {why}")


def _report(label, kind, what):
    verdict = "fails, as it must" if kind == "control" else "holds"
    print(f"check {label} | {kind} | {what} | {verdict}")
