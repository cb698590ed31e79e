"""Identities (C.30) and (C.31): exact in two dimensions, numeric at size; attentions that break them."""

import pytest
import sympy as sp
import torch

from icfgd import attention, symmetry
from icfgd.device import generator
from icfgd.kernels import composite, kernel
from icfgd.processes import Covariates, covariance, power, random_rotation
from icfgd.symbolic import REFLECTION, is_zero, rotation, symbolic_prompt
from icfgd.transformer import Transformer

SIGMA = covariance([0.5, 1.0, 2.25], generator(5))
X = Covariates(SIGMA).sample(6, 7, generator(0))
Y = torch.randn(6, 6, generator=generator(1), dtype=torch.float64)
U = random_rotation(3, generator(2))
PERMUTATION = symmetry.signed_permutations(3)[17]


class PowerDistance:
    """exp(-sum_j |u_j - w_j|^p): invariant under signed permutations only."""

    name, semidefinite, normalised = "power distance", False, False

    def __init__(self, p):
        self.p = p

    def weights(self, U, W):
        return torch.exp(-((U.unsqueeze(-2) - W.unsqueeze(-3)).abs() ** self.p).sum(-1))


SKEWED = composite([(1.0, "exponential", [[1.0, 0.0, 0.0], [0.0, 2.0**0.5, 0.0]])])  # breaks (H)
INVARIANT = ["linear", "relu", "exponential", "softmax", "gaussian"]


def network(head, seed=3):
    return Transformer(3, 3, [head]).randomise(generator(seed), 0.02, 0.1)


def on_symmetric_set(model):
    return symmetry.with_parameters(model, symmetry.project(symmetry.parameters(model), SIGMA))


@pytest.mark.parametrize("head", INVARIANT)
def test_equivariance_for_all_parameters_and_on_the_symmetric_set(head):
    model = network(head)
    assert max(symmetry.equivariance_error(model, X, Y, U, SIGMA)) < 1e-11
    assert max(symmetry.equivariance_error(model, X, Y, U, SIGMA, transform=False)) > 1e-3  # off the set
    inside = on_symmetric_set(model)
    assert max(symmetry.equivariance_error(inside, X, Y, U, SIGMA, transform=False)) < 1e-11
    wrong = torch.eye(3, dtype=torch.float64)
    assert max(symmetry.equivariance_error(inside, X, Y, U, wrong, transform=False)) > 1e-3  # U, not U_Sigma
    direction = {name: torch.randn_like(value) for name, value in symmetry.parameters(model).items()}
    assert max(symmetry.tangent_error(inside, direction, X, Y, U, SIGMA)) < 1e-11
    assert max(symmetry.tangent_error(model, direction, X, Y, U, SIGMA)) > 1e-3


@pytest.mark.parametrize("head", [PowerDistance(1), PowerDistance(3)])
def test_attention_with_a_finite_symmetry(head):
    inside = on_symmetric_set(network(head))
    assert max(symmetry.equivariance_error(inside, X, Y, PERMUTATION, SIGMA, transform=False)) < 1e-11
    assert max(symmetry.equivariance_error(inside, X, Y, U, SIGMA, transform=False)) > 1e-3


def test_attention_that_breaks_the_assumption():
    inside = on_symmetric_set(network(SKEWED))
    for rotated in (U, PERMUTATION):
        assert max(symmetry.equivariance_error(inside, X, Y, rotated, SIGMA, transform=False)) > 1e-3


def test_group_facts_are_exact():
    t, s1, s2 = sp.Symbol("theta", real=True), *sp.symbols("s1 s2", positive=True)
    S = sp.diag(s1, s2)
    for V in (rotation(t), rotation(t) * REFLECTION):
        V_sigma = S * V * S.inv()
        assert is_zero((S * V.T * S.inv()) * V_sigma - sp.eye(2))
        assert is_zero(V_sigma.T * (S * S).inv() * V_sigma - (S * S).inv())
        assert not is_zero(V_sigma.T * V_sigma - sp.eye(2))
    N = sp.Matrix(2, 2, sp.symbols("n:4"))
    mean = [
        (V.T * N * V).applyfunc(lambda e: sp.integrate(sp.expand(e), (t, 0, 2 * sp.pi)) / (2 * sp.pi))
        for V in (rotation(t), rotation(t) * REFLECTION)
    ]
    half, J = N.trace() / 2 * sp.eye(2), sp.Matrix([[0, 1], [-1, 0]])
    assert is_zero((mean[0] + mean[1]) / 2 - half)
    assert is_zero(mean[0] - half - (N[0, 1] - N[1, 0]) / 2 * J)  # rotations alone leave the skew part
    assert not is_zero(mean[0] - half)


