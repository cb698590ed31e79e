"""Experiments: what the presets contain, and that rows say what an independent computation says."""

import json

import numpy as np
import pytest
import torch

from icfgd import bayes, experiments
from icfgd.device import generator
from icfgd.experiments import EXPERIMENTS, Run, compute, evaluate, execute, experiment, stored_model, whitened
from icfgd.experiments.runs import TEST_CONTEXTS, TEST_POOL, TEST_QUERIES, TEST_SEED, evaluation_set

TINY = {"steps": 8, "contexts": 8, "queries": 2, "held_out": 8}


def test_the_paper_preset_covers_the_paper():
    runs = [run for item in EXPERIMENTS.values() for run in item.runs("paper")]
    heads = ("linear", "relu", "exponential", "softmax")
    lengths = {(r.labels, r.heads, r.context) for r in experiment("figure1").runs("paper")}
    depths = {(r.labels, r.heads, r.layers, r.context) for r in experiment("figure2").runs("paper")}
    for labels in ("linear", "relu", "exponential"):
        assert {(labels, (head,), n) for head in heads for n in (2, 6, 10, 14)} <= lengths
        for head in heads if labels != "linear" else ("linear",):
            assert {(labels, (head,), k, n) for k in range(1, 8) for n in (6, 14)} <= depths
    assert all(len(run.seeds) >= 3 and run.d == 5 for run in runs)
    assert {run.sigma for run in runs} == {"identity", "paper"}
    assert {tuple(run.heads) for run in experiment("figure3").runs("paper")} == {
        ("linear",), ("exponential",), ("linear", "exponential")
    }


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_equal_names_are_equal_runs(preset):
    seen = {}
    for item in EXPERIMENTS.values():
        for run in item.runs(preset):
            assert seen.setdefault(run.name, run) == run
            text = json.dumps(run.description())
            assert json.dumps(Run(**json.loads(text)).description()) == text


