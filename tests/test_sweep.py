"""Sweeps: same results everywhere, failures by name, nothing computed twice, damaged files never believed."""

import os

import numpy as np
import pytest

from icfgd.sweep import read, sweep, write


def square(description, checkpoint):
    """A cheap job: arrays and a record that depend on the description alone."""
    if description.get("fail"):
        raise ArithmeticError("told to fail")
    if description.get("die"):
        os._exit(9)
    x = np.arange(description["n"], dtype=np.float64)
    return {"x": x**2}, [{"sum": float((x**2).sum())}]


def counted(description, checkpoint):
    with open(description["log"], "a") as log:
        log.write("x")
    return square(description, checkpoint)


JOBS = {f"job-{n}": {"n": n} for n in (2, 3, 5, 8)}


def contents(report):
    return {name: (arrays["x"].tolist(), record) for name, (arrays, record) in report.outcomes()}


def test_processes_and_this_process_agree(tmp_path):
    here = sweep(square, JOBS, tmp_path / "here", workers=1)
    there = sweep(square, JOBS, tmp_path / "there", workers=2)
    assert contents(here) == contents(there)
    assert contents(here)["job-3"] == ([0.0, 1.0, 4.0], [{"sum": 5.0}])
    assert sorted(there.computed) == sorted(JOBS)


def test_a_dask_cluster_agrees(tmp_path):
    distributed = pytest.importorskip("distributed")
    here = sweep(square, {**JOBS, "bad": {"n": 1, "fail": True}}, tmp_path / "here", workers=1)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        address = cluster.scheduler_address
        there = sweep(square, {**JOBS, "bad": {"n": 1, "fail": True}}, tmp_path / "there", address=address)
    assert contents(here) == contents(there)
    assert here.failed == there.failed
    assert "ArithmeticError: told to fail" in there.failed["bad"]


def test_training_on_a_dask_cluster_equals_the_local_run(tmp_path):
    distributed = pytest.importorskip("distributed")
    from icfgd.experiments import Run, execute

    settings = {"steps": 10, "contexts": 8, "queries": 2, "held_out": 8}
    jobs = {h: Run("linear", (h,), 2, 4, d=5, seeds=(0, 1), settings=settings).description() for h in ("linear", "relu")}
    here = sweep(execute, jobs, tmp_path / "here", workers=1)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        there = sweep(execute, jobs, tmp_path / "there", address=cluster.scheduler_address)
    assert not here.failed
    assert not there.failed
    for (name, (a, rows)), (_, (b, others)) in zip(here.outcomes(), there.outcomes()):
        for key in a:
            if key != "history.cpu":
                assert np.array_equal(a[key], b[key]), (name, key)
        timeless = [{k: v for k, v in row.items() if k != "cpu_seconds"} for row in rows]
        assert timeless == [{k: v for k, v in row.items() if k != "cpu_seconds"} for row in others]


def test_failures_are_named_and_can_be_run_alone(tmp_path):
    jobs = {**JOBS, "bad": {"n": 2, "fail": True}}
    report = sweep(square, jobs, tmp_path, workers=1)
    assert list(report.failed) == ["bad"]
    assert sorted(report.computed) == sorted(JOBS)
    assert "failed: bad: ArithmeticError: told to fail (in test_sweep.py, square)" in str(report)
    jobs["bad"] = {"n": 4}
    again = sweep(square, jobs, tmp_path, workers=1, only=list(report.failed))
    assert again.computed == ["bad"]
    assert not again.reused


def test_a_worker_that_dies_fails_alone(tmp_path):
    jobs = {**JOBS, "killer": {"n": 1, "die": True}}
    report = sweep(square, jobs, tmp_path, workers=2)
    assert list(report.failed) == ["killer"]
    assert "process died" in report.failed["killer"]
    assert sorted(report.computed) == sorted(JOBS)


def test_finished_jobs_are_never_computed_again(tmp_path):
    log = tmp_path / "log"
    jobs = {"a": {"n": 2, "log": str(log)}, "b": {"n": 3, "log": str(log)}}
    sweep(counted, jobs, tmp_path / "out", workers=1)
    second = sweep(counted, jobs, tmp_path / "out", workers=1)
    assert sorted(second.reused) == ["a", "b"]
    assert log.read_text() == "xx"
    jobs["b"] = {"n": 4, "log": str(log)}  # another description under the same name is another job
    third = sweep(counted, jobs, tmp_path / "out", workers=1)
    assert third.computed == ["b"]
    assert log.read_text() == "xxx"


@pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"PK" + b])
def test_a_damaged_outcome_is_refused_and_recomputed(tmp_path, damage):
    sweep(square, JOBS, tmp_path, workers=1)
    path = tmp_path / "job-5.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="job-5.npz is damaged"):
        read(path)
    report = sweep(square, JOBS, tmp_path, workers=1)
    assert report.computed == ["job-5"]
    assert read(path)[2] == [{"sum": 30.0}]


def test_every_flipped_byte_of_an_outcome_is_noticed_or_harmless(tmp_path):
    path = write(tmp_path / "one.npz", {"n": 3}, {"x": np.arange(3.0)}, [{"sum": 5.0}])
    good = path.read_bytes()
    noticed = 0
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        try:
            description, arrays, record = read(path)
        except ValueError:
            noticed += 1
            continue
        assert (description, record) == ({"n": 3}, [{"sum": 5.0}])
        assert arrays["x"].tolist() == [0.0, 1.0, 2.0]
    assert noticed > 20


def test_wrong_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'../x'"):
        sweep(square, {"../x": {"n": 1}}, tmp_path)
    with pytest.raises(ValueError, match="Did you mean 'job-2'"):
        sweep(square, JOBS, tmp_path, only=["job-22"])
