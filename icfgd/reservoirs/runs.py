"""What a described run does: build the model of a task, train it, measure it. One function per task.

A description is a plain dictionary; `execute` turns it into a record of plain values (`icfgd.sweep` stores
it). Which runs an experiment consists of is in `experiments`.
"""

from functools import lru_cache

import numpy as np
import torch

from icfgd import checks
from icfgd.device import default_device
from icfgd.processes import Covariates, covariance, label_process
from icfgd.reservoirs import metrics, models, tasks
from icfgd.reservoirs.backskip import ValueNetwork, reinforce_step, true_probability
from icfgd.reservoirs.costs import cost
from icfgd.reservoirs.features import FeatureKernel, FourierFeatures, ReLUFeatures, root_mean_square_error
from icfgd.reservoirs.freezing import count, freeze, normalisation_only
from icfgd.reservoirs.incontext import InContext
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.ngram import KneserNey
from icfgd.reservoirs.training import Schedule, fit

SCHEDULE = ("steps", "rate", "kind", "warmup", "decay", "beta2", "clip", "every")


def execute(description, checkpoint=None, log=None):
    """Run a `description` (with key 'task'); returns ({}, record): `record` has 'final' and, if it trained,
    'curve'.

    checkpoint: a file from which an interrupted run goes on. log: a function for lines of progress.
    """
    settings = dict(description)
    task = TASKS[checks.one_of("task", settings.pop("task"), TASKS)]
    return {}, task(settings, checkpoint, log)


def _schedule(settings):
    return Schedule(**{key: settings.pop(key) for key in SCHEDULE if key in settings})


def _record(curve, model, **final):
    trainable, total = count(model)
    final = {**final, "cpu_seconds": curve.seconds[-1], "trainable": trainable, "total": total}
    losses = [None if x is None else round(x, 5) for x in curve.losses]
    return {
        "final": final,
        "curve": {
            "step": curve.steps,
            "seconds": [round(s, 3) for s in curve.seconds],
            "value": [round(v, 6) for v in curve.values],
            "loss": losses,
        },
    }


def digits(settings, checkpoint, log):
    """Digits. 'value' is validation accuracy; 'final' has test accuracy. trains: 'all', 'norm', 'norm+head'
    or 'head'.

    backskip 'reinforce' uses the literal recipe for the one frozen layer of the pattern (options sigma,
    density, warmup_steps).
    """
    schedule, seed, batch = _schedule(settings), settings.pop("seed"), settings.pop("batch", 64)
    trains, backskip = settings.pop("trains", "all"), settings.pop("backskip", "exact")
    policy = {key: settings.pop(key) for key in ("sigma", "density", "warmup_steps") if key in settings}
    pattern, d = settings.pop("pattern"), settings.pop("d")
    mode = "exact" if backskip == "reinforce" else backskip
    model = models.Classifier(pattern, d, seed=seed, reservoir_seed=seed, backskip=mode, **settings)
    if trains == "head":
        freeze(model)
        model.head.requires_grad_(True)
    elif checks.one_of("trains", trains, ("all", "norm", "norm+head", "head")) != "all":
        normalisation_only(model, ("head",) if trains == "norm+head" else ())
    device = default_device()
    model.to(device)
    train, validation, test = [tuple(part.to(device) for part in pair) for pair in tasks.digits(seed)]
    x, y = train

    def draw_batch(generator):
        at = torch.randint(len(y), (batch,), generator=generator)
        return x[at], y[at]

    def draw(generator):
        inputs, targets = draw_batch(generator)
        return torch.nn.functional.cross_entropy(model(inputs), targets)

    step = _policy_step(model, pattern, d, seed, draw_batch, **policy) if backskip == "reinforce" else None
    curve = fit(model, draw, lambda: model.accuracy(*validation), schedule, seed, step, checkpoint, log=log)
    model.eval()
    return _record(curve, model, test=model.accuracy(*test))


def _policy_step(model, pattern, d, seed, draw_batch, sigma=1.0, density="sum", warmup_steps=100):
    if sum(letter != "L" for letter in pattern) != 1 or pattern[0] != "L":
        raise ValueError(
            f"pattern = {pattern!r}; the recipe needs exactly one frozen layer, with a trained one below."
        )
    at = next(i for i, letter in enumerate(pattern) if letter != "L")
    layers = model.stack.layers
    value = ValueNetwork(d, seed=seed).to(next(model.parameters()).device)
    updates = torch.optim.Adam(value.parameters(), lr=1e-3)

    def lower(x):
        x = model.start(x)
        for layer in layers[:at]:
            x = layer(x)
        return x

    def upper(z):
        for layer in layers[at + 1 :]:
            z = layer(z)
        return model.finish(z)

    def step(generator, number):
        inputs, targets = draw_batch(generator)
        updates.zero_grad()
        outcome = reinforce_step(
            lower,
            layers[at],
            upper,
            torch.nn.functional.cross_entropy,
            value,
            inputs,
            targets,
            true_probability(number, warmup_steps),
            generator,
            sigma,
            density,
        )
        updates.step()
        return outcome["loss"]

    return step


