"""Areas under curves, edit distance, BLEU, n-grams and the clock against hand-made cases and textbook
recursions.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icfgd.reservoirs import clock, metrics, ngram


def test_areas_under_curves():
    assert metrics.aucc([0, 1, 5], [3, 3, 3], 4) == pytest.approx(3)
    assert metrics.aucc([0, 2, 8], [0, 0.25, 1], 8) == pytest.approx(0.5)
    assert metrics.aucc([0, 2], [0, 1], 4) == pytest.approx(0.75)  # extended
    assert metrics.aucc([0, 2, 4], [0, 1, 1], 1) == pytest.approx(0.25)  # cut between points
    assert metrics.aucc([0], [2], 4) == pytest.approx(2)
    assert metrics.aucc([0, 1, 2], [0, 1, 0], 2) == pytest.approx(0.5)
    assert metrics.aucc_normalise({"a": 2.0, "b": 4.0}) == {"a": 0.5, "b": 1.0}
    assert metrics.time_to([0, 1, 2], [0, 0.5, 1.0], 0.75) == pytest.approx(1.5)
    assert metrics.time_to([0, 1, 2], [4, 2, 1], 0.5, "min") == pytest.approx(1)
    assert metrics.time_to([0, 1, 2], [1, 0.5, 0.7]) == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=8),
    st.floats(-3, 3),
    st.floats(0.1, 30),
    st.integers(0, 99),
)
def test_area_is_linear_and_shifts_with_the_curve(steps, shift, horizon, seed):
    t = np.concatenate([[0], np.cumsum(steps)])
    g = np.random.default_rng(seed).normal(size=t.size)
    a = metrics.aucc(t, g, horizon)
    assert metrics.aucc(t, g + shift, horizon) == pytest.approx(a + shift, abs=1e-9)
    assert metrics.aucc(t, 2 * g, horizon) == pytest.approx(2 * a, abs=1e-9)
    fine = np.linspace(0, horizon, 20001)
    assert a == pytest.approx(np.trapezoid(np.interp(fine, t, g), fine) / horizon, abs=2e-3)


def test_edit_distance_error_rate_and_bleu():
    assert metrics.edit_distance("kitten", "sitting") == 3
    assert metrics.edit_distance("", "abc") == 3
    assert metrics.edit_distance([1, 2], [1, 2]) == 0
    assert metrics.error_rate(["ab", "cd"], ["ab", "d"]) == pytest.approx(0.25)
    assert metrics.bleu(["abcde"], ["abcde"]) == pytest.approx(1)
    assert metrics.bleu(["abcd"], ["dcba"]) == 0
    # 4 of 5 unigrams, 3 of 4 bigrams; equal lengths, so no brevity penalty.
    assert metrics.bleu(["abcde"], ["abcdx"], order=2) == pytest.approx(math.sqrt(0.8 * 0.75))
    assert metrics.bleu(["abcdef"], ["abc"], order=1) == pytest.approx(math.exp(1 - 2))
    assert metrics.bits(math.log(8)) == pytest.approx(3)
    mean, half = metrics.interval([1.0, 2.0, 3.0])
    assert (mean, half) == (pytest.approx(2), pytest.approx(4.303 / math.sqrt(3), rel=1e-3))


@settings(max_examples=40, deadline=None)
@given(st.text("ab", max_size=7), st.text("ab", max_size=7), st.text("ab", max_size=7))
def test_edit_distance_is_a_metric(a, b, c):
    d = metrics.edit_distance
    assert d(a, b) == d(b, a)
    assert d(a, c) <= d(a, b) + d(b, c)
    assert (d(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= d(a, b) <= max(len(a), len(b))


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.aucc([1, 2], [0, 0], 1),
        lambda: metrics.aucc([0, 0], [0, 0], 1),
        lambda: metrics.aucc([0], [math.nan], 1),
        lambda: metrics.aucc([0, 1], [0], 1),
        lambda: metrics.aucc([0, 1], [0, 1], 0),
        lambda: metrics.aucc_normalise({}),
        lambda: metrics.aucc_normalise({"a": 0.0}),
        lambda: metrics.time_to([0, 1], [0, 1], 0.0),
        lambda: metrics.time_to([0, 1], [0, 1], 0.5, "least"),
        lambda: metrics.time_to([0, 1], [-1, 1]),
        lambda: metrics.error_rate([], []),
        lambda: metrics.error_rate(["a"], []),
        lambda: metrics.error_rate([""], ["a"]),
        lambda: metrics.bleu(["a"], ["a"], 0),
        lambda: metrics.bits(-1.0),
        lambda: metrics.interval([1.0]),
    ],
)
def test_metrics_refuse_nonsense(call):
    with pytest.raises(ValueError):
        call()


# n-grams and the clock


def naive(train, order, size, context, symbol):
    """Interpolated Kneser-Ney by its textbook recursion on dictionaries."""
    grams = {m: [tuple(train[i : i + m]) for i in range(len(train) - m + 1)] for m in range(1, order + 1)}
    counts = {order: {}}
    for g in grams[order]:
        counts[order][g] = counts[order].get(g, 0) + 1
    for m in range(order - 1, 0, -1):
        counts[m] = {}
        for g in counts[m + 1]:
            counts[m][g[1:]] = counts[m].get(g[1:], 0) + 1
    p = 1 / size
    for m in range(1, order + 1):
        c, h = counts[m], tuple(context[len(context) - m + 1 :])
        here = {g: v for g, v in c.items() if g[:-1] == h}
        if not here:
            continue
        ones, twos = sum(v == 1 for v in c.values()), sum(v == 2 for v in c.values())
        D = ones / (ones + 2 * twos) if ones else 0.5
        total = sum(here.values())
        own = max(here.get((*h, symbol), 0) - D, 0)
        p = (own + D * len(here) * p) / total
    return p


def test_kneser_ney_equals_its_recursion_and_sums_to_one():
    rng = np.random.default_rng(0)
    train = np.minimum(rng.geometric(0.4, 120) - 1, 4)
    for order in (1, 2, 3):
        model = ngram.KneserNey(train, order, 6)
        for context in ([0, 0], [1, 2], [5, 0], [4, 5]):
            p = [
                model.probabilities(np.array([*context[2 - (order - 1) :], s] if order > 1 else [s]))[0]
                for s in range(6)
            ]
            assert sum(p) == pytest.approx(1, abs=1e-12)
            assert p == pytest.approx(
                [naive(train.tolist(), order, 6, context, s) for s in range(6)], rel=1e-10
            )
        text = rng.integers(0, 6, 50)
        assert model.bits(text) == pytest.approx(-np.log2(model.probabilities(text)).mean())


@pytest.mark.parametrize(
    "call",
    [
        lambda: ngram.KneserNey([0, 1, 2], 2, 2),
        lambda: ngram.KneserNey([0, 1], 2, 2),
        lambda: ngram.KneserNey([0.5] * 9, 2, 2),
        lambda: ngram.KneserNey([0, 1, 0], 0, 2),
        lambda: ngram.KneserNey([0] * 30, 12, 81),
        lambda: ngram.KneserNey([0, 1, 0, 1], 3, 2).probabilities([0]),
        lambda: ngram.KneserNey([0, 1, 0, 1], 2, 2).bits([0, 7]),
    ],
)
def test_ngram_refuses_nonsense(call):
    with pytest.raises(ValueError):
        call()


def test_clock_excludes_pauses():
    times = iter([0.0, 3.0, 10.0, 12.0, 12.0])
    watch = clock.Clock(lambda: next(times)).start()
    with watch.paused():
        pass
    assert watch.seconds == pytest.approx(3 + 2)
    assert watch.stop() == pytest.approx(5)
    assert clock.Clock(offset=4.0).seconds == 4.0
