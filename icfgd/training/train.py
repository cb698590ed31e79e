"""The entry points of training: arguments, checkpoints, the progress bar, and the choice among several
starts."""

import sys
from dataclasses import asdict

import torch

from icfgd import checks
from icfgd.losses import predictor_weights
from icfgd.training import checkpoints
from icfgd.training.coordinates import Coordinates
from icfgd.training.engine import Engine, TrainingFailed
from icfgd.training.settings import DTYPES, Settings


def train(
    tasks,
    heads,
    layers,
    settings=None,
    *,
    seeds=None,
    free_A=True,
    divide_by_context=True,
    checkpoint=None,
    checkpoint_every=100,
    progress=False,
    device="cpu",
):
    """Train one network per task in one batched pass.

    tasks: a `Task`, or a list of them of one context length and covariate size. heads, layers: as for
    `Transformer`. seeds: one integer per run (default 0, 1, ...). free_A=False keeps A = 0. checkpoint: a
    file that is written every `checkpoint_every` steps; if it exists, training continues from it and ends
    with the same parameters, bit for bit on the same machine, as if it had never stopped. progress: draw a
    bar on stderr. Returns `Trained`. Raises `ValueError` on wrong arguments or a checkpoint of another run,
    `TrainingFailed` if a run cannot recover.
    """
    settings = settings or Settings()
    tasks = list(tasks) if isinstance(tasks, (list, tuple)) else [tasks]
    seeds = list(range(len(tasks))) if seeds is None else [checks.integer("seeds", s, 0) for s in seeds]
    if not tasks or len(seeds) != len(tasks):
        raise ValueError(
            f"seeds has {len(seeds)} entries for {len(tasks)} tasks; one seed per task is required."
        )
    if len({(task.context, task.covariates.d) for task in tasks}) != 1:
        raise ValueError("tasks differ in context length or covariate size; one shape for all is required.")
    checks.integer("checkpoint_every", checkpoint_every, low=1)
    dtype = DTYPES[settings.dtype]
    coordinates = Coordinates(tasks, heads, layers, divide_by_context, free_A, settings.coordinates, dtype)
    engine = Engine(tasks, seeds, coordinates, settings, device)
    identity = checkpoints.fingerprint(
        settings=asdict(settings),
        seeds=seeds,
        tasks=[task.describe() for task in tasks],
        heads=coordinates.network.heads,
        layers=layers,
        free_A=free_A,
        divide_by_context=divide_by_context,
    )
    saved = checkpoints.load(checkpoint, identity) if checkpoint is not None else None
    if saved is None:
        engine.begin()
    else:
        engine.restore(saved)
    while not engine.finished:
        try:
            engine.advance()
        except TrainingFailed:
            if checkpoint is not None:
                checkpoints.save(checkpoint, identity, engine.state())
            raise
        if progress:
            _bar(engine)
        if checkpoint is not None and (engine.step % checkpoint_every == 0 or engine.finished):
            checkpoints.save(checkpoint, identity, engine.state())
    if progress:
        print(file=sys.stderr)
    return engine.trained()


def multistart(task, heads, layers, settings=None, *, starts=4, seed=0, **options):
    """Train from several starting points in one batched pass; returns (best model, losses (starts,)).

    The losses are exact over labels, on one held-out set for all starts. options: as for `train`.
    """
    settings = settings or Settings()
    count = checks.integer("starts", starts, low=1)
    trained = train(
        [task] * count, heads, layers, settings, seeds=[seed + i for i in range(count)], **options
    )
    generator = torch.Generator().manual_seed(2**42 + seed)
    batch = task.draw(settings.held_out, settings.queries, generator, pool=settings.pool)
    with torch.no_grad():
        losses = torch.stack(
            [batch.loss(predictor_weights(model, batch.X, settings.queries)) for model in trained.models]
        )
    return trained.models[int(losses.argmin())], losses


def _bar(engine, width=30):
    total = engine.settings.steps
    filled = engine.step * width // total
    best = ", ".join(f"{float(v):.4g}" for v in engine.best_loss[:4])
    line = f"\r[{'#' * filled}{' ' * (width - filled)}] {engine.step}/{total} steps, held-out loss {best}"
    print(line, end="", file=sys.stderr, flush=True)
