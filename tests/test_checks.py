"""Checks of arguments: what is right passes through unchanged; what is wrong is named with its value and what is allowed."""

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icfgd import checks, device

X = torch.randn(2, 5, 3, generator=device.generator(0), dtype=torch.float64)
EYE = torch.eye(3, dtype=torch.float64)


def test_what_is_right_passes_through():
    assert checks.one_of("law", "sphere", ("sphere", "cube")) == "sphere"
    assert checks.integer("n", np.int64(3), low=3) == 3
    assert type(checks.integer("n", np.int64(3))) is int
    assert checks.number("r", np.float32(0.5)) == 0.5
    assert checks.number("r", sp.Rational(1, 2), low=0, high=0.5) == 0.5
    assert checks.finite("X", X) is X
    assert checks.finite("X", X[:0]).numel() == 0
    assert checks.shape("X", X, (5, None)) is X
    assert checks.shape("X", X, ()) is X
    assert checks.covariates("X", X, queries=2, d=3) == 3
    assert checks.labels("y", X[..., 0], 5).shape == (2, 5)
    assert checks.symmetric("M", EYE) is EYE
    assert checks.positive_semidefinite("M", EYE, strict=True) is EYE
    assert checks.positive_semidefinite("M", 0 * EYE).sum() == 0
    assert checks.alike(X=X, Y=X[0]) is None
    assert checks.batches(X=(2, 1), r=(3,)) == (2, 3)
    assert checks.floating("dtype", torch.float32) is torch.float32
    assert checks.overflow("K", X) is X
    g = device.generator(3)
    assert checks.generator("generator", g, X.device) is g
    checks.tokens(X, X[:1, :2])
    checks.finite_tokens(X.numpy(), np.ones((1, 3), dtype=int))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: checks.alike(A=X, y=X.float()), "y has dtype torch.float32; torch.float64, that of A"),
        (lambda: checks.alike(A=X, y=X.to("meta")), "y is on device meta; cpu, that of A"),
        (lambda: checks.batches(X=(2, 3), y=(4,)), r"batch shapes \(2, 3\) of X, \(4,\) of y .* must broadcast"),
        (lambda: checks.generator("generator", 3), "generator is int; a torch.Generator is required"),
        (lambda: checks.generator("generator", device.generator(0), torch.device("meta")), "generator is on device cpu; meta"),
        (lambda: checks.floating("dtype", torch.complex64), "dtype = torch.complex64; a floating-point"),
        (lambda: checks.floating("dtype", "float64"), "dtype = 'float64'"),
        (lambda: checks.tokens(X, X.numpy()), "W is ndarray beside a Tensor"),
        (lambda: checks.tokens(X.numpy(), X), "W is Tensor beside a ndarray"),
        (lambda: checks.tokens(X, X[0, 0]), r"W has shape \(3,\); tokens in rows"),
        (lambda: checks.tokens(X[:, :0], X), r"U has shape \(2, 0, 3\)"),
        (lambda: checks.tokens(X, X[..., :0]), r"W has shape \(2, 5, 0\)"),
        (lambda: checks.tokens(X, X[..., :2]), "W has vectors of size 2; 3, the size in U"),
        (lambda: checks.tokens(X, X[:1].expand(3, 5, 3)), r"batch shapes \(2,\) of U, \(3,\) of W"),
        (lambda: checks.finite_tokens(X, X / 0), "W has 30 entries that are not finite"),
        (lambda: checks.finite_tokens(X.numpy(), X.numpy() * np.nan), "W has entries that are not finite"),
        (lambda: checks.finite_tokens(X.numpy() + 0j, X.numpy()), "U has entries that are not finite real"),
        (lambda: checks.shape("X", [1.0], (1,)), "X is list; a torch tensor"),
        (lambda: checks.covariates("X", X[..., :0]), r"X has shape \(2, 5, 0\); vectors of size d >= 1"),
        (lambda: checks.symmetric("M", EYE[:0, :0]), r"M has shape \(0, 0\); square .* N >= 1"),
        (lambda: checks.positive_semidefinite("M", EYE[None][:0]), r"M has shape \(0, 3, 3\)"),
        (lambda: checks.number("r", sp.oo), "r = oo; a finite number"),
        (lambda: checks.number("r", 1 + 1j), r"r = \(1\+1j\)"),
        (lambda: checks.number("r", 3, low=0, high=2), "r = 3; a finite number at least 0 and at most 2"),
        (lambda: checks.number("r", torch.tensor(0.5)), "r = tensor"),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_overflow_is_an_arithmetic_error_that_counts():
    with pytest.raises(FloatingPointError, match="kernel k: 2 of 3 values are not finite"):
        checks.overflow("kernel k", torch.tensor([1.0, float("inf"), float("nan")]))


def test_labels_of_queries_may_be_unknown():
    y = torch.tensor([1.0, 2.0, float("nan")])
    assert checks.labels("y", y, 2) is y
    with pytest.raises(ValueError, match="y has 1 entries that are not finite"):
        checks.labels("y", y, 3)


@given(st.text(max_size=12))
@settings(max_examples=100, deadline=None)
def test_unknown_names_list_what_is_allowed_and_the_nearest(text):
    allowed = ("linear", "exponential")
    if text in allowed:
        return
    with pytest.raises(ValueError, match="Allowed: 'linear', 'exponential'") as caught:
        checks.one_of("name", text, allowed)
    assert f"name = {text!r} is unknown" in str(caught.value)


def test_the_nearest_name_is_suggested():
    with pytest.raises(ValueError, match="Did you mean 'exponential'"):
        checks.one_of("name", "exponental", ("linear", "exponential"))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        checks.one_of("name", ["linear"], ("linear",))
    assert "['linear'] is unknown" in str(caught.value)


@given(st.floats(1e-150, 1e150), st.booleans())
@settings(max_examples=60, deadline=None)
def test_tolerances_of_matrices_are_relative(scale, single):
    """A matrix is judged by its entries relative to the largest, in float32 and float64 alike."""
    dtype = torch.float32 if single else torch.float64
    if single:
        scale = min(max(scale, 1e-30), 1e30)
    M = (scale * torch.tensor([[2.0, 1.0], [1.0, 1.0]], dtype=torch.float64)).to(dtype)
    checks.positive_semidefinite("M", M, strict=True)
    skew = M.clone()
    skew[0, 1] *= 1.01
    with pytest.raises(ValueError, match="not symmetric"):
        checks.symmetric("M", skew)
    indefinite = M.clone()
    indefinite[1, 1] *= 0.49
    with pytest.raises(ValueError, match="smallest eigenvalue -"):
        checks.positive_semidefinite("M", indefinite)
    singular = M.clone()
    singular[1, 1] = singular[0, 1] / 2
    checks.positive_semidefinite("M", singular)
    with pytest.raises(ValueError, match="positive definite"):
        checks.positive_semidefinite("M", singular, strict=True)


def test_devices():
    assert device.default_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    a, b = (torch.randn(3, generator=device.generator(7)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, torch.randn(3, generator=device.generator(8)))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    torch.randn(3, generator=device.generator(7))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")
def test_generators_live_on_the_device_asked_for():
    g = device.generator(1, device.default_device())
    assert g.device.type == "cuda"
    with pytest.raises(ValueError, match="generator is on device cuda"):
        checks.generator("generator", g, torch.device("cpu"))
