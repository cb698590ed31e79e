"""Theorems 1 to 3 on finite samples that are exactly symmetric, and with a hypothesis dropped."""

import pytest
import torch

from icfgd import landscape, symmetry
from icfgd.device import generator
from icfgd.kernels import composite
from icfgd.landscape import Chart
from icfgd.losses import evaluate_at, integrated_loss, integrated_risk
from icfgd.processes import Covariates, covariance, label_process
from icfgd.stationary import minimise, symmetric_chart
from icfgd.transformer import Transformer

SIGMA = covariance([0.5, 1.0, 2.25], generator(5))
SIGNED = symmetry.signed_permutations(3)
PROMPTS = Covariates(SIGMA).sample(3, 6, generator(0))
ORBIT = symmetry.orbit(PROMPTS, SIGNED, SIGMA)
SIGMA2 = covariance([0.6, 1.7], generator(6))
D8 = symmetry.dihedral(8)
PROMPTS2 = Covariates(SIGMA2).sample(6, 5, generator(1))
ORBIT2 = symmetry.orbit(PROMPTS2, D8, SIGMA2)
MANY = symmetry.orbit(Covariates(SIGMA).sample(12, 6, generator(0)), SIGNED, SIGMA)


class Laplace:
    """exp(-|u - w|_1)."""

    name, semidefinite, normalised = "laplace", True, False

    def weights(self, U, W):
        return torch.exp(-(U.unsqueeze(-2) - W.unsqueeze(-3)).abs().sum(-1))


def inside(head, d=3, layers=3, seed=3, sigma=SIGMA):
    model = Transformer(d, layers, [head]).randomise(generator(seed), 0.05, 0.1)
    return symmetry.with_parameters(model, symmetry.project(symmetry.parameters(model), sigma))


def largest_deviation(model, X, labels, sigma=SIGMA):
    return max(landscape.stationarity(model, X, labels, sigma).deviations.values())


@pytest.mark.parametrize("labels", ["exponential", "relu"])
@pytest.mark.parametrize("head", ["linear", "relu", "exponential", "softmax", "gaussian", Laplace()])
def test_gradient_on_the_symmetric_set_is_scalar(labels, head):
    process = label_process(labels, SIGMA)
    model = inside(head)
    assert largest_deviation(model, ORBIT, process) < 1e-12
    assert largest_deviation(model, PROMPTS, process) > 0.05  # no symmetrisation
    two, process = inside(head, d=2, sigma=SIGMA2), label_process(labels, SIGMA2)
    assert largest_deviation(two, ORBIT2, process, SIGMA2) < 1e-12
    triangle = symmetry.orbit(PROMPTS2, symmetry.dihedral(3), SIGMA2)  # no symmetry of the l1 distance
    deviation = largest_deviation(two, triangle, process, SIGMA2)
    assert deviation > 1e-4 if isinstance(head, Laplace) else deviation < 1e-12


def test_dropped_hypotheses_break_the_theorem():
    process = label_process("exponential", SIGMA)
    skewed = composite([(1.0, "exponential", torch.diag(torch.tensor([1.0, 2.0**0.5, 1.0])))])
    assert largest_deviation(inside(skewed), ORBIT, process) > 0.02  # attention without (H)
    raw = label_process("exponential")  # the kernel on x instead of xi
    assert largest_deviation(inside("exponential"), ORBIT, raw) > 0.05
    wrong = symmetry.orbit(PROMPTS, SIGNED)  # U x instead of U_Sigma x
    assert largest_deviation(inside("linear"), wrong, process) > 0.02
    assert largest_deviation(inside("linear"), ORBIT, process) < 1e-12
    turns = symmetry.orbit(Covariates(SIGMA2).sample(6, 5, generator(1)), D8[:8], SIGMA2)  # no reflections
    model = inside("exponential", d=2, sigma=SIGMA2)
    white = label_process("exponential", SIGMA2)
    assert (
        largest_deviation(model, turns, white, SIGMA2)
        > 1e-6
        > largest_deviation(model, ORBIT2, white, SIGMA2)
    )


