"""Training and experiments: resuming, schedules, every task, stored tables, the command line."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from icfgd import results
from icfgd.reservoirs import __main__ as command
from icfgd.reservoirs import experiments, metrics, models, runs, tasks
from icfgd.reservoirs.costs import predicted_cost
from icfgd.reservoirs.training import Schedule, fit, optimiser

# Training


def small(seed=0):
    return models.Classifier("LF", 8, heads=2, seed=seed)


def test_an_interrupted_run_goes_on_to_the_same_result(tmp_path):
    data = tasks.digits()
    x, y = data.train
    schedule, path = Schedule(12, every=3, kind="onecycle", warmup=0.25), tmp_path / "state"

    class Stop(Exception):
        pass

    def run(limit=None, checkpoint=None):
        model, drawn = small(), []

        def draw(g):
            if len(drawn) == limit:
                raise Stop
            drawn.append(1)
            at = torch.randint(len(y), (16,), generator=g)
            return torch.nn.functional.cross_entropy(model(x[at]), y[at])

        curve = fit(
            model, draw, lambda: model.accuracy(*data.validation), schedule, 5, None, checkpoint, minutes=0
        )
        return curve, model, len(drawn)

    want, reference, _ = run()
    with pytest.raises(Stop):
        run(8, path)
    assert path.exists()
    got, model, drawn = run(None, path)
    assert drawn == 6
    assert not path.exists()
    assert (got.steps, got.values, got.losses) == (want.steps, want.values, want.losses)
    assert got.steps == [0, 3, 6, 9, 12]
    assert all(a <= b for a, b in zip(got.seconds, got.seconds[1:]))
    for a, b in zip(model.parameters(), reference.parameters()):
        assert torch.equal(a, b)


def test_schedules_and_groups():
    schedule = Schedule(100, rate=2.0, kind="onecycle", warmup=0.1)
    rates = [schedule.at(i) for i in range(100)]
    assert max(rates) == rates[10] == 2.0
    assert rates[0] == pytest.approx(2 / 11)
    assert rates[-1] < 0.01
    assert Schedule(10, rate=3.0).at(7) == 3.0
    groups = optimiser(small(), Schedule(1, decay=0.5)).param_groups
    assert [g["weight_decay"] for g in groups] == [0.5, 0.0]
    assert all(p.ndim >= 2 for p in groups[0]["params"])
    assert all(p.requires_grad for g in groups for p in g["params"])
    for bad in (
        {"steps": 0},
        {"rate": 0.0},
        {"kind": "twocycle"},
        {"warmup": 2.0},
        {"clip": 0.0},
        {"every": 0},
    ):
        with pytest.raises(ValueError, match=list(bad)[0]):
            replace(Schedule(5), **bad)


def test_training_that_diverges_raises():
    model = small()
    with pytest.raises(FloatingPointError, match="step 0"):
        fit(model, lambda g: model.norm.weight.sum() * math.inf, lambda: 0.0, Schedule(3))


# Experiments


def combinations(grid):
    values = [v if isinstance(v, tuple) else (v,) for v in grid.values()]
    return [dict(zip(grid, choice)) for choice in itertools.product(*values)]


def test_all_experiments_are_well_formed():
    for name, experiment in experiments.EXPERIMENTS.items():
        for preset in experiments.PRESETS:
            found = experiment.runs(preset)
            assert found, name
            grids = getattr(experiment, preset)
            distinct = {repr(choice) for grid in grids for choice in combinations(grid)}
            assert len(found) == len(distinct), f"{name}: two runs share a name"
            for description in found.values():
                assert description["task"] in runs.TASKS
    with pytest.raises(ValueError, match="Did you mean 'digits'"):
        experiments.experiment("digit")
    with pytest.raises(ValueError, match="preset"):
        experiments.experiment("digits").runs("paper")
    with pytest.raises(ValueError, match="task"):
        runs.execute({"task": "diggits"})


TINY = {
    "digits": {"pattern": "LF", "d": 8, "steps": 2, "every": 1, "seed": 0, "heads": 2},
    "plays": {
        "pattern": "LC",
        "d": 8,
        "steps": 2,
        "every": 1,
        "seed": 0,
        "context": 8,
        "batch": 2,
        "watch": 50,
        "whole": False,
        "heads": 2,
    },
    "ngram": {"order": 2, "length": 1000},
    "spelling": {
        "pattern": "LF",
        "d": 8,
        "steps": 1,
        "every": 1,
        "seed": 0,
        "words": 20,
        "watch": 5,
        "heads": 2,
    },
    "cost": {
        "d": 8,
        "tokens": 4,
        "batch": 2,
        "heads": 2,
        "seed": 0,
        "rounds": 2,
        "base": "a",
        "variants": {"a": ["LL", "exact", False], "b": ["LR", "exact", True]},
    },
    "incontext": {
        "pattern": "LR",
        "steps": 2,
        "every": 1,
        "seed": 0,
        "batch": 4,
        "test_prompts": 20,
        "features": "orthogonal",
        "count": 4,
    },
}


@pytest.mark.parametrize("task", runs.TASKS)
def test_every_task_runs_and_repeats(task):
    again = [runs.execute({"task": task, **TINY[task]})[1] for _ in range(2)]
    assert again[0]["final"] or again[0]["rows"]
    if "curve" in again[0]:
        for key in ("step", "value", "loss"):
            assert again[0]["curve"][key] == again[1]["curve"][key]
        assert again[0]["final"]["trainable"] > 0
        assert again[0]["curve"]["loss"][0] is None
    if task == "cost":
        rows = {row["variant"]: row for row in again[0]["rows"]}
        assert rows["a"]["ratio"] == rows["a"]["predicted"] == 1
        assert rows["b"]["predicted"] == 1


@pytest.mark.parametrize(
    "trains, count", [("head", 90), ("norm", 4 * 16 + 16), ("norm+head", 4 * 16 + 16 + 90)]
)
def test_what_the_digits_model_trains(trains, count):
    settings = {**TINY["digits"], "task": "digits", "pattern": "RR", "trains": trains}
    assert runs.execute(settings)[1]["final"]["trainable"] == count


def test_the_reinforce_recipe_runs_on_digits_and_needs_one_reservoir():
    settings = {
        **TINY["digits"],
        "task": "digits",
        "pattern": "LRL",
        "backskip": "reinforce",
        "warmup_steps": 1,
        "steps": 4,
    }
    assert runs.execute(settings)[1]["final"]["trainable"] > 0
    for pattern in ("LRLRL", "RL", "LL"):
        with pytest.raises(ValueError, match="exactly one frozen"):
            runs.execute({**settings, "pattern": pattern})


def test_predicted_costs():
    assert predicted_cost("LRLRLR") == pytest.approx(5 / 6)
    assert predicted_cost("LRLRLR", "st") == pytest.approx(2 / 3)
    assert predicted_cost("LRLRLR", "exact", True) == 1
    assert predicted_cost("LLL", depth=6) == 0.5
    assert predicted_cost("LFL") is None


def test_command_computes_publishes_and_loads(tmp_path, monkeypatch, capsys):
    tiny = experiments.Experiment(
        "q", ("pattern", "seed"), ({"task": "digits", **TINY["digits"], "pattern": ("LF", "LL")},), ()
    )
    monkeypatch.setitem(experiments.EXPERIMENTS, "digits", tiny)
    folder = tmp_path / "runs"
    arguments = ["digits", "--preset", "quick", "--folder", str(folder)]
    assert command.main(["publish", *arguments]) == 2
    assert command.main(["run", *arguments]) == 0
    assert "2 computed, 0 reused" in capsys.readouterr().out
    assert command.main(["run", *arguments]) == 0
    assert "0 computed, 2 reused" in capsys.readouterr().out
    stored = tmp_path / "tables"
    options = command.argparse.Namespace(folder=str(folder), preset="quick")
    command.publish(["digits"], options, stored)
    table = experiments.load("digits", folder=stored)
    assert [row["pattern"] for row in table] == ["LF", "LL"]
    curves = experiments.load("digits", curves=True, folder=stored)
    assert len(curves) == 6
    grouped = experiments.learning_curves("digits", folder=stored)
    assert list(grouped) == [row["run"] for row in table]
    assert np.concatenate(list(grouped.values())).tolist() == [[p["step"], p["seconds"], p["value"]] for p in curves]
    fresh = experiments.compute("digits", "quick")
    assert [row["test"] for row in fresh[0]] == pytest.approx([row["test"] for row in table])
    assert results.metadata(stored)["files"]["digits.csv"]["missing"] == []
    assert command.main(["run", "digts", "--folder", str(folder)]) == 2


def test_time_to_quality_of_a_short_real_run():
    record = runs.execute({"task": "digits", "pattern": "LF", "d": 16, "steps": 30, "every": 10, "seed": 0})[
        1
    ]
    curve = record["curve"]
    area = metrics.aucc(curve["step"], curve["value"], 30)
    assert min(curve["value"]) < area < max(curve["value"])
    assert curve["value"][-1] > curve["value"][0] + 0.1
