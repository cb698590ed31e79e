"""The book's figures draw the numbers they are given, in colours and markers that can be told apart."""

import itertools

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from icfgd import plots
from icfgd.experiments import Table
from icfgd.kernels import ACTIVATIONS

matplotlib.use("Agg")
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def linear_rgb(colour):
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def table(contexts=(2, 4, 8), seeds=(0, 1), heads=("linear", "softmax"), bayes=0.01, **extra):
    rows = []
    for index, (context, seed, head) in enumerate(itertools.product(contexts, seeds, heads)):
        rows.append({
            "run": f"r-{head}-n{context}", "labels": "linear", "test_labels": "linear", "heads": head, "context": context,
            "test_context": context, "layers": 1, "seed": seed, "loss": 1.0 / (index + 1), "excess": 0.5 / (index + 1),
            "bayes": bayes, **extra,
        })
    return Table(rows)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_has_a_colour_and_a_marker(name):
    assert matplotlib.colors.is_color_like(plots.colour(name))
    assert plots.marker(name)


def test_activations_differ_in_marker_and_for_every_eye():
    pairs = list(itertools.combinations(ACTIVATIONS, 2))
    assert all(plots.marker(a) != plots.marker(b) for a, b in pairs)
    for eye, matrix in BLINDNESS.items():
        seen = {name: np.clip(matrix @ linear_rgb(plots.colour(name)), 0, 1) ** (1 / 2.2) for name in ACTIVATIONS}
        for a, b in itertools.combinations(("linear", "relu", "exponential", "softmax"), 2):
            assert np.linalg.norm(seen[a] - seen[b]) > 0.12, (eye, a, b)


def test_lines_of_the_main_activations_stand_out_from_white():
    for name in ("linear", "relu", "exponential", "softmax", "arccosine", "composite", "bayes"):
        luminance = linear_rgb(plots.colour(name)) @ [0.2126, 0.7152, 0.0722]
        assert 1.05 / (luminance + 0.05) >= 3, name


def test_figures_are_white_whatever_the_theme():
    with plt.style.context("dark_background"):
        fig, axes = plots.figure(1, 2)
        assert matplotlib.colors.to_hex(fig.get_facecolor()) == "#ffffff"
        assert all(matplotlib.colors.to_hex(a.get_facecolor()) == "#ffffff" for a in axes)
    assert len(axes) == 2


def test_with_spread_draws_the_mean_and_the_range():
    _, axes = plots.figure()
    values = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]])
    plots.with_spread(axes, [1, 2, 3], values, "relu")
    assert axes.lines[0].get_ydata().tolist() == [2, 2, 5]
    assert axes.lines[0].get_label() == "relu"
    outline = axes.collections[0].get_paths()[0].vertices
    assert {tuple(v) for v in outline} >= {(1, 1), (1, 3), (3, 3), (3, 7)}


def test_loss_curves_draw_means_over_seeds_and_the_bayes_risk():
    _, axes = plots.figure()
    rows = table()
    plots.loss_curves(axes, rows, "context")
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines) == {"linear", "softmax", "Bayes"}
    for head in ("linear", "softmax"):
        want = [np.mean(rows.where(heads=head, context=c).column("loss")) for c in (2, 4, 8)]
        np.testing.assert_allclose(lines[head].get_ydata(), want)
        assert lines[head].get_color() == plots.colour(head)
    assert list(lines["Bayes"].get_ydata()) == [0.01] * 3
    assert axes.get_yscale() == "log"
    assert "context" in axes.get_xlabel()


def test_no_bayes_line_where_the_risk_is_zero_or_the_excess_is_drawn():
    for rows, y in ((table(bayes=1e-14), "loss"), (table(), "excess")):
        _, axes = plots.figure()
        plots.loss_curves(axes, rows, "context", y)
        assert {line.get_label() for line in axes.lines} == {"linear", "softmax"}


def test_a_missing_run_is_an_error_and_not_a_gap():
    rows = Table(table()[1:])
    _, axes = plots.figure()
    with pytest.raises(ValueError, match="exactly one row"):
        plots.loss_curves(axes, rows, "context")


def test_panels_are_a_grid_of_conditions():
    rows = Table([*table(), *table(labels="relu")])
    fig = plots.panels(rows, "layers", "context")
    assert len(fig.axes) == 3 * 2
    assert fig.axes[0].get_title() == "linear labels, context 2"
    assert fig.axes[1].get_title() == "relu labels, context 2"
    assert fig.axes[0].get_legend() is not None
    assert len(plots.panels(rows, "context", None).axes) == 2


def test_dots_mark_means_and_ranges():
    _, axes = plots.figure()
    rows = table()
    plots.dots(axes, rows, "context")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["2", "4", "8"]
    means = dict(zip([line.get_label() for line in axes.lines], [line.get_xdata() for line in axes.lines]))
    np.testing.assert_allclose(means["linear"][0], rows.where(heads="linear", context=2).column("loss").mean())
    assert len(axes.collections) == 2


def test_distance_curves_have_a_line_per_layer_except_the_last_a():
    values = np.exp(-np.arange(5.0))[:, None, None, None] * np.ones((5, 3, 1, 4)) * np.arange(1, 5)
    curves = {"step": np.arange(5), "distance.BC": values.tolist(), "distance.A": values.tolist()}
    for which, count in (("BC", 3), ("A", 2)):
        _, axes = plots.figure()
        plots.distance_curves(axes, curves, which)
        assert len(axes.lines) == count
        np.testing.assert_allclose(axes.lines[0].get_ydata(), np.exp(-np.arange(5.0)) * 2.5)
        assert axes.get_yscale() == "log"


def test_only_tests_as_trained_enter_the_standard_figures():
    rows = table()
    assert all(plots.tested_as_trained(row) for row in rows)
    assert not plots.tested_as_trained({**rows[0], "test_context": 99})
    assert not plots.tested_as_trained({**rows[0], "test_labels": "relu"})
    shifted = table(loss=1e6, test_context=99)
    fig = plots.experiment_figure("figure1", Table([*rows, *shifted]), {})
    assert max(line.get_ydata().max() for line in fig.axes[0].lines if line.get_label() == "linear") <= 1


def test_standard_figures_of_the_other_experiments():
    values = np.ones((5, 2, 1, 3)) * np.arange(5, 0, -1)[:, None, None, None]
    curves = {"step": np.arange(5), "distance.BC": values, "distance.A": values}
    rows = Table(table(contexts=(3,), heads=("linear",)))
    run = rows[0]["run"]
    assert len(plots.experiment_figure("theorem1", rows, {run: curves}).axes) == 1
    assert len(plots.experiment_figure("theorem2", rows, {run: curves}).axes) == 2
    assert plots.experiment_figure("figure3", table(contexts=(3,)), {}).axes
    assert plots.experiment_figure("something else", table(), {}).axes[0].get_legend() is not None
