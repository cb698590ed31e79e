"""Tables and trained parameters that ship with the package: written with their provenance, read whole or not
at all.

Each experiment is a tidy CSV file; `parameters.npz` holds the networks and their learning curves; `runs.json`
says what each run was; `metadata.json` says when, by which code and on which machine, and holds a checksum of
every other file. What the experiments are belongs in `experiments`; their figures belong in `plots`.
"""

import hashlib
import io
import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

import icfgd
from icfgd import checks, experiments
from icfgd.experiments.tables import Table, parse, render
from icfgd.files import write_whole
from icfgd.sweep import read as read_outcome

FOLDER = Path(__file__).parent / "data" / "results"
FORMAT = 1
PARAMETERS = "ABCr"

__all__ = ["FOLDER", "Table", "add", "history", "load", "machine", "metadata", "model", "names", "parse"]
__all__ += ["provenance", "publish", "render", "run", "verify"]


def names(folder=FOLDER):
    """Names of the stored tables."""
    return sorted(name.removesuffix(".csv") for name in metadata(folder)["files"] if name.endswith(".csv"))


def metadata(folder=FOLDER):
    """The provenance of the results: machine, versions, commit, times and checksums."""
    path = Path(folder) / "metadata.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise KeyError(f"format {data['format']}")
        return data
    except FileNotFoundError:
        raise ValueError(f"{path.parent.name} holds no results (no metadata.json).") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"metadata.json is damaged ({error}).") from error


def load(name, folder=FOLDER):
    """The `Table` of an experiment. Raises `ValueError` on an unknown name, or a damaged or changed file."""
    checks.one_of("name", name, names(folder))
    return parse(_bytes(f"{name}.csv", folder).decode("utf-8"))


def run(name, folder=FOLDER):
    """The stored `Run` called `name` (column 'run' of the tables)."""
    runs = json.loads(_bytes("runs.json", folder))
    return experiments.Run(**runs[checks.one_of("name", name, runs)])


def model(name, seed=0, folder=FOLDER):
    """The trained network of a stored run and seed, in float64."""
    which = run(name, folder)
    if seed not in which.seeds:
        raise ValueError(f"seed = {seed}; one of {list(which.seeds)} is required.")
    flat = _archive("parameters.npz", str(folder))[name][which.seeds.index(seed)]
    shapes = {n: p.shape for n, p in experiments.blank(which).named_parameters()}
    arrays, start = {}, 0
    for key in PARAMETERS:
        size = math.prod(shapes[key])
        arrays[f"{key}.seed{seed}"] = flat[start : start + size].reshape(shapes[key])
        start += size
    return experiments.stored_model(which, arrays, seed)


def history(name, folder=FOLDER):
    """Learning curves of a stored run: 'step' (c,), 'cpu' (c,) seconds of the whole batched pass, 'held_out'
    (c, seeds), and, for the runs of theorem1 and theorem2, 'distance.BC' and 'distance.A' (c, layers, heads,
    seeds)."""
    archive = _archive("parameters.npz", str(folder))
    run(name, folder)
    keys = [key for key in archive.files if key.startswith(f"{name}/")]
    return {key.split("/", 1)[1]: archive[key] for key in keys}


def publish(sweep_folder, folder=FOLDER, preset="paper", note=""):
    """Collect finished runs of a sweep into tables, parameters and metadata under `folder`.

    Every run of every experiment must be there and finite. Files of other kinds in the folder (such as
    benchmarks) keep their metadata. Returns the metadata.
    """
    sweep_folder, folder = Path(sweep_folder), Path(folder)
    contents, arrays, runs, cpu = {}, {}, {}, {}
    for name, experiment in experiments.EXPERIMENTS.items():
        rows = []
        for item in experiment.runs(preset):
            description, outcome, record = read_outcome(sweep_folder / f"{item.name}.npz")
            if description != json.loads(json.dumps(item.description())):
                raise ValueError(
                    f"{item.name}.npz was computed for another description of this run; compute it again."
                )
            rows += record
            runs[item.name], cpu[item.name] = (
                description,
                sum({r["seed"]: r["cpu_seconds"] for r in record}.values()),
            )
            _collect(arrays, item, outcome)
        ordered = [{column: row[column] for column in experiments.COLUMNS} for row in rows]
        contents[f"{name}.csv"] = render(ordered).encode()
    contents["runs.json"] = (json.dumps(runs, indent=0, sort_keys=True) + "\n").encode()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    contents["parameters.npz"] = buffer.getvalue()
    entry = {
        "preset": preset,
        "runs": len(runs),
        "cpu_seconds": round(sum(cpu.values()), 1),
        **provenance(note),
    }
    return add(contents, entry, folder)


