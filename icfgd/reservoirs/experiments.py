"""The experiments on reservoirs: run them here and now, or load the tables that are stored with the package.

The experiments themselves are data, in `grids`; what a run does is in `runs`. Fan-out and the writing of
files are those of the whole package (`icfgd.sweep`, `icfgd.results`).
"""

from pathlib import Path

import numpy as np

import icfgd
from icfgd import checks
from icfgd.reservoirs.grids import EXPERIMENTS, PRESETS, Experiment
from icfgd.reservoirs.runs import execute

FOLDER = Path(icfgd.__file__).parent / "data" / "reservoirs"

__all__ = [
    "EXPERIMENTS",
    "FOLDER",
    "PRESETS",
    "Experiment",
    "aligned",
    "compute",
    "experiment",
    "learning_curves",
    "load",
    "rows",
]


def experiment(name):
    """The experiment called `name`."""
    return EXPERIMENTS[checks.one_of("name", name, EXPERIMENTS)]


def rows(name, description, record):
    """A run as table rows: (results, points of the learning curve), each row led by the experiment's
    columns.
    """
    head = {"run": experiment(name).name(description)}
    for column in experiment(name).columns:
        value = description.get(column)
        head[column] = (
            "" if value is None else "x".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        )
    if "rows" in record:
        return [{**head, **{k: "" if v is None else v for k, v in row.items()}} for row in record["rows"]], []
    final = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in record["final"].items()}
    curve = record.get("curve", {})
    points = [dict(zip(curve, ("" if v is None else v for v in values))) for values in zip(*curve.values())]
    return [{**head, **final}], [{"run": head["run"], **point} for point in points]


def compute(name, preset="quick", log=None):
    """Run an experiment here and now: (results, curves), two lists of rows as they would be stored."""
    results, curves = [], []
    for run, description in experiment(name).runs(preset).items():
        if log is not None:
            log(run)
        record = execute(description)[1]
        found, points = rows(name, description, record)
        results += found
        curves += points
    return aligned(results), curves


def aligned(table):
    """Rows with the same keys: missing ones become empty texts."""
    keys = list(dict.fromkeys(key for row in table for key in row))
    return [{key: row.get(key, "") for key in keys} for row in table]


def load(name, curves=False, folder=FOLDER):
    """The stored `Table` of an experiment's results, or of its learning curves."""
    from icfgd import results

    experiment(name)
    return results.load(f"{name}-curves" if curves else name, folder)


def learning_curves(name, folder=FOLDER):
    """The stored learning curves of an experiment: dict run -> array (evaluations, 3) of step, CPU seconds
    and value.
    """
    points = {}
    for row in load(name, curves=True, folder=folder):
        points.setdefault(row["run"], []).append((row["step"], row["seconds"], row["value"]))
    return {run: np.array(curve, dtype=float) for run, curve in points.items()}
