"""The constructed networks run the algorithms they are said to run; dropping a hypothesis breaks them."""

import math

import pytest
import sympy as sp
import torch

from icfgd import attention, bayes, constructions, descent
from icfgd.device import generator
from icfgd.kernels import composite, kernel
from icfgd.losses import integrated_risk, predictor_weights
from icfgd.processes import Covariates, covariance, label_process, power
from icfgd.symbolic import is_zero

D = 3
SIGMA = covariance([0.5, 1.0, 2.25], generator(5))
X = Covariates(SIGMA).sample(40, 9, generator(0))
Y = torch.randn(40, 9, generator=generator(1), dtype=torch.float64)
STEPS = [0.1, -0.05, 0.2, 0.03, 0.15, 0.08, 0.12]
G1, G2 = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
TERMS = [(0.5, "linear", G1), (0.7, "exponential", G2)]


def whitened(name, terms=None):
    k = composite(terms) if terms else kernel(name)
    return k.gram(label_process("linear", SIGMA).whiten(X))


def tokens_of(K, steps, y=Y):
    """Residuals (k+1, P, n) and predictions (k+1, P) of functional gradient descent, from K alone."""
    c = descent.coefficients(K[:, :8, :8], y[:, :8], steps)
    return y[:, :8] - (K[:, :8, :8] @ c.unsqueeze(-1)).squeeze(-1), (c * K[:, :8, 8]).sum(-1)


@pytest.mark.parametrize("name", ["linear", "relu", "exponential", "gaussian", "arccosine"])
@pytest.mark.parametrize("context", [None, 8])
def test_proposition_1_at_every_layer_and_token(name, context):
    trace = constructions.functional_descent(D, STEPS, name, SIGMA, context).trace(X, Y)
    residuals, predictions = tokens_of(whitened(name), STEPS)
    assert torch.allclose(trace.residuals, residuals, rtol=0, atol=1e-12)
    assert torch.allclose(trace.predictions[..., 0], predictions, rtol=0, atol=1e-12)
    raw = constructions.functional_descent(D, STEPS, name)  # the kernel on x instead of xi
    assert (raw.trace(X, Y).predictions[..., 0] - predictions).abs().max() > 1e-2


def test_proposition_1_needs_the_mask():
    K, n, eye = whitened("exponential"), 8, torch.eye(D, dtype=torch.float64)
    whitening = power(SIGMA, -0.5)
    Z = attention.prompt((X[0] @ whitening).T, Y[0, :8])
    V = attention.value_matrix(0 * eye, 0.1)
    want = tokens_of(K, [0.1] * 3)[1][-1, 0]
    for M, good in ((attention.mask(n, like=Z), True), (torch.eye(9, dtype=Z.dtype), False)):
        state = Z
        for _ in range(3):
            state = attention.layer(state, [(V, eye, eye, kernel("exponential"))], M, n)
        gap = abs(float(-state[-1, -1] - want))
        assert gap < 1e-12 if good else gap > 1e-3


def test_any_root_of_sigma_will_do():
    L = torch.linalg.cholesky(SIGMA)
    model = constructions.functional_descent(D, [0.1, 0.2], "exponential", SIGMA)
    want = model(X, Y)
    with torch.no_grad():
        model.B.copy_(torch.linalg.inv(L).expand_as(model.B))
        model.C.copy_(torch.linalg.inv(L).expand_as(model.C))
    assert torch.allclose(model(X, Y), want, rtol=0, atol=1e-12)
    with torch.no_grad():
        model.C.copy_(torch.linalg.inv(L).T.expand_as(model.C))
    assert (model(X, Y) - want).abs().max() > 1e-2


