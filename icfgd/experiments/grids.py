"""The named experiments of the book as data: which runs each one consists of, in the presets `quick` and
`paper`.

quick: seconds, for notebooks and tests. paper: the sizes of the paper (d = 5, up to 14 context tokens, depth
1 to 7, three seeds). Runs that occur in several experiments are the same run and are computed once.
"""

from collections.abc import Callable
from dataclasses import dataclass

from icfgd import checks
from icfgd.experiments.runs import Run

PRESETS = ("quick", "paper")
ACTIVATIONS = ("linear", "relu", "exponential", "softmax")
LABELS = {"linear": {}, "relu": {}, "exponential": {"scale": 2.0}}
LENGTHS = (2, 4, 6, 8, 10, 12, 14)
DEPTHS = (1, 2, 3, 4, 5, 6, 7)
MIXTURES = (1.0, 0.5, 0.0)
HEADS = (("linear",), ("exponential",), ("linear", "exponential"))
LONGER = (6, 10, 20, 28)
SHIFTED = (
    ("linear", {}),
    ("relu", {}),
    ("exponential", {"scale": 2.0}),
    ("exponential", {"scale": 0.5}),
    ("arccosine", {}),
)


@dataclass(frozen=True)
class Experiment:
    """A named experiment: what it shows, in one sentence, and its runs in each preset."""

    name: str
    shows: str
    build: Callable

    def runs(self, preset="quick"):
        """The list of `Run`s of a preset, without repetitions."""
        checks.one_of("preset", preset, PRESETS)
        runs = {run.name: run for run in self.build(preset == "paper")}
        return list(runs.values())


def _run(paper, labels, heads, *, settings=None, **options):
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    options.setdefault("label_options", LABELS.get(labels, {}))
    options = {"context": 14, "layers": 3, **options}
    quick = {"steps": 60, "contexts": 32, "queries": 4, "held_out": 64}
    changes = {"steps": 250, "queries": 4} if paper else quick
    if paper and heads == ("linear",) and labels == "linear":
        # The loss of linear attention is carried by rare contexts, so it needs many contexts rather than many
        # queries.
        changes.update(contexts=128, queries=2, held_out=1024, pool=16)
        if options["context"] < 8 and options["layers"] > 3:
            # The shorter the context, the rarer and the worse the prompts that make a deep network explode.
            changes.update(held_out=8192, pool=64)
    seeds = (0, 1, 2) if paper else (0,)
    run = Run(labels, heads, settings={**changes, **(settings or {})}, seeds=seeds, **options)
    if paper and _is_central(run):
        shifted = tuple(pair for pair in SHIFTED if pair != (run.labels, run.label_options))
        run = Run(**{**run.description(), "test_contexts": LONGER, "test_labels": shifted})
    return run


def _is_central(run):
    """The runs that are also tested on longer contexts and on other label laws."""
    plain = run.free_A and run.law == "sphere" and not run.noise and run.whitened and run.sigma == "paper"
    usual = run.labels in LABELS and run.label_options == LABELS[run.labels]
    shape = run.context == 14 and run.layers == 3
    return plain and usual and shape and not {"coordinates", "identity"} & set(run.settings)


def _figure1(paper):
    labels, lengths = (LABELS, LENGTHS) if paper else (("exponential",), (4, 14))
    return [_run(paper, k, h, context=n) for k in labels for h in ACTIVATIONS for n in lengths]


def _figure2(paper):
    # Linear labels are added to the paper's two, with linear attention only: deep networks of the other
    # attentions, trained on them with A free, explode on rare prompts, so that their loss has no finite mean.
    labels, depths, lengths = (LABELS, DEPTHS, (14, 6)) if paper else (("exponential",), (1, 3), (14,))
    return [
        _run(paper, k, h, layers=depth, context=n)
        for n in lengths
        for k in labels
        for h in (("linear",) if k == "linear" else ACTIVATIONS)
        for depth in depths
    ]


def _figure3(paper):
    mixtures, depths = (MIXTURES, DEPTHS) if paper else ((0.5,), (1, 3))
    return [
        _run(paper, "mixture", h, label_options={"alpha": a, "scale": 2.0}, layers=depth)
        for a in mixtures
        for h in HEADS
        for depth in depths
    ]


def _theorem(free_A):
    pairs = (
        ("exponential", "exponential"),
        ("linear", "linear"),
        ("relu", "relu"),
        ("exponential", "softmax"),
    )

    def build(paper):
        settings = {"steps": 600 if paper else 120, "identity": 0.0, "noise": 0.3}
        kinds = ("whitened", "raw") if paper else ("whitened",)
        return [
            _run(paper, k, h, free_A=free_A, trajectory=True, settings={**settings, "coordinates": kind})
            for k, h in (pairs if paper else pairs[:1])
            for kind in kinds
        ]

    return build


