"""The state of a training run and the steps it takes: many runs of one shape in a single pass, with guards.

Every run has its own prompts, its own random generator and its own learning rate. A run whose loss or
gradient is not finite, or whose held-out loss jumps, goes back to its best state and continues with half the
step; nothing ever returns a state that is not finite. Adam is written out because torch's has one learning
rate for all runs. The scale of the problem belongs in `coordinates`; files and arguments in `train`.
"""

import time
from typing import NamedTuple

import torch

from icfgd.device import generator
from icfgd.training.coordinates import Coordinates
from icfgd.training.settings import DTYPES
from icfgd.training.tasks import stack

JUMP = 4.0  # a held-out loss this many times the best one counts as a failure of the run


class TrainingFailed(RuntimeError):
    """Training could not recover. `trained` holds the best state of every run, all finite."""

    def __init__(self, message, trained):
        super().__init__(message)
        self.trained = trained


class Trained(NamedTuple):
    """What training returns.

    models: one float64 `Transformer` per run, its best state. held_out (runs,): its loss on the held-out set.
    history: dict of arrays over checks: 'step' (c,), 'held_out' (c, runs), 'cpu' and 'seconds' (c,) since the
    start, and 'theta' (c, runs, P), the parameters in training coordinates, which `coordinates.models` turns
    into networks. failures (runs,): how often each run stepped back. steps: steps done.
    """

    models: list
    held_out: torch.Tensor
    history: dict
    failures: torch.Tensor
    steps: int
    coordinates: Coordinates


