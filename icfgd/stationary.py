"""Stationary points of the label-integrated loss, found to rounding accuracy by damped Newton steps.

Few coordinates and a fixed sample of prompts: this is for examining theorems in float64, not for training
networks (see `training`). An infimum need not be attained, so a search may end without convergence; the
result says so.
"""

from dataclasses import dataclass

import torch

from icfgd import checks
from icfgd.landscape import Chart, hessian
from icfgd.processes import Labels
from icfgd.symmetry import parameters, project, unwhiten, with_parameters
from icfgd.transformer import Transformer


@dataclass(frozen=True)
class Point:
    """Where a search ended: the network `model`, its `loss`, the `gradient` norm in the chart and the
    iterations.

    converged: whether the gradient norm is at most the tolerance asked for.
    """

    model: Transformer
    loss: float
    gradient: float
    iterations: int
    converged: bool


def minimise(chart, X, labels, queries=1, tolerance=1e-12, iterations=200, radius=1.0):
    """Descend from the network of `chart`, in its coordinates, to a vanishing gradient; returns a `Point`.

    X (..., n+q, d), labels: a `Labels` or its moments on X. Each step is a Newton step with the absolute
    values of the Hessian's eigenvalues (so that it descends), at most `radius` (1 + |z|) long and halved
    until the loss decreases; steps into overflow are halved as well. A start that is symmetric under exchange
    of layers stays symmetric, and may end in a saddle: start from distinct steps.
    """
    tolerance = checks.number("tolerance", tolerance, low=0, strict=True)
    radius = checks.number("radius", radius, low=0, strict=True)
    moments = labels.moments(X, queries) if isinstance(labels, Labels) else labels

    def look(z):
        z = z.detach().requires_grad_()
        value = chart.loss(z, X, moments, queries)
        (slope,) = torch.autograd.grad(value, z)
        return value.item(), slope

    z = chart.coordinates().clone()
    loss, slope = look(z)
    if not loss < float("inf"):
        raise FloatingPointError("the loss at the starting point is not finite; the scores overflow.")
    for count in range(checks.integer("iterations", iterations, low=1)):
        if slope.norm() <= tolerance:
            return _point(chart, z, loss, slope, count, tolerance)
        values, vectors = torch.linalg.eigh(hessian(chart, X, moments, queries, z))
        size = values.abs().clamp(min=1e-9 * float(values.abs().max()))
        step = -vectors @ ((vectors.T @ slope) / size)
        step = step * min(1.0, radius * (1 + float(z.norm())) / float(step.norm()))
        for _ in range(60):
            trial, trial_slope = look(z + step)
            falls = trial < loss + 1e-4 * float(step @ slope)
            # Near the end the loss no longer changes in its last digit; then the gradient must shrink.
            flat = abs(trial - loss) <= 1e-14 * abs(loss) and trial_slope.norm() < slope.norm()
            if falls or flat:
                break
            step = step / 2
        else:
            break
        z, loss, slope = z + step, trial, trial_slope
    return _point(chart, z, loss, slope, count + 1, tolerance)


def symmetric_chart(model, sigma, transform=False):
    """The chart of step sizes and scalars m = b c (C = m Sigma^(-1/2), B = Sigma^(-1/2)), without rescaling
    freedom.

    The network is put on the symmetric set first: B = Sigma^(-1/2) and C, A replaced by their averages over
    rotations (A = 0 unless `transform`, which also lets the scalars of A move).
    """
    values = project(parameters(model), sigma)
    eye = torch.eye(model.d, dtype=model.r.dtype)
    values["B"] = unwhiten({"B": eye.expand_as(values["B"])}, sigma)["B"]
    if not transform:
        values["A"] = torch.zeros_like(values["A"])
    placed = with_parameters(model, values)
    return Chart(placed, sigma, ("r", "C", "A") if transform else ("r", "C"), parts=("scalar",))


def _point(chart, z, loss, slope, count, tolerance):
    norm = float(slope.norm())
    return Point(chart.model_at(z), loss, norm, count, norm <= tolerance)
