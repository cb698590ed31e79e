"""The command line: every command does its work, and wrong names end in one line and status 2."""

import csv
import io

import pytest

from icfgd import results
from icfgd.__main__ import main
from icfgd.experiments import EXPERIMENTS, Run
from icfgd.experiments.grids import Experiment
from icfgd.sweep import read

TINY = '{"steps": 6, "contexts": 8, "queries": 2, "held_out": 8}'


def test_train_prints_rows_resumes_and_stores(tmp_path, capsys):
    out, checkpoint = tmp_path / "run.npz", tmp_path / "run.checkpoint"
    words = ["train", "--labels", "linear", "--heads", "linear", "relu", "--layers", "2", "--context", "4", "--seeds", "2",
             "--settings", TINY, "--checkpoint", str(checkpoint), "--out", str(out)]
    assert main(words) == 0
    first = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(first)))
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert rows[0]["heads"] == "linear+relu"
    assert main(words) == 0
    again = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["loss"] for row in again] == [row["loss"] for row in rows]
    description, arrays, _ = read(out)
    assert Run(**description).layers == 2
    assert arrays["A.seed1"].shape == (2, 2, 5, 5)


def test_sweep_reports_failures_and_reuses(tmp_path, capsys, monkeypatch):
    good = Run("linear", ("linear",), 1, 3, seeds=(0,), settings={"steps": 3, "contexts": 4, "held_out": 4})
    bad = Run("linear", ("linear",), 1, 3, d=4, seeds=(0,))
    monkeypatch.setitem(EXPERIMENTS, "figure1", Experiment("figure1", "x", lambda paper: [good, bad]))
    words = ["sweep", "figure1", "--folder", str(tmp_path), "--workers", "1", "--quiet"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "1 computed, 0 reused, 1 failed" in out
    assert f"failed: {bad.name}: ValueError: d = 4" in out
    assert main([*words, "--only", good.name]) == 0
    assert "0 computed, 1 reused, 0 failed" in capsys.readouterr().out


def test_figure_of_a_quick_run(tmp_path):
    path = tmp_path / "figure.png"
    assert main(["figure", "theorem2", "--preset", "quick", "--out", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_figure_of_the_stored_results(name, tmp_path):
    path = tmp_path / "figure.png"
    assert main(["figure", name, "--out", str(path)]) == 0
    assert len(path.read_bytes()) > 5000


def test_results_are_listed_shown_and_verified(capsys):
    assert main(["results", "list"]) == 0
    assert "figure3" in capsys.readouterr().out
    assert main(["results", "show", "figure3"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("run,labels,heads,layers")
    assert main(["results", "verify", "--sample", "2", "--retrain", "0"]) == 0
    assert "2 of 2 comparisons agree" in capsys.readouterr().out


def test_a_wrong_stored_number_ends_in_status_1(capsys, monkeypatch):
    bad = [{"row": "r", "what": "tested again", "stored": 1.0, "again": 2.0, "ok": False}]
    monkeypatch.setattr(results, "verify", lambda *a: bad)
    assert main(["results", "verify"]) == 1
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["figure", "figur2"], "Did you mean 'figure2'"),
        (["sweep", "figure9", "--folder", "x"], "'figure9' is unknown"),
        (["results", "show", "figur3"], "Did you mean 'figure3'"),
        (["train", "--labels", "linea", "--settings", TINY], "Did you mean 'linear'"),
        (["bench", "--only", "rase"], "Did you mean 'race'"),
    ],
)
def test_wrong_names_are_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