def _sparse(paper):
    if not paper:
        return [_run(paper, "linear", "linear", layers=depth, free_A=False) for depth in (1, 3)]
    runs = []
    for k in LABELS:
        for h in ACTIVATIONS:
            for depth in DEPTHS if k == h else (1, 3, 5, 7):
                # Linear attention on linear labels is held against its closed form, so it trains longer; its
                # steps differ by a factor of ten, and small ones tell the noise in B and C from the signal.
                slow = {"steps": 800 if depth < 6 else 1200, "learning_rate": 0.02, "spread": 4.0}
                settings = slow if k == h == "linear" else {}
                runs.append(_run(paper, k, h, layers=depth, free_A=False, settings=settings))
    return runs


def _relu_network(paper):
    depths, heads = ((1, 3, 5, 7), ACTIVATIONS) if paper else ((3,), ("relu", "softmax"))
    wide = {"width": 16}
    runs = [
        _run(paper, "relu_network", h, label_options=wide, layers=depth) for h in heads for depth in depths
    ]
    sampled = {"loss": "sampled"}
    if paper:
        sampled.update(steps=600, contexts=256, queries=2)
    widths = (1, 16) if paper else (16,)
    return runs + [
        _run(paper, "relu_network", h, label_options={"width": width}, settings=sampled)
        for h in (("relu", "softmax") if paper else ("relu",))
        for width in widths
    ]


def _relu_or_softmax(paper):
    scales = (0.25, 0.5, 1.0, 2.0, 4.0) if paper else (0.5, 2.0)
    runs = [
        _run(paper, "exponential", h, label_options={"scale": scale})
        for scale in scales
        for h in (ACTIVATIONS if paper else ("relu", "softmax"))
    ]
    if paper:
        runs += [_run(paper, k, h, context=n) for k in LABELS for h in ("relu", "softmax") for n in LENGTHS]
        runs += [_run(paper, "arccosine", h) for h in ACTIVATIONS]
    return runs


def _outside(paper):
    heads = ACTIVATIONS if paper else ("exponential", "softmax")
    runs = [_run(paper, "exponential", h, law="cube") for h in heads]
    if not paper:
        return runs + [_run(paper, "exponential", h, noise=0.5) for h in heads]
    tame = ("linear", "relu", "softmax")  # exponential attention has no finite loss with Gaussian covariates
    runs += [_run(paper, k, h, law="gaussian") for k in ("linear", "relu") for h in tame]
    runs += [_run(paper, k, h, whitened=False) for k in LABELS for h in heads]
    runs += [_run(paper, "exponential", h, noise=noise) for h in heads for noise in (0.1, 0.5)]
    runs += [_run(paper, "linear", "linear", noise=noise) for noise in (0.1, 0.5)]
    return runs + [
        _run(paper, k, h) for k in LABELS for h in heads
    ]  # tested on longer contexts and other labels


def _covariance(paper):
    labels, heads = (LABELS, ACTIVATIONS) if paper else (("exponential",), ("exponential",))
    runs = [_run(paper, k, h, sigma=sigma) for k in labels for h in heads for sigma in ("paper", "identity")]
    raw = {"coordinates": "raw"}
    return runs + [_run(paper, "exponential", h, sigma="paper", settings=raw) for h in heads]


_ALL = (
    ("figure1", "Loss against context length: every label kernel with every activation.", _figure1),
    ("figure2", "Loss against depth, for a long and a short context.", _figure2),
    ("figure3", "Heads against composite kernels: one head of each kind, and both.", _figure3),
    ("theorem1", "Distance of trained B and C from the symmetric set when A = 0.", _theorem(False)),
    ("theorem2", "Distance of trained A, B and C from the symmetric set.", _theorem(True)),
    ("sparse", "Loss against depth with A = 0, where closed-form bounds exist.", _sparse),
    ("relu_network", "Labels of random ReLU networks, integrated and sampled.", _relu_network),
    ("relu_or_softmax", "ReLU against softmax attention, from flat to sharp kernels.", _relu_or_softmax),
    ("outside", "Outside the assumptions: covariates, noise, kernels, context lengths.", _outside),
    ("covariance", "Sigma = I against a random Sigma, in whitened and in raw coordinates.", _covariance),
)
EXPERIMENTS = {name: Experiment(name, shows, build) for name, shows, build in _ALL}


def experiment(name):
    """The `Experiment` called `name`; an unknown name raises `ValueError` with the nearest match."""
    return EXPERIMENTS[checks.one_of("name", name, EXPERIMENTS)]
