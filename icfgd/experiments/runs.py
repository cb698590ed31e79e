"""One run: a network shape trained on one task with several seeds in a batched pass, then tested in float64.

A run is plain data, so that it can be stored, compared and sent to another machine. Which runs make an
experiment of the book belongs in `grids`; how a network is trained belongs in `icfgd.training`.
"""

from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from icfgd import bayes, checks
from icfgd.device import generator
from icfgd.kernels import kernel
from icfgd.losses import predictor_weights
from icfgd.processes import Covariates, covariance, label_process, power
from icfgd.training import Batch, Settings, Task, train
from icfgd.transformer import Transformer

SPECTRA = {"identity": (1.0,), "paper": (1.0, 1.0, 0.25, 2.25, 1.0)}
COLUMNS = ("run", "labels", "heads", "layers", "context", "free_A", "sigma", "law", "noise", "whitened", "seed")
COLUMNS += ("test_labels", "test_context", "loss", "loss_se", "excess", "excess_se", "bayes", "bayes_se", "held_out")
COLUMNS += ("steps", "stepped_back", "cpu_seconds")
TEST_SEED = 7_000_003
TEST_CONTEXTS, TEST_QUERIES, TEST_POOL = 4096, 2, 16


@dataclass(frozen=True)
class Run:
    """What is trained and on what.

    labels, label_options: as for `processes.label_process`; 'mixture' is alpha * linear on the last d-2
    coordinates + (1-alpha) * exponential on the first two. sigma: 'identity', or 'paper', whose rotation is
    fresh for every seed. whitened: whether the label kernel acts on Sigma^(-1/2) x (as the theorems assume)
    or on x. law: of the covariates. noise: variance of the label noise. test_contexts: further context
    lengths, and test_labels: further label laws (pairs of name and options), at which the networks are
    tested. settings: changes to `training.Settings`. trajectory: keep distances to the symmetric set along
    training.
    """

    labels: str = "exponential"
    heads: tuple = ("exponential",)
    layers: int = 3
    context: int = 14
    label_options: dict = field(default_factory=dict)
    d: int = 5
    sigma: str = "paper"
    law: str = "sphere"
    noise: float = 0.0
    whitened: bool = True
    free_A: bool = True
    seeds: tuple = (0, 1, 2)
    test_contexts: tuple = ()
    test_labels: tuple = ()
    settings: dict = field(default_factory=dict)
    trajectory: bool = False

    def __post_init__(self):
        checks.one_of("sigma", self.sigma, SPECTRA)
        for name in ("heads", "seeds", "test_contexts", "test_labels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def name(self):
        """A readable name, unique among the runs of an experiment."""
        parts = [
            law_name(self.labels, self.label_options),
            "+".join(self.heads),
            f"n{self.context}",
            f"k{self.layers}",
            self.sigma,
        ]
        parts += [] if self.free_A else ["A0"]
        parts += [] if self.law == "sphere" else [self.law]
        parts += [f"noise{self.noise:g}"] if self.noise else []
        parts += [] if self.whitened else ["unwhitened"]
        parts += [f"d{self.d}"] if self.d != 5 else []
        parts += [self.settings[key] for key in ("coordinates", "loss") if key in self.settings]
        parts += ["scratch"] if self.settings.get("identity") == 0 else []
        return "-".join(parts)

    def tests(self):
        """All (labels, options, context) at which the networks are tested; the first is what they were
        trained on."""
        own = (self.labels, self.label_options)
        lengths = [(*own, context) for context in (self.context, *self.test_contexts)]
        return lengths + [(labels, options, self.context) for labels, options in self.test_labels]

    def description(self):
        """The run as JSON-able data; `Run(**description)` gives it back."""
        return asdict(self)

    def task(self, seed=None):
        """The `Task` of one seed; without a seed, the same task in whitened coordinates (Sigma = I)."""
        values = SPECTRA[self.sigma] if seed is not None else (1.0,)
        values = (values * self.d)[: self.d] if len(values) == 1 else values
        if len(values) != self.d:
            raise ValueError(f"d = {self.d}; sigma = {self.sigma!r} is defined for d = {len(values)} only.")
        sigma = covariance(
            values, generator(9_000_000 + seed) if seed is not None and self.sigma != "identity" else None
        )
        return Task(Covariates(sigma, self.law), self._labels(sigma if self.whitened else None), self.context)

    def _labels(self, sigma):
        options = dict(self.label_options)
        if self.labels != "mixture":
            return label_process(self.labels, sigma, self.noise, **options)
        alpha, eye = options["alpha"], torch.eye(self.d, dtype=torch.float64)
        terms = [
            (alpha, kernel("linear"), eye[2:]),
            (1 - alpha, kernel("exponential", scale=options["scale"]), eye[:2]),
        ]
        return label_process("composite", sigma, self.noise, terms=[term for term in terms if term[0] > 0])


def law_name(labels, options):
    """A readable name of a label law with its options, e.g. exponential2."""
    return labels + "-".join(f"{value:g}" for _, value in sorted(options.items()))


def execute(description, checkpoint=None, progress=False):
    """Train and test the run of `description`; returns (arrays, rows): parameters and history, and one row
    per test.

    This is the function that `sweep` sends to its workers.
    """
    run = Run(**description)
    tasks = [run.task(seed) for seed in run.seeds]
    trained = train(
        tasks,
        list(run.heads),
        run.layers,
        Settings(**run.settings),
        seeds=list(run.seeds),
        free_A=run.free_A,
        checkpoint=checkpoint,
        progress=progress,
    )
    arrays = {}
    for seed, model in zip(run.seeds, trained.models):
        for name, value in model.named_parameters():
            arrays[f"{name}.seed{seed}"] = value.detach().numpy().astype(np.float32)
    for name in ("step", "held_out", "cpu"):
        arrays[f"history.{name}"] = trained.history[name].astype(np.float32)
    if run.trajectory:
        arrays.update(trajectory(trained))
    rows = []
    for index, seed in enumerate(run.seeds):
        model = stored_model(run, arrays, seed)  # what is tested is what is stored, to the last bit
        for labels, options, context in run.tests():
            rows.append(
                {
                    "run": run.name,
                    "labels": law_name(run.labels, run.label_options),
                    "heads": "+".join(run.heads),
                    "layers": run.layers,
                    "context": run.context,
                    "sigma": run.sigma,
                    "law": run.law,
                    "noise": run.noise,
                    "whitened": run.whitened,
                    "free_A": run.free_A,
                    "seed": seed,
                    "test_labels": law_name(labels, options),
                    "test_context": context,
                    **evaluate(run, model, seed, labels, options, context),
                    "held_out": float(trained.held_out[index]),
                    "steps": trained.steps,
                    "stepped_back": int(trained.failures[index]),
                    "cpu_seconds": float(trained.history["cpu"][-1]) / len(run.seeds),
                }
            )
    return arrays, rows


class EvaluationSet(NamedTuple):
    """Prompts with their second moments, Bayes weights (..., q, n) and Bayes risk (...) per prompt."""

    batch: Batch
    best: torch.Tensor
    floor: torch.Tensor


@torch.no_grad()
def evaluation_set(task, context, contexts=TEST_CONTEXTS):
    """The `EvaluationSet` of a task; the same prompts for every network that is tested on it."""
    batch = task.draw(contexts, TEST_QUERIES, generator(TEST_SEED), context=context, pool=TEST_POOL)
    _, K, nu, kappa, _ = batch
    if K.ndim == 3:  # one K for all queries
        rows = torch.cat([K, nu], dim=-2)
        corner = torch.cat([nu, torch.diag_embed(kappa)], dim=-1)
        best = bayes.weights(torch.cat([rows, corner.mT], dim=-1), TEST_QUERIES).mT
    else:
        full = torch.cat(
            [torch.cat([K, nu.unsqueeze(-2)], -2), torch.cat([nu, kappa.unsqueeze(-1)], -1).unsqueeze(-1)], -1
        )
        best = bayes.weights(full).squeeze(-1)
    return EvaluationSet(batch, best, (kappa - (best * nu).sum(-1)).clamp(min=0).mean(-1))


@lru_cache(maxsize=16)
def _shared_set(labels, options, noise, law, d, context):
    run = Run(labels, label_options=dict(options), noise=noise, law=law, d=d, context=context)
    return evaluation_set(run.task(), context)


@torch.no_grad()
def evaluate(run, model, seed, labels=None, options=None, context=None):
    """Loss, excess over Bayes and Bayes risk with standard errors, on prompts that all networks of a task
    share.

    labels, options, context: where they differ from the run's. If the labels are whitened, the prompts are
    drawn in whitened coordinates, where the network is the same with transformed parameters; so all seeds,
    whatever their Sigma, meet the same prompts. Float64, exact over the labels.
    """
    options = run.label_options if options is None else options
    where = replace(run, labels=labels or run.labels, label_options=options)
    context = context or run.context
    if run.whitened:
        model = whitened(model, run.task(seed).covariates.sigma)
        prompts = _shared_set(
            where.labels, tuple(sorted(options.items())), run.noise, run.law, run.d, context
        )
    else:
        prompts = evaluation_set(where.task(seed), context)
    return scores(prompts, predictor_weights(model, prompts.batch.X, TEST_QUERIES))


def curves(arrays):
    """The learning curves among the arrays of `execute`, under the names that `results.history` uses."""
    kept = ("history.", "distance.")
    return {n.removeprefix("history."): value for n, value in arrays.items() if n.startswith(kept)}


def blank(run):
    """An untrained network of the run's shape."""
    return Transformer(run.d, run.layers, list(run.heads), divide_by_context=True)


def stored_model(run, arrays, seed):
    """The trained network of one seed from the arrays of `execute`."""
    model = blank(run)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.as_tensor(arrays[f"{name}.seed{seed}"], dtype=torch.float64))
    return model


