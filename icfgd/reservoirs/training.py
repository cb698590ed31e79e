"""The training loop of the real tasks: AdamW, one schedule, learning curve in steps and CPU seconds,
resumable.

It knows a model, a function that draws a loss and one that evaluates, and nothing of the tasks themselves. A
run that is interrupted continues from its checkpoint to the same result.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from icfgd import checks
from icfgd.files import write_whole
from icfgd.reservoirs.clock import Clock
from icfgd.reservoirs.freezing import trainable
from icfgd.reservoirs.initialise import private_generator

SCHEDULES = ("constant", "onecycle")


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: `steps` updates at learning rate `rate`, after a linear `warmup` (a share of the
    steps).

    kind: 'constant', or 'onecycle' (cosine from `rate` to zero). decay: AdamW's weight decay of matrices.
    clip: bound on the gradient norm. every: steps between evaluations (the first is before any step, the last
    after all).
    """

    steps: int
    rate: float = 1e-3
    kind: str = "constant"
    warmup: float = 0.0
    decay: float = 0.0
    beta2: float = 0.999
    clip: float = 1.0
    every: int = 25

    def __post_init__(self):
        checks.integer("steps", self.steps, low=1)
        checks.integer("every", self.every, low=1)
        checks.number("rate", self.rate, low=0, strict=True)
        checks.one_of("kind", self.kind, SCHEDULES)
        checks.number("warmup", self.warmup, low=0, high=1)
        checks.number("decay", self.decay, low=0)
        checks.number("clip", self.clip, low=0, strict=True)

    def at(self, step):
        """Learning rate of the update with 0-based number `step`."""
        warm = self.warmup * self.steps
        if step < warm:
            return self.rate * (step + 1) / (warm + 1)
        if self.kind == "constant":
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, self.steps - warm)))


@dataclass
class Curve:
    """Evaluations of a run: step numbers, CPU seconds of training up to them, values, and the mean
    training loss since.
    """

    steps: list
    seconds: list
    values: list
    losses: list


def optimiser(model, schedule):
    """AdamW over the trainable parameters; weight decay acts on matrices only."""
    parameters = trainable(model)
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": schedule.decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=schedule.rate, betas=(0.9, schedule.beta2)
    )


def fit(model, draw, evaluate, schedule, seed=0, step=None, checkpoint=None, minutes=2.0, log=None):
    """Train `model` and return its `Curve`.

    draw(generator) -> scalar loss of a fresh batch; evaluate() -> float, not counted as training time. All
    batches come from a private generator made from `seed`. step(generator, number) may replace the backward
    pass: it is called instead of draw and must leave gradients in the parameters and return the loss as a
    float. checkpoint: a file, written every few `minutes` and removed at the end. log: a function for lines
    of progress. Raises `FloatingPointError` if the loss stops being finite.
    """
    generator = private_generator(seed, 3000)
    updates = optimiser(model, schedule)
    parameters = [p for group in updates.param_groups for p in group["params"]]
    curve, done, seconds = Curve([], [], [], []), 0, 0.0
    checkpoint = None if checkpoint is None else Path(checkpoint)
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        updates.load_state_dict(state["updates"])
        generator.set_state(state["generator"])
        curve, done, seconds = Curve(**state["curve"]), state["done"], state["seconds"]
    clock, saved, recent = Clock(offset=seconds), time.monotonic(), []
    model.train()
    if not curve.steps:
        _evaluate(model, evaluate, curve, 0, clock, recent, log)
    clock.start()
    while done < schedule.steps:
        for group in updates.param_groups:
            group["lr"] = schedule.at(done)
        updates.zero_grad(set_to_none=True)
        if step is None:
            loss = draw(generator)
            loss.backward()
            loss = float(loss.detach())
        else:
            loss = float(step(generator, done))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} in step {done}; a smaller rate than {schedule.rate} is needed."
            )
        torch.nn.utils.clip_grad_norm_(parameters, schedule.clip)
        updates.step()
        recent.append(loss)
        done += 1
        if done % schedule.every == 0 or done == schedule.steps:
            with clock.paused():
                _evaluate(model, evaluate, curve, done, clock, recent, log)
                if (
                    checkpoint is not None
                    and time.monotonic() - saved > 60 * minutes
                    and done < schedule.steps
                ):
                    _save(checkpoint, model, updates, generator, curve, done, clock)
                    saved = time.monotonic()
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return curve


def _evaluate(model, evaluate, curve, done, clock, recent, log):
    model.eval()
    curve.steps.append(done)
    curve.seconds.append(clock.seconds)
    curve.values.append(float(evaluate()))
    curve.losses.append(sum(recent) / len(recent) if recent else None)
    recent.clear()
    model.train()
    if log is not None:
        loss = "-" if curve.losses[-1] is None else f"{curve.losses[-1]:.4f}"
        log(f"step {done}, {clock.seconds:.1f} CPU s, value {curve.values[-1]:.4f}, training loss {loss}")


def _save(path, model, updates, generator, curve, done, clock):
    state = {
        "model": model.state_dict(),
        "updates": updates.state_dict(),
        "generator": generator.get_state(),
        "curve": vars(curve),
        "done": done,
        "seconds": clock.seconds,
    }
    write_whole(path, lambda handle: torch.save(state, handle))