@pytest.mark.parametrize("head", ["linear", "relu", "exponential", "softmax"])
def test_theorem_1_stationary_points(head):
    labels = label_process("exponential", SIGMA)
    start = Transformer(3, 2, [head])
    with torch.no_grad():
        start.r.copy_(torch.tensor([[0.05], [0.15]]))
    point = minimise(symmetric_chart(start, SIGMA), MANY, labels, tolerance=1e-12)
    assert point.converged
    found = landscape.stationarity(point.model, MANY, labels, SIGMA)
    assert max(found.norms[name] for name in ("r", "B", "C")) < 1e-11
    assert max(float(t.max()) for t in landscape.distances(point.model, SIGMA).values()) < 1e-12
    assert point.loss < integrated_loss(start, MANY, labels).item()
    assert found.norms["A"] > 1e-6  # not stationary once A is free: Theorem 2 is about other points
    # Theorem 3: a strict local minimum modulo the rescaling freedom.
    chart = Chart(point.model, SIGMA)
    H, free = landscape.hessian(chart, MANY, labels), landscape.gauge(chart)
    assert free.shape[1] == 2 * 9 + (2 if head in ("linear", "relu") else 0)
    assert (H @ free).abs().max() < 1e-10 * H.abs().max()
    assert landscape.coupling(H, chart.kinds) < 1e-11
    assert landscape.reduced_spectrum(H, free)[0] > 1e-6
    assert torch.linalg.eigvalsh(H)[0] > -1e-10


@pytest.mark.parametrize("head", ["linear", "exponential"])
def test_theorem_2_stationary_points(head):
    labels = label_process(head, SIGMA2)
    start = Transformer(2, 2, [head])
    with torch.no_grad():
        start.r.copy_(torch.tensor([[0.05], [0.15]]))
    first = minimise(symmetric_chart(start, SIGMA2), ORBIT2, labels)
    moved = first.model
    chart = symmetric_chart(moved, SIGMA2, transform=True)
    second = minimise(chart, ORBIT2, labels, tolerance=1e-12)
    found = landscape.stationarity(second.model, ORBIT2, labels, SIGMA2)
    assert second.converged
    assert max(found.norms.values()) < 1e-11
    assert second.loss < first.loss - 1e-3
    assert landscape.distances(second.model, SIGMA2)["A"].max() < 1e-12 < second.model.A.detach().abs().max()


def test_the_literal_theorem_is_met_by_trivial_networks():
    labels = label_process("exponential", SIGMA)
    for head in ("linear", "relu"):
        zero = Transformer(3, 2, [head])
        zero = symmetry.with_parameters(zero, {n: 0 * v for n, v in symmetry.parameters(zero).items()})
        found = landscape.stationarity(zero, ORBIT, labels, SIGMA)
        assert max(found.norms.values()) == 0.0 == max(found.deviations.values())
    flat = Transformer(3, 1, ["exponential"])
    flat = symmetry.with_parameters(flat, {"B": torch.zeros(1, 1, 3, 3), "C": torch.zeros(1, 1, 3, 3)})
    point = minimise(Chart(flat, SIGMA, ["r"]), ORBIT, labels)
    found = landscape.stationarity(point.model, ORBIT, labels, SIGMA)
    assert max(found.norms.values()) < 1e-12
    start = Transformer(3, 1, ["exponential"])
    with torch.no_grad():
        start.r.fill_(0.1)
    better = minimise(symmetric_chart(start, SIGMA), ORBIT, labels)
    assert better.loss < point.loss - 0.1
    spectrum = torch.linalg.eigvalsh(landscape.hessian(Chart(point.model, SIGMA), ORBIT, labels))
    assert spectrum[0] < -1e-3  # a strict saddle


def test_exchangeable_starts_end_in_a_saddle():
    labels = label_process("linear", SIGMA)
    start = Transformer(3, 2, ["linear"])
    with torch.no_grad():
        start.r.fill_(0.1)
    point = minimise(symmetric_chart(start, SIGMA), ORBIT, labels)
    assert point.converged
    chart = Chart(point.model, SIGMA)
    assert (
        landscape.reduced_spectrum(landscape.hessian(chart, ORBIT, labels), landscape.gauge(chart))[0] < -1e-3
    )


