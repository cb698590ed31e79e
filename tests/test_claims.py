"""Checks of claims: what is true passes and prints one fixed line; what is false, broken or empty raises."""

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icfgd import claims
from icfgd.claims import CheckFailed, below, close, exact, fails, montecarlo, refuted

x, y = sp.symbols("x y", real=True)
k, m = sp.symbols("k m", integer=True, positive=True)
K = sp.Function("K")
NAN, INF = float("nan"), float("inf")
ONES = torch.ones(3, dtype=torch.float64)

TRUE = {
    "a truth value": (exact, (True,), "exact"),
    "zero": (exact, (0,), "exact"),
    "an identity": (exact, ((x + 1) ** 2 - x**2 - 2 * x - 1,), "exact"),
    "trigonometry": (exact, (sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1,), "exact"),
    "a matrix": (exact, (sp.Matrix([[x, 1], [0, 1]]) - sp.Matrix([[x, 1], [0, 1]]),), "exact"),
    "an array": (exact, (sp.Array([x - x, 0]),), "exact"),
    "a generic function": (exact, (K(x, y) - K(x, y),), "exact"),
    "a list": (exact, ([True, x - x, sp.zeros(2, 2), sp.true],), "exact"),
    "equal tensors": (close, (ONES, ONES + 1e-12), "numeric"),
    "a tensor and a number": (close, (ONES, 1.0), "numeric"),
    "an array and a list": (close, (np.array([1.0, 2.0]), [1, 2]), "numeric"),
    "float32": (close, (ONES.float() / 3, ONES / 3, 1e-6), "numeric"),
    "a gradient": (close, (ONES.clone().requires_grad_(), ONES), "numeric"),
    "a relative tolerance": (close, (1e9 * ONES, 1e9 * ONES + 0.5), "numeric"),
    "a bound": (below, (ONES, ONES), "bound"),
    "a bound with slack": (below, (1 + 1e-11, 1), "bound"),
    "a bound with a distance": (below, (0.5, 1, -0.1), "bound"),
    "a mean": (montecarlo, (ONES + 0.1, 0.1 * ONES, ONES), "monte carlo"),
    "a mean and numbers": (montecarlo, (1.0, 0.5, 2.0), "monte carlo"),
    "a control": (fails, (ONES, torch.tensor([1.0, 1.0, 2.0]), 0.5), "control"),
    "a nonzero expression": (refuted, ((x + 1) ** 2 - x**2 - 2 * x,), "control"),
    "a matrix with one nonzero entry": (refuted, (sp.Matrix([[0, K(x) - K(y)]]),), "control"),
    "a falsehood": (refuted, (False,), "control"),
    "integers": (refuted, (k - m,), "control"),
}
FALSE = {
    "falsehood": (exact, (False,)),
    "one": (exact, (1,)),
    "not an identity": (exact, ((x + 1) ** 2 - x**2 - 1,)),
    "one false of many": (exact, ([True, x - x, x],)),
    "a matrix with a nonzero entry": (exact, (sp.Matrix([[0, x]]),)),
    "not a number, exactly": (exact, (sp.nan,)),
    "complex infinity": (exact, (sp.zoo,)),
    "nothing": (exact, ([],)),
    "an empty matrix": (exact, (sp.Matrix(0, 0, []),)),
    "an empty matrix in a list": (exact, ([True, sp.Matrix(0, 3, [])],)),
    "an equation": (exact, (sp.Eq(x, y),)),
    "a float": (exact, (0.0,)),
    "a sympy float": (exact, (sp.Float(0),)),
    "a text": (exact, ("0",)),
    "a tensor": (exact, (torch.zeros(1),)),
    "a numpy truth": (exact, (np.bool_(True),)),
    "None": (exact, (None,)),
    "different tensors": (close, (ONES, ONES + 1e-6)),
    "NaN": (close, (NAN * ONES, ONES)),
    "NaN twice": (close, (NAN, NAN)),
    "infinity": (close, (INF * ONES, INF * ONES)),
    "an infinite tolerance by size": (close, (1.0, INF)),
    "empty": (close, ([], [])),
    "an empty batch": (close, (ONES[:0], 1.0)),
    "other shapes": (close, (ONES, ONES[:, None])),
    "other lengths": (close, (ONES, ONES[:2])),
    "complex": (close, (ONES + 0j, ONES)),
    "words": (close, ("one", 1)),
    "above the bound": (below, (ONES + 1e-6, ONES)),
    "a bound too near": (below, (0.95, 1, -0.1)),
    "NaN below": (below, (NAN, 1.0)),
    "minus infinity": (below, (-INF, 1.0)),
    "below infinity": (below, (1.0, INF)),
    "an empty bound": (below, ([], 1.0)),
    "bounds of another shape": (below, (ONES, ONES[:, None])),
    "five standard errors": (montecarlo, (ONES, 0.1 * ONES, ONES + 0.5)),
    "no standard error": (montecarlo, (ONES, 0 * ONES, ONES)),
    "a negative standard error": (montecarlo, (1.0, -1.0, 1.0)),
    "NaN as standard error": (montecarlo, (1.0, NAN, 1.0)),
    "NaN as mean": (montecarlo, (NAN, 1.0, 1.0)),
    "an infinite standard error": (montecarlo, (1.0, INF, NAN)),
    "empty means": (montecarlo, ([], [], [])),
    "means of another shape": (montecarlo, (ONES, ONES[:, None], ONES)),
    "a control that holds": (fails, (ONES, ONES + 1e-3, 0.5)),
    "a broken control": (fails, (NAN, 1.0, 0.5)),
    "a control that diverged": (fails, (INF, 1.0, 0.5)),
    "a control with one NaN": (fails, ([NAN, 3.0], [1.0, 1.0], 0.5)),
    "an empty control": (fails, ([], [], 0.5)),
    "zero is not refuted": (refuted, (0,)),
    "an identity is not refuted": (refuted, (sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1,)),
    "an identity that sympy does not see": (refuted, (sp.sqrt(3 + 2 * sp.sqrt(2)) - 1 - sp.sqrt(2),)),
    "truth is not refuted": (refuted, (True,)),
    "NaN is not refuted": (refuted, (sp.nan,)),
    "an equation is not refuted": (refuted, (sp.Eq(x, y),)),
    "an empty matrix is not refuted": (refuted, (sp.Matrix(0, 0, []),)),
    "a word is not refuted": (refuted, ("word",)),
    "a list is not refuted": (refuted, ([x],)),
}


