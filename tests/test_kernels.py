"""Every kernel is one formula: sympy, numpy and torch agree in value and in slope, and edge cases stay finite."""

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from icfgd.device import generator
from icfgd.kernels import (
    ACTIVATIONS,
    INNER,
    KERNELS,
    LEFT,
    RIGHT,
    Kernel,
    absolute,
    activation,
    composite,
    kernel,
)
from icfgd.symbolic import numpy_function, torch_function

VARIANTS = [*((name, {}) for name in KERNELS), ("exponential", {"scale": 0.5}), ("gaussian", {"width": 2.0}),
            ("polynomial", {"degree": 2})]
IDS = ["-".join([name, *map(str, options.values())]) for name, options in VARIANTS]
each = pytest.mark.parametrize("name,options", VARIANTS, ids=IDS)


def tokens(count=4, d=3, seed=0, dtype=torch.float64, batch=()):
    return torch.randn(*batch, count, d, generator=generator(seed), dtype=torch.float64).to(dtype)


def by_hand(name, u, v, options):
    s, p, q = u @ v, u @ u, v @ v
    angle = np.arccos(np.clip(s / np.sqrt(p * q), -1, 1))
    return {
        "linear": s,
        "relu": max(s, 0.0),
        "exponential": np.exp(s / options.get("scale", 1.0)),
        "gaussian": np.exp(-((u - v) @ (u - v)) / (2 * options.get("width", 1.0) ** 2)),
        "arccosine": np.sqrt(p * q) * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi),
        "polynomial": s ** options.get("degree", 3),
    }[name]


@each
def test_values_are_those_of_the_formula_written_by_hand(name, options):
    U, W = tokens(3).numpy(), tokens(4, seed=1).numpy()
    want = np.array([[by_hand(name, u, w, options) for w in W] for u in U])
    k = kernel(name, **options)
    np.testing.assert_allclose(k.matrix(U, W), want, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(k.matrix(torch.tensor(U), torch.tensor(W)).numpy(), want, rtol=1e-11, atol=1e-13)


@each
def test_sympy_numpy_and_torch_agree(name, options):
    U, W = tokens(2, 2), tokens(3, 2, seed=1)
    k = kernel(name, **options)
    exact = [[float(k.symbolic(u.tolist(), w.tolist())) for w in W] for u in U]
    torch.testing.assert_close(k.matrix(U, W), torch.tensor(exact, dtype=torch.float64), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(k.matrix(U.numpy(), W.numpy()), exact, rtol=1e-11, atol=1e-12)


@each
@pytest.mark.parametrize("symbol", [INNER, LEFT, RIGHT], ids=str)
def test_derivatives_agree(name, options, symbol):
    """d/ds, d/dp, d/dq: sympy's derivative compiled both ways, and torch's automatic one."""
    expression = kernel(name, **options).expression
    arguments = (INNER, LEFT, RIGHT)
    values = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([-0.7, 0.3, 0.9], [1.0, 2.0, 1.5], [3.0, 0.5, 1.2])]
    torch_function(expression, arguments)(*values).sum().backward()
    automatic = values[arguments.index(symbol)].grad
    automatic = torch.zeros(3, dtype=torch.float64) if automatic is None else automatic
    slope = sp.diff(expression, symbol)
    plain = [v.detach() for v in values]
    torch.testing.assert_close(torch_function(slope, arguments)(*plain), automatic, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(numpy_function(slope, arguments)(*(v.numpy() for v in plain)), automatic, rtol=1e-10, atol=1e-12)


def test_relu_has_value_and_slope_zero_at_zero():
    slope = sp.diff(kernel("relu").expression, INNER)
    zero = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    torch_function(kernel("relu").expression, (INNER,))(zero).sum().backward()
    assert zero.grad.tolist() == [0.0, 0.0] == torch_function(slope, (INNER,))(zero.detach()).tolist()
    assert numpy_function(slope, (INNER,))(np.zeros(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", KERNELS)
def test_coincident_and_opposite_points_are_finite(name, dtype):
    x = tokens(3, dtype=dtype, seed=4)
    X = torch.cat([x, x, -x, 3 * x]).requires_grad_()
    gram = kernel(name).gram(X)
    gram.sum().backward()
    assert gram.dtype == dtype
    assert torch.isfinite(gram).all()
    assert torch.isfinite(X.grad).all()
    assert gram.shape == (12, 12)
    assert np.isfinite(kernel(name).gram(X.detach().numpy())).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", KERNELS)
def test_the_zero_vector_has_its_limit_and_finite_slopes(name, dtype):
    X = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0]], dtype=dtype, requires_grad=True)
    gram = kernel(name).gram(X)
    gram.sum().backward()
    assert torch.isfinite(X.grad).all()
    near = kernel(name).gram(X.detach() + torch.tensor([[1e-7], [0.0], [0.0]], dtype=dtype))
    torch.testing.assert_close(gram.detach(), near, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel(name).gram(X.detach().double().numpy()), gram.detach(), rtol=1e-5, atol=1e-15)
    assert abs(float(kernel(name).symbolic([0, 0], [1, 2])) - float(gram[0, 1].detach())) < 1e-6


def test_arccosine_on_the_diagonal_is_half_the_squared_norm():
    X = tokens(5)
    torch.testing.assert_close(torch.diagonal(kernel("arccosine").gram(X)), (X * X).sum(-1) / 2)


@pytest.mark.parametrize("angle", [0.3, 1.7, 3.0])
def test_arccosine_is_the_mean_of_relu_features(angle):
    """In the plane, w = r (cos t, sin t) with E r^2 = 2 and t uniform: one integral over the angle."""
    u, v = np.array([1.0, 0.0]), 2 * np.array([np.cos(angle), np.sin(angle)])
    mean = quad(lambda t: 2 * np.cos(t) * 2 * np.cos(t - angle) / (2 * np.pi), angle - np.pi / 2, np.pi / 2)[0]
    np.testing.assert_allclose(kernel("arccosine").matrix(u[None], v[None])[0, 0], mean, atol=1e-8)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_float32_stays_float32_and_near_float64(name):
    h, X = activation(name), tokens(4)
    got = h.weights(X[:3].float(), X.float())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), h.weights(X[:3], X), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_batches_are_rows_of_the_same_thing(name):
    h, X = activation(name), tokens(5, batch=(2, 3))
    batch = h.weights(X[..., :4, :], X)
    assert batch.shape == (2, 3, 4, 5)
    torch.testing.assert_close(batch[1, 2], h.weights(X[1, 2, :4], X[1, 2]))
    np.testing.assert_allclose(h.weights(X[..., :4, :].numpy(), X.numpy()), batch, rtol=1e-9)


