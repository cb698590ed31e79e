"""Random features, projections, echo states, input gradients: theorems against measurements."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from icfgd.kernels import kernel
from icfgd.processes import Labels
from icfgd.reservoirs import echo, features, gradients, projections
from icfgd.transformer import Transformer


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Random features


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("kind", [features.FourierFeatures, features.ReLUFeatures])
def test_features_have_their_kernel_as_mean(kind, orthogonal):
    X = noise(6, 4)
    X = X / X.norm(dim=-1, keepdim=True)
    options = {"width": 1.3} if kind is features.FourierFeatures else {}
    grams = torch.stack(
        [
            features.FeatureKernel(
                kind(4, 16, torch.Generator().manual_seed(s), orthogonal=orthogonal, **options)
            ).gram(X)
            for s in range(400)
        ]
    )
    want = kernel("gaussian", width=1.3).gram(X) if options else kernel("arccosine").gram(X)
    error = (grams.mean(0) - want).abs()
    assert (error <= 5 * grams.std(0) / 20 + 1e-9).all()
    if options:
        assert torch.allclose(torch.diagonal(grams, dim1=1, dim2=2), torch.ones(1, dtype=X.dtype))


def test_orthogonal_frequencies_and_their_smaller_error():
    W = features.frequencies(5, 12, torch.Generator().manual_seed(0), orthogonal=True)
    assert W.shape == (12, 5)
    for block in W.split(5):
        G = block @ block.T
        assert (G - torch.diag(torch.diagonal(G))).abs().max() < 1e-10
    X = noise(40, 5)
    X = X / X.norm(dim=-1, keepdim=True)

    def rms(orthogonal, count=20):
        return sum(
            features.root_mean_square_error(
                features.FourierFeatures(5, count, torch.Generator().manual_seed(s), 2**0.5, orthogonal), X
            ).square()
            for s in range(20)
        ).sqrt()

    assert rms(True) < 0.75 * rms(False)
    ratio = rms(False, 20) / rms(False, 80)
    assert 1.6 < ratio < 2.5  # D^(-1/2): a factor 2


def test_feature_kernel_is_linear_attention_of_the_in_context_transformer():
    phi = features.FourierFeatures(3, 8, torch.Generator().manual_seed(0))
    head = features.FeatureKernel(phi, scale=1.5)
    model = Transformer(3, 2, [head])
    with torch.no_grad():
        model.r.copy_(torch.tensor([[0.1], [0.2]], dtype=torch.float64))
    X, y = noise(4, 7, 3), noise(4, 7, seed=1)
    f = phi(X)
    slots = torch.cat([y[:, :6], torch.zeros(4, 1, dtype=y.dtype)], 1).unsqueeze(-1)
    for r in (0.1, 0.2):
        slots = slots - 1.5 * r * features.linear_attention(f, f[:, :6], slots[:, :6])
    assert torch.allclose(model(X, y), -slots[:, 6], rtol=1e-10, atol=1e-13)
    assert torch.allclose(Labels(head).second_moment(X), head.gram(X))


def test_causal_linear_attention():
    q, k, v = noise(2, 6, 4), noise(2, 6, 4, seed=1), noise(2, 6, 3, seed=2)
    weights = torch.tril(q @ k.mT)
    assert torch.allclose(features.linear_attention(q, k, v, causal=True), weights @ v)
    assert torch.allclose(features.linear_attention(q, k, v), q @ k.mT @ v)
    with pytest.raises(ValueError, match="queries"):
        features.linear_attention(q[:, :4], k, v, causal=True)
    with pytest.raises(ValueError, match="keys"):
        features.linear_attention(q, k[..., :2], v)
    with pytest.raises(ValueError, match="values"):
        features.linear_attention(q, k, v * math.nan)


@pytest.mark.parametrize(
    "call",
    [
        lambda g: features.FourierFeatures(0, 4, g),
        lambda g: features.FourierFeatures(3, 0, g),
        lambda g: features.FourierFeatures(3, 4, g, width=0.0),
        lambda g: features.ReLUFeatures(3, -1, g),
        lambda g: features.FeatureKernel(None, scale=-1.0),
    ],
)
def test_features_refuse_nonsense(call):
    with pytest.raises(ValueError):
        call(torch.Generator())


# Johnson-Lindenstrauss and Cover


def test_numbers_of_johnson_and_lindenstrauss():
    assert projections.jl_dimension(1000, 0.2) == math.ceil(4 * math.log(1000) / (0.02 - 0.008 / 3))
    assert 0.37 < projections.jl_epsilon(1000, 512) < 0.39
    m = projections.jl_dimension(50, 0.5)
    assert projections.jl_epsilon(50, m) <= 0.5 < projections.jl_epsilon(50, m - 1)
    assert projections.jl_epsilon(1000, 5) is None
    X = noise(30, 40)
    Q = torch.linalg.qr(noise(40, 40, seed=1))[0]
    assert projections.distortion(X, X @ Q) < 1e-12
    assert projections.distortion(X, 2 * X) == pytest.approx(3)
    for call in (
        lambda: projections.jl_dimension(1, 0.1),
        lambda: projections.jl_dimension(10, 0.0),
        lambda: projections.jl_dimension(10, 1.5),
        lambda: projections.distortion(X, X[:5]),
        lambda: projections.distortion(torch.zeros(3, 2), torch.zeros(3, 2)),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("N, D", [(4, 2), (6, 3), (7, 3), (7, 4), (5, 5), (5, 1)])
def test_dichotomies_are_counted_as_cover_says(N, D):
    X = noise(N, D, seed=N + D).numpy()
    found = projections.dichotomies(X)
    assert len(found) == projections.cover_count(N, D)
    rng = np.random.default_rng(0)
    for signs in list(found)[:10]:
        assert projections.separable(X, signs)
    for signs in rng.choice([-1, 1], size=(20, N)):
        assert projections.separable(X, signs) == (tuple(signs.tolist()) in found)


def test_cover_counts_at_its_corners():
    assert projections.cover_count(6, 6) == 2**6
    assert projections.cover_count(8, 4) == 2**7
    with pytest.raises(ValueError, match="general position"):
        projections.dichotomies([[1, 0], [2, 0], [0, 1]])
    with pytest.raises(ValueError):
        projections.cover_count(0, 1)
    with pytest.raises(ValueError, match="X"):
        projections.dichotomies([[1.0, math.nan]])
    with pytest.raises(ValueError, match="signs"):
        projections.separable([[1.0], [2.0]], [1, 2])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), N=st.integers(2, 24), D=st.integers(1, 10))
def test_separable_agrees_with_linear_programming(seed, N, D):
    rng = np.random.default_rng(seed)
    X, signs = rng.normal(size=(N, D)), rng.choice([-1.0, 1.0], N)
    program = linprog(np.zeros(D), A_ub=-(signs[:, None] * X), b_ub=-np.ones(N), bounds=(None, None))
    assert projections.separable(X, signs) == (program.status == 0)


# Echo states and input gradients


def test_echo_state_forgets_and_has_its_radius():
    net = echo.EchoState(2, 30, torch.Generator().manual_seed(0), radius=0.8)
    assert float(echo.spectral_radius(net.W)) == pytest.approx(0.8, rel=1e-9)
    x = noise(60, 2)
    gap = (net.run(x, noise(30)) - net.run(x)).norm(dim=-1)
    assert gap[-1] < 1e-3 * gap[0]
    wild = echo.EchoState(2, 30, torch.Generator().manual_seed(0), radius=3.0, input_scale=0.1)
    assert (wild.run(x, noise(30)) - wild.run(x)).norm(dim=-1)[-1] > 0.1
    small = echo.scaled(net.W, 0.1)
    step = small @ noise(30)
    assert torch.linalg.matrix_norm(small, 2) >= 0.1 - 1e-12
    assert step.shape == (30,)


def test_ridge_readout_recovers_a_linear_map_of_the_states():
    net = echo.EchoState(1, 20, torch.Generator().manual_seed(0))
    S = net.run(noise(200, 1))
    A = noise(20, 2, seed=4)
    assert torch.allclose(S @ echo.ridge(S, S @ A, 1e-10), S @ A, atol=1e-6)
    for call in (
        lambda: echo.scaled(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), 0.9),
        lambda: echo.spectral_radius(S),
        lambda: echo.EchoState(0, 3, torch.Generator()),
        lambda: net.run(noise(5, 3)),
        lambda: echo.ridge(S, noise(3, 1)),
        lambda: echo.ridge(S, S, -1.0),
    ):
        with pytest.raises(ValueError):
            call()


def test_input_gradient_and_sign_step():
    w, x = noise(5), noise(3, 5, seed=1)
    loss = lambda z: (z @ w).sin().sum()  # noqa: E731
    want = (x @ w).cos()[:, None] * w
    assert torch.allclose(gradients.input_gradient(loss, x), want)
    moved = gradients.fast_gradient_sign(loss, x, 0.01)
    assert torch.allclose(moved, x + 0.01 * want.sign())
    assert loss(moved) > loss(x)
    assert torch.equal(gradients.fast_gradient_sign(loss, x, 0.0), x)
    deltas = gradients.cotangents([lambda z: 2 * z, torch.sin], x, lambda z: z.sum())
    assert torch.allclose(deltas[0], 2 * (2 * x).cos())
    assert torch.allclose(deltas[2], torch.ones_like(x))
    with pytest.raises(ValueError, match="epsilon"):
        gradients.fast_gradient_sign(loss, x, -0.1)