@pytest.mark.parametrize("name", TRUE)
def test_a_true_claim_prints_one_fixed_line(name, capsys):
    check, arguments, kind = TRUE[name]
    check("thm-x", name, *arguments)
    verdict = "fails, as it must" if kind == "control" else "holds"
    assert capsys.readouterr().out == f"check thm-x | {kind} | {name} | {verdict}\n"


@pytest.mark.parametrize("name", FALSE)
def test_a_false_or_broken_claim_raises_and_prints_nothing(name, capsys):
    check, arguments = FALSE[name]
    with pytest.raises(CheckFailed, match="thm-x"):
        check("thm-x", name, *arguments)
    assert capsys.readouterr().out == ""


CALLS = {
    "exact": lambda label, what: exact(label, what, True),
    "close": lambda label, what: close(label, what, 1.0, 1.0),
    "below": lambda label, what: below(label, what, 0.0, 1.0),
    "montecarlo": lambda label, what: montecarlo(label, what, 1.0, 1.0, 1.0),
    "fails": lambda label, what: fails(label, what, 1.0, 2.0, 0.5),
    "refuted": lambda label, what: refuted(label, what, False),
}


@pytest.mark.parametrize("check", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "label, what",
    [("thm|x", "w"), ("thm-x", "a | b"), ("", "w"), ("thm-x", ""), ("thm-x", "  "), ("thm x", "w"), ("thm-x", "a\nb")],
)
def test_labels_that_would_break_the_ledger_are_refused(check, label, what, capsys):
    with pytest.raises(CheckFailed, match="without '|'"):
        check(label, what)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: close("thm-x", "w", 1, 1, atol=INF), "atol"),
        (lambda: close("thm-x", "w", 1, 1, rtol=-1), "rtol"),
        (lambda: below("thm-x", "w", 1, 1, slack=NAN), "slack"),
        (lambda: montecarlo("thm-x", "w", 1, 1, 1, z=INF), "z"),
        (lambda: montecarlo("thm-x", "w", 1, 1, 1, z=0), "z"),
        (lambda: fails("thm-x", "w", 1, 1, 0), "at_least"),
        (lambda: fails("thm-x", "w", 1, 1, NAN), "at_least"),
    ],
)
def test_tolerances_that_let_anything_through_are_refused(call, name):
    with pytest.raises(ValueError, match=f"{name} = "):
        call()


def test_a_failure_is_an_assertion_and_names_sizes():
    with pytest.raises(AssertionError, match=r"thm-x \(numeric\): w: largest difference 5.000e-01"):
        close("thm-x", "w", 1.5, 1.0)
    with pytest.raises(CheckFailed, match="exceeded by 5.000e-01"):
        below("thm-x", "w", 1.5, 1.0)
    with pytest.raises(CheckFailed, match="largest z-score 5.000e"):
        montecarlo("thm-x", "w", 1.5, 0.1, 1.0)
    with pytest.raises(CheckFailed, match="differs by 5.000e-01 only, at least 1"):
        fails("thm-x", "w", 1.5, 1.0, 1)
    with pytest.raises(CheckFailed, match="x is not zero"):
        exact("thm-x", "w", x)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
@settings(max_examples=100, deadline=None)
def test_close_and_its_control_exclude_each_other(got, want):
    def passes(check, *arguments):
        try:
            check("thm-x", "w", *arguments)
        except CheckFailed:
            return False
        return True

    assert passes(close, got, want, 1e-3, 0.0) == (abs(got - want) <= 1e-3)
    assert passes(fails, got, want, 1e-2) == (abs(got - want) >= 1e-2)
    assert passes(below, got, want) == (got - want <= 1e-10)


def test_nothing_measured_is_printed(capsys):
    close("thm-x", "w", 1 + 3e-12, 1)
    first = capsys.readouterr().out
    close("thm-x", "w", 1 - 7e-12, 1)
    assert capsys.readouterr().out == first


def test_all_checks_are_tested():
    public = {name for name, value in vars(claims).items() if callable(value) and value.__module__ == claims.__name__}
    assert {name for name in public if not name.startswith("_")} == {*CALLS, "CheckFailed"}
