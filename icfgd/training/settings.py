"""How a network is trained, as plain values that can be stored, compared and passed between machines."""

from dataclasses import dataclass

import torch

from icfgd import checks
from icfgd.training.coordinates import COORDINATES

LOSSES = ("integrated", "sampled")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Settings:
    """How to train. Every field is a plain value, so settings can be stored and compared.

    steps: how many. contexts, queries, pool: prompts per step and run, see `Task.draw`. learning_rate: the
    peak of a one-cycle schedule: a rise over the fraction `warmup`, then a linear fall to zero. average: the
    mean over this last fraction of the steps is the result, if its held-out loss is not worse. betas: of
    Adam. clip: a gradient longer than this many times its running length is shortened. loss: 'integrated'
    over labels or 'sampled'. coordinates: 'whitened' or 'raw'. dtype: of training; results are float64.
    noise, identity, spread: see `Coordinates.start`. held_out: contexts of the fixed held-out set, looked at
    every `check_every` steps; `patience` looks without improvement end a run early (0: never). failures:
    step-backs before training gives up.
    """

    steps: int = 400
    contexts: int = 64
    queries: int = 4
    pool: int = 8
    learning_rate: float = 0.05
    warmup: float = 0.1
    average: float = 0.2
    betas: tuple = (0.9, 0.95)
    clip: float = 4.0
    loss: str = "integrated"
    coordinates: str = "whitened"
    dtype: str = "float32"
    noise: float = 0.05
    identity: float = 1.0
    spread: float = 2.0
    held_out: int = 256
    check_every: int = 20
    patience: int = 0
    failures: int = 20

    def __post_init__(self):
        for name in ("steps", "contexts", "queries", "pool", "held_out", "check_every"):
            checks.integer(name, getattr(self, name), low=1)
        for name in ("patience", "failures"):
            checks.integer(name, getattr(self, name), low=0)
        checks.number("learning_rate", self.learning_rate, low=0, strict=True)
        checks.number("clip", self.clip, low=1)
        for name in ("warmup", "average"):
            checks.number(name, getattr(self, name), low=0, high=1)
        for name in ("noise", "identity"):
            checks.number(name, getattr(self, name), low=0)
        checks.number("spread", self.spread, low=1)
        checks.one_of("loss", self.loss, LOSSES)
        checks.one_of("coordinates", self.coordinates, COORDINATES)
        checks.one_of("dtype", self.dtype, DTYPES)
        object.__setattr__(self, "betas", tuple(checks.number("betas", b, low=0, high=1) for b in self.betas))
