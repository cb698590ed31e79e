"""The training loop: many runs of one shape in a single pass, with guards, checkpoints and early stopping.

Every run has its own prompts, its own random generator and its own learning rate. A run whose loss or gradient is not
finite, or whose held-out loss jumps, goes back to its best state and continues with half the step; nothing ever returns
a state that is not finite. The scale of the problem is the business of `coordinates`.
"""

import sys
import time
from dataclasses import asdict
from typing import NamedTuple

import torch

from icfgd import checks
from icfgd.device import generator as fresh_generator
from icfgd.training import checkpoints
from icfgd.training.coordinates import Coordinates
from icfgd.training.settings import DTYPES, Settings
from icfgd.training.tasks import stack

JUMP = 4.0  # a held-out loss this many times the best one counts as a failure of the run


class TrainingFailed(RuntimeError):
    """Training could not recover. `trained` holds the best state of every run, all finite."""

    def __init__(self, message, trained):
        super().__init__(message)
        self.trained = trained


class Trained(NamedTuple):
    """models: one float64 `Transformer` per run, its best state. held_out (runs,): its loss on the held-out set.

    history: dict of arrays over checks: 'step' (c,), 'held_out' (c, runs), 'cpu' and 'seconds' (c,) since the start, and
    'theta' (c, runs, P), the parameters in training coordinates, which `coordinates.models` turns into networks.
    failures (runs,): how often each run stepped back. steps: steps done.
    """

    models: list
    held_out: torch.Tensor
    history: dict
    failures: torch.Tensor
    steps: int
    coordinates: Coordinates


def train(tasks, heads, layers, settings=None, *, seeds=None, free_A=True, divide_by_context=True, checkpoint=None,
          checkpoint_every=100, progress=False):
    """Train one network per task (a `Task` or a list of them, of one context length and size) in one batched pass.

    seeds: one integer per run (default 0, 1, ...). free_A=False keeps A = 0. checkpoint: a file that is written every
    `checkpoint_every` steps; if it exists, training continues from it and ends with the same parameters, bit for bit on
    the same machine, as if it had never stopped. progress: draw a bar on stderr. Returns `Trained`. Raises `ValueError`
    on wrong arguments or a checkpoint of another run, `TrainingFailed` if a run cannot recover.
    """
    settings = settings or Settings()
    tasks = list(tasks) if isinstance(tasks, (list, tuple)) else [tasks]
    seeds = list(range(len(tasks))) if seeds is None else [checks.integer("seeds", s, 0) for s in seeds]
    if not tasks or len(seeds) != len(tasks):
        raise ValueError(f"seeds has {len(seeds)} entries for {len(tasks)} tasks; one seed per task is required.")
    if len({(task.context, task.covariates.d) for task in tasks}) != 1:
        raise ValueError("tasks differ in context length or covariate size; one shape per batched pass is required.")
    checks.integer("checkpoint_every", checkpoint_every, low=1)
    coordinates = Coordinates(tasks, heads, layers, divide_by_context, free_A, settings.coordinates,
                              DTYPES[settings.dtype])
    loop = _Loop(tasks, seeds, coordinates, settings)
    identity = checkpoints.fingerprint(settings=asdict(settings), seeds=seeds, heads=coordinates.network.heads,
                                       layers=layers, context=tasks[0].context, d=tasks[0].covariates.d,
                                       free_A=free_A, divide_by_context=divide_by_context)
    saved = checkpoints.load(checkpoint, identity) if checkpoint is not None else None
    if saved is None:
        loop.begin()
    else:
        loop.restore(saved)
    while not loop.finished:
        loop.advance()
        if progress:
            _bar(loop)
        if checkpoint is not None and (loop.step % checkpoint_every == 0 or loop.finished):
            checkpoints.save(checkpoint, identity, loop.state())
    if settings.polish and not loop.polished:
        loop.polish()
        if checkpoint is not None:
            checkpoints.save(checkpoint, identity, loop.state())
    if progress:
        print(file=sys.stderr)
    return loop.trained()


