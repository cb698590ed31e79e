"""The label-integrated loss equals the sampled one in mean, and its recursion is the network's."""

import pytest
import sympy as sp
import torch

from icfgd import attention, bayes, losses
from icfgd.device import generator
from icfgd.kernels import absolute, kernel
from icfgd.processes import Covariates, covariance, label_process
from icfgd.symbolic import is_zero
from icfgd.transformer import Transformer

SIGMA = covariance([0.5, 1.0, 2.25], generator(5))
G1 = torch.tensor([[1.0, 0.0, 0.0]])
TERMS = [(0.5, "linear", G1), (0.5, "exponential", None)]


def network(heads, layers=3, seed=0, d=3, scale=0.03, steps=0.08, **options):
    return Transformer(d, layers, heads, **options).randomise(generator(seed), scale, steps)


def prompts(batch, tokens, sigma=SIGMA, law="sphere", seed=1):
    return Covariates(sigma, law).sample(batch, tokens, generator(seed))


COMBINATIONS = [
    ("linear", {}, ["linear"], 1, None),
    ("linear", {}, ["softmax"], 4, SIGMA),
    ("exponential", {"scale": 2.0}, ["exponential"], 3, SIGMA),
    ("exponential", {"noise": 0.3}, ["relu"], 2, None),
    ("relu", {}, ["relu"], 3, SIGMA),
    ("relu", {}, ["exponential"], 2, None),
    ("gaussian", {}, ["softmax", "linear"], 3, SIGMA),
    ("polynomial", {"degree": 3}, ["exponential", "relu"], 2, SIGMA),
    ("arccosine", {}, ["relu"], 3, SIGMA),
    ("composite", {"terms": TERMS}, ["linear", "exponential"], 3, SIGMA),
    ("relu_network", {"width": 2}, ["relu"], 2, SIGMA),
]


@pytest.mark.parametrize(("name", "options", "heads", "layers", "sigma"), COMBINATIONS)
def test_equals_the_monte_carlo_loss(name, options, heads, layers, sigma):
    labels = label_process(name, sigma, **options)
    model = network(heads, layers)
    X = prompts(2, 7)
    copies = X.repeat_interleave(8000, 0)
    Y = labels.sample(copies, generator(2))
    with torch.no_grad():
        squares = ((model(copies, Y[:, :-1]) - Y[:, -1:]) ** 2).reshape(2, -1)
        exact = losses.integrated_risk(model, X, labels)
        wrong = losses.integrated_risk(model, X, label_process("gaussian", sigma, width=0.3))
        sampled = losses.sampled_loss(model, copies, Y)
    error = squares.std(1) / squares.shape[1] ** 0.5
    assert ((squares.mean(1) - exact).abs() < 4 * error).all()
    assert ((squares.mean(1) - wrong).abs() > 4 * error).any()  # the test can tell label laws apart
    assert torch.isclose(sampled, squares.mean(), rtol=1e-12, atol=0)
    if name != "relu_network":  # E[Z^4] = 3 (E[Z^2])^2: the variance that integration removes is 2 s^2
        fourth = squares**2
        assert ((fourth.mean(1) - 3 * exact**2).abs() < 4.5 * fourth.std(1) / squares.shape[1] ** 0.5).all()


@pytest.mark.parametrize("heads", [["linear"], ["relu"], ["exponential"], ["softmax"], ["softmax", "relu"]])
def test_weights_reproduce_the_forward_pass(heads):
    model = network(heads)
    X, y = prompts(8, 10), torch.randn(8, 7, generator=generator(3), dtype=torch.float64)
    w = losses.predictor_weights(model, X, queries=3)
    assert torch.allclose((y.unsqueeze(-2) @ w).squeeze(-2), model(X, y, 3), rtol=0, atol=1e-13)


def mixing(model, X, n):
    """The matrices I - sum_h r_h M H_h of all layers, from the literal mask, for X (N, d)."""
    M, found = attention.mask(n, X.shape[0] - n, like=X), []
    for layer, (tokens, _) in zip(range(model.layers), model.states(X, X.shape[0] - n)):
        full = torch.zeros(len(X), len(X), dtype=X.dtype)
        for head, h in enumerate(model.heads[layer]):
            U, W = tokens @ model.B[layer, head].T, tokens @ model.C[layer, head].T
            full = full + model.r[layer, head] * attention.attention_matrix(h, U.T, W.T, n)
        found.append((torch.eye(len(X), dtype=X.dtype) - M @ full, torch.eye(len(X), dtype=X.dtype) - full))
    return found


def test_recursion_runs_from_the_last_layer_and_needs_the_mask():
    model, X = network(["exponential"], steps=0.2), prompts(1, 7)[0]
    last = torch.zeros(7, 1, dtype=X.dtype)
    last[-1] = 1
    masked = [m for m, _ in mixing(model, X, 6)]

    def product(matrices):
        u = last
        for m in matrices:
            u = m @ u
        return u

    u = product(masked[::-1])
    assert u[-1] == 1
    w = losses.predictor_weights(model, X)
    assert torch.allclose(-u[:-1], w, rtol=0, atol=1e-13)
    assert (product(masked)[:-1] + w).abs().max() > 1e-3  # first layer first: wrong
    assert (
        product([m for _, m in mixing(model, X, 6)][::-1])[:-1] + w
    ).abs().max() > 1e-3  # unmasked query: wrong