def scores(prompts, w):
    """The row entries of the predictor with weights w (..., n, q) on a `EvaluationSet`."""
    K, weights = prompts.batch.K, prompts.batch.weights
    gap = w.mT - prompts.best
    product = gap @ K if K.ndim == 3 else (K @ gap.unsqueeze(-1)).squeeze(-1)
    excess = (gap * product).sum(-1).mean(-1)
    result = {}
    for name, values in (("loss", excess + prompts.floor), ("excess", excess), ("bayes", prompts.floor)):
        mean = (weights * values).sum()
        result[name] = float(mean)
        result[f"{name}_se"] = float((weights * (values - mean)).square().sum().sqrt())
    return result


@torch.no_grad()
def whitened(model, sigma):
    """The network that does to xi = Sigma^(-1/2) x what `model` does to x."""
    root, inverse = power(sigma, 0.5), power(sigma, -0.5)
    names = [list(row) for row in model.heads]
    copy = Transformer(model.d, model.layers, names, model.divide_by_context)
    copy.A.copy_(inverse @ model.A @ root)
    copy.B.copy_(model.B @ root)
    copy.C.copy_(model.C @ root)
    copy.r.copy_(model.r)
    return copy


@torch.no_grad()
def trajectory(trained):
    """Arrays 'distance.BC' and 'distance.A' (checks, layers, heads, runs): how far from scalar matrices,
    relatively.

    Of M = Sigma^(1/2) B^T C Sigma^(1/2) and of Sigma^(-1/2) A Sigma^(1/2): |M - tr(M)/d I|_F / |M|_F, which
    is 0 exactly on the symmetric set of Theorems 1 and 2.
    """
    distances = {"A": [], "BC": []}
    for theta in torch.as_tensor(trained.history["theta"]):
        A, BC = trained.coordinates.whitened(theta)
        distances["A"].append(from_scalar(A))
        distances["BC"].append(from_scalar(BC))
    return {
        f"distance.{n}": torch.stack(values).numpy().astype(np.float32) for n, values in distances.items()
    }


def from_scalar(M):
    """|M - tr(M)/d I|_F / |M|_F of matrices (..., d, d): their relative distance from the multiples of I; 0
    for M = 0."""
    d = M.shape[-1]
    scalar = M.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * torch.eye(d, dtype=M.dtype)
    size = M.square().sum((-2, -1)).sqrt()
    return torch.where(size > 0, (M - scalar).square().sum((-2, -1)).sqrt() / size.clamp(min=1e-300), 0.0)
