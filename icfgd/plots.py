"""The book's figures in one style: white ground, colour-blind-safe colours and markers that differ without
colour.

Colours follow the subject: each attention activation and each reference line has one colour in the whole
book. Drawing functions shared by several chapters belong here; a figure of one chapter stays in its notebook.
"""

import matplotlib
import numpy as np

from icfgd import checks

# Okabe and Ito's palette; the darker yellow keeps a contrast of 3:1 on white.
COLOURS = {
    "linear": "#0072B2",
    "relu": "#D55E00",
    "exponential": "#009E73",
    "softmax": "#CC79A7",
    "gaussian": "#56B4E9",
    "arccosine": "#B8860B",
    "polynomial": "#7F7F7F",
    "composite": "#5D3A9B",
    "linear+exponential": "#5D3A9B",
    "bayes": "#000000",
    "data": "#444444",
}
MARKERS = {"linear": "o", "relu": "s", "exponential": "^", "softmax": "D", "gaussian": "v", "arccosine": "P",
           "polynomial": "X", "composite": "*",
           "linear+exponential": "*", "bayes": "", "data": "o"}
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#B8860B", "#5D3A9B", "#7F7F7F")

STYLE = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "figure.dpi": 110,
    "savefig.dpi": 110,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
    "savefig.bbox": "tight",
}


def figure(rows=1, columns=1, width=6.4, height=3.4, **subplots):
    """A matplotlib figure (width and height in inches) and its axes in the book's style; see
    `plt.subplots`."""
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update(STYLE)
    fig, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **subplots)
    return fig, axes


def colour(name):
    """The colour of an activation, kernel or reference line ('bayes', 'data')."""
    return COLOURS[checks.one_of("name", name, COLOURS)]


def marker(name):
    """The marker that goes with `colour(name)`."""
    return MARKERS[checks.one_of("name", name, MARKERS)]


def with_spread(axes, x, values, name, label=None):
    """Draw the mean of `values` (runs, points) over runs against x, with the range over runs shaded."""
    mean = values.mean(axis=0)
    axes.plot(x, mean, color=colour(name), marker=marker(name), label=label or name)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour(name), alpha=0.18, linewidth=0)


def loss_curves(axes, table, x, y="loss", **conditions):
    """Loss against the column `x`, one curve per activation with its range over seeds, and the Bayes risk.

    table: a `Table` whose rows, after `conditions`, have one loss per activation, seed and x. The Bayes line
    is left out where the Bayes risk is zero up to rounding.
    """
    rows = table.where(**conditions)
    for heads in rows.values("heads"):
        points, values = rows.series(x, y, heads=heads)
        with_spread(axes, points, values, heads)
    if y == "loss":
        floor = {row[x]: row["bayes"] for row in rows if row["bayes"] > 1e-9}
        if floor:
            points = sorted(floor)
            risks = [floor[p] for p in points]
            axes.plot(points, risks, color=colour("bayes"), linestyle="--", label="Bayes")
    _scale(axes.set_yscale, np.concatenate([line.get_ydata() for line in axes.lines]))
    axes.set_xlabel({"context": "context length $n$", "layers": "layers $k$"}.get(x, x))
    axes.set_ylabel({"loss": "test loss", "excess": "excess over Bayes"}.get(y, y))


def panels(table, x, by, across="labels", y="loss"):
    """A grid of `loss_curves`: columns for the values of `across`, rows for those of `by` (None: a single
    row)."""
    rows, columns = table.values(by) if by else [None], table.values(across)
    size = {"width": 2.9 * len(columns) + 0.6, "height": 2.6 * len(rows) + 0.5}
    fig, axes = figure(len(rows), len(columns), **size, squeeze=False, sharex=True)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            conditions = {across: column, **({by: row} if by else {})}
            loss_curves(axes[i, j], table, x, y, **conditions)
            extra = f", {by} {row}" if by and len(rows) > 1 else ""
            axes[i, j].set_title(f"{column} labels{extra}" if across == "labels" else f"{column}{extra}")
    axes[0, 0].legend()
    return fig