def test_proposition_2_converges_below_the_critical_step_and_diverges_above():
    labels = label_process("exponential", SIGMA)
    K = labels.second_moment(X)
    values, vectors = torch.linalg.eigh(K[:, :8, :8])
    for i in range(3):
        step = 1.0 / float(values[i, -1])
        model = constructions.functional_descent(D, [step] * 30, sigma=SIGMA)
        excess = integrated_risk(model, X[i : i + 1], labels).detach() - bayes.risk(K[i : i + 1])[:, 0]
        squares = (vectors[i].T @ K[i, :8, 8]) ** 2 / values[i]
        assert abs(float(excess - (squares * (1 - step * values[i]) ** 60).sum())) < 1e-13
        rate = float((1 - step * values[i]).abs().max())
        assert excess <= rate**60 * K[i, 8, 8] + 1e-10
        bad = constructions.functional_descent(D, [2.2 / float(values[i, -1])] * 30, sigma=SIGMA)
        assert integrated_risk(bad, X[i : i + 1], labels) > 1e3


def test_proposition_2_bound_in_depth_prompt_by_prompt():
    K = label_process("exponential", SIGMA).second_moment(X)
    values, vectors = torch.linalg.eigh(K[:, :8, :8])
    coordinates = (vectors.mT @ K[:, :8, 8:]).squeeze(-1)
    W = (coordinates**2 / values**2).sum(-1)
    r = 1 / (8 * math.e)
    for k in (1, 3, 30, 300, 3000):
        excess = (coordinates**2 / values * (1 - r * values) ** (2 * k)).sum(-1)
        assert (excess <= W / (r * (2 * k + 1)) * (2 * k / (2 * k + 1)) ** (2 * k) + 1e-10).all()
    grid = torch.linspace(0, 1 / r, 100_001, dtype=torch.float64)
    top = float((grid * (1 - r * grid) ** 60).max())
    assert abs(top - (60 / 61) ** 60 / (61 * r)) < 1e-8


def test_rank_deficient_linear_kernel_still_converges():
    labels = label_process("linear", SIGMA)
    model = constructions.functional_descent(D, [1 / 3] * 100, "linear", SIGMA)
    assert integrated_risk(model, X[:4], labels).max() < 1e-4  # n = 8 > d = 3, Bayes risk 0
    assert torch.linalg.eigvalsh(labels.moments(X)[0])[:, 0].abs().max() < 1e-12


def test_indefinite_limit_is_not_bayes():
    labels = label_process("relu", SIGMA)
    K, absolute = whitened("relu"), labels.second_moment(X)
    # Where all inner products are positive the ReLU Gram matrix is the linear one, of rank d: leave those out.
    regular = torch.linalg.eigvalsh(K).abs().amin(-1) > 1e-6
    regular &= torch.linalg.eigvalsh(K[:, :8, :8]).abs().amin(-1) > 1e-6
    K, absolute = K[regular], absolute[regular]
    assert len(K) > 20
    inverse = torch.linalg.inv(K)[:, 8, 8]
    inverse_absolute = torch.linalg.inv(absolute)[:, 8, 8]
    w = torch.linalg.solve(K[:, :8, :8], K[:, :8, 8:])
    risk = bayes.conditional_risk(absolute, w)[:, 0]
    gap = (risk * inverse**2 / inverse_absolute - 1).abs()
    assert gap.median() < 1e-11
    assert ((inverse_absolute / inverse) ** 2 >= 1 - 1e-8).all()
    assert ((inverse_absolute / inverse) ** 2).median() > 1.02
    phi, p1, p2 = sp.symbols("phi p1 p2", positive=True)
    R = sp.Matrix([[sp.cos(phi), -sp.sin(phi)], [sp.sin(phi), sp.cos(phi)]])
    exact, modulus = R * sp.diag(p1, -p2) * R.T, R * sp.diag(p1, p2) * R.T
    limit = exact[0, 1] / exact[0, 0]
    value = modulus[1, 1] - 2 * limit * modulus[0, 1] + limit**2 * modulus[0, 0]
    ratio = (modulus.inv()[1, 1] / exact.inv()[1, 1]) ** 2
    assert is_zero(sp.simplify(value * modulus.inv()[1, 1] - ratio))
    assert not is_zero(sp.simplify(ratio - 1))


