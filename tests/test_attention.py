"""The literal layer: masks, prompts, value matrices, and the same numbers from sympy and torch."""

import pytest
import sympy as sp
import torch
import witnesses

from icfgd import attention
from icfgd.device import generator
from icfgd.kernels import ACTIVATIONS, activation
from icfgd.symbolic import is_zero, symbolic_prompt, symmetric_function


def normal(*size):
    return torch.randn(size, generator=generator(sum(size)), dtype=torch.float64)


def test_mask_keeps_the_context_and_removes_every_query():
    assert attention.mask(3) == sp.diag(1, 1, 1, 0)
    assert attention.mask(2, 3) == sp.diag(1, 1, 0, 0, 0)
    like = torch.zeros(1, dtype=torch.float32)
    got = attention.mask(2, 2, like)
    assert got.dtype == torch.float32
    assert got.tolist() == torch.diag(torch.tensor([1.0, 1, 0, 0])).tolist()


def test_prompt_puts_zeros_in_query_slots():
    X = symbolic_prompt(2, 4)
    Z = attention.prompt(X, [5, 7])
    assert Z.shape == (3, 4)
    assert list(Z[2, :]) == [5, 7, 0, 0]
    assert Z[:2, :] == X
    batch = attention.prompt(torch.ones(6, 2, 4, dtype=torch.float64), torch.full((6, 2), 3.0, dtype=torch.float64))
    assert batch.shape == (6, 3, 4)
    assert batch[5, 2].tolist() == [3, 3, 0, 0]


def test_value_matrix_is_block_diagonal_with_minus_r():
    a, r = sp.symbols("a r")
    assert attention.value_matrix(sp.Matrix([[a, 1], [2, 3]]), r) == sp.Matrix([[a, 1, 0], [2, 3, 0], [0, 0, -r]])
    got = attention.value_matrix(torch.ones(2, 2, dtype=torch.float64), 0.5)
    assert got.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, -0.5]]


def test_literal_layer_is_the_same_in_sympy_and_torch():
    witnesses.literal_equals_sympy()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_attention_matrix_in_sympy_and_torch(name):
    X = sp.Matrix([[1, -2, 1, 2], [2, 1, -1, 3]]) / 3
    h = activation(name)
    exact = attention.attention_matrix(h, X, 2 * X, 3).evalf()
    T = torch.tensor(X.evalf().tolist(), dtype=torch.float64)
    got = attention.attention_matrix(h, T, 2 * T, 3)
    assert got.shape == (4, 4)
    torch.testing.assert_close(got, torch.tensor(exact.tolist(), dtype=torch.float64), rtol=1e-10, atol=1e-12)
    if name == "softmax":
        torch.testing.assert_close(got[:3].sum(0), torch.ones(4, dtype=torch.float64))
        assert not got[3].any()


def test_one_layer_with_a_generic_kernel_is_a_gradient_step():
    """Z_1's label row is y_j - r sum_i y_i K(x_i, x_j) over context tokens i, exactly, for an unknown kernel."""
    K = symmetric_function("K")
    n, q = 2, 2
    X, y, r = symbolic_prompt(1, n + q), sp.symbols("y1:3"), sp.Symbol("r")

    def h(U, W):
        return sp.Matrix(U.cols, W.cols, lambda i, j: K(U[0, i], W[0, j]))

    head = (attention.value_matrix(sp.zeros(1), r), sp.eye(1), sp.eye(1), h)
    first, second = attention.forward(attention.prompt(X, y), [[head]], n)
    slots = [*y, 0, 0]
    want = [slots[j] - r * sum(y[i] * K(X[i], X[j]) for i in range(n)) for j in range(n + q)]
    assert is_zero(second[1, :] - sp.Matrix([want]))
    assert second[0, :] == first[0, :] == X


def test_heads_add_up_and_states_are_all_layers():
    Z = attention.prompt(normal(2, 5), normal(3))
    eye = torch.eye(2, dtype=torch.float64)
    V = attention.value_matrix(0.02 * eye, 0.2)
    h, g = activation("exponential"), activation("softmax")
    M = attention.mask(3, 2, Z)
    both = attention.layer(Z, [(V, eye, eye, h), (V, eye, 2 * eye, g)], M, 3)
    parts = [attention.layer(Z, [head], M, 3) - Z for head in ((V, eye, eye, h), (V, eye, 2 * eye, g))]
    torch.testing.assert_close(both, Z + parts[0] + parts[1])
    assert len(attention.forward(Z, [[(V, eye, eye, h)]] * 3, 3)) == 4


def test_queries_never_influence_other_tokens():
    X, y = normal(2, 5), normal(3)
    eye = torch.eye(2, dtype=torch.float64)
    layers = [[(attention.value_matrix(0.1 * eye, 0.2), eye, eye, activation(name))] for name in ("softmax", "relu")]
    base = attention.forward(attention.prompt(X, y), layers, 3)[-1]
    moved = X.clone()
    moved[:, 4] += 1.0
    other = attention.forward(attention.prompt(moved, y), layers, 3)[-1]
    torch.testing.assert_close(base[:, :4], other[:, :4], rtol=0, atol=0)
    assert (base[:, 4] - other[:, 4]).abs().min() > 1e-6