def plays(settings, checkpoint, log):
    """Character language model. 'value' is bits per character on the first `watch` validation characters.

    'final' has bits per character on the whole validation and test text if `whole` (default), else the last
    value only.
    """
    schedule, seed, batch = _schedule(settings), settings.pop("seed"), settings.pop("batch", 16)
    text = tasks.plays(settings.pop("length", None))
    watch, whole = settings.pop("watch", 20000), settings.pop("whole", True)
    pattern, d, context = settings.pop("pattern"), settings.pop("d"), settings.pop("context")
    model = models.LanguageModel(
        pattern, d, len(text.alphabet), context, seed=seed, reservoir_seed=seed, **settings
    )
    device = default_device()
    model.to(device)
    train, validation, test = (part.to(device) for part in text[:3])

    def draw(generator):
        return model.loss(*tasks.windows(train, batch, context, generator))

    def value():
        return metrics.bits(model.nats(validation[:watch]))

    curve = fit(model, draw, value, schedule, seed, checkpoint=checkpoint, log=log)
    model.eval()
    final = {"validation": curve.values[-1]}
    if whole:
        final = {"validation": metrics.bits(model.nats(validation)), "test": metrics.bits(model.nats(test))}
    return _record(curve, model, **final)


def ngram(settings, checkpoint, log):
    """Bits per character of an n-gram model on the plays."""
    text = tasks.plays(settings.get("length"))
    model = KneserNey(text.train.numpy(), settings["order"], len(text.alphabet))
    return {"final": {name: model.bits(getattr(text, name).numpy()) for name in ("validation", "test")}}


def spelling(settings, checkpoint, log):
    """Spelling to phonemes. 'value' is the phoneme error rate on `watch` validation words; 'final' is on
    the 1000 test words.
    """
    schedule, seed, batch = _schedule(settings), settings.pop("seed"), settings.pop("batch", 64)
    data = tasks.phonemes(settings.pop("words", None))
    device = default_device()
    watch = data.validation[: settings.pop("watch", 300)]
    train, watch, test = (tasks.by_length(part, device) for part in (data.train, watch, data.test))
    model = models.Speller(
        settings.pop("pattern"), settings.pop("d"), seed=seed, reservoir_seed=seed, **settings
    )
    model.to(device)

    def spelled(groups):
        wanted, got = [], []
        for letters, sounds in groups.values():
            wanted += [row[1 : row.index(tasks.END)] for row in sounds.tolist()]
            got += model.spell(letters)
        return wanted, got

    curve = fit(
        model,
        lambda generator: model.loss(*tasks.draw_words(train, batch, generator)),
        lambda: metrics.error_rate(*spelled(watch)),
        schedule,
        seed,
        checkpoint=checkpoint,
        log=log,
    )
    model.eval()
    wanted, got = spelled(test)
    words = sum(w == g for w, g in zip(wanted, got)) / len(wanted)
    return _record(
        curve, model, test=metrics.error_rate(wanted, got), words=words, bleu=metrics.bleu(wanted, got)
    )


@lru_cache(maxsize=8)
def _prompts(law, eigenvalues, d, n, count):
    sigma = torch.eye(d, dtype=torch.float64) if eigenvalues is None else covariance(list(eigenvalues))
    covariates = Covariates(sigma)
    labels = label_process(
        law, sigma=None if eigenvalues is None else sigma, **({"scale": 2.0} if law == "exponential" else {})
    )
    return covariates, labels, covariates.sample(count, n + 1, private_generator(20240))


def incontext(settings, checkpoint, log):
    """In-context layers with exact label integration; 'value' is the loss on fixed prompts, 'final' the last
    one.

    law: label kernel ('exponential' with scale 2, or 'linear'); eigenvalues of Sigma or None; features: None,
    'fourier', 'orthogonal' or 'relu' with `count` directions in place of exponential attention.
    """
    schedule, seed, batch = _schedule(settings), settings.pop("seed"), settings.pop("batch", 128)
    law, eigenvalues = settings.pop("law", "exponential"), settings.pop("eigenvalues", None)
    d, n = settings.pop("d", 5), settings.pop("context", 14)
    eigenvalues = None if eigenvalues is None else tuple(eigenvalues)
    covariates, labels, test = _prompts(law, eigenvalues, d, n, settings.pop("test_prompts", 1000))
    kind, directions = settings.pop("features", None), settings.pop("count", 16)
    head, scale, final = law, 0.5 if law == "exponential" else 1.0, {}
    if kind is not None:
        head, scale, final = _feature_head(kind, directions, d, seed, test, labels)
    model = InContext(
        settings.pop("pattern"), d, head=head, scale=scale, sigma=covariates.sigma, seed=seed, **settings
    )
    curve = fit(
        model,
        lambda generator: model(covariates.sample(batch, n + 1, generator), labels),
        lambda: float(model(test, labels).detach()),
        schedule,
        seed,
        checkpoint=checkpoint,
        log=log,
    )
    final |= {
        "test": curve.values[-1],
        "steps": [round(r, 4) for r in model.steps()],
        "temperatures": [round(c, 4) for c in model.temperatures()],
    }
    return _record(curve, model, **final)


def _feature_head(kind, directions, d, seed, test, labels):
    """Attention by random features: e^(1/2) times a Gaussian kernel is the label kernel exp(<u,v>/2) on
    the unit sphere.
    """
    generator = private_generator(seed, 4000)
    checks.one_of("features", kind, ("fourier", "orthogonal", "relu"))
    if kind == "relu":
        phi, scale = ReLUFeatures(d, directions, generator), 1.0
    else:
        phi = FourierFeatures(d, directions, generator, width=2**0.5, orthogonal=kind == "orthogonal")
        scale = float(np.exp(0.5))
    error = root_mean_square_error(phi, test[:20].flatten(0, 1))
    return FeatureKernel(phi, scale), 1.0, {"kernel_rmse": float(error)}


TASKS = {
    "digits": digits,
    "plays": plays,
    "ngram": ngram,
    "spelling": spelling,
    "cost": cost,
    "incontext": incontext,
}