def test_identity_c30_is_exact_for_linear_attention():
    s1, s2 = sp.symbols("s1 s2", positive=True)
    a, b, c, r = sp.symbols("a b c r")
    S, V = sp.diag(s1, s2), rotation(sp.acos(sp.Rational(3, 5))) * REFLECTION
    V_sigma = S * V * S.inv()
    points, y = symbolic_prompt(2, 3), sp.symbols("y1 y2")
    value = attention.value_matrix(a * sp.eye(2), r)

    def states(points, B, A=value):
        return attention.forward(attention.prompt(points, y), [[(A, b * B, c * B, kernel("linear"))]], 2)

    moved, plain = states(V_sigma * points, S.inv())[1], states(points, S.inv())[1]
    assert is_zero(moved[:2, :] - V_sigma * plain[:2, :])
    assert is_zero(moved[2, :] - plain[2, :])
    off = states(V_sigma * points, sp.eye(2))[1] - states(points, sp.eye(2))[1]
    assert not is_zero(off[2, :])  # B = b I instead of b Sigma^(-1/2)


def test_action_and_projection():
    values = symmetry.parameters(network("linear"))
    moved = symmetry.act(U, values, SIGMA)
    back = symmetry.act(U.T, moved, SIGMA)
    assert all(torch.allclose(back[n], values[n], rtol=0, atol=1e-13) for n in values)
    assert (moved["B"] - values["B"]).abs().max() > 1e-2
    fixed = symmetry.project(values, SIGMA)
    assert all(torch.allclose(v, fixed[n], atol=1e-13) for n, v in symmetry.act(U, fixed, SIGMA).items())
    ratio = fixed["B"] @ power(SIGMA, 0.5)
    assert torch.allclose(ratio, ratio[..., :1, :1] * torch.eye(3).double(), rtol=0, atol=1e-13)
    for group in (symmetry.signed_permutations(3), torch.stack([U, -U])):
        averaged = symmetry.project(values, SIGMA, group)
        close = torch.allclose(averaged["A"], fixed["A"], rtol=0, atol=1e-13)
        assert close == (len(group) == 48)
    there = symmetry.unwhiten(symmetry.whiten(values, SIGMA), SIGMA)
    assert all(torch.allclose(there[n], values[n], atol=1e-14) for n in values)


def test_finite_groups():
    for group, size, dimension in (
        (symmetry.signed_permutations(2), 8, 1),
        (symmetry.signed_permutations(3), 48, 1),
        (symmetry.dihedral(3), 6, 1),
        (symmetry.dihedral(8), 16, 1),
        (symmetry.dihedral(2), 4, 2),  # only diagonal matrices commute with both reflections
        (symmetry.dihedral(7)[:7], 7, 2),  # rotations commute with J as well
    ):
        assert len(group) == size
        assert symmetry.commutant_dimension(group) == dimension
        flat = torch.cat([group @ g for g in group]).round(decimals=9) + 0.0
        assert len(torch.unique(flat.flatten(1), dim=0)) == size  # closed
    images = symmetry.orbit(X, symmetry.signed_permutations(3), SIGMA)
    assert images.shape == (48 * 6, 7, 3)
    gram = images @ torch.linalg.inv(SIGMA) @ images.mT
    assert torch.allclose(gram.reshape(48, 6, 7, 7), (X @ torch.linalg.inv(SIGMA) @ X.mT).expand(48, 6, 7, 7))


def test_bad_input():
    values, eye = symmetry.parameters(network("linear")), torch.eye(3, dtype=torch.float64)
    for name, call in {
        "U": lambda: symmetry.u_sigma(2 * eye, SIGMA),
        "U ": lambda: symmetry.act(torch.eye(2, dtype=torch.float64), values, SIGMA),
        "U  ": lambda: symmetry.equivariance_error(network("linear"), X, Y, eye + 0.1, SIGMA),
        "values": lambda: symmetry.whiten({"Q": eye}, SIGMA),
        "values ": lambda: symmetry.with_parameters(network("linear"), {"V": eye}),
        "sigma": lambda: symmetry.unwhiten(values, -SIGMA),
        "U   ": lambda: symmetry.project(values, SIGMA, torch.stack([eye, 2 * eye])),
        "direction": lambda: symmetry.tangent_error(network("linear"), {"r": values["r"]}, X, Y, U, SIGMA),
        "d": lambda: symmetry.signed_permutations(6),
        "m": lambda: symmetry.dihedral(0),
        "X": lambda: symmetry.orbit(X[0], torch.stack([eye])),
        "U    ": lambda: symmetry.commutant_dimension(torch.ones(1, 2, 2)),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name.strip()}\b"):
            call()
