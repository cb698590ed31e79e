"""Stored results: read whole or not at all, tables keep their types, and the shipped numbers can be recomputed."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

from icfgd import experiments, results
from icfgd.experiments import EXPERIMENTS, Run, parse, render
from icfgd.experiments.grids import Experiment
from icfgd.sweep import sweep

TINY = {"steps": 6, "contexts": 8, "queries": 2, "held_out": 8}
RUNS = [Run("linear", (h,), 1, 3, seeds=(0, 1), settings=TINY) for h in ("linear", "relu")]
RUNS.append(Run("linear", ("linear",), 2, 3, seeds=(0, 1), settings=TINY, trajectory=True, test_contexts=(5,)))


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A small folder of published results."""
    grid = {"figure1": Experiment("figure1", "x", lambda paper: RUNS[:2]),
            "sparse": Experiment("sparse", "y", lambda paper: RUNS)}
    monkeypatch.setattr(experiments, "EXPERIMENTS", grid)
    jobs = {run.name: run.description() for run in RUNS}
    assert not sweep(experiments.execute, jobs, tmp_path / "sweep", workers=1).failed
    results.publish(tmp_path / "sweep", tmp_path / "store")
    results._archive.cache_clear()
    return tmp_path / "store"


def test_published_results_can_be_read_back(store):
    assert results.names(store) == ["figure1", "sparse"]
    table = results.load("sparse", store)
    assert len(table) == 8
    assert table.values("heads") == ["linear", "relu"]
    assert [type(table[0][c]) for c in ("layers", "loss", "free_A", "run")] == [int, float, bool, str]
    model = results.model(RUNS[2].name, 1, store)
    row = table.where(run=RUNS[2].name, seed=1, test_context=5)[0]
    again = experiments.evaluate(results.run(RUNS[2].name, store), model, 1, context=5)
    assert again["loss"] == pytest.approx(row["loss"], rel=1e-7)
    history = results.history(RUNS[2].name, store)
    assert history["distance.BC"].shape == (2, 2, 1, 2)
    assert set(results.history(RUNS[0].name, store)) == {"step", "cpu", "held_out"}


def test_verify_recomputes_and_notices_a_wrong_number(store):
    assert all(item["ok"] for item in results.verify(4, 2, 0, store))
    path, data = store / "sparse.csv", results.metadata(store)
    table = results.load("sparse", store)
    for row in table:
        row["loss"] *= 1.1
    text = render(table).encode()
    results.add({"sparse.csv": text}, {}, store)  # a consistent forgery: right checksum, wrong numbers
    found = results.verify(8, 0, 0, store)
    assert {item["ok"] for item in found if item["row"].startswith("sparse")} == {False}
    assert path.exists()
    assert data["files"]["figure1.csv"]["sha256"] == results.metadata(store)["files"]["figure1.csv"]["sha256"]


@pytest.mark.parametrize("name", ["sparse.csv", "parameters.npz", "runs.json"])
@pytest.mark.parametrize("damage", ["half", "byte", "gone", "more"])
def test_damaged_files_are_refused(store, name, damage):
    path = store / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        changed = {"half": content[:middle], "more": content + b"\n",
                   "byte": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]}
        path.write_bytes(changed[damage])
    results._archive.cache_clear()
    read = (lambda: results.load("sparse", store)) if name == "sparse.csv" else (
        lambda: results.model(RUNS[0].name, 0, store)
    )
    with pytest.raises(ValueError, match=f"{name} is (damaged|missing)"):
        read()
    with pytest.raises(ValueError, match=name):
        results.verify(1, 0, 0, store)


@pytest.mark.parametrize("content", ["", "{", '{"format": 99, "files": {}}', "[]"])
def test_damaged_metadata_is_refused(store, content):
    (store / "metadata.json").write_text(content)
    with pytest.raises(ValueError, match="metadata.json is damaged"):
        results.load("sparse", store)


def test_publishing_needs_every_run_finished_and_finite(store, monkeypatch):
    sweep_folder = store.parent / "sweep"
    victim = sweep_folder / f"{RUNS[1].name}.npz"
    kept = victim.read_bytes()
    victim.unlink()
    with pytest.raises(ValueError, match=re.escape(victim.name)):
        results.publish(sweep_folder, store)
    victim.write_bytes(kept)
    shutil.copy(sweep_folder / f"{RUNS[0].name}.npz", victim)
    with pytest.raises(ValueError, match="another description"):
        results.publish(sweep_folder, store)
    assert results.load("figure1", store)


def test_tables_refuse_numbers_that_are_not_finite():
    with pytest.raises(ValueError, match="column 'loss' of run 'a' holds nan"):
        render([{"run": "a", "loss": float("nan")}])
    with pytest.raises(ValueError, match="rows is empty"):
        render([])


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n3", "a,b\n1,2\n3\n", "a,b\n1,2,3\n"])
def test_truncated_tables_are_refused(text):
    with pytest.raises(ValueError, match="damaged"):
        parse(text)


def test_series_needs_one_row_for_each_point():
    table = parse("run,seed,x,y\na,0,1,2.5\na,1,1,3.5\na,0,2,4.5\n")
    with pytest.raises(ValueError, match="exactly one row"):
        table.series("x", "y")
    x, y = table.series("x", "y", seed=0)
    assert x.tolist() == [1, 2]
    assert y.tolist() == [[2.5, 4.5]]
    with pytest.raises(ValueError, match="Did you mean 'seed'"):
        table.where(sed=1)


def test_unknown_names_are_reported(store):
    with pytest.raises(ValueError, match="Did you mean 'sparse'"):
        results.load("spars", store)
    with pytest.raises(ValueError, match="linear-relu-n3-k1-paper"):
        results.model("linear-relu-n3-k1-papr", 0, store)
    with pytest.raises(ValueError, match="seed = 7"):
        results.model(RUNS[0].name, 7, store)
    with pytest.raises(ValueError, match="no results"):
        results.load("sparse", store / "nowhere")


# What ships with the package


def test_shipped_results_are_complete_and_finite():
    data = results.metadata()
    for name, experiment in EXPERIMENTS.items():
        table = results.load(name)
        assert set(table.values("run")) == {run.name for run in experiment.runs("paper")}
        for row in table:
            assert np.isfinite([v for v in row.values() if isinstance(v, float)]).all()
            assert row["excess"] >= 0
    entry = data["files"]["figure1.csv"]
    assert entry["runs"] > 400
    assert entry["commit"] != "unknown"
    assert "core" in entry["machine"]


def test_shipped_rows_can_be_recomputed():
    found = results.verify(sample=2, retrain=0, seed=11)
    assert len(found) == 2
    assert all(item["ok"] for item in found)


def test_shipped_metadata_names_no_host_and_no_path():
    text = json.dumps(results.metadata())
    assert not re.search(r"/(home|root|work|tmp|usr)\b", text)
    import platform

    assert platform.node() not in text or len(platform.node()) < 4


def test_shipped_networks_load():
    table = results.load("figure2")
    name = table.values("run")[-1]
    model = results.model(name, 2)
    assert model.B.dtype == torch.float64
    row = table.where(run=name, seed=2)[0]
    assert row["stepped_back"] >= 0
