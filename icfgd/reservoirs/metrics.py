"""Numbers that summarise learning curves and predictions: areas under curves, bits, edit distance, BLEU,
intervals.

Curves are pairs of sequences (time or step, value). Training and clocks belong elsewhere.
"""

import math
from collections import Counter

import numpy as np

from icfgd import checks

MODES = ("max", "min")

# Student's t, 97.5 % quantile, for 1..30 degrees of freedom (any table); beyond, the normal value is used.
_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)


def aucc(times, values, horizon):
    """Mean height of a learning curve over [0, horizon]: its area under the convergence curve divided by the
    horizon.

    times start at 0 and increase; `horizon` has their unit. The curve is joined by straight lines, cut at the
    horizon, and extended to it by its last value. Shen et al. (2021), eq. 1, integrate without dividing; a
    mean keeps the unit of the metric. Whether a large area is good depends on the metric.
    """
    t, g = _curve(times, values)
    horizon = checks.number("horizon", horizon, low=0, strict=True)
    inside = t < horizon
    ends = np.append(t[inside], horizon)
    heights = np.append(g[inside], np.interp(horizon, t, g))
    return float(np.trapezoid(heights, ends) / horizon)


def aucc_normalise(areas):
    """Each area divided by the largest of the dict `areas` (name -> positive area).

    As in the paper; the division does not turn the order round, so for a loss a small value remains good, and
    the result depends on which models are compared.
    """
    if not areas:
        raise ValueError("areas is empty; at least one named area is required.")
    for name, area in areas.items():
        checks.number(f"areas[{name!r}]", area, low=0, strict=True)
    top = max(areas.values())
    return {name: area / top for name, area in areas.items()}


def time_to(times, values, fraction=1.0, mode="max"):
    """First time at which the joined curve reaches `fraction` of its best value.

    mode 'max': the level is fraction * max(values). mode 'min': it is min(values) / fraction, for losses.
    Values must be positive, fraction in (0, 1].
    """
    t, g = _curve(times, values)
    checks.number("fraction", fraction, low=0, high=1, strict=True)
    checks.one_of("mode", mode, MODES)
    if g.min() < 0 or g.max() <= 0:
        raise ValueError(f"values has minimum {g.min()}; values of at least 0, not all 0, are required.")
    level = fraction * g.max() if mode == "max" else g.min() / fraction
    sign = 1 if mode == "max" else -1
    gap = sign * (g - level)
    first = int(np.argmax(gap >= 0))
    if first == 0:
        return float(t[0])
    rise = gap[first] - gap[first - 1]
    return float(t[first] - gap[first] / rise * (t[first] - t[first - 1]))


def bits(nats):
    """Bits per symbol from a mean negative log-likelihood in nats."""
    return checks.number("nats", nats, low=0) / math.log(2)


def edit_distance(a, b):
    """Levenshtein distance of two sequences: the least number of insertions, deletions and substitutions."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def error_rate(references, hypotheses):
    """Summed edit distance over summed reference length (phoneme error rate; it can exceed 1)."""
    _paired(references, hypotheses)
    length = sum(map(len, references))
    if not length:
        raise ValueError("references are all empty; at least one symbol is required.")
    return sum(edit_distance(r, h) for r, h in zip(references, hypotheses)) / length


def bleu(references, hypotheses, order=4):
    """Corpus BLEU in [0, 1] with one reference each, uniform weights, no smoothing (Papineni et al. 2002)."""
    _paired(references, hypotheses)
    checks.integer("order", order, low=1)
    logs = 0.0
    for n in range(1, order + 1):
        hits = total = 0
        for r, h in zip(references, hypotheses):
            have, want = _grams(h, n), _grams(r, n)
            hits += sum(min(c, want[g]) for g, c in have.items())
            total += sum(have.values())
        if hits == 0:
            return 0.0
        logs += math.log(hits / total) / order
    ours, theirs = sum(map(len, hypotheses)), sum(map(len, references))
    return math.exp(logs + min(0.0, 1 - theirs / ours))


def interval(values):
    """(mean, half width) of the 95 % Student interval for the mean of at least two independent values
    (seeds).
    """
    v = np.asarray(values, dtype=float)
    if v.ndim != 1 or v.size < 2 or not np.isfinite(v).all():
        raise ValueError(f"values has shape {v.shape}; at least two finite numbers are required.")
    quantile = _T[v.size - 2] if v.size - 1 <= len(_T) else 1.96
    return float(v.mean()), float(quantile * v.std(ddof=1) / math.sqrt(v.size))


def _grams(sequence, n):
    return Counter(tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1))


def _paired(references, hypotheses):
    if len(references) != len(hypotheses) or not len(references):
        raise ValueError(
            f"references and hypotheses have lengths {len(references)} and {len(hypotheses)}; equal lengths "
            "of at least 1 are required."
        )


def _curve(times, values):
    t, g = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if t.ndim != 1 or t.shape != g.shape or t.size < 1:
        raise ValueError(
            f"times and values have shapes {t.shape} and {g.shape}; equal 1-D shapes are required."
        )
    if not (np.isfinite(t).all() and np.isfinite(g).all()):
        raise ValueError("times or values have entries that are not finite; all must be finite.")
    if t[0] != 0 or (np.diff(t) <= 0).any():
        raise ValueError(f"times start at {t[0]}; they must start at 0 and increase.")
    return t, g
