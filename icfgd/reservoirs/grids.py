"""The grids of the experiments on reservoirs: pure data, with presets `quick` and `full`.

`quick` is what the book's pages run live (at most 20 CPU seconds); `full` is stored with the package. What a
run does is in `runs`, what is done with the outcomes in `experiments`.
"""

import itertools
import re
from dataclasses import dataclass

from icfgd import checks
from icfgd.reservoirs import patterns

PRESETS = ("quick", "full")


@dataclass(frozen=True)
class Experiment:
    """A question, the grids that answer it, and the settings that tell its runs apart (columns of its table).

    Each grid is a dict of settings; a tuple as value means one run for each of its entries. Grids of one
    preset are joined.
    """

    question: str
    columns: tuple
    quick: tuple
    full: tuple

    def runs(self, preset):
        """Dict name -> description of all runs of a preset."""
        checks.one_of("preset", preset, PRESETS)
        found = {}
        for grid in getattr(self, preset):
            names = list(grid)
            for values in itertools.product(*(v if isinstance(v, tuple) else (v,) for v in grid.values())):
                description = dict(zip(names, values))
                found[self.name(description)] = description
        return found

    def name(self, description):
        """A file name for a run: its settings in the order of the columns."""
        parts = [f"{c}={description[c]}" for c in self.columns if description.get(c) is not None]
        return re.sub(r"[^A-Za-z0-9_.+=-]+", "_", "-".join(parts)).replace("=", "_")


# fmt: off
DIGITS = {"task": "digits", "d": 32, "rate": 1e-3, "every": 25}
KINDS = ("LLLLLL", "LLL", "LRLRLR", "LFLFLF", "LCLCLC", "LGLGLG")
PLACES = ("LLRRRL", "LLLRRR", "RRRLLL")
FIVE = tuple(range(5))

PLAYS = {"task": "plays", "warmup": 0.05, "beta2": 0.99}
KEEP = {**PLAYS, "context": 64, "batch": 16, "rate": 2e-3, "whole": False}


def _depths(trained, letters="RFC"):
    """At m trained layers: without reservoirs, with m - 1 interleaved of each kind, and all 2 m - 1
    trained.
    """
    mixed = patterns.alternating(2 * trained - 1, trained - 1)
    return ("L" * trained, *(patterns.replaced(mixed, a) for a in letters), patterns.trained(mixed))


VARIANTS = {
    "all trained": ["LLLLLL", "exact", False],
    "3 frozen": ["LRLRLR", "exact", False],
    "3 frozen, gradients computed": ["LRLRLR", "exact", True],
    "3 frozen, straight through": ["LRLRLR", "st", False],
    "3 FFN": ["LFLFLF", "exact", False],
    "3 FFN, straight through": ["LFLFLF", "st", False],
    "3 convolutions": ["LCLCLC", "exact", False],
    "3 BiGRU": ["LGLGLG", "exact", False],
    "3 removed": ["LLL", "exact", False],
}
BRIDGE = {"task": "incontext", "kind": "onecycle", "warmup": 0.05, "rate": 0.05, "every": 50}
STEPS_ONLY = {"trained": "steps", "rate": 0.5, "steps": 600}  # the best steps are far from the first ones
ANISOTROPIC = [2.56, 1.69, 1.0, 0.36, 0.09]  # squares of 1.6, 1.3, 1, 0.6, 0.3