def dots(axes, table, category, y="loss", by="heads"):
    """One row per value of `category`, one mark per activation at its mean over seeds, with the range as a
    line."""
    names = table.values(category)
    heads = table.values(by)
    for index, head in enumerate(heads):
        offset = 0.6 * ((index + 0.5) / len(heads) - 0.5)
        rows = [table.where(**{category: name, by: head}) for name in names]
        kept = [(i, r.column(y)) for i, r in enumerate(rows) if r]
        places = [i + offset for i, _ in kept]
        means = [v.mean() for _, v in kept]
        axes.plot(means, places, linestyle="", marker=marker(head), color=colour(head), label=head)
        axes.hlines(places, [v.min() for _, v in kept], [v.max() for _, v in kept], color=colour(head))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _scale(axes.set_xscale, table.column(y))
    axes.set_xlabel({"loss": "test loss", "excess": "excess over Bayes"}.get(y, y))


def _scale(set_scale, values):
    """A logarithmic axis, but only where the values span more than a factor of five."""
    if values.min() > 0 and values.max() > 5 * values.min():
        set_scale("log")


def distance_curves(axes, curves, which="BC"):
    """Distance from the symmetric set against steps: a line per layer (mean over seeds), the range shaded.

    curves: what `results.history` returns for a run of theorem1 or theorem2. which: 'BC' or 'A' (whose last
    layer does not influence the output and is left out).
    """
    values = np.asarray(curves[f"distance.{which}"], dtype=float)[:, :, 0]  # (checks, layers, seeds)
    for layer in range(values.shape[1] - (which == "A")):
        line = values[:, layer]
        axes.plot(curves["step"], line.mean(-1), color=CYCLE[layer], label=f"layer {layer + 1}")
        low, high = line.min(-1), line.max(-1)
        axes.fill_between(curves["step"], low, high, color=CYCLE[layer], alpha=0.18, linewidth=0)
    _scale(axes.set_yscale, values[values > 0])
    axes.set_xlabel("training steps")
    axes.set_ylabel("relative distance of $" + {"BC": "B^{\\top}C", "A": "A"}[which] + "$")


def tested_as_trained(row):
    """Whether a row is a test on the labels and context length of training."""
    return row["test_labels"] == row["labels"] and row["test_context"] == row["context"]


def experiment_figure(name, table, curves):
    """The standard figure of a named experiment from its `Table` and learning curves (run name -> curves)."""
    table = type(table)(row for row in table if tested_as_trained(row))
    if name in ("theorem1", "theorem2"):
        runs = table.values("run")
        kinds = ("BC",) if name == "theorem1" else ("BC", "A")
        size = {"width": 2.9 * len(runs) + 0.6, "height": 2.7 * len(kinds)}
        fig, axes = figure(len(kinds), len(runs), **size, squeeze=False)
        for j, run in enumerate(runs):
            for i, which in enumerate(kinds):
                distance_curves(axes[i, j], curves[run], which)
            axes[0, j].set_title(run.split("-n")[0] + (", raw" if "-raw" in run else ""))
        axes[0, 0].legend()
        return fig
    if name in ("figure1", "figure2", "figure3"):
        by = "context" if name == "figure2" else None
        return panels(table, "context" if name == "figure1" else "layers", by)
    if name in ("sparse", "relu_network"):
        integrated = [row for row in table if not row["run"].endswith("sampled")]
        return panels(type(table)(integrated), "layers", None)
    if name == "relu_or_softmax":
        own = [row for row in table if row["labels"].startswith("exponential") and row["context"] == 14]
        sharp = type(table)({**row, "scale": float(row["labels"].removeprefix("exponential"))} for row in own)
        fig, axes = figure()
        loss_curves(axes, sharp, "scale", "excess")
        axes.set_xscale("log")
        axes.set_xlabel("scale of the exponential kernel (small: sharp)")
        axes.legend()
        return fig
    fig, axes = figure(height=5.0)
    cases = [{**row, "case": row["run"].replace(f"-{row['heads']}-", " ", 1)} for row in table]
    dots(axes, type(table)(cases), "case")
    axes.legend()
    return fig
