"""Many independent jobs: over local processes, or over a Dask cluster when an address is given; same code,
same results.

A job is a name and a plain description; a function turns the description into arrays and a record. Each
finished job is one file, written whole, and is never computed again; failed jobs are reported by name. What
the jobs mean belongs to `experiments`.
"""

import hashlib
import json
import multiprocessing
import re
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from icfgd import checks
from icfgd.files import write_whole


@dataclass
class Report:
    """What a sweep did: names `computed` now, `reused` from before, and `failed` with the reason of each."""

    folder: Path
    computed: list = field(default_factory=list)
    reused: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)

    def outcomes(self):
        """Pairs (name, (arrays, record)) of all jobs that did not fail, read from the folder one at a
        time."""
        for name in sorted([*self.computed, *self.reused]):
            yield name, read(self.folder / f"{name}.npz")[1:]

    def __str__(self):
        counts = f"{len(self.computed)} computed, {len(self.reused)} reused, {len(self.failed)} failed"
        return "\n".join([counts, *(f"failed: {name}: {self.failed[name]}" for name in sorted(self.failed))])


def sweep(function, jobs, folder, *, workers=None, address=None, only=None, progress=False):
    """Run `function(description, checkpoint)` for every entry of `jobs` (name -> JSON-able description).

    function: importable by name; returns (dict of numpy arrays, JSON-able record). folder: where results are
    kept, one file per job. workers: local processes (default: the number of cores; 1 stays in this process).
    address: of a Dask scheduler, whose workers then do the computing (checkpoints stay off, as folders may
    not be shared). only: names to run, e.g. those of `Report.failed`. Returns a `Report`; a failing job never
    stops the others.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in jobs:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
            raise ValueError(f"jobs has the name {name!r}; letters, digits and _ . + - are allowed.")
    chosen = dict(jobs) if only is None else {checks.one_of("only", name, jobs): jobs[name] for name in only}
    report, waiting = Report(folder), {}
    for name, description in chosen.items():
        if _is_done(folder / f"{name}.npz", description):
            report.reused.append(name)
        else:
            waiting[name] = description

    def finish(name, outcome):
        if outcome[0] == "failed":
            report.failed[name] = outcome[1]
        else:
            write(folder / f"{name}.npz", waiting[name], *outcome[1:])
            (folder / f"{name}.checkpoint").unlink(missing_ok=True)
            report.computed.append(name)
        if progress:
            finished = len(report.computed) + len(report.failed)
            print(f"{finished}/{len(waiting)} {outcome[0]}: {name}", file=sys.stderr, flush=True)

    if address is not None:
        _on_cluster(function, waiting, address, finish)
    elif workers == 1 or len(waiting) <= 1:
        for name, description in waiting.items():
            finish(name, _attempt(function, description, str(folder / f"{name}.checkpoint")))
    else:
        _on_processes(function, waiting, folder, workers, finish)
    return report


def write(path, description, arrays, record):
    """Write one outcome: the arrays, the record and the description it belongs to, in one file."""
    text = json.dumps({"description": _plain(description), "record": record}, sort_keys=True)
    return write_whole(path, lambda handle: np.savez_compressed(handle, __json__=np.array(text), **arrays))


def read(path):
    """(description, arrays, record) of one outcome. Raises `ValueError` if the file is damaged; never reads
    half."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        head = json.loads(str(arrays.pop("__json__")))
        return head["description"], arrays, head["record"]
    except Exception as error:  # noqa: BLE001 - zipfile, zlib, numpy and json each have errors of their own
        text = f"{Path(path).name} is damaged or not a result ({error}); delete it and run the job again."
        raise ValueError(text) from error


def digest(description):
    """A short digest of a job's description."""
    return hashlib.sha256(json.dumps(_plain(description), sort_keys=True).encode()).hexdigest()[:16]


def _plain(description):
    return json.loads(json.dumps(description))


def _is_done(path, description):
    if not path.exists():
        return False
    try:
        return read(path)[0] == _plain(description)
    except ValueError:
        return False


def _attempt(function, description, checkpoint):
    """The outcome of one job: ('done', arrays, record) or ('failed', reason). One thread, so that results
    repeat."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return ("done", *function(description, checkpoint))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a job is that job's result
        place = traceback.extract_tb(error.__traceback__)[-1]
        return ("failed", f"{type(error).__name__}: {error} (in {Path(place.filename).name}, {place.name})")
    finally:
        torch.set_num_threads(threads)


def _on_processes(function, waiting, folder, workers, finish):
    # A fork server imports torch once for all workers; where there is none (Windows), every worker imports it.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["torch", function.__module__])

    def run(names, count):
        lost = []
        with ProcessPoolExecutor(count, mp_context=context) as pool:
            futures = {}
            for name in names:
                checkpoint = str(folder / f"{name}.checkpoint")
                futures[pool.submit(_attempt, function, waiting[name], checkpoint)] = name
            for future in as_completed(futures):
                try:
                    finish(futures[future], future.result())
                except BrokenProcessPool:
                    lost.append(futures[future])
        return lost

    # A worker that dies takes the whole pool with it: the jobs it lost are repeated one by one to find the
    # culprit.
    for name in run(list(waiting), workers):
        if run([name], 1):
            finish(name, ("failed", "its process died (killed, or out of memory)"))


def _on_cluster(function, waiting, address, finish):
    try:
        from distributed import Client
        from distributed import as_completed as completed
    except ImportError as error:
        raise ImportError("a Dask address needs the extra 'cluster': pip install icfgd[cluster]") from error
    with Client(address) as client:
        futures = {
            client.submit(_attempt, function, description, None, pure=False): name
            for name, description in waiting.items()
        }
        for future in completed(futures):
            if future.status == "finished":
                finish(futures[future], future.result())
            else:
                finish(futures[future], ("failed", f"the cluster lost it ({future.exception()})"))
