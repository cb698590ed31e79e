"""Schedules, the best residual polynomial, Christoffel functions and conjugate gradients."""

import math

import pytest
import sympy as sp
import torch

from icfgd import bayes, schedules
from icfgd.constructions import functional_descent
from icfgd.descent import residual_polynomial
from icfgd.device import generator
from icfgd.kernels import kernel
from icfgd.landscape import Chart
from icfgd.losses import integrated_loss
from icfgd.processes import Covariates, label_process
from icfgd.stationary import minimise
from icfgd.symbolic import is_zero

EYE = torch.eye(5, dtype=torch.float64)
X = Covariates(EYE).sample(400, 15, generator(0))
EXPONENTIAL = label_process("exponential")
K = EXPONENTIAL.second_moment(X)
MOMENTS = EXPONENTIAL.moments(X)
BAYES = float(bayes.risk(K).mean())


def loss_of(steps, kind="exponential", moments=MOMENTS):
    return float(integrated_loss(functional_descent(5, steps, kind), X, moments).detach())


def blocks_of(name):
    H = kernel(name).gram(X)
    return H[:, :14, :14], H[:, :14, 14:]


def test_chebyshev_product_is_the_chebyshev_polynomial():
    a, b, t = sp.symbols("alpha beta lambda", positive=True)
    for k in (2, 3):
        roots = [(a + b) / 2 - (b - a) / 2 * sp.cos((2 * j + 1) * sp.pi / (2 * k)) for j in range(k)]
        product = sp.prod([1 - t / z for z in roots])
        T = sp.chebyshevt_poly(k, sp.Symbol("z"))
        ratio = T.subs("z", (a + b - 2 * t) / (b - a)) / T.subs("z", (a + b) / (b - a))
        assert is_zero(sp.simplify(product - ratio))
        wrong = sp.prod([1 - t / ((a + b) / 2) for _ in range(k)])
        assert not is_zero(sp.simplify(wrong - ratio))


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_chebyshev_meets_its_bound_and_beats_constant_steps(k):
    low, high = 0.2, 21.8
    grid = torch.cat([torch.linspace(low, high, 20001, dtype=torch.float64), torch.tensor([low, high])])
    largest = residual_polynomial(schedules.chebyshev(low, high, k), grid).abs().max()
    bound = schedules.chebyshev_bound(low, high, k)
    assert abs(float(largest) - bound) < 1e-12
    q = math.sqrt(high / low)
    assert bound <= 2 * ((q - 1) / (q + 1)) ** k + 1e-12
    constant = residual_polynomial(schedules.constant(2 / (low + high), k), grid).abs().max()
    assert constant >= largest - 1e-12
    assert k == 1 or constant > largest + 1e-3


def test_leja_order_keeps_products_small():
    steps = schedules.chebyshev(1e-3, 1.0, 64)
    grid = torch.linspace(1e-3, 1.0, 300, dtype=torch.float64)

    def largest_partial(order):
        return max(float(residual_polynomial(order[:j], grid).abs().max()) for j in range(1, 65))

    assert sorted(schedules.leja(sorted(steps))) == sorted(steps)
    assert largest_partial(steps) < 1e4 < 1e12 < largest_partial(sorted(steps, reverse=True))
    assert schedules.leja([0.0, 2.0, 1.0, 0.0]) == [1.0, 2.0, 0.0, 0.0]


def test_sign_pairs_contract_on_both_sides_of_zero():
    grid = torch.linspace(0.2, 3.0, 500, dtype=torch.float64)
    steps = schedules.sign_pairs(0.2, 3.0, 12)
    p = residual_polynomial(steps, torch.cat([grid, -grid]))
    assert float(p.abs().max()) <= schedules.chebyshev_bound(0.04, 9.0, 6) + 1e-12 < 1
    positive = schedules.chebyshev(0.2, 3.0, 12)
    assert (residual_polynomial(positive, -grid) >= 1).all()  # steps of one sign expand the other side
    assert schedules.sign_pairs(2.0, 2.0, 2) == [0.5, -0.5]


def test_constant_and_harmonic():
    assert schedules.constant(0.3, 3) == [0.3] * 3
    assert schedules.harmonic(3, 0.6) == pytest.approx([0.6, 0.3, 0.2])
    for t in (0.5, 9.0):  # every eigenvalue contracts in the end, however large
        assert abs(float(residual_polynomial(schedules.harmonic(3000), torch.tensor(t).double()))) < 0.03


def test_moments_are_those_of_the_spectral_measure():
    atoms, masses = schedules.spectral_measure(*MOMENTS[:2])
    found = schedules.moments(*MOMENTS[:2], 5)
    want = torch.stack([(masses * atoms**j).sum() for j in range(1, 6)])
    assert torch.allclose(found, want, rtol=1e-11, atol=0)
    steps = [0.05, 0.2]
    p = residual_polynomial(steps, atoms)
    assert abs(BAYES + float((masses * p**2).sum()) - loss_of(steps)) < 1e-12


