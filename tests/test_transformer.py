"""The batched engine against the literal layer, and what it promises about batches, queries and overflow."""

import itertools

import pytest
import torch
import witnesses

from icfgd.device import generator
from icfgd.kernels import ACTIVATIONS, composite, kernel
from icfgd.transformer import Transformer

COMPOSITE = composite([(0.5, "linear", [[1.0, 0.0, 1.0]]), (0.5, "exponential", None)])
HEADS = [
    *([name] for name in ACTIVATIONS),
    *map(list, itertools.combinations(("linear", "relu", "exponential", "softmax"), 2)),
    [kernel("exponential", scale=2.0), "softmax", COMPOSITE],
    [["softmax", "relu"], ["linear", "linear"], ["exponential", "softmax"]],
]


@pytest.mark.parametrize("divide", [False, True], ids=["sum", "mean"])
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: "+".join(str(getattr(h, "name", h)) for h in heads))
def test_engine_equals_the_literal_layer(heads, divide):
    witnesses.engine_equals_literal(heads, divide=divide)


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_engine_equals_the_literal_layer_for_any_number_of_queries(queries):
    witnesses.engine_equals_literal(["softmax", "relu"], queries=queries, layers=2)


def test_dividing_by_context_is_the_same_as_shorter_steps():
    witnesses.dividing_is_shorter_steps()


def network(heads=("exponential", "softmax"), layers=2, **options):
    return Transformer(3, layers, heads, **options).randomise(generator(0), 0.2, 0.3)


@torch.no_grad()
def test_fresh_networks_predict_zero_and_keep_the_prompt():
    X, y = witnesses.prompts()
    trace = Transformer(3, 2).trace(X, y, 2)
    assert not trace.predictions.any()
    assert trace.predictions.shape == (3, 4, 2)
    assert trace.residuals.shape == (3, 4, 5)
    assert trace.covariates.shape == (3, 4, 7, 3)
    assert (trace.residuals == y[:, :5]).all()
    assert (trace.covariates == X).all()


@torch.no_grad()
def test_a_batch_is_its_prompts_one_by_one():
    X, y = witnesses.prompts(batch=6)
    model = network()
    whole = model(X, y, 2)
    for i in range(6):
        torch.testing.assert_close(model(X[i], y[i], 2), whole[i])
    torch.testing.assert_close(model(X.view(2, 3, 7, 3), y.view(2, 3, 7), 2), whole.view(2, 3, 2))


@torch.no_grad()
def test_several_queries_are_single_queries_in_one_pass():
    X, y = witnesses.prompts()
    model = network()
    together = model(X, y, 3)
    alone = torch.cat([model(torch.cat([X[:, :4], X[:, j : j + 1]], 1), y[:, :4]) for j in (4, 5, 6)], -1)
    torch.testing.assert_close(together, alone)


@torch.no_grad()
def test_query_labels_are_never_read():
    X, y = witnesses.prompts()
    model = network()
    other = y.clone()
    other[:, 5:] = float("nan")
    assert (model(X, other, 2) == model(X, y, 2)).all()
    assert (model(X, y[:, :5], 2) == model(X, y, 2)).all()


@torch.no_grad()
def test_context_order_does_not_matter_and_labels_act_linearly():
    X, y = witnesses.prompts()
    model = network()
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = torch.cat([X[:, order], X[:, 5:]], 1)
    base = model(X, y, 2)
    torch.testing.assert_close(model(shuffled, y[:, order], 2), base)
    torch.testing.assert_close(model(X, -2 * y, 2), -2 * base)


@torch.no_grad()
def test_many_networks_in_one_pass_are_the_networks_one_by_one():
    X, y = witnesses.prompts()
    many = Transformer(3, 2, ["softmax", "relu"], batch=(3, 1), divide_by_context=True).randomise(generator(2), 0.2, 0.3)
    got = many.trace(X.expand(3, *X.shape), y, 2)
    assert got.predictions.shape == (3, 3, 4, 2)
    for i in range(3):
        one = Transformer(3, 2, ["softmax", "relu"], divide_by_context=True)
        for name, parameter in one.named_parameters():
            parameter.copy_(getattr(many, name)[:, :, i, 0])
        want = one.trace(X, y, 2)
        for a, b in zip(got, want):
            torch.testing.assert_close(a[:, i], b)


@torch.no_grad()
def test_attention_gives_the_weights_that_are_used():
    X, y = witnesses.prompts()
    model = network()
    first = model.attention(X, 2)
    assert [H.shape for H in first] == [(4, 2, 5, 7)] * 2
    torch.testing.assert_close(first[0][:, 1].sum(-2), torch.ones(4, 7, dtype=torch.float64))
    step = sum(model.r[0, m] * torch.einsum("bn,bnq->bq", y[:, :5], first[0][:, m]) for m in range(2))
    torch.testing.assert_close(model.trace(X, y, 2).predictions[1], step[:, 5:])


def test_gradients_reach_every_parameter_and_agree_with_differences():
    X, y = witnesses.prompts(batch=2, tokens=4)
    model = network(["softmax", "arccosine"])

    def predict(*values):
        return torch.func.functional_call(model, dict(zip(dict(model.named_parameters()), values)), (X, y))

    assert torch.autograd.gradcheck(predict, tuple(model.parameters()), eps=1e-6, atol=1e-6, fast_mode=True)


@torch.no_grad()
def test_float32_networks_are_near_float64_ones():
    X, y = witnesses.prompts()
    double, single = network(), network(dtype=torch.float32)
    single.load_state_dict({k: v.float() for k, v in double.state_dict().items()})
    got = single(X.float(), y.float(), 2)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), double(X, y, 2), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_overflow_names_the_layer():
    X, y = witnesses.prompts()
    model = Transformer(3, 3, ["exponential"])
    model.B[1] *= 1e4
    model.r += 1.0
    with pytest.raises(FloatingPointError, match="layer 2"):
        model(X, y)


def test_randomise_depends_on_its_generator_alone():
    one, two = (Transformer(3, 2).randomise(generator(7), 0.1, 0.5) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    still = Transformer(3, 2).randomise(generator(7), 0.0, 0.5)
    assert torch.equal(still.B[1, 0], torch.eye(3, dtype=torch.float64))
    assert (still.r == 0.5).all()
    assert not still.A.any()
