"""The experiments of the book: what a run is, which runs belong to which experiment, and how to compute them.

Stored tables and parameters belong in `results`; figures in `plots`.
"""

from icfgd.experiments.grids import ACTIVATIONS, EXPERIMENTS, PRESETS, Experiment, experiment
from icfgd.experiments.runs import (
    COLUMNS,
    Run,
    blank,
    curves,
    evaluate,
    execute,
    from_scalar,
    law_name,
    stored_model,
    whitened,
)
from icfgd.experiments.tables import Table, parse, render
from icfgd.sweep import sweep

__all__ = [
    "ACTIVATIONS",
    "COLUMNS",
    "EXPERIMENTS",
    "PRESETS",
    "Experiment",
    "Run",
    "Table",
    "blank",
    "compute",
    "curves",
    "evaluate",
    "execute",
    "experiment",
    "from_scalar",
    "law_name",
    "parse",
    "render",
    "stored_model",
    "whitened",
]


def compute(name, preset="quick", folder=None, **options):
    """Compute the experiment `name`; returns (table, arrays, report).

    table: a `Table` with one row per test, in the order of the runs. arrays: run name -> arrays of `execute`.
    folder: keeps finished runs for later (a temporary one by default). options: workers, address, only,
    progress of `sweep`.
    """
    from tempfile import TemporaryDirectory

    runs = experiment(name).runs(preset)
    jobs = {run.name: run.description() for run in runs}
    if folder is None:
        with TemporaryDirectory() as temporary:
            return _collect(jobs, temporary, {"workers": 1, **options})
    return _collect(jobs, folder, options)


def _collect(jobs, folder, options):
    report = sweep(execute, jobs, folder, **options)
    outcomes = dict(report.outcomes())
    table = Table(row for name in jobs if name in outcomes for row in outcomes[name][1])
    return table, {name: outcome[0] for name, outcome in outcomes.items()}, report
