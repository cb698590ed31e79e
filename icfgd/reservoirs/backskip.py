"""Skipping the backward pass through a frozen layer: straight through, stop, and the published REINFORCE
recipe.

Shen et al. (2021), sec. 4.4, treat the output of the layers below the reservoir as the mean of a Gaussian
policy whose reward is minus the mean gradient above the reservoir. Their text leaves much open; what is our
choice is said in each docstring. Exact backpropagation through frozen layers needs nothing from here.
"""

import torch
from torch import nn
from torch.nn import functional as F

from icfgd import checks
from icfgd.reservoirs.initialise import fill, linear, private_generator

MEANS = ("sum", "mean")


def straight_through(layer, x):
    """The value of `layer(x)`, with the identity as its Jacobian in the backward pass (and no graph inside
    the layer).
    """
    with torch.no_grad():
        change = layer(x) - x
    return x + change


def stop(layer, x):
    """The value of `layer(x)`, through which no gradient passes."""
    with torch.no_grad():
        return layer(x)


def true_probability(step, warmup, decay=0.99):
    """Probability of an exact backward pass: 1 during `warmup` steps, then multiplied by `decay` in every
    step.
    """
    checks.integer("step", step, low=0)
    checks.integer("warmup", warmup, low=0)
    checks.number("decay", decay, low=0, high=1)
    return 1.0 if step < warmup else decay ** (step - warmup)


class ValueNetwork(nn.Module):
    """V: states (B, T, d) -> (B,), two linear maps per token with a ReLU between, averaged over tokens
    (our choice).
    """

    def __init__(self, d, width=64, seed=0, dtype=torch.float32):
        super().__init__()
        checks.integer("width", width, low=1)
        self.linear1, self.linear2 = linear(d, width, dtype), linear(width, 1, dtype)
        generator = private_generator(seed)
        for part in (self.linear1, self.linear2):
            fill(part.weight, part.bias, generator, orthogonal=False)

    def forward(self, states):
        """(B, T, d) -> (B,)."""
        return self.linear2(F.relu(self.linear1(states))).squeeze(-1).mean(-1)


def reinforce_step(
    lower, reservoir, upper, loss, value, inputs, targets, probability, generator, sigma=1.0, density="sum"
):
    """One training pass of the literal recipe; leaves gradients in the parameters and returns a dict of
    numbers.

    lower: inputs -> mu (B, T, d), all trained layers below the reservoir. reservoir: the frozen layer(s).
    upper: maps the reservoir's output to predictions; `loss(upper(z), targets)` is the mean loss of the
    batch. value: a `ValueNetwork`. With `probability` (see `true_probability`) the pass is exact and only the
    value network learns in addition; otherwise an action a = mu + sigma eps is drawn, gradients stop below z
    = reservoir(a), and `lower` gets the gradient of -log pi(a) (R - V(a)). The reward R of an example is
    minus the mean over tokens and channels of its dJ/dz. Our choices: V is a function of the action in a
    skipped pass and of mu in an exact one; the sign makes a larger reward more likely; density: log pi is the
    'sum' or 'mean' over the T d coordinates.
    """
    checks.number("probability", probability, low=0, high=1)
    checks.number("sigma", sigma, low=0, strict=True)
    checks.one_of("density", density, MEANS)
    mu = lower(inputs)
    exact = float(torch.rand((), generator=generator)) < probability
    if exact:
        action = mu.detach()
        z = reservoir(mu)
        z.retain_grad()
    else:
        noise = torch.randn(mu.shape, generator=generator, dtype=mu.dtype, device=generator.device)
        action = mu.detach() + sigma * noise.to(mu.device)
        with torch.no_grad():
            z = reservoir(action)
        z.requires_grad_(True)
    cost = loss(upper(z), targets)
    cost.backward()
    reward = -z.grad.mean(dim=(-2, -1))
    guess = value(action)
    value_cost = F.mse_loss(guess, reward)
    value_cost.backward()
    if not exact:
        score = -((action - mu) ** 2).flatten(1) / (2 * sigma**2)
        score = score.sum(-1) if density == "sum" else score.mean(-1)
        (-(score * (reward - guess).detach()).mean()).backward()
    return {
        "exact": exact,
        "loss": float(cost.detach()),
        "value_loss": float(value_cost.detach()),
        "reward": float(reward.mean()),
    }