def test_hessian_blocks_split_further_under_signed_permutations_only():
    labels = label_process("exponential", SIGMA2)
    model = inside("exponential", d=2, layers=1, sigma=SIGMA2)
    signed = symmetry.orbit(
        Covariates(SIGMA2).sample(6, 5, generator(1)), symmetry.signed_permutations(2), SIGMA2
    )
    chart = Chart(model, SIGMA2, ["C"])
    assert chart.kinds == ["scalar", "symmetric", "symmetric", "skew"]
    for X, same in ((ORBIT2, True), (signed, False)):
        H = landscape.hessian(chart, X, labels)
        assert landscape.coupling(H, chart.kinds) < 1e-12
        assert (abs(H[1, 1] - H[2, 2]) < 1e-12 * H.abs().max()) == same
    bare = Covariates(SIGMA2).sample(6, 5, generator(1))
    assert landscape.coupling(landscape.hessian(chart, bare, labels), chart.kinds) > 1e-2


def test_hessian_equals_finite_differences_and_the_one_layer_formula():
    labels = label_process("exponential")
    X = symmetry.orbit(Covariates(torch.eye(2).double()).sample(6, 5, generator(1)), D8)
    m, r = 1.7, 0.06
    model = Transformer(2, 1, ["exponential"])
    with torch.no_grad():
        model.r.fill_(r)
        model.C.mul_(m)
    chart = Chart(model, torch.eye(2).double(), ["C"])
    H, z = landscape.hessian(chart, X, labels), chart.coordinates()
    for i, h in ((1, 1e-3), (3, 1e-3)):
        step = h * torch.eye(4).double()[i]
        values = [float(chart.loss(z + t * step, X, labels)) for t in (-2, -1, 0, 1, 2)]
        second = (-values[0] + 16 * values[1] - 30 * values[2] + 16 * values[3] - values[4]) / (12 * h**2)
        assert abs(second - float(H[i, i])) < 1e-7
    K_hat, nu, _ = labels.moments(X)
    context, query = X[:, :4], X[:, 4:]
    for i in (1, 2, 3):
        E = chart.basis[i]
        D = context @ E @ query.mT
        eta = torch.exp(m * context @ query.mT)
        convex = 2 * r**2 * ((eta * D).mT @ K_hat @ (eta * D)).mean()
        rest = 2 * r * (eta * D**2 * (nu - r * K_hat @ eta)).sum((-2, -1)).mean()
        assert abs(float(convex - rest - H[i, i])) < 1e-10


def test_free_search_reaches_the_symmetric_set():
    labels = label_process("exponential", SIGMA2)
    start = Transformer(2, 2, ["exponential"]).randomise(generator(1), 0.3, 0.1)
    start = symmetry.with_parameters(start, {"A": torch.zeros_like(start.A)})
    assert landscape.distances(start, SIGMA2)["BC"].max() > 0.05
    point = minimise(Chart(start, SIGMA2), ORBIT2, labels, tolerance=1e-10)
    assert point.converged
    assert landscape.distances(point.model, SIGMA2)["BC"].max() < 1e-7


def test_plain_gradient_steps_leave_the_set_and_whitened_ones_do_not():
    labels, model = label_process("exponential", SIGMA), inside("exponential", layers=1)
    values = {n: v.clone().requires_grad_() for n, v in symmetry.parameters(model).items()}
    loss = evaluate_at(integrated_risk, model, values, ORBIT, labels).mean()
    slope = dict(zip(values, torch.autograd.grad(loss, list(values.values()), materialize_grads=True)))
    plain = symmetry.with_parameters(model, {n: v - 0.1 * slope[n] for n, v in values.items()})
    assert landscape.distances(plain, SIGMA)["BC"].max() > 1e-4
    white = symmetry.whiten({n: v.detach() for n, v in values.items()}, SIGMA)
    white_slope = symmetry.unwhiten(slope, SIGMA)
    kept = symmetry.unwhiten({n: v - 0.1 * white_slope[n] for n, v in white.items()}, SIGMA)
    assert landscape.distances(symmetry.with_parameters(model, kept), SIGMA)["BC"].max() < 1e-13


def test_an_infimum_that_is_not_attained_is_reported():
    eye = torch.eye(2, dtype=torch.float64)
    X = symmetry.orbit(Covariates(eye).sample(20, 5, generator(4)), D8)
    labels = label_process("polynomial", degree=3)
    start = Transformer(2, 2, ["exponential"])
    with torch.no_grad():
        start.r.copy_(torch.tensor([[3.5], [0.1]]))
        start.C.copy_(torch.tensor([0.1, 1.0]).double().reshape(2, 1, 1, 1) * eye)
    chart = Chart(start, eye, ("r", "C"), ("scalar",))
    early, late = (minimise(chart, X, labels, iterations=count) for count in (12, 30))
    assert not early.converged
    assert not late.converged
    assert late.loss < early.loss  # still falling, ever more slowly,
    r, m = late.model.r[:, 0].detach(), late.model.C[:, 0, 0, 0].detach()
    layer = int(r.abs().argmax())  # while one layer runs off: r -> infinity, m -> 0 with r m settling
    before = early.model.r[layer, 0].detach()
    assert r[layer].abs() > 1.2 * before.abs() > 5
    assert m[layer].abs() < 0.1
    assert torch.isclose(r[layer] * m[layer], before * early.model.C[layer, 0, 0, 0].detach(), rtol=0.05)


