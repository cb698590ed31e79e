"""Mutants: one wrong piece of code must make a named check fail, and the check passes on the code as it is."""

import ast
import sys
import textwrap
from importlib import import_module
from inspect import getsource

import pytest
import witnesses

# what is wrong: (room, text, wrong text, the check of `witnesses` that must fail)
MUTANTS = {
    "sign of r in the engine": ("transformer", "slots = slots - sum", "slots = slots + sum", "proposition_one"),
    "sign of r in the literal layer": ("attention", "(A, -corner.resh", "(A, corner.resh", "engine_equals_literal"),
    "sign of r in sympy": ("attention", "sp.diag(A, -corner)", "sp.diag(A, corner)", "literal_equals_sympy"),
    "mask removes one query of two": (
        "attention", "ones.new_zeros(queries)", "ones.new_ones(queries - 1), ones.new_zeros(1)",
        "engine_equals_literal"),
    "mask removes the query's own entry, not its row": (
        "attention", "V @ Z @ M @ attention_matrix(h, B @ X, C @ X, n)",
        "V @ Z @ (lambda H: H - torch.diag(torch.diagonal(H) * (1 - torch.diagonal(M))))"
        "(attention_matrix(h, B @ X, C @ X, n))",
        "engine_equals_literal"),
    "query summed over, sympy": ("attention", "[0] * queries", "[1] * queries", "literal_equals_sympy"),
    "query summed over, torch": (
        "attention", "ones.new_zeros(queries)", "ones.new_ones(queries)", "engine_equals_literal"),
    "a query in the context": (
        "transformer", "context = X[..., :n, :]", "context = X[..., 1:n + 1, :]", "engine_equals_literal"),
    "softmax over output tokens": (
        "kernels", "torch.softmax(exponent, dim=-2)", "torch.softmax(exponent, dim=-1)",
        "softmax_normalises_over_context"),
    "softmax over output tokens, in both routes of torch": (
        "kernels", "torch.softmax(exponent, dim=-2)", "torch.softmax(exponent, dim=-1)", "literal_equals_sympy"),
    "1/n dropped": ("transformer", "H = H / n", "H = H", "dividing_is_shorter_steps"),
    "1/(n+q)": ("transformer", "H = H / n", "H = H / X.shape[-2]", "dividing_is_shorter_steps"),
    "B and C exchanged": (
        "transformer", "context @ B.mT, X @ C.mT", "context @ C.mT, X @ B.mT", "engine_equals_literal"),
    "A transposed": ("transformer", "@ context) @ A.mT", "@ context) @ A", "engine_equals_literal"),
    "covariates never updated": ("transformer", "X = X + change", "X = X", "engine_equals_literal"),
    "|sub-block| for the sub-block of |K|": (
        "processes", "return K[..., :n, :n],", "return absolute(self.kernel.gram(X[..., :n, :])),",
        "relu_blocks_are_of_the_whole"),
    "positive part for |K|": ("kernels", "vectors * values.abs()", "vectors * values.clamp(min=0)",
                              "relu_blocks_are_of_the_whole"),
    "kernel on x instead of xi": (
        "processes", "self.kernel.gram(self.whiten(X))", "self.kernel.gram(X)", "kernels_act_on_whitened"),
    "jitter in sampling only": (
        "processes", "values.clamp(min=0).sqrt()", "(values + 0.1).clamp(min=0).sqrt()",
        "labels_have_their_second_moment"),
    "noise in prediction only": (
        "processes", "values.clamp(min=0).sqrt()", "(values - self.noise).clamp(min=0).sqrt()",
        "labels_have_their_second_moment"),
    "factor 2 of the gradient": ("descent", "X, 2 * _errors(", "X, _errors(", "gradient_by_differences"),
    "sign of the labels in the gradient": (
        "descent", "return values - y", "return values + y", "proposition_one"),
    "half a step": ("descent", "f.plus(-step / 2,", "f.plus(-step / 4,", "proposition_one"),
    "inner product without the kernel": (
        "descent", "other(self.centres)", "other.coefficients", "gradient_by_differences"),
    "risk with a wrong sign": (
        "bayes", "schur = kappa - (", "schur = kappa + (", "bayes_solves_the_normal_equations"),
    "weights in another basis": (
        "bayes", "w = vectors @", "w = vectors.mT @", "bayes_solves_the_normal_equations"),
}
CHECKS = sorted({row[-1] for row in MUTANTS.values()})


@pytest.mark.parametrize("check", CHECKS)
def test_check_holds_on_the_code_as_it_is(check):
    getattr(witnesses, check)()


def mutate(monkeypatch, room, text, wrong):
    """Replace `text`, which must occur once in the room, in the function or method that contains it."""
    module = import_module(f"icfgd.{room}")
    source = getsource(module)
    assert source.count(text) == 1, f"icfgd/{room}.py does not contain {text!r} once; write the mutant anew"
    line = source[: source.index(text)].count("\n") + 1
    functions = [
        (owner, node) for owner in ast.walk(ast.parse(source)) if isinstance(owner, (ast.Module, ast.ClassDef))
        for node in owner.body if isinstance(node, ast.FunctionDef) and node.lineno <= line <= node.end_lineno
    ]
    assert len(functions) == 1, f"{text!r} is not inside one function of icfgd/{room}.py"
    owner, node = functions[0]
    code = textwrap.dedent("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])).replace(text, wrong)
    scope = dict(vars(module))
    exec(compile(code, f"<mutant of {node.name}>", "exec"), scope)
    if isinstance(owner, ast.ClassDef):
        monkeypatch.setattr(getattr(module, owner.name), node.name, scope[node.name])
        return
    original = getattr(module, node.name)
    for other in [m for name, m in sys.modules.items() if name.startswith("icfgd") and m]:
        if vars(other).get(node.name) is original:  # rooms that imported it by name must see the mutant as well
            monkeypatch.setattr(other, node.name, scope[node.name])


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name, monkeypatch):
    room, text, wrong, check = MUTANTS[name]
    mutate(monkeypatch, room, text, wrong)
    with pytest.raises(AssertionError) as caught:
        getattr(witnesses, check)()
    # the failure comes from a comparison of the check itself, not from elsewhere
    assert any(frame.path.name == "witnesses.py" for frame in caught.traceback)