class Engine:
    """The state of a training run and the moves it makes; `STATE` names what a checkpoint holds."""

    STATE = ["theta", "best", "best_loss", "average", "mean", "square", "age", "length", "factor", "failures"]
    STATE += ["stale", "step", "spent", "history"]

    def __init__(self, tasks, seeds, coordinates, settings, device="cpu"):
        self.tasks, self.seeds, self.coordinates, self.settings = tasks, seeds, coordinates, settings
        self.device, self.dtype = device, DTYPES[settings.dtype]
        generators = [generator(2**40 + seed, device) for seed in seeds]
        self.held_out = self._draw(settings.held_out, generators)
        self.clock = (time.process_time(), time.perf_counter())

    def begin(self):
        """Go to the starting point."""
        s, like = self.settings, {"device": self.device}
        self.generators = [generator(seed, self.device) for seed in self.seeds]
        theta = self.coordinates.start(self.generators, s.noise, s.identity, s.spread).to(self.dtype)
        self.theta = self._calm(theta)
        self.best, self.best_loss = self.theta.clone(), self.evaluate(self.theta)
        self.mean, self.square, self.average = (torch.zeros_like(self.theta) for _ in range(3))
        runs = len(self.tasks)
        self.age, self.failures, self.stale = (torch.zeros(runs, dtype=torch.int64, **like) for _ in range(3))
        self.length, self.factor = self.best_loss.new_zeros(runs), self.best_loss.new_ones(runs)
        self.step, self.spent = 0, torch.zeros(2, dtype=torch.float64)
        self.history = {"step": [], "held_out": [], "time": [], "theta": []}
        self.record(self.best_loss)

    def _draw(self, contexts, generators, sampled=False):
        s = self.settings
        return stack(
            [
                task.draw(contexts, s.queries, g, self.dtype, pool=s.pool, sampled=sampled)
                for task, g in zip(self.tasks, generators)
            ]
        )

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
        """Whether all steps are done, or no network of the batch has improved for `patience` checks."""
        patience = self.settings.patience
        return self.step >= self.settings.steps or (patience > 0 and bool((self.stale >= patience).all()))

    def gradient(self):
        """Loss (runs,) on a fresh batch and its gradient (runs, P)."""
        s = self.settings
        batch = self._draw(s.contexts, self.generators, sampled=s.loss == "sampled")
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
        count = self.step - int((1 - self.settings.average) * self.settings.steps)
        if count > 0:
            self.average = self.average + (self.theta - self.average) / count
        if self.step % self.settings.check_every == 0 or self.step == self.settings.steps:
            self._look()

    def _adam(self, gradient, good):
        s, (b1, b2) = self.settings, self.settings.betas
        length = gradient.norm(dim=1)
        self.length = torch.where(self.length == 0, length, self.length)
        gradient = gradient * torch.clamp(s.clip * self.length / length.clamp(min=1e-30), max=1.0)[:, None]
        running = 0.95 * self.length + 0.05 * torch.minimum(length, s.clip * self.length)
        self.length = torch.where(good, running, self.length)
        self.mean = b1 * self.mean + (1 - b1) * gradient
        self.square = b2 * self.square + (1 - b2) * gradient**2
        self.age = self.age + 1
        age = self.age.to(self.dtype)[:, None]
        warm, left = (self.step + 1) / max(1.0, s.warmup * s.steps), 1 - self.step / s.steps
        rate = s.learning_rate * min(warm, left / (1 - s.warmup + 1e-9), 1.0)
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
        if self.step == self.settings.steps and self.settings.average:
            self._settle(self.average)
        self.record(torch.where(lost, self.best_loss, losses))

    @torch.no_grad()
    def _settle(self, theta):
        """Make theta the best state unless its held-out loss is significantly higher.

        The lowest of many noisy looks is often a lucky one; the end of the schedule is better than it says.
        """
        batch, queries = self.held_out, self.settings.queries
        now, before = (batch.risk(self.coordinates.weights(t, batch.X, queries)).mean(-1) for t in (theta, self.best))
        gap = (batch.weights * (now - before)).sum(-1)
        error = (batch.weights * (now - before - gap[:, None])).square().sum(-1).sqrt()
        good = gap <= 2 * error  # False for NaN
        self.best = torch.where(good[:, None], theta, self.best)
        self.best_loss = torch.where(good, (batch.weights * now).sum(-1), self.best_loss)

    def _step_back(self, runs, reason):
        self.theta = torch.where(runs[:, None], self.best, self.theta)
        self.mean = torch.where(runs[:, None], 0.0, self.mean)
        self.square = torch.where(runs[:, None], 0.0, self.square)
        self.age = torch.where(runs, 0, self.age)
        self.factor = torch.where(runs, self.factor / 2, self.factor)
        self.failures = self.failures + runs
        if bool((self.failures > self.settings.failures).any()):
            worst = int(self.failures.argmax())
            text = f"run {worst} (seed {self.seeds[worst]}) stepped back {int(self.failures[worst])} times, "
            text += f"the last time at step {self.step} because {reason}; "
            text += f"the best state has held-out loss {float(self.best_loss[worst]):.4g}."
            raise TrainingFailed(text, self.trained())

    def record(self, losses):
        """Append a check to the history."""
        now = (time.process_time(), time.perf_counter())
        self.spent = self.spent + torch.tensor([b - a for a, b in zip(self.clock, now)])
        self.clock = now
        entries = {
            "step": torch.tensor(self.step),
            "held_out": losses,
            "time": self.spent,
            "theta": self.theta.clone(),
        }
        for name, value in entries.items():
            self.history[name].append(value)

    def state(self):
        """Everything that the rest of the run depends on."""
        state = {name: getattr(self, name) for name in self.STATE}
        return {**state, "generators": [g.get_state() for g in self.generators]}

    def restore(self, state):
        """Continue from `state()` of an earlier process."""
        state = dict(state)
        self.generators = [generator(0, self.device) for _ in self.seeds]
        for own, saved in zip(self.generators, state.pop("generators")):
            own.set_state(saved)
        for name, value in state.items():
            setattr(self, name, value)

    def trained(self):
        """The result so far, with the best state of every run."""
        history = {n: torch.stack([v.double() for v in vs]).cpu().numpy() for n, vs in self.history.items()}
        history["cpu"], history["seconds"] = history.pop("time").T
        models, loss = self.coordinates.models(self.best.cpu()), self.best_loss.double().cpu()
        return Trained(models, loss, history, self.failures.cpu(), self.step, self.coordinates)
