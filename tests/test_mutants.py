"""Mutants: one wrong token in the code must make a named check fail, and the check passes on the code as it is."""

import inspect
import sys
import textwrap

import pytest
import witnesses

from icfgd import attention, bayes, descent, kernels
from icfgd.processes import Labels
from icfgd.transformer import Transformer

# what is wrong: (owner, function, text, wrong text, the check that must fail)
MUTANTS = {
    "sign of r in the engine": (Transformer, "trace", "slots = slots - sum", "slots = slots + sum", "proposition_one"),
    "sign of r in the literal layer": (
        attention, "value_matrix", "corner = -torch", "corner = torch", "engine_equals_literal"),
    "sign of r in sympy": (attention, "value_matrix", "[[-sp.", "[[sp.", "literal_equals_sympy"),
    "mask removes one query of two": (
        attention, "mask", "ones.new_zeros(queries)", "ones.new_ones(queries - 1), ones.new_zeros(1)",
        "engine_equals_literal"),
    "mask removes one entry of a row": (
        attention, "layer", "V @ Z @ M @ attention_matrix(h, B @ X, C @ X, n)",
        "V @ Z @ torch.where(torch.arange(Z.shape[-1]) == Z.shape[-1] - 1, "
        "torch.eye(Z.shape[-1], dtype=Z.dtype) * M, torch.eye(Z.shape[-1], dtype=Z.dtype)) "
        "@ attention_matrix(h, B @ X, C @ X, n)",
        "engine_equals_literal"),
    "query summed over, sympy": (attention, "mask", "[0] * queries", "[1] * queries", "literal_equals_sympy"),
    "query summed over, literal layer": (attention, "mask", "new_zeros", "new_ones", "engine_equals_literal"),
    "a query in the context": (
        Transformer, "states", "context = X[..., :n, :]", "context = X[..., 1:n + 1, :]", "engine_equals_literal"),
    "softmax over output tokens": (
        kernels.Kernel, "weights", "exponent, dim=-2", "exponent, dim=-1", "softmax_normalises_over_context"),
    "softmax over output tokens, both routes": (
        kernels.Kernel, "weights", "exponent, dim=-2", "exponent, dim=-1", "literal_equals_sympy"),
    "1/n dropped": (Transformer, "states", "H = H / n", "H = H", "dividing_is_shorter_steps"),
    "1/(n+q)": (Transformer, "states", "H = H / n", "H = H / X.shape[-2]", "dividing_is_shorter_steps"),
    "B and C exchanged": (
        Transformer, "states", "context @ B.mT, X @ C.mT", "context @ C.mT, X @ B.mT", "engine_equals_literal"),
    "A transposed": (Transformer, "states", "context) @ A.mT", "context) @ A", "engine_equals_literal"),
    "covariates before their update": (
        Transformer, "states", "X = X + change", "X = X", "engine_equals_literal"),
    "|sub-block| for the sub-block of |K|": (
        Labels, "moments", "K[..., :n, :n],", "absolute(self.kernel.gram(X[..., :n, :])),",
        "relu_blocks_are_of_the_whole"),
    "positive part for |K|": (kernels, "absolute", "values.abs()", "values.clamp(min=0)",
                              "relu_blocks_are_of_the_whole"),
    "kernel on x instead of xi": (
        Labels, "second_moment", "self.whiten(X)", "X", "kernels_act_on_whitened"),
    "jitter in sampling only": (
        Labels, "sample", "values.clamp(min=0)", "(values + 0.1).clamp(min=0)", "labels_have_their_second_moment"),
    "noise in prediction only": (
        Labels, "sample", "values.clamp(min=0)", "(values - self.noise).clamp(min=0)",
        "labels_have_their_second_moment"),
    "factor 2 of the gradient": (descent, "functional_gradient", "2 * (", "(", "gradient_by_differences"),
    "gradient at other labels": (
        descent, "functional_gradient", "f(X) - _context", "f(X) + _context", "gradient_by_differences"),
    "half a step": (descent, "descend", "-step / 2", "-step / 4", "proposition_one"),
    "inner product without the kernel": (
        descent.Expansion, "inner", "other(self.centres)", "other.coefficients", "gradient_by_differences"),
    "risk with a wrong sign": (
        bayes, "_solve", "schur = kappa - (", "schur = kappa + (", "bayes_solves_the_normal_equations"),
    "weights in another basis": (
        bayes, "_solve", "w = vectors @", "w = vectors.mT @", "bayes_solves_the_normal_equations"),
}
CHECKS = sorted({row[-1] for row in MUTANTS.values()})


@pytest.mark.parametrize("check", CHECKS)
def test_check_holds_on_the_code_as_it_is(check):
    getattr(witnesses, check)()


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name, monkeypatch):
    owner, attribute, text, wrong, check = MUTANTS[name]
    function = getattr(owner, attribute)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(text) == 1, f"{attribute} no longer contains {text!r} once; write the mutant anew"
    room = sys.modules[function.__module__]
    scope = dict(vars(room))
    exec(compile(source.replace(text, wrong), f"<{name}>", "exec"), scope)
    mutant = scope[attribute]
    monkeypatch.setattr(owner, attribute, mutant)
    if not inspect.isclass(owner):  # the room's own functions, and rooms that imported it by name, see the mutant
        for module in [m for key, m in sys.modules.items() if key.startswith("icfgd") and m]:
            if vars(module).get(attribute) is function:
                monkeypatch.setattr(module, attribute, mutant)
    with pytest.raises(AssertionError):
        getattr(witnesses, check)()
