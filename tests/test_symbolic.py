"""Our printer from sympy to arrays, against sympy's own numbers, and the algebra that proofs use."""

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icfgd.symbolic import (
    REFLECTION,
    is_zero,
    numpy_function,
    rotation,
    symbolic_prompt,
    symmetric_function,
    torch_function,
)

x, y = sp.symbols("x y", real=True)
POINTS = [(-1.3, 0.4), (0.25, -0.9), (0.7, 0.6), (2.5, -3.0)]
FORMULAS = [
    sp.Max(0, x), sp.Max(x, y), sp.Max(x, y, sp.Rational(1, 3)), sp.Min(x, 1), sp.Min(x, y, 0), sp.Max(sp.Min(x, 1), -1),
    sp.Heaviside(x - y), sp.Abs(x - y), sp.exp(-x * y), sp.log(x**2 + 1), sp.sin(x) + sp.cos(y) * sp.tan(x / 4),
    sp.acos(sp.tanh(x)), sp.asin(sp.tanh(y)), sp.sinh(x) * sp.cosh(y), sp.erf(x), sp.sqrt(x**2 + y**2),
    1 / sp.sqrt(x**2 + 2), x**2 / (1 + y**2), (x**2 + 1) ** sp.Rational(3, 2), x**-3, sp.pi * x + sp.E, sp.sqrt(2) * x - y,
    sp.Rational(1, 7) * x**5, -x, sp.Integer(3), sp.Rational(2, 3), sp.pi, sp.exp(sp.Rational(1, 3)) * x + sp.acos(sp.Rational(1, 3)),
]


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_torch_and_numpy_give_sympys_numbers(formula):
    want = [float(formula.subs({x: a, y: b}).evalf()) for a, b in POINTS]
    columns = np.array(POINTS).T
    np.testing.assert_allclose(numpy_function(formula, (x, y))(*columns), want, rtol=1e-12, atol=1e-13)
    got = torch_function(formula, (x, y))(*torch.tensor(columns))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-13)
    assert got.dtype == torch.float64


@pytest.mark.parametrize("formula", [f for f in FORMULAS if not f.has(sp.Heaviside)], ids=str)
def test_derivatives_of_formulas_agree_with_automatic_ones(formula):
    a, b = torch.tensor(POINTS, dtype=torch.float64).T.clone().requires_grad_().unbind()
    value = torch_function(formula, (x, y))(a, b)
    slope = sp.diff(formula, x)
    got = torch.autograd.grad(value.sum(), a, allow_unused=True)[0] if value.requires_grad else None
    got = torch.zeros(4, dtype=torch.float64) if got is None else got
    torch.testing.assert_close(torch_function(slope, (x, y))(a.detach(), b.detach()), got, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("formula", [sp.Integer(3), sp.pi, sp.Rational(1, 3), x, x + y, sp.Max(0, y)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_broadcast_shape_and_dtype(formula, dtype):
    got = torch_function(formula, (x, y))(torch.ones(2, 3, 1, dtype=dtype), torch.ones(4, dtype=dtype))
    assert got.shape == (2, 3, 4)
    assert got.dtype == dtype
    assert numpy_function(formula, (x, y))(np.ones((2, 3, 1)), np.ones(4)).shape == (2, 3, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_acos_is_finite_at_and_beyond_the_end_points(dtype):
    values = torch.tensor([1.0, -1.0, 1 + 1e-6, -1 - 1e-6, 0.5], dtype=dtype, requires_grad=True)
    got = torch_function(sp.acos(x), (x,))(values)
    got.sum().backward()
    torch.testing.assert_close(got.detach(), torch.tensor([0, torch.pi, 0, torch.pi, torch.pi / 3], dtype=dtype), atol=1e-3, rtol=1e-6)
    assert torch.isfinite(values.grad).all()
    np.testing.assert_allclose(numpy_function(sp.acos(x), (x,))(np.array([1 + 1e-12, -1 - 1e-12])), [0, np.pi])


def test_heaviside_is_zero_at_zero_and_max_has_slope_zero_there():
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    assert float(torch_function(sp.Heaviside(x), (x,))(zero.detach())) == 0
    assert float(numpy_function(sp.Heaviside(x), (x,))(np.zeros(1))[0]) == 0
    for formula in (sp.Max(0, x), sp.Max(x, 0) ** 1, 2 * sp.Max(x, 0)):
        assert float(torch.autograd.grad(torch_function(formula, (x,))(zero).sum(), zero)[0]) == 0


@given(st.integers(-3, 3), st.integers(1, 4), st.floats(-2, 2), st.floats(-2, 2))
@settings(max_examples=40, deadline=None)
def test_random_polynomials(a, power, u, v):
    formula = a * x**power + sp.Rational(a, 7) * x * y - sp.Max(x, y) / 3
    want = float(formula.subs({x: u, y: v}).evalf())
    got = torch_function(formula, (x, y))(torch.tensor(u, dtype=torch.float64), torch.tensor(v, dtype=torch.float64))
    assert abs(float(got) - want) < 1e-12 * (1 + abs(want)) * 10
    assert abs(float(numpy_function(formula, (x, y))(u, v)) - want) < 1e-12 * (1 + abs(want)) * 10


@pytest.mark.parametrize("compile_", [torch_function, numpy_function])
def test_what_cannot_be_translated_is_named(compile_):
    with pytest.raises(ValueError, match="free symbols y; only x"):
        compile_(x * y, (x,))
    with pytest.raises(ValueError, match="gamma"):
        compile_(sp.gamma(x), (x,))
    with pytest.raises(ValueError, match="DiracDelta"):
        compile_(sp.diff(sp.Max(0, x), x, 2), (x,))


def test_rotation_and_reflection_are_orthogonal():
    R = rotation(x)
    assert is_zero(R.T * R - sp.eye(2))
    assert is_zero(R.det() - 1)
    assert is_zero(rotation(x) * rotation(y) - rotation(x + y))
    assert REFLECTION.det() == -1
    assert REFLECTION * REFLECTION == sp.eye(2)


def test_symmetric_function_forgets_the_order_and_nothing_else():
    K = symmetric_function("K")
    a, b, c = sp.symbols("a b c")
    assert K(a, b) == K(b, a)
    assert K(a, b) != K(a, c)
    assert K(a + b, 1) == K(1, a + b)
    assert symmetric_function("L")(a, b) != K(a, b)


def test_symbolic_prompts_have_one_real_symbol_per_entry():
    X = symbolic_prompt(2, 3)
    assert X.shape == (2, 3)
    assert len(X.free_symbols) == 6
    assert all(s.is_real for s in X)
    assert not X.free_symbols & symbolic_prompt(2, 3, "z").free_symbols


def test_is_zero_knows_identities_and_is_not_fooled():
    assert is_zero(sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1)
    assert is_zero(sp.Matrix([[(x + y) ** 2 - x**2 - 2 * x * y - y**2, 0]]))
    assert is_zero(0)
    assert not is_zero(sp.Matrix([[0, sp.Rational(1, 10**12)]]))
    assert not is_zero(x - y)