EXPERIMENTS = {
    "cost": Experiment(
        "What does a step cost when layers are frozen, skipped or removed?",
        ("task", "d", "tokens"),
        ({"task": "cost", "d": 128, "tokens": 64, "batch": 16, "seed": 0, "rounds": 9, "base": "all trained",
          "variants": VARIANTS},),
        ({"task": "cost", "d": (128, 256), "tokens": 64, "batch": 16, "seed": 0, "rounds": 41,
          "base": "all trained", "variants": VARIANTS},),
    ),
    "digits": Experiment(
        "Which kinds and places of reservoirs learn the digits, how well and how fast?",
        ("pattern", "seed"),
        ({**DIGITS, "pattern": ("LLLLLL", "LLL", "LRLRLR", "LFLFLF"), "steps": 100, "seed": (0, 1)},),
        ({**DIGITS, "pattern": KINDS + PLACES, "steps": 300, "seed": FIVE},),
    ),
    "normalisation": Experiment(
        "How far does training only normalisation go?",
        ("trains", "rate", "seed"),
        ({**DIGITS, "pattern": "RRRRRR", "trains": ("head", "norm", "norm+head"), "rate": 1e-2, "steps": 200,
          "every": 50, "seed": 0},
         {**DIGITS, "pattern": "LLLLLL", "trains": "all", "steps": 200, "every": 50, "seed": 0}),
        ({**DIGITS, "pattern": "RRRRRR", "trains": ("head", "norm", "norm+head"), "rate": (1e-3, 1e-2),
          "steps": 500, "seed": FIVE},
         {**DIGITS, "pattern": "LLLLLL", "trains": "all", "steps": 500, "seed": FIVE}),
    ),
    "backskip": Experiment(
        "What is lost when the backward pass skips a frozen layer?",
        ("pattern", "backskip", "sigma", "density", "seed"),
        ({**DIGITS, "pattern": "LLRL", "backskip": ("exact", "st", "stop"), "steps": 150, "seed": 0},
         {**DIGITS, "pattern": "LLRL", "backskip": "reinforce", "sigma": (1.0, 0.1), "density": "sum",
          "steps": 150, "warmup_steps": 50, "seed": 0}),
        ({**DIGITS, "pattern": ("LLRL", "LRLRLR"), "backskip": ("exact", "st", "stop"), "steps": 500,
          "seed": FIVE},
         {**DIGITS, "pattern": "LLRL", "backskip": "reinforce", "sigma": (1.0, 0.1),
          "density": ("sum", "mean"), "steps": 500, "warmup_steps": 100, "seed": FIVE}),
    ),
    "spelling": Experiment(
        "Do reservoirs in the encoder help to turn spelling into phonemes?",
        ("pattern", "seed"),
        ({"task": "spelling", "pattern": ("LL", "LFL"), "d": 32, "words": 5000, "watch": 100, "steps": 150,
          "every": 75, "rate": 2e-3, "seed": 0},),
        ({"task": "spelling", "pattern": ("LLLL", "LLL", "LRLL", "LFLL", "LCLL", "LGLL", "LL"), "d": 64,
          "words": 20000, "watch": 300, "steps": 2000, "every": 200, "rate": 2e-3, "kind": "onecycle",
          "warmup": 0.05, "seed": FIVE},),
    ),
    "plays": Experiment(
        "Does a character model, all trained or with a reservoir, beat an n-gram model trained on the "
        "same text?",
        ("task", "pattern", "order", "d", "seed"),
        ({**PLAYS, "pattern": ("LL", "CL"), "d": 64, "context": 64, "batch": 8, "steps": 150, "every": 75,
          "rate": 4e-3, "watch": 5000, "whole": False, "seed": 0},
         {"task": "ngram", "order": (3, 5), "length": 300_000}),
        ({**PLAYS, "pattern": ("LLLL", "CLLL"), "d": 128, "context": 128, "batch": 8, "steps": 15000,
          "every": 500, "rate": 3e-3, "kind": "onecycle", "decay": 0.1, "seed": 0},
         {"task": "ngram", "order": (1, 2, 3, 4, 5, 6, 7, 8)}),
    ),
    "keep": Experiment(
        "At which depth, width and training budget does keeping frozen layers beat removing them?",
        ("pattern", "d", "seed"),
        ({**KEEP, "pattern": ("LL", "LRL", "LCL"), "d": 32, "steps": 120, "every": 60, "watch": 3000,
          "seed": 0},),
        ({**KEEP, "pattern": sum((_depths(m) for m in (2, 3, 4)), ()), "d": (32, 64, 128), "steps": 1500,
          "every": 150, "watch": 12000, "seed": (0, 1)},),
    ),
    "budget": Experiment(
        "Does the answer of `keep` change when training goes on four times as long?",
        ("pattern", "steps", "seed"),
        ({**KEEP, "pattern": ("LL", "LCL"), "d": 32, "steps": 240, "every": 60, "watch": 3000, "seed": 0},),
        ({**KEEP, "pattern": _depths(3), "d": 64, "steps": 6000, "every": 500, "watch": 12000,
          "seed": (0, 1)},),
    ),
    "directions": Experiment(
        "What does freezing the attention at random directions lose in context, and what does one trained "
        "scalar restore?",
        ("law", "eigenvalues", "pattern", "attention", "trained", "start", "seed"),
        ({**BRIDGE, "pattern": "LL", "attention": ("tied", "untied"), "trained": "steps", "steps": 200,
          "seed": 0},
         {**BRIDGE, "pattern": "LL", "attention": "tied", "trained": ("scales", "all"), "steps": 200,
          "seed": 0}),
        ({**BRIDGE, "law": ("exponential", "linear"), "pattern": ("L", "LL", "LLL", "LLLL"),
          "attention": ("tied", "untied"), **STEPS_ONLY, "seed": FIVE},
         {**BRIDGE, "law": ("exponential", "linear"), "pattern": ("L", "LL", "LLL", "LLLL"),
          "attention": "tied", "trained": ("scales", "all"), "steps": 400, "seed": FIVE},
         {**BRIDGE, "law": "exponential", "eigenvalues": (ANISOTROPIC,), "pattern": "LLL",
          "attention": ("tied", "whitened"), **STEPS_ONLY, "seed": FIVE},
         {**BRIDGE, "law": "exponential", "eigenvalues": (ANISOTROPIC,), "pattern": "LLL",
          "attention": ("tied", "whitened"), "trained": ("scales", "all"), "steps": 400, "seed": FIVE}),
    ),
    "features": Experiment(
        "Can frozen random features stand in for exponential attention?",
        ("features", "count", "pattern", "seed"),
        ({**BRIDGE, "pattern": "LLL", "attention": "tied", "trained": "steps", "rate": 0.2,
          "features": ("fourier", "orthogonal"), "count": (4, 16), "steps": 150, "seed": 0},),
        ({**BRIDGE, "pattern": "LLL", "attention": "tied", **STEPS_ONLY,
          "features": ("fourier", "orthogonal", "relu"), "count": (4, 16, 64, 256), "seed": FIVE},
         {**BRIDGE, "pattern": "LLL", "attention": "tied", **STEPS_ONLY, "seed": FIVE}),
    ),
    "placement": Experiment(
        "Where do frozen in-context layers help: below, between or above the trained ones?",
        ("pattern", "seed"),
        ({**BRIDGE, "pattern": ("LLL", "LTLTLT", "TTTLLL", "LLLTTT"), "steps": 100, "seed": 0},),
        ({**BRIDGE, "pattern": ("LLL", "LLLLLL", "LRLRLR", "RRRLLL", "LLLRRR", "LTLTLT", "TTTLLL", "LLLTTT"),
          "steps": 400, "seed": FIVE},),
    ),
    "skipping": Experiment(
        "When may the backward pass skip a frozen descent step?",
        ("frozen_step", "backskip", "seed"),
        ({**BRIDGE, "pattern": "LTL", "frozen_step": (0.3, 1.0, 1.5), "backskip": ("exact", "st", "stop"),
          "steps": 150, "seed": 0},),
        ({**BRIDGE, "pattern": "LTL", "frozen_step": (0.1, 0.3, 0.6, 0.8, 1.0, 1.2, 1.5),
          "backskip": ("exact", "st", "stop"), "steps": 300, "seed": FIVE},),
    ),
}
# fmt: on