def test_proposition_3_heads_add_kernels():
    K = whitened(None, TERMS)
    trace = constructions.composite_descent(D, STEPS, TERMS, SIGMA).trace(X, Y)
    residuals, predictions = tokens_of(K, STEPS)
    assert torch.allclose(trace.residuals, residuals, rtol=0, atol=1e-12)
    assert torch.allclose(trace.predictions[..., 0], predictions, rtol=0, atol=1e-12)
    alone = constructions.composite_descent(D, STEPS, TERMS[1:], SIGMA).trace(X, Y)
    assert (alone.predictions[..., 0] - predictions).abs().max() > 1e-2
    assert torch.linalg.eigvalsh(K).min() > 0
    a, b = sp.Matrix(sp.symbols("a:2")), sp.Matrix(sp.symbols("b:2"))
    G = sp.diag(1, 0)
    both = composite([(1, "linear", [[1, 0], [0, 0]]), (2, "exponential", None)]).symbolic(a, b)
    assert is_zero(both - ((G * a).T * (G * b))[0] - 2 * sp.exp((a.T * b)[0]))


def test_best_steps_of_one_layer_with_several_heads():
    moments = label_process("exponential", SIGMA).moments(X)
    K_hat, nu, kappa = moments
    names = ("linear", "softmax", "relu")
    eta = [predictor_weights(constructions.functional_descent(D, [1.0], h, SIGMA), X) for h in names]
    G = torch.stack([torch.stack([(a * (K_hat @ b)).sum((-2, -1)).mean() for b in eta]) for a in eta])
    g = torch.stack([(a * nu).sum((-2, -1)).mean() for a in eta])
    r = torch.linalg.solve(G, g)
    w = sum(s * e for s, e in zip(r, eta))
    loss = (kappa - 2 * (w * nu).sum(-2) + (w * (K_hat @ w)).sum(-2)).mean()
    assert torch.isclose(loss, kappa.mean() - g @ r, rtol=1e-12)
    assert loss < kappa.mean() - g[1] ** 2 / G[1, 1] - 1e-3  # better than the softmax head alone


def test_gradient_descent_and_its_preconditioned_form():
    P = torch.tensor([[0.5, 0.2, 0.0], [0.0, 0.3, 0.1], [0.1, 0.0, 0.4]], dtype=torch.float64)
    for matrix, model in (
        (torch.eye(D, dtype=X.dtype), constructions.gradient_descent(D, STEPS)),
        (P, constructions.preconditioned_descent(D, STEPS, P)),
    ):
        w = torch.zeros(40, D, 1, dtype=X.dtype)
        context, y = X[:, :8], Y[:, :8].unsqueeze(-1)
        for r in STEPS:
            w = w + r * matrix @ context.mT @ (y - context @ w)
        assert torch.allclose(model(X, Y), (X[:, 8:] @ w).squeeze(-1), rtol=0, atol=1e-11)
        if matrix is P:
            transposed = constructions.preconditioned_descent(D, STEPS, P.T)
            assert (transposed(X, Y) - model(X, Y)).abs().max() > 1e-3


EYE = torch.eye(D, dtype=torch.float64)
LAMBDA = torch.diag(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))


def table_row(row, n):
    inverse, trace, d = torch.linalg.inv(LAMBDA), torch.trace(LAMBDA), D
    if row == "gaussian, W = I":
        values = torch.diagonal(LAMBDA)
        loss = (values * (1 - n * values / ((n + 1) * values + trace))).sum()
        return "gaussian", None, torch.linalg.inv((n + 1) * LAMBDA + trace * EYE), float(loss)
    if row == "gaussian":
        return "gaussian", inverse, inverse / (n + d + 1), d * (d + 1) / (n + d + 1)
    return "sphere", inverse, d * inverse / (n + d - 1), (d - 1) / (n + d - 1)