class _Loop:
    """The state of a training run and the moves it makes. All tensors of `state()` are saved in checkpoints."""

    def __init__(self, tasks, seeds, coordinates, settings):
        self.tasks, self.seeds, self.coordinates, self.settings = tasks, seeds, coordinates, settings
        self.dtype = DTYPES[settings.dtype]
        self.held_out = stack(
            [task.draw(settings.held_out, settings.queries, fresh_generator(2**40 + seed), self.dtype, pool=settings.pool)
             for task, seed in zip(tasks, seeds)]
        )
        self.clock = (time.process_time(), time.perf_counter())

    def begin(self):
        runs, s = len(self.tasks), self.settings
        self.generators = [fresh_generator(seed) for seed in self.seeds]
        theta = self.coordinates.start(self.generators, s.noise, s.identity, s.spread).to(self.dtype)
        self.theta = self._calm(theta)
        self.best, self.best_loss = self.theta.clone(), self.evaluate(self.theta)
        self.mean, self.square = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.age = torch.zeros(runs, dtype=torch.int64)
        self.length = torch.zeros(runs, dtype=self.dtype)
        self.factor = torch.ones(runs, dtype=self.dtype)
        self.failures = torch.zeros(runs, dtype=torch.int64)
        self.stale = torch.zeros(runs, dtype=torch.int64)
        self.step, self.polished, self.spent = 0, False, torch.zeros(2, dtype=torch.float64)
        self.history = {"step": [], "held_out": [], "time": [], "theta": []}
        self._record(self.best_loss)

    def _calm(self, theta):
        """Shrink A' and r' until the start predicts no worse than twice as badly as zero, and is finite."""
        zero = self.held_out.kappa.mean((-2, -1))
        for _ in range(60):
            wild = ~(self.evaluate(theta) <= 2 * zero)
            if not wild.any():
                return theta
            parts = self.coordinates.split(theta)
            for name in ("A", "r"):
                if name in parts:
                    shrink = torch.where(wild, 0.7, 1.0).to(theta)
                    parts[name] *= shrink if name == "r" else shrink[:, None, None]
        raise TrainingFailed("no starting point with a finite loss was found.", None)

    @torch.no_grad()
    def evaluate(self, theta):
        """Held-out loss (runs,) at theta; not finite where the network overflows."""
        w = self.coordinates.weights(theta, self.held_out.X, self.settings.queries)
        return self.held_out.loss(w)

    @property
    def finished(self):
        patience = self.settings.patience
        return self.step >= self.settings.steps or (patience > 0 and bool((self.stale >= patience).all()))

    def gradient(self):
        """Loss (runs,) on a fresh batch and its gradient (runs, P)."""
        s = self.settings
        batch = stack([task.draw(s.contexts, s.queries, g, self.dtype, pool=s.pool, sampled=s.loss == "sampled")
                       for task, g in zip(self.tasks, self.generators)])
        theta = self.theta.requires_grad_(True)
        losses = batch.loss(self.coordinates.weights(theta, batch.X, s.queries))
        (gradient,) = torch.autograd.grad(losses.sum(), theta)
        theta.requires_grad_(False)
        return losses.detach(), gradient

    def advance(self):
        """One step of every run, and a look at the held-out set when it is due."""
        losses, gradient = self.gradient()
        good = torch.isfinite(losses) & torch.isfinite(gradient).all(1)
        self._adam(torch.where(good[:, None], gradient, 0.0), good)
        self.step += 1
        if not good.all():
            self._step_back(~good, "the loss or its gradient is not finite")
        if self.step % self.settings.check_every == 0 or self.step == self.settings.steps:
            self._look()

    def _adam(self, gradient, good):
        s, (b1, b2) = self.settings, self.settings.betas
        length = gradient.norm(dim=1)
        self.length = torch.where(self.length == 0, length, self.length)
        gradient = gradient * torch.clamp(s.clip * self.length / length.clamp(min=1e-30), max=1.0)[:, None]
        self.length = torch.where(good, 0.95 * self.length + 0.05 * torch.minimum(length, s.clip * self.length), self.length)
        self.mean = b1 * self.mean + (1 - b1) * gradient
        self.square = b2 * self.square + (1 - b2) * gradient**2
        self.age = self.age + 1
        age = self.age.to(self.dtype)[:, None]
        done = self.step / s.steps
        rate = s.learning_rate * min((self.step + 1) / max(1.0, s.warmup * s.steps), (1 - done) / (1 - s.warmup + 1e-9), 1.0)
        change = (self.mean / (1 - b1**age)) / ((self.square / (1 - b2**age)).sqrt() + 1e-12)
        self.theta = self.theta - torch.where(good, rate * self.factor, 0.0)[:, None] * change

    def _look(self):
        losses = self.evaluate(self.theta)
        better = losses < self.best_loss  # False for NaN
        self.best = torch.where(better[:, None], self.theta, self.best)
        self.stale = torch.where(better, 0, self.stale + 1)
        self.best_loss = torch.where(better, losses, self.best_loss)
        lost = ~(losses <= JUMP * self.best_loss)
        if lost.any():
            self._step_back(lost, "the held-out loss jumped")
        self._record(torch.where(lost, self.best_loss, losses))

    def _step_back(self, runs, reason):
        self.theta = torch.where(runs[:, None], self.best, self.theta)
        self.mean = torch.where(runs[:, None], 0.0, self.mean)
        self.square = torch.where(runs[:, None], 0.0, self.square)
        self.age = torch.where(runs, 0, self.age)
        self.factor = torch.where(runs, self.factor / 2, self.factor)
        self.failures = self.failures + runs
        if bool((self.failures > self.settings.failures).any()):
            worst = int(self.failures.argmax())
            raise TrainingFailed(
                f"run {worst} (seed {self.seeds[worst]}) stepped back {int(self.failures[worst])} times, the last time at "
                f"step {self.step} because {reason}; the best state has held-out loss {float(self.best_loss[worst]):.4g}.",
                self.trained(),
            )

    def _record(self, losses):
        self.spent = self.spent + torch.tensor([time.process_time() - self.clock[0], time.perf_counter() - self.clock[1]])
        self.clock = (time.process_time(), time.perf_counter())
        for name, value in (("step", torch.tensor(self.step)), ("held_out", losses), ("time", self.spent),
                            ("theta", self.theta.clone())):
            self.history[name].append(value)

    def polish(self):
        """L-BFGS in float64 on a large fixed batch, run by run; a result is kept only if the held-out loss is lower."""
        s = self.settings
        best = self.best.double()
        for run, (task, seed) in enumerate(zip(self.tasks, self.seeds)):
            single = self.coordinates.of_run(run)
            held_out = task.draw(s.held_out, s.queries, fresh_generator(2**40 + seed), pool=s.pool)
            batch = task.draw(s.polish_contexts, s.queries, fresh_generator(2**41 + seed), pool=s.pool)
            theta = best[run:run + 1].clone().requires_grad_(True)
            optimiser = torch.optim.LBFGS([theta], max_iter=s.polish, history_size=20, tolerance_grad=1e-12,
                                          tolerance_change=1e-14, line_search_fn="strong_wolfe")

            def loss(theta, batch, single=single):
                return batch.loss(single.weights(theta, batch.X[None], s.queries)[0])

            def closure(theta=theta, batch=batch, optimiser=optimiser, loss=loss):
                optimiser.zero_grad()
                value = loss(theta, batch)
                value.backward()
                return value

            with torch.no_grad():
                before = loss(theta, held_out)
            optimiser.step(closure)
            with torch.no_grad():
                after = loss(theta, held_out)
            if after < before:
                best[run], self.best_loss[run] = theta.detach()[0], after.to(self.dtype)
        self.best, self.theta, self.polished = best, best, True
        self._record(self.best_loss)

    def state(self):
        """Everything that the rest of the run depends on."""
        names = ("theta", "best", "best_loss", "mean", "square", "age", "length", "factor", "failures", "stale", "step",
                 "polished", "spent", "history")
        state = {name: getattr(self, name) for name in names}
        return {**state, "generators": [g.get_state() for g in self.generators]}

    def restore(self, state):
        """Continue from `state()` of an earlier process."""
        state = dict(state)
        self.generators = [fresh_generator(0) for _ in self.seeds]
        for generator, saved in zip(self.generators, state.pop("generators")):
            generator.set_state(saved)
        for name, value in state.items():
            setattr(self, name, value)

    def trained(self):
        """The result so far, with the best state of every run."""
        history = {name: torch.stack([v.double() for v in values]).numpy() for name, values in self.history.items()}
        history["cpu"], history["seconds"] = history.pop("time").T
        return Trained(self.coordinates.models(self.best), self.best_loss.double(), history, self.failures, self.step,
                       self.coordinates)


def _bar(loop, width=30):
    done = loop.step / loop.settings.steps
    filled = int(done * width)
    best = ", ".join(f"{float(v):.4g}" for v in loop.best_loss[:4])
    print(f"\r[{'#' * filled}{' ' * (width - filled)}] {loop.step}/{loop.settings.steps} steps, held-out loss {best}",
          end="", file=sys.stderr, flush=True)