def test_distances():
    eye = torch.eye(3, dtype=torch.float64)
    M = torch.stack([2 * eye, torch.diag(torch.tensor([1.0, -1.0, 0.0]).double()), 0 * eye])
    assert landscape.distance_to_multiples(M, eye).tolist() == [0.0, 1.0, 0.0]
    far = landscape.distances(Transformer(3, 2, ["linear"]).randomise(generator(1), 0.5, 0.1), SIGMA)
    assert far["BC"].shape == far["A"].shape == (2, 1)
    assert far["BC"].min() > 0.1 < far["A"].min()
    model = Transformer(3, 1, ["linear"])  # B = C = I: right for the identity only
    assert (
        landscape.distances(model, eye)["BC"].max()
        < 1e-15
        < 0.1
        < landscape.distances(model, SIGMA)["BC"].max()
    )


def test_basis_and_chart():
    basis, parts = landscape.matrix_basis(3)
    flat = basis.flatten(1)
    assert torch.allclose(flat @ flat.T, torch.eye(9).double(), rtol=0, atol=1e-15)
    assert [parts.count(p) for p in landscape.PARTS] == [1, 5, 3]
    assert all(abs(torch.trace(M)) < 1e-15 for M in basis[1:])
    model = Transformer(3, 2, ["linear", "relu"]).randomise(generator(2))
    chart = Chart(model, SIGMA, ["A", "r", "B"])
    assert chart.size == len(chart.kinds) == 4 * 19
    z = torch.randn(chart.size, generator=generator(3), dtype=torch.float64)
    assert torch.allclose(chart.coordinates(chart.parameters(z)), z, rtol=0, atol=1e-13)
    assert torch.allclose(chart.parameters(chart.coordinates())["A"], model.A, rtol=0, atol=1e-14)
    assert torch.allclose(chart.parameters(z)["C"], model.C, rtol=0, atol=1e-14)


def test_bad_input():
    model, labels = inside("linear"), label_process("linear", SIGMA)
    chart = Chart(model, SIGMA)
    eye = torch.eye(3, dtype=torch.float64)
    cases = {
        "names": lambda: Chart(model, SIGMA, ["Q"]),
        "parts": lambda: Chart(model, SIGMA, parts=["diagonal"]),
        "sigma": lambda: Chart(model, SIGMA2),
        "model": lambda: Chart(Transformer(3, 1, batch=(2, 1)), SIGMA),
        "z": lambda: chart.parameters(torch.zeros(3)),
        "d": lambda: landscape.matrix_basis(0),
        "X": lambda: landscape.stationarity(model, ORBIT[..., :2], labels, SIGMA),
        "M": lambda: landscape.distance_to_multiples(float("nan") * eye, eye),
        "target": lambda: landscape.distance_to_multiples(eye, SIGMA2),
        "sigma ": lambda: landscape.distances(model, -SIGMA),
        "matrix": lambda: landscape.coupling(eye, chart.kinds),
        "chart": lambda: landscape.gauge(Chart(model, SIGMA, ["r"])),
        "labels": lambda: landscape.hessian(chart, ORBIT, "linear"),
        "tolerance": lambda: minimise(chart, ORBIT, labels, tolerance=0.0),
        "iterations": lambda: minimise(chart, ORBIT, labels, iterations=0),
        "radius": lambda: minimise(chart, ORBIT, labels, radius=-1.0),
        "sigma  ": lambda: symmetric_chart(model, SIGMA2),
    }
    for name, call in cases.items():
        with pytest.raises(ValueError, match=rf"^{name.strip()}\b"):
            call()
    loud = symmetry.with_parameters(inside("exponential"), {"C": 1e4 * torch.ones(3, 1, 3, 3)})
    with pytest.raises(FloatingPointError):
        minimise(Chart(loud, SIGMA), ORBIT, labels)
