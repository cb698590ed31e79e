"""Benchmarks: the fast forms compute what the network computes, and the baseline is what it says."""

import sys
from pathlib import Path

import pytest
import torch

from icfgd import losses, results
from icfgd.processes import label_process
from icfgd.transformer import Transformer

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not part of an installed package")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import published
    import racing
    import run
    import scaling
    import throughput

    yield {"published": published, "racing": racing, "run": run, "scaling": scaling, "throughput": throughput}
    for name in ("published", "racing", "run", "scaling", "throughput"):
        sys.modules.pop(name, None)


def test_fast_forms_are_the_network(bench):
    scaling = bench["scaling"]
    for case, (head, forward) in scaling.CASES.items():
        model = scaling.network(head)
        X, y = scaling.prompt(40)
        with torch.no_grad():
            torch.testing.assert_close(forward(model, X, y), model(X, y), rtol=1e-10, atol=1e-12, msg=case)
            assert float(model(X, y).abs()) > 1e-6


def test_the_published_forward_pass_is_the_network(bench):
    published = bench["published"]
    draws = torch.Generator().manual_seed(0)
    X, y = published.draw(50, 6, 3, draws)
    parameters = [0.3 * torch.randn(s, generator=draws) for s in [(2, 3, 3)] * 3 + [(2,)]]
    model = Transformer(3, 2, ["exponential"], divide_by_context=True)
    with torch.no_grad():
        for own, value in zip((model.A, model.B, model.C, model.r), (*parameters[:3], -parameters[3])):
            own.copy_(value.reshape(own.shape))
    got = published.output(parameters, X, y)
    torch.testing.assert_close(-got.double(), model(X.double(), y.double()[:, :6])[:, 0], rtol=1e-4, atol=1e-5)


def test_the_published_labels_have_their_law(bench):
    X, _ = bench["published"].draw(1, 3, 3, torch.Generator().manual_seed(1))
    _, y = bench["published"].draw(40_000, 3, 3, torch.Generator().manual_seed(1))
    second = (y**2).mean(0)
    want = torch.exp(torch.tensor(0.5))  # exp(<x, x>/2) on the sphere
    error = (y**2).std(0) / 40_000**0.5
    assert ((second - want).abs() < 4.5 * error).all()
    assert X.shape == (1, 4, 3)


def test_gradients_are_clipped_matrix_by_matrix(bench):
    parameter = torch.zeros(2, 2, 2, requires_grad=True)
    parameter.grad = torch.stack([torch.full((2, 2), 5.0), torch.full((2, 2), 0.1)])
    bench["published"].clip([parameter])
    torch.testing.assert_close(parameter.grad.flatten(1).norm(dim=1), torch.tensor([1.0, 0.2]))


def test_the_exact_test_of_the_race(bench):
    task, test = bench["racing"].setting()
    draws = torch.Generator().manual_seed(0)
    model = Transformer(5, 3, ["exponential"], divide_by_context=True).randomise(draws, 0.1, 0.5)
    with torch.no_grad():
        got = test(model.A, model.B, model.C, model.r)
        X = task.covariates.sample(20_000, 15, draws)
        want = losses.integrated_loss(model, X, label_process("exponential", scale=2.0))
    assert got == pytest.approx(float(want), rel=0.05)


def test_a_short_race_has_times_and_ratios(bench, monkeypatch):
    racing = bench["racing"]
    monkeypatch.setattr(bench["published"], "BATCH", 64)
    monkeypatch.setattr(racing, "OURS", {case: racing.OURS[case] for case in ("ours", "our optimiser, sampled labels")})
    rows = racing.rows(budget=0.2, steps=40, prompts=512)
    table = {(row["case"], row["quantity"], row["unit"]): row["value"] for row in rows}
    assert table["ours", "to loss 0.3", "s"] > 0
    assert table["ours", "final loss", ""] < 0.25
    assert table["published recipe", "in all", "CPU s"] >= 0.2
    lines = racing.ratios(rows)
    assert len(lines) == len(racing.OURS) * len(racing.LEVELS)
    assert any("ratio" in line for line in lines)


def test_the_table_is_written_with_its_provenance(bench, tmp_path, capsys):
    monkey = bench["run"]
    monkey.PARTS = {"context": lambda budget: bench["scaling"].context_rows(lengths=(16, 32))}
    assert monkey.main(1.0, None, tmp_path) == 0
    table = results.load("bench", tmp_path)
    assert {row["unit"] for row in table} >= {"ms"}
    assert all(row["value"] >= 0 for row in table)
    assert results.metadata(tmp_path)["files"]["bench.csv"]["versions"]["torch"] == torch.__version__
    assert "softmax, fused" in capsys.readouterr().out


def test_step_costs_and_machine_rates(bench):
    rows = bench["scaling"].depth_rows(depths=(1, 2), batches=(16,))
    assert all(row["value"] > 0 for row in rows)
    shares = [r for r in bench["throughput"].rows(contexts=(16,)) if r["case"] == "training step"]
    assert len(shares) == 2
    assert all(0 < row["value"] < 100 for row in shares)