@pytest.mark.parametrize("row", ["gaussian, W = I", "gaussian", "sphere"])
def test_one_layer_minimiser(row):
    n = 6
    law, W, N, loss = table_row(row, n)
    found, value = constructions.one_layer_optimum(LAMBDA, n, law, W)
    assert torch.allclose(found, N, rtol=0, atol=1e-14)
    assert abs(value - loss) < 1e-13
    points = Covariates(LAMBDA, law).sample(20_000, n + 1, generator(3))
    M = points @ (EYE if W is None else W) @ points.mT
    moments = (M[:, :n, :n], M[:, :n, n:], M[:, n:, n])
    risks = []
    for context, scale in ((None, 1.0), (n, 1.0), (None, 1.3)):
        model = constructions.one_layer_network(LAMBDA, n, law, W, context)
        with torch.no_grad():
            model.r.mul_(scale)
            risks.append(integrated_risk(model, points, moments))
    assert torch.allclose(risks[0], risks[1], rtol=1e-10, atol=1e-12)
    error = risks[0].std() / 20_000**0.5
    assert abs(risks[0].mean() - loss) < 4.5 * error
    gap = risks[2] - risks[0]
    assert gap.mean() > 4.5 * gap.std() / 20_000**0.5  # another step is worse


def test_one_layer_moments_are_isserlis():
    n = sp.Symbol("n", positive=True)
    x, y = sp.symbols("x1 x2"), sp.symbols("y1 y2")
    a, b = sp.symbols("l1 l2", positive=True)

    def mean(expression):
        poly = sp.Poly(sp.expand(expression), *x, *y)
        gauss = {0: 1, 2: 1, 4: 3}
        scale = (a, b, a, b)
        return sum(
            c * sp.prod([gauss[p] * s ** (p // 2) for p, s in zip(powers, scale)])
            for powers, c in poly.terms()
            if all(p % 2 == 0 for p in powers)
        )

    xx, yy = (sp.Matrix(v) * sp.Matrix(v).T for v in (x, y))
    square = n * (xx * xx).applyfunc(mean) + n * (n - 1) * (xx * yy).applyfunc(mean)
    L = sp.diag(a, b)
    assert is_zero(square - (n * (n + 1) * L**2 + n * (a + b) * L))
    got, G = constructions.one_layer_moments(torch.diag(torch.tensor([0.5, 2.0]).double()), 7)
    want = square.subs({n: 7, a: sp.Rational(1, 2), b: 2})
    assert torch.allclose(got, torch.tensor([[float(v) for v in want.row(i)] for i in range(2)]).double())
    assert torch.allclose(G, 7 * torch.diag(torch.tensor([0.5, 2.0]).double()))


def test_gdpp_computes_its_polynomials():
    r, a = [0.2, 0.3, 0.25], [-0.05, -0.03, 0.02]
    xi = label_process("linear", SIGMA).whiten(X)
    w = torch.randn(40, D, 1, generator=generator(4), dtype=X.dtype)
    y = (xi @ w).squeeze(-1)
    values, vectors = torch.linalg.eigh(xi[:, :8].mT @ xi[:, :8])
    for context in (None, 8):
        trace = constructions.gdpp(D, r, a, SIGMA, context).trace(X, y)
        p, q = constructions.gdpp_polynomials(r, a, values)
        for layer in range(4):
            left = (xi @ (vectors * p[layer].unsqueeze(-2)) @ (vectors.mT @ w)).squeeze(-1)
            assert torch.allclose(left[:, :8], trace.residuals[layer], rtol=0, atol=1e-12)
            assert torch.allclose(left[:, 8:], y[:, 8:] - trace.predictions[layer], rtol=0, atol=1e-12)
            moved = xi @ (vectors * q[layer].unsqueeze(-2)) @ vectors.mT
            state = label_process("linear", SIGMA).whiten(trace.covariates[layer])
            assert torch.allclose(state, moved, rtol=0, atol=1e-12)
    plain, _ = constructions.gdpp_polynomials(r, [0.0] * 3, values)
    assert torch.allclose(plain[-1], descent.residual_polynomial(r, values), rtol=1e-13)
    assert (plain[-1] - p[-1]).abs().max() > 1e-3


def test_gdpp_degree_grows_as_three_to_the_depth():
    t = sp.Symbol("t")
    p, _ = constructions.gdpp_polynomials(sp.symbols("r:4"), sp.symbols("a:4"), t)
    assert [sp.degree(sp.expand(f.subs(dict.fromkeys(f.free_symbols - {t}, 1))), t) for f in p] == [
        0,
        1,
        4,
        13,
        40,
    ]


def test_softmax_smoother():
    model = constructions.softmax_smoother(D, scale=0.5, sigma=SIGMA)
    K = kernel("exponential", scale=0.5).gram(label_process("linear", SIGMA).whiten(X))
    weights = K[:, :8, 8]
    want = (weights * Y[:, :8]).sum(-1) / weights.sum(-1)  # Nadaraya and Watson
    assert torch.allclose(model(X, Y)[:, 0], want, rtol=0, atol=1e-13)
    K_hat, nu = K[:, :8, :8], K[:, :8, 8:]
    degrees, at_query = K_hat.sum(-2), nu.sum(-2)
    spectrum = torch.linalg.eigvalsh(K_hat / (degrees.unsqueeze(-1) * degrees.unsqueeze(-2)).sqrt())
    P = K_hat / degrees.unsqueeze(-2)
    assert torch.allclose(P.sum(-2), torch.ones_like(degrees))
    assert torch.allclose(torch.linalg.eigvals(P).real.sort().values, spectrum, rtol=0, atol=1e-11)
    assert spectrum.min() > 0
    assert torch.allclose(spectrum[:, -1], torch.ones(40).double())
    # (c) one step of the weighted descent in the kernel K / (d d'); (e) its limit is not the posterior mean.
    one = constructions.softmax_smoother(D, [0.7], 0.5, SIGMA).trace(X, Y).residuals[-1]
    prime = K_hat / (degrees.unsqueeze(-1) * degrees.unsqueeze(-2))
    step = Y[:, :8] - 0.7 * (prime @ (degrees * Y[:, :8]).unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(one, step, rtol=0, atol=1e-12)
    solved = torch.linalg.solve(K_hat, nu)
    limit = degrees.unsqueeze(-1) * solved / at_query.unsqueeze(-2)
    prime_nu = nu / (degrees.unsqueeze(-1) * at_query.unsqueeze(-2))
    assert torch.allclose(torch.linalg.solve(prime, prime_nu), limit, rtol=1e-8, atol=1e-9)
    deep = predictor_weights(constructions.softmax_smoother(D, [1.9] * 600, 0.5, SIGMA), X[:1])
    assert (deep - limit[:1]).abs().max() < 1e-3 < 1e-1 < (solved - limit).abs().max()
    excess = bayes.conditional_risk(K, limit) - bayes.risk(K)
    assert excess.min() >= -1e-10
    assert excess.mean() > 1e-3


def test_bad_input():
    c = constructions
    for name, call in {
        "steps": lambda: c.functional_descent(D, []),
        "steps ": lambda: c.functional_descent(D, [float("nan")]),
        "d": lambda: c.functional_descent(0, [0.1]),
        "name": lambda: c.functional_descent(D, [0.1], "expnential"),
        "sigma": lambda: c.functional_descent(D, [0.1], sigma=torch.eye(2, dtype=torch.float64)),
        "context": lambda: c.functional_descent(D, [0.1], context=0),
        "terms": lambda: c.composite_descent(D, [0.1], []),
        "G": lambda: c.composite_descent(D, [0.1], [(1.0, "linear", torch.ones(1, 2))]),
        "steps  ": lambda: c.gradient_descent(D, [float("inf")]),
        "preconditioner": lambda: c.preconditioned_descent(D, [0.1], torch.eye(2, dtype=torch.float64)),
        "law": lambda: c.one_layer_optimum(SIGMA, 4, "cube"),
        "n": lambda: c.one_layer_moments(SIGMA, 0),
        "W": lambda: c.one_layer_network(SIGMA, 4, W=torch.eye(2, dtype=torch.float64)),
        "transforms": lambda: c.gdpp(D, [0.1, 0.2], [0.1]),
        "transforms ": lambda: c.gdpp_polynomials([0.1], [0.1, 0.2], X),
        "scale": lambda: c.softmax_smoother(D, scale=0.0),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name.strip()}\b"):
            call()