def add(contents, provenance, folder=FOLDER):
    """Write files (name -> bytes) with their provenance and checksums into `folder`; `metadata.json` comes
    last."""
    folder = Path(folder)
    data = metadata(folder) if (folder / "metadata.json").exists() else {"format": FORMAT, "files": {}}
    for name, content in contents.items():
        write_whole(folder / name, lambda handle, content=content: handle.write(content))
        data["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), **provenance}
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    write_whole(folder / "metadata.json", lambda handle: handle.write(text.encode()))
    return data


def provenance(note=""):
    """Machine, versions, commit and time of a computation that ends now; no host name, no path."""
    versions = {
        "icfgd": icfgd.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    return {
        "machine": machine(),
        "versions": versions,
        "commit": _commit(),
        "note": note,
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def machine():
    """What the computer is, in words."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    threads = f"{torch.get_num_threads()} thread(s)"
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, {threads}"


def verify(sample=6, retrain=1, seed=0, folder=FOLDER):
    """Recompute a random sample of rows and compare; returns a list of dicts with 'row', 'what', 'stored',
    'again', 'ok'.

    `sample` rows are tested again from the stored parameters (must agree to 1e-5, relatively, plus rounding
    of the network's outputs); `retrain` of them are trained again from scratch as well (must agree within 5
    %, as other machines round differently). All checksums are checked first.
    """
    for name in metadata(folder)["files"]:
        _bytes(name, folder)
    rows = [
        (name, row) for name in names(folder) if name in experiments.EXPERIMENTS for row in load(name, folder)
    ]
    generator = torch.Generator().manual_seed(seed)
    chosen = [rows[i] for i in torch.randperm(len(rows), generator=generator)[:sample].tolist()]
    found = []
    for index, (name, row) in enumerate(chosen):
        which = run(row["run"], folder)
        labels, options, context = which.tests()[_test_index(which, row)]
        again = experiments.evaluate(
            which, model(row["run"], row["seed"], folder), row["seed"], labels, options, context
        )
        found.append(_compare(name, row, "tested again", again["loss"], 1e-5))
        if index < retrain:
            _, fresh = experiments.execute({**which.description(), "test_contexts": (), "test_labels": ()})
            first = next(r for r in fresh if r["seed"] == row["seed"])
            stored = next(
                r
                for _, r in rows
                if r["run"] == row["run"] and r["seed"] == row["seed"] and _test_index(which, r) == 0
            )
            found.append(_compare(name, stored, "trained again", first["loss"], 0.05))
    return found


def _compare(name, row, what, again, tolerance):
    stored = row["loss"]
    good = abs(again - stored) <= tolerance * abs(stored) + 1e-9
    where = f"{name}: {row['run']} seed {row['seed']} on {row['test_labels']} n={row['test_context']}"
    return {"row": where, "what": what, "stored": stored, "again": again, "ok": good}


def _test_index(which, row):
    keys = [(experiments.law_name(labels, options), context) for labels, options, context in which.tests()]
    return keys.index((row["test_labels"], row["test_context"]))


def _collect(arrays, item, outcome):
    keys = [[outcome[f"{name}.seed{seed}"].ravel() for name in PARAMETERS] for seed in item.seeds]
    arrays[item.name] = np.stack([np.concatenate(parts) for parts in keys]).astype(np.float32)
    if not np.isfinite(arrays[item.name]).all():
        raise ValueError(f"{item.name} has parameters that are not finite.")
    for name, value in experiments.curves(outcome).items():
        arrays[f"{item.name}/{name}"] = value


def _bytes(name, folder):
    """The content of a stored file, after comparing its checksum."""
    try:
        content = (Path(folder) / name).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{name} is missing from the results.") from None
    if hashlib.sha256(content).hexdigest() != metadata(folder)["files"][name]["sha256"]:
        raise ValueError(f"{name} is damaged or was changed: its checksum is not the one in metadata.json.")
    return content


@lru_cache(maxsize=4)
def _archive(name, folder):
    return np.load(io.BytesIO(_bytes(name, folder)), allow_pickle=False)


def _commit():
    """The commit of the code, if it runs from a checkout, with '+' if files of the package differ from it."""
    root = Path(__file__).parent
    try:

        def git(*arguments):
            return subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
            ).stdout

        commit = git("rev-parse", "--short=12", "HEAD").strip()
        return commit + ("+" if git("status", "--porcelain", "--", "*.py").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