def test_the_covariance_is_that_of_the_paper():
    run = Run()
    sigma = run.task(3).covariates.sigma
    torch.testing.assert_close(torch.linalg.eigvalsh(sigma), torch.tensor([0.25, 1, 1, 1, 2.25]).double())
    assert not torch.equal(sigma, run.task(4).covariates.sigma)
    assert torch.equal(Run(sigma="identity").task(3).covariates.sigma, torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize(
    "run",
    [
        Run("exponential", ("softmax",), 2, 6, label_options={"scale": 2.0}, settings=TINY, seeds=(0,)),
        Run("linear", ("relu",), 2, 6, settings=TINY, seeds=(0,), noise=0.1),
        Run("relu", ("relu",), 2, 6, settings=TINY, seeds=(0,)),
        Run("exponential", ("exponential",), 2, 6, whitened=False, settings=TINY, seeds=(0,)),
        Run("mixture", ("linear", "exponential"), 2, 6, label_options={"alpha": 0.5, "scale": 2.0}, settings=TINY,
            seeds=(0,)),
    ],
    ids=lambda run: run.name,
)
def test_rows_agree_with_running_the_network_on_labels_moments(run):
    arrays, rows = execute(run.description())
    row = rows[0]
    model = stored_model(run, arrays, 0)
    # The same prompts, but in the coordinates of the run, one query at a time, through `bayes` alone.
    task = run.task(0)
    batch = (run.task() if run.whitened else task).draw(
        TEST_CONTEXTS, TEST_QUERIES, generator(TEST_SEED), pool=TEST_POOL
    )
    X = batch.X @ task.covariates.root if run.whitened else batch.X
    losses, floors = [], []
    with torch.no_grad():
        for query in range(TEST_QUERIES):
            part = torch.cat([X[:, :6], X[:, 6 + query : 7 + query]], 1)
            K = task.labels.second_moment(part)
            u = torch.stack([model(part, y.expand(TEST_CONTEXTS, 6)) for y in torch.eye(6, dtype=torch.float64)], 1)
            losses.append(bayes.conditional_risk(K, u).squeeze(-1))
            floors.append(bayes.risk(K).squeeze(-1))
    loss, floor = torch.stack(losses).mean(0), torch.stack(floors).mean(0)
    assert float((batch.weights * loss).sum()) == pytest.approx(row["loss"], rel=1e-9)
    assert float((batch.weights * floor).sum()) == pytest.approx(row["bayes"], rel=1e-7, abs=1e-12)
    assert row["excess"] == pytest.approx(row["loss"] - row["bayes"], rel=1e-6, abs=1e-12)
    assert row["excess"] > 0
    assert row["loss_se"] > 0


def test_the_whitened_network_is_the_same_network():
    run = Run("exponential", ("exponential",), 2, 5, settings=TINY, seeds=(1,))
    arrays, _ = execute(run.description())
    model, sigma = stored_model(run, arrays, 1), run.task(1).covariates.sigma
    xi = run.task().covariates.sample(4, 6, generator(0))
    y = torch.randn(4, 5, generator=generator(1), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(whitened(model, sigma)(xi, y), model(xi @ run.task(1).covariates.root, y))
        assert not torch.allclose(model(xi, y), model(xi @ run.task(1).covariates.root, y))


def test_the_symmetric_set_has_distance_zero():
    eye = torch.eye(5, dtype=torch.float64)
    assert float(experiments.from_scalar(3 * eye)) == 0
    assert float(experiments.from_scalar(torch.zeros(5, 5, dtype=torch.float64))) == 0
    assert float(experiments.from_scalar(torch.diag(torch.tensor([1.0, -1, 0, 0, 0]).double()))) == 1
    run = Run("exponential", ("exponential",), 2, 5, settings={**TINY, "noise": 0.3}, trajectory=True, seeds=(0, 1))
    arrays, _ = execute(run.description())
    sigma = run.task(1).covariates.sigma
    assert arrays["distance.BC"].shape[1:] == (2, 1, 2)
    assert (arrays["distance.BC"] > 0.01).all()
    assert sigma.shape == (5, 5)


def test_raw_and_whitened_distances_agree_for_the_same_network():
    from icfgd.processes import power
    from icfgd.training import Settings, train

    run = Run("exponential", ("exponential",), 2, 5, settings={**TINY, "coordinates": "raw"}, trajectory=True, seeds=(0,))
    arrays, _ = execute(run.description())
    trained = train(run.task(0), ["exponential"], 2, Settings(**run.settings))
    root = power(run.task(0).covariates.sigma, 0.5)
    last = trained.coordinates.models(torch.as_tensor(trained.history["theta"][-1]))[0]
    M = root @ last.B.mT @ last.C @ root
    np.testing.assert_allclose(arrays["distance.BC"][-1, :, :, 0], experiments.from_scalar(M).detach(), rtol=1e-5)


def test_a_run_can_be_tested_elsewhere():
    run = Run("exponential", ("softmax",), 1, 5, label_options={"scale": 2.0}, settings=TINY, seeds=(0,),
              test_contexts=(9,), test_labels=(("linear", {}),))
    arrays, rows = execute(run.description())
    assert [(r["test_labels"], r["test_context"]) for r in rows] == [("exponential2", 5), ("exponential2", 9), ("linear", 5)]
    model = stored_model(run, arrays, 0)
    assert evaluate(run, model, 0, "linear", {}, 5)["loss"] == rows[2]["loss"]
    assert len({r["loss"] for r in rows}) == 3


@pytest.mark.parametrize("name", ["theorem1", "sparse", "relu_network", "covariance"])
def test_quick_presets_run(name):
    table, arrays, report = compute(name)
    assert not report.failed
    assert set(arrays) == {run.name for run in experiment(name).runs("quick")}
    for row in table:
        assert np.isfinite([v for v in row.values() if isinstance(v, float)]).all()
        assert row["bayes"] - 1e-9 <= row["loss"] < 2.0


def test_gaussian_like_tests_share_prompts():
    run = Run("exponential", ("linear",), 1, 5)
    a, b = (evaluation_set(run.task(), 5, contexts=16) for _ in range(2))
    assert torch.equal(a.batch.X, b.batch.X)


def test_unknown_names_are_reported():
    with pytest.raises(ValueError, match="Did you mean 'figure1'"):
        experiment("figur1")
    with pytest.raises(ValueError, match="preset"):
        experiment("figure1").runs("full")
    with pytest.raises(ValueError, match="identity"):
        Run(sigma="identitty")
    with pytest.raises(ValueError, match="d = 4"):
        Run(d=4).task(0)
