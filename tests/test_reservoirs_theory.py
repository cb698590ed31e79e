"""Backskipping, features, projections, echo states, gradients, metrics, n-grams, clock."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from icfgd.kernels import kernel
from icfgd.processes import Labels
from icfgd.reservoirs import backskip, clock, echo, features, gradients, layers, metrics, ngram, projections
from icfgd.reservoirs.freezing import freeze
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.stack import Stack
from icfgd.transformer import Transformer


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reservoir(d=8):
    layer = layers.FeedForward(d, dtype=torch.float64)
    return freeze(layer.initialise(private_generator(3), orthogonal=True))


# Backskipping


def test_straight_through_and_stop_have_the_exact_value_and_their_own_gradient():
    layer, delta = reservoir(), noise(2, 5, 8, seed=1)
    found = {}
    for name, call in {"exact": lambda z: layer(z), "st": lambda z: backskip.straight_through(layer, z),
                       "stop": lambda z: backskip.stop(layer, z)}.items():
        x = noise(2, 5, 8).requires_grad_(True)
        y = call(x)
        if name != "stop":
            y.backward(delta)
        found[name] = (y, x.grad)
    assert torch.allclose(found["st"][0], found["exact"][0], rtol=0, atol=1e-14)
    assert torch.equal(found["stop"][0], found["exact"][0])
    assert torch.equal(found["st"][1], delta)
    assert (found["exact"][1] - delta).abs().max() > 0.01
    assert not found["stop"][0].requires_grad


def test_cotangents_obey_the_contraction_bound():
    """|delta (I + Dg) - delta| <= q |delta| and <.,.> >= (1 - q) |delta|^2 for the Jacobian Dg of one token."""
    layer = reservoir()
    x = 3 * noise(1, 1, 8)
    Dg = torch.autograd.functional.jacobian(lambda z: (layer(z) - z).flatten(), x).reshape(8, 8)
    q = torch.linalg.matrix_norm(Dg, 2)
    assert 0.01 < q < 1
    for seed in range(20):
        delta = noise(8, seed=seed)
        true = delta + delta @ Dg
        assert (true - delta).norm() <= q * delta.norm() + 1e-12
        assert true @ delta >= (1 - q) * delta @ delta - 1e-12


def test_stack_modes_agree_forward_and_reach_different_depths():
    x, out = noise(2, 4, 8), {}
    for mode in ("exact", "st", "stop"):
        stack = Stack("LRLFL", 8, heads=2, backskip=mode, dtype=torch.float64)
        out[mode] = stack(x)
        out[mode].square().mean().backward()
        touched = [any(p.grad is not None for p in layer.parameters()) for layer in stack.layers]
        assert touched == {"stop": [False, False, False, False, True]}.get(mode, [True, False, True, False, True])
    assert torch.allclose(out["st"], out["exact"], rtol=0, atol=1e-13)
    assert torch.allclose(out["stop"], out["exact"], rtol=0, atol=1e-13)


def scene(seed=0):
    lower = torch.nn.Linear(3, 8, dtype=torch.float64)
    upper = torch.nn.Linear(8, 2, dtype=torch.float64)
    with torch.no_grad():
        for i, p in enumerate([*lower.parameters(), *upper.parameters()]):
            p.copy_(0.3 * noise(*p.shape, seed=10 + i))
    value = backskip.ValueNetwork(8, 16, seed=1, dtype=torch.float64)
    return lower, reservoir(), upper, value, noise(6, 4, 3), noise(6, 4, 2, seed=5)


def mean_square(a, b):
    return (a - b).square().mean()


def test_an_exact_pass_of_the_recipe_is_backpropagation():
    lower, layer, upper, value, x, y = scene()
    generator = torch.Generator().manual_seed(0)
    out = backskip.reinforce_step(lower, layer, upper, mean_square, value, x, y, 1.0, generator)
    ours = [p.grad.clone() for p in [*lower.parameters(), *upper.parameters()]]
    lower.zero_grad()
    upper.zero_grad()
    loss = mean_square(upper(layer(lower(x))), y)
    loss.backward()
    assert out["exact"] is True
    assert out["loss"] == pytest.approx(float(loss.detach()), rel=1e-12)
    for a, p in zip(ours, [*lower.parameters(), *upper.parameters()]):
        assert torch.allclose(a, p.grad, rtol=1e-12, atol=1e-15)
    assert all(p.grad is not None for p in value.parameters())


@pytest.mark.parametrize("density", ["sum", "mean"])
def test_a_skipped_pass_has_the_policy_gradient(density):
    lower, layer, upper, value, x, y = scene()
    out = backskip.reinforce_step(lower, layer, upper, mean_square, value, x, y, 0.0,
                                  torch.Generator().manual_seed(4), sigma=0.5, density=density)
    assert out["exact"] is False
    generator = torch.Generator().manual_seed(4)
    torch.rand((), generator=generator)
    mu = lower(x)
    eps = torch.randn(mu.shape, generator=generator, dtype=mu.dtype)
    a = mu.detach() + 0.5 * eps
    z = layer(a).detach().requires_grad_(True)
    (above,) = torch.autograd.grad(mean_square(upper(z), y), z)
    R = -above.mean((1, 2))
    # d/dmu of -log pi(a) A is -(a - mu) / sigma^2 A per coordinate, averaged over the batch of 6.
    A = (R - value(a)).detach()[:, None, None]
    want = -(eps / 0.5) * A / 6
    if density == "mean":
        want = want / 32
    (gradient,) = torch.autograd.grad(mu, lower.weight, want)
    assert torch.allclose(lower.weight.grad, gradient, rtol=1e-10, atol=1e-14)
    assert out["reward"] == pytest.approx(float(R.mean()))


def test_schedule_of_true_passes_and_bad_arguments():
    assert backskip.true_probability(9, 10) == 1
    assert backskip.true_probability(12, 10) == pytest.approx(0.99**2)
    with pytest.raises(ValueError, match="warmup"):
        backskip.true_probability(1, -1)
    lower, layer, upper, value, x, y = scene()
    for bad in ({"sigma": 0.0}, {"density": "sun"}, {"probability": 1.5}):
        arguments = {"probability": 0.5, **bad}
        with pytest.raises(ValueError, match=list(bad)[0]):
            backskip.reinforce_step(lower, layer, upper, mean_square, value, x, y,
                                    generator=torch.Generator(), **arguments)


# Random features


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("kind", [features.FourierFeatures, features.ReLUFeatures])
def test_features_have_their_kernel_as_mean(kind, orthogonal):
    X = noise(6, 4)
    X = X / X.norm(dim=-1, keepdim=True)
    options = {"width": 1.3} if kind is features.FourierFeatures else {}
    grams = torch.stack([features.FeatureKernel(kind(4, 16, torch.Generator().manual_seed(s), orthogonal=orthogonal,
                                                     **options)).gram(X) for s in range(400)])
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
        return sum(features.root_mean_square_error(
            features.FourierFeatures(5, count, torch.Generator().manual_seed(s), 2**0.5, orthogonal), X).square()
            for s in range(20)).sqrt()
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


@pytest.mark.parametrize("call", [
    lambda g: features.FourierFeatures(0, 4, g), lambda g: features.FourierFeatures(3, 0, g),
    lambda g: features.FourierFeatures(3, 4, g, width=0.0), lambda g: features.ReLUFeatures(3, -1, g),
    lambda g: features.FeatureKernel(None, scale=-1.0),
])
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
    for call in (lambda: projections.jl_dimension(1, 0.1), lambda: projections.jl_dimension(10, 0.0),
                 lambda: projections.jl_dimension(10, 1.5), lambda: projections.distortion(X, X[:5]),
                 lambda: projections.distortion(torch.zeros(3, 2), torch.zeros(3, 2))):
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
    for call in (lambda: echo.scaled(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), 0.9), lambda: echo.spectral_radius(S),
                 lambda: echo.EchoState(0, 3, torch.Generator()), lambda: net.run(noise(5, 3)),
                 lambda: echo.ridge(S, noise(3, 1)), lambda: echo.ridge(S, S, -1.0)):
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


# Metrics


def test_areas_under_curves():
    assert metrics.aucc([0, 1, 5], [3, 3, 3], 4) == pytest.approx(3)
    assert metrics.aucc([0, 2, 8], [0, 0.25, 1], 8) == pytest.approx(0.5)
    assert metrics.aucc([0, 2], [0, 1], 4) == pytest.approx(0.75)  # extended
    assert metrics.aucc([0, 2, 4], [0, 1, 1], 1) == pytest.approx(0.25)  # cut between points
    assert metrics.aucc([0], [2], 4) == pytest.approx(2)
    assert metrics.aucc([0, 1, 2], [0, 1, 0], 2) == pytest.approx(0.5)
    assert metrics.aucc_normalise({"a": 2.0, "b": 4.0}) == {"a": 0.5, "b": 1.0}
    assert metrics.time_to([0, 1, 2], [0, 0.5, 1.0], 0.75) == pytest.approx(1.5)
    assert metrics.time_to([0, 1, 2], [4, 2, 1], 0.5, "min") == pytest.approx(1)
    assert metrics.time_to([0, 1, 2], [1, 0.5, 0.7]) == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=8), st.floats(-3, 3), st.floats(0.1, 30), st.integers(0, 99))
def test_area_is_linear_and_shifts_with_the_curve(steps, shift, horizon, seed):
    t = np.concatenate([[0], np.cumsum(steps)])
    g = np.random.default_rng(seed).normal(size=t.size)
    a = metrics.aucc(t, g, horizon)
    assert metrics.aucc(t, g + shift, horizon) == pytest.approx(a + shift, abs=1e-9)
    assert metrics.aucc(t, 2 * g, horizon) == pytest.approx(2 * a, abs=1e-9)
    fine = np.linspace(0, horizon, 20001)
    assert a == pytest.approx(np.trapezoid(np.interp(fine, t, g), fine) / horizon, abs=2e-3)


def test_edit_distance_error_rate_and_bleu():
    assert metrics.edit_distance("kitten", "sitting") == 3
    assert metrics.edit_distance("", "abc") == 3
    assert metrics.edit_distance([1, 2], [1, 2]) == 0
    assert metrics.error_rate(["ab", "cd"], ["ab", "d"]) == pytest.approx(0.25)
    assert metrics.bleu(["abcde"], ["abcde"]) == pytest.approx(1)
    assert metrics.bleu(["abcd"], ["dcba"]) == 0
    # 4 of 5 unigrams, 3 of 4 bigrams; equal lengths, so no brevity penalty.
    assert metrics.bleu(["abcde"], ["abcdx"], order=2) == pytest.approx(math.sqrt(0.8 * 0.75))
    assert metrics.bleu(["abcdef"], ["abc"], order=1) == pytest.approx(math.exp(1 - 2))
    assert metrics.bits(math.log(8)) == pytest.approx(3)
    mean, half = metrics.interval([1.0, 2.0, 3.0])
    assert (mean, half) == (pytest.approx(2), pytest.approx(4.303 / math.sqrt(3), rel=1e-3))


@settings(max_examples=40, deadline=None)
@given(st.text("ab", max_size=7), st.text("ab", max_size=7), st.text("ab", max_size=7))
def test_edit_distance_is_a_metric(a, b, c):
    d = metrics.edit_distance
    assert d(a, b) == d(b, a)
    assert d(a, c) <= d(a, b) + d(b, c)
    assert (d(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= d(a, b) <= max(len(a), len(b))


@pytest.mark.parametrize("call", [
    lambda: metrics.aucc([1, 2], [0, 0], 1), lambda: metrics.aucc([0, 0], [0, 0], 1), lambda: metrics.aucc([0], [math.nan], 1),
    lambda: metrics.aucc([0, 1], [0], 1), lambda: metrics.aucc([0, 1], [0, 1], 0), lambda: metrics.aucc_normalise({}),
    lambda: metrics.aucc_normalise({"a": 0.0}), lambda: metrics.time_to([0, 1], [0, 1], 0.0),
    lambda: metrics.time_to([0, 1], [0, 1], 0.5, "least"), lambda: metrics.time_to([0, 1], [-1, 1]),
    lambda: metrics.error_rate([], []), lambda: metrics.error_rate(["a"], []), lambda: metrics.error_rate([""], ["a"]),
    lambda: metrics.bleu(["a"], ["a"], 0), lambda: metrics.bits(-1.0), lambda: metrics.interval([1.0]),
])
def test_metrics_refuse_nonsense(call):
    with pytest.raises(ValueError):
        call()


# n-grams and the clock


def naive(train, order, size, context, symbol):
    """Interpolated Kneser-Ney by its textbook recursion on dictionaries."""
    grams = {m: [tuple(train[i : i + m]) for i in range(len(train) - m + 1)] for m in range(1, order + 1)}
    counts = {order: {}}
    for g in grams[order]:
        counts[order][g] = counts[order].get(g, 0) + 1
    for m in range(order - 1, 0, -1):
        counts[m] = {}
        for g in counts[m + 1]:
            counts[m][g[1:]] = counts[m].get(g[1:], 0) + 1
    p = 1 / size
    for m in range(1, order + 1):
        c, h = counts[m], tuple(context[len(context) - m + 1 :])
        here = {g: v for g, v in c.items() if g[:-1] == h}
        if not here:
            continue
        ones, twos = sum(v == 1 for v in c.values()), sum(v == 2 for v in c.values())
        D = ones / (ones + 2 * twos) if ones else 0.5
        total = sum(here.values())
        own = max(here.get((*h, symbol), 0) - D, 0)
        p = (own + D * len(here) * p) / total
    return p


def test_kneser_ney_equals_its_recursion_and_sums_to_one():
    rng = np.random.default_rng(0)
    train = np.minimum(rng.geometric(0.4, 120) - 1, 4)
    for order in (1, 2, 3):
        model = ngram.KneserNey(train, order, 6)
        for context in ([0, 0], [1, 2], [5, 0], [4, 5]):
            p = [model.probabilities(np.array([*context[2 - (order - 1) :], s] if order > 1 else [s]))[0] for s in range(6)]
            assert sum(p) == pytest.approx(1, abs=1e-12)
            assert p == pytest.approx([naive(train.tolist(), order, 6, context, s) for s in range(6)], rel=1e-10)
        text = rng.integers(0, 6, 50)
        assert model.bits(text) == pytest.approx(-np.log2(model.probabilities(text)).mean())


@pytest.mark.parametrize("call", [
    lambda: ngram.KneserNey([0, 1, 2], 2, 2), lambda: ngram.KneserNey([0, 1], 2, 2), lambda: ngram.KneserNey([0.5] * 9, 2, 2),
    lambda: ngram.KneserNey([0, 1, 0], 0, 2), lambda: ngram.KneserNey([0] * 30, 12, 81),
    lambda: ngram.KneserNey([0, 1, 0, 1], 3, 2).probabilities([0]), lambda: ngram.KneserNey([0, 1, 0, 1], 2, 2).bits([0, 7]),
])
def test_ngram_refuses_nonsense(call):
    with pytest.raises(ValueError):
        call()


def test_clock_excludes_pauses():
    times = iter([0.0, 3.0, 10.0, 12.0, 12.0])
    watch = clock.Clock(lambda: next(times)).start()
    with watch.paused():
        pass
    assert watch.seconds == pytest.approx(3 + 2)
    assert watch.stop() == pytest.approx(5)
    assert clock.Clock(offset=4.0).seconds == 4.0