def test_optimum_equals_christoffel_conjugate_gradients_and_the_network():
    atoms, masses = schedules.spectral_measure(*MOMENTS[:2])
    best = schedules.optimal(MOMENTS, 7)
    shared = schedules.conjugate_gradients(*MOMENTS[:2], 7, shared=True)
    general = schedules.optimal(MOMENTS, 7, attention=MOMENTS[:2])
    assert torch.allclose(general.losses, best.losses, rtol=0, atol=1e-12)
    assert torch.allclose(general.roots.real.sort().values, best.roots.real.sort().values, rtol=1e-7)
    for k in range(8):
        christoffel = float(schedules.christoffel(atoms, masses, k))
        assert abs(BAYES + christoffel - float(best.losses[k])) < 1e-12
        assert abs(float(bayes.conditional_risk(K, shared[k]).mean()) - float(best.losses[k])) < 1e-12
    for k in (1, 3, 7):
        best = schedules.optimal(MOMENTS, k)
        roots = best.roots.real
        assert best.attained
        assert (roots > 0).all()
        assert (roots < K.shape[-1] * math.e).all()
        assert roots.diff().abs().min() > 1e-3 if k > 1 else True
        assert abs(loss_of(best.steps) - float(best.losses[-1])) < 1e-12
        moved = [1.05 * best.steps[0], *best.steps[1:]]
        assert loss_of(moved) > float(best.losses[-1]) + 1e-6  # the value is a strict minimum


def test_christoffel_is_the_corner_of_the_inverse_moment_matrix():
    t = sp.Matrix([1, 2, 5])
    mass = sp.Matrix([sp.Rational(1, 2), sp.Rational(1, 3), sp.Rational(3, 7)])
    for k in (1, 2):
        M = sp.Matrix(k + 1, k + 1, lambda i, j: sum(m * z ** (i + j) for m, z in zip(mass, t)))
        c = sp.Matrix(sp.symbols(f"c1:{k + 1}"))
        p = [1 + sum(c[i] * z ** (i + 1) for i in range(k)) for z in t]
        square = sum(m * v**2 for m, v in zip(mass, p))
        solution = sp.solve([sp.diff(square, ci) for ci in c], list(c), dict=True)[0]
        value = square.subs(solution)
        assert is_zero(value - 1 / M.inv()[0, 0])
        roots = sp.Poly(1 + sum(solution[c[i]] * sp.Symbol("z") ** (i + 1) for i in range(k)), sp.Symbol("z"))
        assert all(root.is_real and 1 < root < 5 for root in roots.all_roots())
        atoms, masses = (torch.tensor([float(v) for v in m], dtype=torch.float64) for m in (t, mass))
        assert abs(float(schedules.christoffel(atoms, masses, k)) - float(value)) < 1e-14


def test_two_atoms_by_hand():
    atoms, masses = torch.tensor([1.0, 3.0]).double(), torch.tensor([0.5, 0.5]).double()
    assert abs(float(schedules.christoffel(atoms, masses, 1)) - 0.2) < 1e-14
    nu = (masses * atoms).sqrt()[:, None]
    diagonal, off, norm = schedules.jacobi(torch.diag(atoms), nu, 5)
    assert len(diagonal) == 2
    assert abs(float(norm) ** 2 - 2) < 1e-14
    best = schedules.optimal((torch.diag(atoms), nu, torch.ones(1).double()), 1)
    assert abs(best.steps[0] - 0.4) < 1e-14
    padded = schedules.optimal((torch.diag(atoms), nu, torch.ones(1).double()), 4)
    assert sorted(padded.steps) == pytest.approx([0, 0, 1 / 3, 1])


def test_training_the_steps_reaches_the_closed_form():
    for k in (2, 3):
        best = schedules.optimal(MOMENTS, k)
        start = functional_descent(5, [0.05 + 0.1 * j for j in range(k)])
        point = minimise(Chart(start, EYE, ["r"]), X, MOMENTS, tolerance=1e-10)
        assert point.converged
        assert abs(point.loss - float(best.losses[-1])) < 1e-12
        found = point.model.r.detach().flatten().sort().values
        assert torch.allclose(found, torch.tensor(sorted(best.steps), dtype=torch.float64), rtol=1e-7)


def test_order_of_adaptivity():
    own = schedules.conjugate_gradients(*MOMENTS[:2], 5)
    top = float(torch.linalg.eigvalsh(MOMENTS[0]).max())
    for k in (1, 2, 3, 5):
        value = float(schedules.optimal(MOMENTS, k).losses[-1])
        each = bayes.conditional_risk(K, own[k])
        assert float(each.mean()) <= value + 1e-12
        for low in (0.02, 0.5, 2.0, 8.0):
            assert value <= loss_of(schedules.chebyshev(low, top, k)) + 1e-12
            assert value <= loss_of(schedules.constant(2 / (low + top), k)) + 1e-12
    assert (each[:, 0] >= bayes.risk(K)[:, 0] - 1e-10).all()
    # Chebyshev is a minimax statement: in the mean it loses to one constant step at depth 3.
    assert (
        loss_of(schedules.chebyshev(0.02, 21.8, 3)) > loss_of(schedules.constant(2 / (14 * math.e), 3)) + 0.3
    )


