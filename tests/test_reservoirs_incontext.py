"""In-context reservoirs: closed forms, what trains, backskipping, contraction."""

import math

import pytest
import torch

from icfgd import bayes, losses
from icfgd.processes import Covariates, covariance, label_process
from icfgd.reservoirs import incontext
from icfgd.reservoirs.freezing import count
from icfgd.transformer import Transformer


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def scene(law="exponential", eigenvalues=None, d=3, n=6, batch=5):
    sigma = torch.eye(d, dtype=torch.float64) if eigenvalues is None else covariance(eigenvalues)
    options = {"scale": 2.0} if law == "exponential" else {}
    labels = label_process(law, sigma=None if eigenvalues is None else sigma, **options)
    return labels, Covariates(sigma).sample(batch, n + 1, generator(1)), sigma


@pytest.mark.parametrize("law", ["exponential", "linear"])
def test_the_closed_form_equals_that_of_the_transformer(law):
    labels, X, _ = scene(law)
    model = incontext.InContext("LRT", 3, head=law, trained="scales", scale=0.5, seed=2)
    with torch.no_grad():
        model.factors[0].fill_(1.7)
    full = Transformer(3, 3, [law], divide_by_context=True)
    with torch.no_grad():
        for layer in range(3):
            full.C[layer, 0] = model.factors[layer] * model.weights[layer]
            full.r[layer, 0] = model.r[layer]
    assert torch.allclose(model.predictor(X), losses.predictor_weights(full, X), rtol=1e-10, atol=1e-13)
    assert torch.allclose(model(X, labels), losses.integrated_loss(full, X, labels), rtol=1e-10)


def test_the_closed_form_equals_monte_carlo_example_by_example():
    labels, X, _ = scene(batch=3)
    model = incontext.InContext("LT", 3, scale=0.5)
    w = model.predictor(X).detach()
    risk = bayes.conditional_risk(labels.second_moment(X), w).squeeze(-1)
    Y = labels.sample(X.expand(20000, -1, -1, -1), generator(3))
    errors = ((Y[..., :6] * w.squeeze(-1)).sum(-1) - Y[..., 6]) ** 2
    assert ((errors.mean(0) - risk).abs() < 4 * errors.std(0) / 20000**0.5).all()


def test_what_is_trained():
    counts = {"all": 10, "scales": 2, "steps": 1}
    for trained, each in counts.items():
        model = incontext.InContext("LRLT", 3, trained=trained)
        assert count(model)[0] == 2 * each
    model = incontext.InContext("LRLT", 3, attention="untied", seed=1)
    for W in [model.weights[0], model.weights[1]]:
        assert torch.allclose(W @ W.T, torch.eye(3, dtype=W.dtype))
        assert (W - torch.eye(3)).abs().max() > 0.1
    assert torch.equal(model.weights[3], torch.eye(3, dtype=torch.float64))
    again = incontext.InContext("LRLT", 3, attention="untied", seed=1)
    assert torch.equal(model.weights[0], again.weights[0])
    assert model.steps() == again.steps()
    assert 0 < model.steps()[1] < 2
    assert model.steps()[1] != model.steps()[3]
    assert incontext.InContext("LT", 3, frozen_step=0.7).steps()[1] == 0.7
    assert incontext.InContext("LLL", 3).steps() == [0.5, 1.5, 2.5]
    assert incontext.InContext("LL", 3, start="equal").steps() == [1.0, 1.0]


def test_equal_steps_stay_equal_because_layers_commute():
    labels, X, _ = scene()
    model = incontext.InContext("LLL", 3, trained="steps", scale=0.5, start="equal")
    model(X, labels).backward()
    gradients = torch.stack([r.grad for r in model.r])
    assert torch.allclose(gradients, gradients[0].expand(3), rtol=1e-9)
    spread = incontext.InContext("LLL", 3, trained="steps", scale=0.5)
    spread(X, labels).backward()
    assert torch.stack([r.grad for r in spread.r]).std() > 1e-3


def test_whitened_freezing_undoes_the_covariance():
    plain_labels, plain_X, _ = scene(d=3)
    labels, X, sigma = scene(eigenvalues=[2.0, 1.0, 0.3], d=3)
    assert torch.allclose(X, plain_X @ sigma.sqrt())
    a = incontext.InContext("LL", 3, scale=0.5)(plain_X, plain_labels)
    b = incontext.InContext("LL", 3, scale=0.5, attention="whitened", sigma=sigma)(X, labels)
    c = incontext.InContext("LL", 3, scale=0.5, attention="tied", sigma=sigma)(X, labels)
    assert torch.allclose(a, b, rtol=1e-10)
    assert (a - c).abs() > 1e-3


def test_backskipping_in_context():
    labels, X, _ = scene()
    grads = {}
    for mode in ("exact", "st", "stop"):
        model = incontext.InContext("LTL", 3, scale=0.5, frozen_step=0.6, backskip=mode)
        loss = model(X, labels)
        loss.backward()
        grads[mode] = (float(loss.detach()), model.r[0].grad, model.r[2].grad)
    assert grads["exact"][0] == pytest.approx(grads["st"][0], rel=1e-12)
    assert grads["exact"][0] == pytest.approx(grads["stop"][0], rel=1e-12)
    assert grads["stop"][1] is None
    assert (grads["st"][1] - grads["exact"][1]).abs() > 1e-6
    assert torch.allclose(grads["st"][2], grads["exact"][2], rtol=1e-10)


def test_contraction_at_the_critical_step():
    labels, X, _ = scene()
    H = incontext.InContext("L", 3, scale=0.5).attention(X)[0][..., :6].detach()
    critical = incontext.critical_step(H)
    for i in range(5):
        assert float(incontext.contraction(H[i], 0.999 * float(critical[i]))) < 1
        assert float(incontext.contraction(H[i], 1.001 * float(critical[i]))) > 1
        assert float(incontext.contraction(H[i], -0.1)) > 1


@pytest.mark.parametrize(
    "bad",
    [
        {"pattern": "LX"},
        {"pattern": ""},
        {"trained": "some"},
        {"attention": "random"},
        {"attention": "whitened"},
        {"backskip": "off"},
        {"start": "random"},
        {"head": "quadratic"},
        {"frozen_step": math.inf, "pattern": "T"},
        {"d": 0},
    ],
)
def test_in_context_stacks_refuse_nonsense(bad):
    with pytest.raises(ValueError):
        incontext.InContext(**{"pattern": "L", "d": 3, **bad})