def test_expectation_over_labels_is_exact_in_algebra():
    n, r, h = 2, sp.symbols("r0 r1"), [sp.Matrix(3, 3, sp.symbols(f"h{layer}_:9")) for layer in range(2)]
    y = sp.Matrix([sp.symbols("y1 y2 y3")])
    M = attention.mask(n)
    Y = y.copy()
    Y[2] = 0
    u = sp.Matrix([0, 0, 1])
    for layer in range(2):
        Y = Y - r[layer] * Y * M * h[layer]
    for layer in (1, 0):
        u = (sp.eye(3) - r[layer] * M * h[layer]) * u
    K = sp.Matrix(3, 3, lambda i, j: sp.Symbol(f"K{min(i, j)}{max(i, j)}"))
    square = sp.Poly(sp.expand((Y[2] + y[2]) ** 2), *y)
    expected = 0
    for powers, coefficient in square.terms():
        i, j = (index for index in range(3) for _ in range(powers[index]))
        expected += coefficient * K[i, j]
    assert is_zero(expected - (u.T * K * u)[0])
    wrong = (sp.eye(3) - r[1] * M * h[1]) * (sp.eye(3) - r[0] * M * h[0]) * sp.Matrix([0, 0, 1])
    assert not is_zero(expected - (wrong.T * K * wrong)[0])


def test_leaking_label_row_breaks_linearity():
    X, y = prompts(1, 7)[0].T, torch.randn(6, generator=generator(3), dtype=torch.float64)
    V = attention.value_matrix(0.1 * torch.eye(3, dtype=X.dtype), 0.2)

    def output(V, y):
        heads = [(V, torch.eye(3, dtype=X.dtype), torch.eye(3, dtype=X.dtype), kernel("exponential"))]
        return attention.forward(attention.prompt(X, y), [heads, heads], 6)[-1][-1, -1]

    leak = V.clone()
    leak[-1, :-1] = 0.3
    assert abs(output(V, 2 * y) - 2 * output(V, y)) < 1e-12
    assert abs(output(leak, 2 * y) - 2 * output(leak, y)) > 1e-2  # an offset: affine, not linear
    back = V.clone()
    back[:-1, -1] = 0.3
    middle = output(back, y) - (output(back, 2 * y) + output(back, 0 * y)) / 2
    assert abs(middle) > 1e-2  # labels leak into covariates: not even affine


@pytest.mark.parametrize("heads", [["linear"], ["relu"], ["exponential"], ["softmax"]])
def test_many_queries_equal_single_ones(heads):
    model, X, labels = network(heads), prompts(5, 11), label_process("exponential", SIGMA)
    together = losses.integrated_risk(model, X, labels, queries=4)
    each = [losses.integrated_risk(model, X[:, [*range(7), 7 + j]], labels) for j in range(4)]
    assert torch.allclose(together, sum(each) / 4, rtol=1e-13, atol=0)


def test_is_never_below_the_bayes_risk_and_meets_it():
    labels, X = label_process("exponential", SIGMA), prompts(64, 7)
    K = labels.second_moment(X)
    floor = bayes.risk(K)[:, 0]
    assert (losses.integrated_risk(network(["softmax"]), X, labels) >= floor - 1e-10).all()
    omega = bayes.weights(K)
    K_hat, nu, kappa = labels.moments(X)
    direct = (kappa - 2 * (omega * nu).sum(-2) + (omega * (K_hat @ omega)).sum(-2))[:, 0]
    assert torch.allclose(direct, floor, rtol=1e-9, atol=1e-12)


def test_only_second_moments_matter_and_no_factorisation_is_needed(monkeypatch):
    model, X = network(["relu"]), prompts(8, 7)
    narrow, process = label_process("relu_network", SIGMA, width=1), label_process("arccosine", SIGMA)
    monkeypatch.setattr(torch.linalg, "eigh", None)
    monkeypatch.setattr(torch.linalg, "cholesky", None)
    assert torch.equal(losses.integrated_risk(model, X, narrow), losses.integrated_risk(model, X, process))


def test_gradients_equal_finite_differences():
    model, X = network(["exponential", "relu"], layers=2), prompts(16, 7)
    moments = label_process("exponential", SIGMA).moments(X)
    losses.integrated_loss(model, X, moments).backward()
    for name in ("A", "B", "C", "r"):
        parameter = getattr(model, name)
        direction = torch.randn(parameter.shape, generator=generator(7), dtype=parameter.dtype)
        direction = direction / direction.norm()

        def along(t, name=name, parameter=parameter, direction=direction):
            values = {name: parameter.detach() + t * direction}
            return losses.evaluate_at(losses.integrated_loss, model, values, X, moments)

        h = 5e-4
        slope = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
        assert torch.isclose((parameter.grad * direction).sum(), slope, rtol=1e-8, atol=1e-10), name