def test_conjugate_gradients_solve_and_the_label_system_is_not_ordered():
    solved = schedules.conjugate_gradients(MOMENTS[0][:20], MOMENTS[1][:20], 40)[-1]
    assert torch.allclose(solved, torch.linalg.solve(MOMENTS[0][:20], MOMENTS[1][:20]), rtol=1e-6, atol=1e-8)
    Y = EXPONENTIAL.sample(X.repeat(5, 1, 1), generator(9)).reshape(5, 400, 15)
    iterates = schedules.conjugate_gradients(MOMENTS[0], Y[..., :14].unsqueeze(-1), 5)
    prediction = (iterates * MOMENTS[1]).sum((-2, -1))
    posterior = torch.stack([bayes.predict(K, y)[:, 0] for y in Y])
    excess = ((prediction - posterior) ** 2).mean((1, 2))
    bound = schedules.optimal(MOMENTS, 5).losses - BAYES
    assert excess[1] > bound[1]
    assert excess[5] < bound[5]


def test_mismatched_attention_can_have_complex_roots():
    H = blocks_of("linear")
    for k in (2, 3):
        best = schedules.optimal(MOMENTS, k, attention=H)
        assert not best.attained
        with pytest.raises(schedules.ComplexRoots, match=r"\di"):
            _ = best.steps
        point = minimise(
            Chart(functional_descent(5, [0.1 * (j + 1) for j in range(k)], "linear"), EYE, ["r"]), X, MOMENTS
        )
        assert point.loss > float(best.losses[-1]) + 1e-4  # real steps stay above the bound
    one = schedules.optimal(MOMENTS, 1, attention=H)
    eta, nu = H[1], MOMENTS[1]
    step = float((eta * nu).sum((-2, -1)).mean() / (eta * (MOMENTS[0] @ eta)).sum((-2, -1)).mean())
    assert abs(one.steps[0] - step) < 1e-12  # the closed form of one layer


def test_label_noise_can_have_complex_roots():
    noiseless = (MOMENTS[0], MOMENTS[1])
    quiet = schedules.optimal(label_process("exponential", noise=0.1).moments(X), 4, noiseless)
    loud_moments = label_process("exponential", noise=1.0).moments(X)
    loud = schedules.optimal(loud_moments, 4, noiseless)
    assert quiet.attained
    assert not loud.attained
    quiet_moments = label_process("exponential", noise=0.1).moments(X)
    assert abs(loss_of(quiet.steps, moments=quiet_moments) - float(quiet.losses[-1])) < 1e-12


def test_relu_attention_on_absolute_labels_attains_its_bound():
    labels = label_process("relu")
    moments = labels.moments(X)
    for k in (1, 2, 3, 5):
        best = schedules.optimal(moments, k, attention=blocks_of("relu"))
        assert best.attained
        assert abs(loss_of(best.steps, "relu", moments) - float(best.losses[-1])) < 1e-11


def test_bad_input():
    K_hat, nu, kappa = MOMENTS
    s = schedules
    for error, call in {
        "step": lambda: s.constant(float("nan"), 2),
        "layers": lambda: s.constant(0.1, 0),
        "low": lambda: s.chebyshev(0.0, 1.0, 2),
        "high": lambda: s.chebyshev(2.0, 1.0, 2),
        "layers ": lambda: s.chebyshev_bound(1.0, 2.0, -1),
        "layers  ": lambda: s.sign_pairs(1.0, 2.0, 3),
        "scale": lambda: s.harmonic(2, float("inf")),
        "steps": lambda: s.leja([float("nan")]),
        "nu": lambda: s.moments(K_hat, nu[:, :3], 2),
        "count": lambda: s.moments(K_hat, nu, 0),
        "K_hat": lambda: s.spectral_measure(kernel("relu").gram(X)[:, :14, :14], nu),
        "K_hat ": lambda: s.optimal((K_hat[:, :3], nu, kappa), 2),
        "attention": lambda: s.optimal(MOMENTS, 2, (K_hat[:, :3, :3], nu)),
        "attention ": lambda: s.optimal(MOMENTS, 2, (K_hat, 0 * nu)),
        "nu ": lambda: s.optimal((K_hat, 0 * nu, kappa), 2),
        "layers   ": lambda: s.jacobi(K_hat, nu, 0),
        "degree": lambda: s.christoffel(torch.ones(3).double(), torch.ones(3).double(), 2),
        "masses": lambda: s.christoffel(torch.ones(3).double(), torch.ones(2).double(), 2),
        "iterations": lambda: s.conjugate_gradients(K_hat, nu, 0),
    }.items():
        with pytest.raises(ValueError, match=rf"^{error.strip()}"):
            call()
