"""Command line of the reservoir experiments: `run` computes into a folder (finished runs are kept), `publish`
stores tables.

python -m icfgd.reservoirs run plays digits --preset full --folder runs/
python -m icfgd.reservoirs publish plays digits --folder runs/
"""

import argparse
import sys
from functools import partial

import torch

from icfgd import results
from icfgd.reservoirs import experiments
from icfgd.reservoirs.runs import execute
from icfgd.sweep import read, sweep

NOTE = "computed on 2 CPU cores, as far as time allowed"


def main(arguments=None):
    """Run a command; returns the exit status. A wrong argument prints one line and returns 2."""
    parser = argparse.ArgumentParser(prog="icfgd.reservoirs", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "publish"))
    parser.add_argument("experiments", nargs="+", help=f"of {', '.join(experiments.EXPERIMENTS)}, or all")
    parser.add_argument("--preset", default="full", choices=experiments.PRESETS)
    parser.add_argument("--folder", required=True, help="where finished runs and checkpoints are kept")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(arguments)
    names = list(experiments.EXPERIMENTS) if options.experiments == ["all"] else options.experiments
    torch.set_num_threads(1)
    try:
        return {"run": run, "publish": publish}[options.command](names, options)
    except ValueError as error:
        print(f"icfgd.reservoirs: {error}", file=sys.stderr)
        return 2


def run(names, options):
    """Compute experiments one after the other; an interrupted run goes on from its checkpoint."""
    failed = False
    for name in names:
        jobs = experiments.experiment(name).runs(options.preset)
        function = (
            execute
            if options.workers > 1
            else partial(execute, log=partial(print, file=sys.stderr, flush=True))
        )
        report = sweep(function, jobs, f"{options.folder}/{name}", workers=options.workers, progress=True)
        print(f"{name}: {report}", flush=True)
        failed = failed or bool(report.failed)
    return 1 if failed else 0


def publish(names, options, folder=experiments.FOLDER):
    """Store the finished runs of experiments as tables of the package. Unfinished runs are named and left
    out.
    """
    for name in names:
        table, curves, seconds, missing = [], [], 0.0, []
        for job, description in experiments.experiment(name).runs(options.preset).items():
            try:
                found, _, record = read(f"{options.folder}/{name}/{job}.npz")
            except ValueError:
                missing.append(job)
                continue
            if found != description:
                raise ValueError(f"{job} was computed with other settings; run it again.")
            rows, points = experiments.rows(name, found, record)
            table += rows
            curves += points
            seconds += record["final"].get("cpu_seconds", 0.0)
        if not table:
            raise ValueError(f"{name} has no finished run in {options.folder}.")
        contents = {f"{name}.csv": results.render(experiments.aligned(table)).encode()}
        if curves:
            contents[f"{name}-curves.csv"] = results.render(curves).encode()
        entry = {
            "preset": options.preset,
            "missing": missing,
            "cpu_seconds": round(seconds, 1),
            **results.provenance(NOTE),
        }
        results.add(contents, entry, folder)
        print(f"{name}: {len(table)} rows, {len(curves)} points, {len(missing)} runs missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