def test_gradient_is_the_mean_of_sampled_gradients():
    model, X, labels = network(["exponential"], layers=2), prompts(4, 7), label_process("exponential", SIGMA)
    exact = torch.autograd.grad(losses.integrated_loss(model, X, labels), (model.r, model.C))
    draws, draw = [], generator(11)
    for _ in range(30):
        copies = X.repeat(40, 1, 1)
        loss = losses.sampled_loss(model, copies, labels.sample(copies, draw))
        draws.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, (model.r, model.C))]))
    draws = torch.stack(draws)
    score = (draws.mean(0) - torch.cat([g.flatten() for g in exact])) / (draws.std(0) / len(draws) ** 0.5)
    assert score.abs().max() < 4.5


def test_adjoint_formula_for_the_steps():
    model, X = network(["exponential"]), prompts(1, 7)[0]
    labels = label_process("exponential", SIGMA)
    K = labels.second_moment(X)
    masked = [m for m, _ in mixing(model, X, 6)]
    u = [torch.eye(7, dtype=X.dtype)[:, -1:]]
    for m in masked[::-1]:
        u.append(m @ u[-1])
    u, g = u[::-1], K @ u[-1]
    found = []
    for layer, m in enumerate(masked):
        MH = (torch.eye(7, dtype=X.dtype) - m) / model.r[layer, 0]
        found.append(-2 * (g.T @ MH @ u[layer + 1]).squeeze())
        g = m.T @ g
    want = torch.autograd.grad(losses.integrated_risk(model, X, labels), model.r)[0][:, 0]
    assert torch.allclose(torch.stack(found), want, rtol=1e-12, atol=1e-13)


def test_division_by_context_and_dtype():
    X, labels = prompts(5, 7), label_process("exponential", SIGMA)
    plain, divided = network(["exponential"]), network(["exponential"], divide_by_context=True)
    with torch.no_grad():
        divided.r.mul_(6)
        divided.A.mul_(6)
    assert torch.allclose(
        losses.integrated_loss(plain, X, labels),
        losses.integrated_loss(divided, X, labels),
        rtol=1e-12,
        atol=0,
    )
    small = losses.integrated_loss(plain.to(torch.float32), X.float(), labels)
    assert small.dtype == torch.float32
    assert abs(small - losses.integrated_loss(plain.double(), X, labels)) < 1e-4


def test_batch_of_networks_gives_one_loss_each():
    labels, X = label_process("exponential", SIGMA), prompts(6, 7)
    many = network(["exponential", "relu"], batch=(3, 1), seed=4, scale=0.01)
    together = losses.integrated_loss(many, X, labels)
    Y = labels.sample(X, generator(8))
    assert together.shape == losses.sampled_loss(many, X, Y).shape == (3,)
    for i in range(3):
        one = network(["exponential", "relu"])
        with torch.no_grad():
            for name in ("A", "B", "C", "r"):
                getattr(one, name).copy_(getattr(many, name)[:, :, i, 0])
        assert torch.isclose(together[i], losses.integrated_loss(one, X, labels), rtol=1e-12, atol=0)
        assert torch.isclose(
            losses.sampled_loss(many, X, Y)[i], losses.sampled_loss(one, X, Y), rtol=1e-12, atol=0
        )


def test_absolute_kernel_is_taken_of_all_tokens():
    model, X = network(["relu"]), prompts(6, 9)
    K = kernel("relu").gram(label_process("relu", SIGMA).whiten(X))
    right = losses.integrated_risk(model, X, label_process("relu", SIGMA))
    moments = (absolute(K[:, :8, :8]), K[:, :8, 8:], K[:, 8:, 8])
    assert (losses.integrated_risk(model, X, moments) - right).abs().max() > 1e-3


def test_overflow_is_reported():
    model, X = network(["exponential"]), prompts(4, 7)
    with torch.no_grad():
        model.C.mul_(1e5)
    with pytest.raises(FloatingPointError, match="not finite"):
        losses.integrated_loss(model, X, label_process("linear"))
    assert not torch.isfinite(losses.integrated_loss(model, X, label_process("linear"), guard=False))


def test_bad_input():
    model, X, labels = network(["linear"]), prompts(4, 7), label_process("linear")
    bad = X.clone()
    bad[0, 0, 0] = float("nan")
    for call in (
        lambda: losses.predictor_weights(model, bad),
        lambda: losses.predictor_weights(model, X[:, :1]),
        lambda: losses.predictor_weights(model, X[..., :2]),
        lambda: losses.predictor_weights(model, X.float()),
        lambda: losses.integrated_risk(model, X, "linear"),
        lambda: losses.integrated_risk(model, X, labels.moments(X, 2)),
        lambda: losses.integrated_risk(model, X, label_process("relu"), queries=2),
        lambda: losses.integrated_loss(network(["linear"], batch=(4,)), X, labels),
        lambda: losses.sampled_loss(model, X, torch.zeros(4, 6, dtype=X.dtype)),
        lambda: losses.evaluate_at(losses.integrated_loss, model, {"Q": model.B}, X, labels),
    ):
        with pytest.raises(ValueError, match=r"^(X|Y|labels|queries|model|parameters)\b"):
            call()
