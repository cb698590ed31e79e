"""The command line of the package: train, sweep, figure, results, bench. Each command calls one function."""

import argparse
import json
import runpy
import sys
from pathlib import Path

import torch

from icfgd import checks, experiments, results
from icfgd.sweep import sweep, write


def main(arguments=None):
    """Run a command; returns the exit status. A wrong argument prints one line and returns 2."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        return options.command(options)
    except (ValueError, ImportError) as error:
        print(f"icfgd {options.name}: {error}", file=sys.stderr)
        return 2


def train(options):
    """Train one run, print its test losses, and store it if a file is named."""
    run = experiments.Run(
        labels=options.labels,
        label_options=json.loads(options.label_options),
        heads=tuple(options.heads),
        layers=options.layers,
        context=options.context,
        sigma=options.sigma,
        free_A=not options.sparse,
        seeds=tuple(range(options.seeds)),
        settings=json.loads(options.settings),
    )
    arrays, rows = experiments.execute(run.description(), options.checkpoint, progress=options.progress)
    print(experiments.render(rows), end="")
    if options.out:
        write(options.out, run.description(), arrays, rows)
    return 0


def run_sweep(options):
    """Compute experiments into a folder; finished runs are reused."""
    names = list(experiments.EXPERIMENTS) if options.experiments == ["all"] else options.experiments
    jobs = {}
    for name in names:
        runs = experiments.experiment(name).runs(options.preset)
        jobs.update((run.name, run.description()) for run in runs)
    spread = {"workers": options.workers, "address": options.address, "only": options.only}
    report = sweep(experiments.execute, jobs, options.folder, progress=not options.quiet, **spread)
    print(report)
    return 1 if report.failed else 0


def figure(options):
    """Draw an experiment, from the stored results or from a quick run."""
    from icfgd import plots

    experiments.experiment(options.experiment)
    if options.preset == "paper":
        table = results.load(options.experiment)
        curves = {name: results.history(name) for name in table.values("run")}
    else:
        table, arrays, _ = experiments.compute(options.experiment, "quick")
        curves = {name: experiments.curves(found) for name, found in arrays.items()}
    plots.experiment_figure(options.experiment, table, curves).savefig(options.out)
    print(f"{options.out}: {options.experiment}, preset {options.preset}, {len(table)} rows")
    return 0


def show_results(options):
    """List, show, verify or publish the stored results."""
    if options.action == "list":
        for name in results.names():
            rows = results.load(name)
            shows = experiments.EXPERIMENTS[name].shows if name in experiments.EXPERIMENTS else ""
            print(f"{name:16} {len(rows):5} rows  {shows}")
        return 0
    if options.action == "show":
        print(experiments.render(results.load(checks.one_of("name", options.name_, results.names()))), end="")
        return 0
    if options.action == "publish":
        data = results.publish(options.folder)
        print(f"{len(data['files'])} files")
        return 0
    found = results.verify(options.sample, options.retrain, options.seed)
    for item in found:
        word = "agrees" if item["ok"] else "DIFFERS"
        print(f"{word:8} {item['what']:14} {item['stored']:.6g} / {item['again']:.6g}  {item['row']}")
    bad = sum(not item["ok"] for item in found)
    print(f"{len(found) - bad} of {len(found)} comparisons agree")
    return 1 if bad else 0


def bench(options):
    """Run the benchmarks of the source repository."""
    script = Path(__file__).resolve().parents[1] / "benchmarks" / "run.py"
    if not script.exists():
        raise ValueError("the benchmarks are part of the source repository, not of the installed package.")
    sys.path.insert(0, str(script.parent))
    return runpy.run_path(str(script))["main"](options.budget, options.only, options.out)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m icfgd", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1: results repeat)")
    commands = parser.add_subparsers(dest="name", required=True)

    def command(name, function):
        sub = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        sub.set_defaults(command=function)
        return sub

    sub = command("train", train)
    sub.add_argument("--labels", default="exponential")
    sub.add_argument("--label-options", default="{}", help='JSON, for example {"scale": 2.0}')
    sub.add_argument("--heads", nargs="+", default=["exponential"])
    sub.add_argument("--layers", type=int, default=3)
    sub.add_argument("--context", type=int, default=14)
    sub.add_argument("--sigma", default="paper")
    sub.add_argument("--sparse", action="store_true", help="keep A = 0")
    sub.add_argument("--seeds", type=int, default=1, help="number of networks, trained in one pass")
    sub.add_argument("--settings", default="{}", help='JSON changes to Settings, e.g. {"steps": 800}')
    sub.add_argument("--checkpoint", help="file to write to and to resume from")
    sub.add_argument("--out", help="file for parameters and learning curves (.npz)")
    sub.add_argument("--progress", action="store_true")

    sub = command("sweep", run_sweep)
    sub.add_argument("experiments", nargs="+", help="names, or all")
    sub.add_argument("--preset", default="quick", choices=experiments.PRESETS)
    sub.add_argument("--folder", required=True)
    sub.add_argument("--workers", type=int)
    sub.add_argument("--address", help="of a Dask scheduler")
    sub.add_argument("--only", nargs="+", help="names of runs, for example those that failed")
    sub.add_argument("--quiet", action="store_true")

    sub = command("figure", figure)
    sub.add_argument("experiment")
    sub.add_argument("--preset", default="paper", choices=experiments.PRESETS)
    sub.add_argument("--out", default="figure.png")

    sub = command("results", show_results)
    sub.add_argument("action", choices=("list", "show", "verify", "publish"))
    sub.add_argument("name_", metavar="name", nargs="?", default="figure1")
    sub.add_argument("--folder", help="of a finished sweep of the paper preset, for publish")
    sub.add_argument("--sample", type=int, default=6)
    sub.add_argument("--retrain", type=int, default=1)
    sub.add_argument("--seed", type=int, default=0)

    sub = command("bench", bench)
    sub.add_argument("--budget", type=float, default=300.0, help="CPU seconds for the published recipe")
    sub.add_argument("--only", nargs="+", help="parts: race, context, depth, throughput")
    sub.add_argument("--out", help="folder for bench.csv (default: the package's results)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