@pytest.mark.parametrize("size", [1.0, 30.0, 1e3])
def test_softmax_neither_overflows_nor_depends_on_a_shift(size):
    X = tokens(5) * size
    for weights in (activation("softmax").weights(X[:4], X), torch.tensor(activation("softmax").weights(X[:4].numpy(), X.numpy()))):
        torch.testing.assert_close(weights.sum(-2), torch.ones(5, dtype=torch.float64))
    assert activation("softmax").latex() == kernel("exponential").latex()
    assert activation("softmax").normalised
    assert not kernel("exponential").normalised


@given(st.integers(0, 10**6), st.sampled_from([n for n in KERNELS if kernel(n).semidefinite]), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_semidefinite_kernels_are_and_gram_matrices_symmetric(seed, name, count):
    gram = kernel(name).gram(tokens(count, 2, seed))
    torch.testing.assert_close(gram, gram.mT)
    values = torch.linalg.eigvalsh(gram)
    assert values[0] >= -1e-10 * max(1.0, float(values[-1]))


def octagon():
    angles = torch.arange(8, dtype=torch.float64) * torch.pi / 4
    return torch.stack([angles.cos(), angles.sin()], -1)


def test_relu_is_not_semidefinite():
    gram = kernel("relu").gram(octagon())  # circulant: smallest eigenvalue 1 - 2 cos(pi/4)
    torch.testing.assert_close(float(torch.linalg.eigvalsh(gram)[0]), 1 - 2**0.5)
    assert not kernel("relu").semidefinite


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_absolute_is_the_semidefinite_root_of_the_square(seed, size):
    K = tokens(size, size, seed)
    K = K + K.mT
    root = absolute(K)
    torch.testing.assert_close(root @ root, K @ K, rtol=1e-9, atol=1e-9)
    assert torch.linalg.eigvalsh(root)[0] >= -1e-9
    torch.testing.assert_close(absolute(-K), root)
    torch.testing.assert_close(absolute(root), root, rtol=1e-7, atol=1e-8)


def test_the_absolute_value_of_a_block_is_not_the_block():
    K = kernel("relu").gram(octagon())
    assert (absolute(K)[:7, :7] - absolute(K[:7, :7])).abs().max() > 1e-2


def test_composite_is_the_weighted_sum_everywhere():
    U, W = tokens(3, 2), tokens(4, 2, seed=1)
    G = torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    row = [[0.5, 1.0]]
    k = composite([(0.5, "linear", G), (2.0, kernel("exponential"), None), (1.5, "arccosine", torch.eye(2)), (1, "linear", row)])
    tail = U @ torch.tensor(row, dtype=torch.float64).T @ (W @ torch.tensor(row, dtype=torch.float64).T).T
    want = 0.5 * U @ G.T @ G @ W.T + 2 * (U @ W.T).exp() + 1.5 * kernel("arccosine").matrix(U, W) + tail
    torch.testing.assert_close(k.matrix(U, W), want)
    torch.testing.assert_close(k.weights(U, W), want)
    np.testing.assert_allclose(k.matrix(U.numpy(), W.numpy()), want, rtol=1e-10)
    exact = [[float(k.symbolic(u.tolist(), w.tolist())) for w in W] for u in U]
    np.testing.assert_allclose(exact, want, rtol=1e-9)
    assert k.matrix(U.float(), W.float()).dtype == torch.float32
    assert k.semidefinite
    assert not composite([(-1.0, "linear", None)]).semidefinite
    assert not composite([(1.0, "relu", None)]).semidefinite
    assert "G_{1}u" in k.latex()
    assert [name for name, _ in k.parameters] == ["linear", "exponential", "arccosine", "linear"]


def test_ready_kernels_pass_through_and_keep_their_parameters():
    k = kernel("exponential", scale=2.0)
    assert kernel(k) is k
    assert activation(k) is k
    assert k.parameters == (("scale", 2.0),)
    assert sp.simplify(k.expression - sp.exp(INNER / 2)) == 0
    own = Kernel("tanh", sp.tanh(INNER), False)
    X = tokens(2)
    torch.testing.assert_close(own.gram(X), torch.tanh(X @ X.T))


@each
def test_latex_speaks_of_u_and_v_and_not_of_helpers(name, options):
    text = kernel(name, **options).latex()
    assert r"\langle u,v\rangle" in text or r"\lVert u" in text
    assert text.count("{") == text.count("}")
    assert not any(f" {letter} " in f" {text} " for letter in "spq")
