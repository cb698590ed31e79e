"""Backskipping: values, gradients, the contraction bound, and the published recipe against its formula."""

import pytest
import torch

from icfgd.reservoirs import backskip, layers
from icfgd.reservoirs.freezing import freeze
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.stack import Stack


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reservoir(d=8):
    layer = layers.FeedForward(d, dtype=torch.float64)
    return freeze(layer.initialise(private_generator(3), orthogonal=True))


def test_straight_through_and_stop_have_the_exact_value_and_their_own_gradient():
    layer, delta = reservoir(), noise(2, 5, 8, seed=1)
    found = {}
    for name, call in {
        "exact": lambda z: layer(z),
        "st": lambda z: backskip.straight_through(layer, z),
        "stop": lambda z: backskip.stop(layer, z),
    }.items():
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
    """|delta (I + Dg) - delta| <= q |delta| and <.,.> >= (1 - q) |delta|^2 for the Jacobian Dg of one
    token.
    """
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
        assert touched == {"stop": [False, False, False, False, True]}.get(
            mode, [True, False, True, False, True]
        )
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
    out = backskip.reinforce_step(
        lower,
        layer,
        upper,
        mean_square,
        value,
        x,
        y,
        0.0,
        torch.Generator().manual_seed(4),
        sigma=0.5,
        density=density,
    )
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
            backskip.reinforce_step(
                lower, layer, upper, mean_square, value, x, y, generator=torch.Generator(), **arguments
            )
