"""Functional gradient descent: Proposition 1 against the engine, and the gradient against finite differences."""

import pytest
import torch
import witnesses

from icfgd import descent
from icfgd.device import generator
from icfgd.kernels import KERNELS, composite, kernel

STEPS = (0.3, 0.2, 0.1, 0.25, 0.05, 0.15, 0.1)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("name", ["linear", "relu", "exponential"])
def test_every_layer_is_a_step_of_functional_gradient_descent(name, queries):
    witnesses.proposition_one(name, STEPS, queries)


@pytest.mark.parametrize("name", KERNELS)
def test_the_functional_gradient_is_the_derivative_of_the_loss(name):
    witnesses.gradient_by_differences(name)


def data(batch=3, n=5, seed=0):
    X = torch.randn(batch, n, 3, generator=generator(seed), dtype=torch.float64) / 2
    return X, torch.randn(batch, n, generator=generator(seed + 1), dtype=torch.float64)


@pytest.mark.parametrize("name", ["linear", "exponential", "gaussian"])
def test_three_ways_to_the_iterates_agree(name):
    """Expansions, coefficients from the Gram matrix, and the residual polynomial p(K) y."""
    X, y = data()
    gram = kernel(name).gram(X)
    rows = descent.coefficients(gram, y, STEPS)
    iterates = descent.descend(kernel(name), X, y, STEPS)
    assert rows.shape == (8, 3, 5)
    for l, f in enumerate(iterates):
        torch.testing.assert_close(f.coefficients, rows[l])
        values, vectors = torch.linalg.eigh(gram)
        p = descent.residual_polynomial(STEPS[:l], values)
        want = (vectors @ (p.unsqueeze(-1) * (vectors.mT @ y.unsqueeze(-1)))).squeeze(-1)
        torch.testing.assert_close(y - f(X), want, rtol=1e-9, atol=1e-10)


def test_small_steps_never_raise_the_loss_and_large_ones_do():
    X, y = data()
    top = float(torch.linalg.eigvalsh(kernel("exponential").gram(X)).max())

    def losses(step):
        iterates = descent.descend(kernel("exponential"), X, y, [step] * 10)
        return torch.stack([descent.squared_loss(f, X, y) for f in iterates])

    assert (losses(1 / top).diff(dim=0) <= 1e-12).all()
    assert losses(3 / top)[-1].max() > losses(3 / top)[0].max()


def test_norm_and_inner_product_are_those_of_the_gram_matrix():
    X, c = data()
    f = descent.Expansion(kernel("gaussian"), X, c)
    gram = kernel("gaussian").gram(X)
    torch.testing.assert_close(f.norm() ** 2, torch.einsum("bi,bij,bj->b", c, gram, c))
    W, e = data(seed=4)
    g = descent.Expansion(kernel("gaussian"), W, e)
    torch.testing.assert_close(f.inner(g), g.inner(f))
    total = f.plus(0.5, g)
    torch.testing.assert_close(total.norm() ** 2, f.norm() ** 2 + f.inner(g) + 0.25 * g.norm() ** 2)
    torch.testing.assert_close(total(W), f(W) + 0.5 * g(W))


def test_reproducing_property():
    X, c = data()
    f = descent.Expansion(kernel("exponential"), X, c)
    point = descent.Expansion(kernel("exponential"), X[:, :1] + 0.3, torch.ones(3, 1, dtype=torch.float64))
    torch.testing.assert_close(f.inner(point), f(X[:, :1] + 0.3).squeeze(-1))


def test_only_context_labels_are_read():
    X, y = data()
    longer = torch.cat([y, torch.full((3, 2), float("nan"), dtype=torch.float64)], -1)
    for a, b in zip(descent.descend(kernel("linear"), X, y, STEPS), descent.descend(kernel("linear"), X, longer, STEPS)):
        assert torch.equal(a.coefficients, b.coefficients)


def test_descent_works_for_composite_kernels_and_float32():
    X, y = data()
    k = composite([(0.5, "linear", None), (0.5, "exponential", None)])
    f = descent.descend(k, X.float(), y.float(), STEPS)[-1]
    assert f.coefficients.dtype == torch.float32
    torch.testing.assert_close(f(X.float()).double(), descent.descend(k, X, y, STEPS)[-1](X), rtol=1e-3, atol=1e-4)
