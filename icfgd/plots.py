"""The book's figures in one style: white ground, colour-blind-safe colours and markers that differ without colour.

Colours follow the subject: each attention activation and each reference line has one colour in the whole book. Drawing
functions shared by several chapters belong here; a figure of one chapter stays in its notebook.
"""

import matplotlib

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
    "bayes": "#000000",
    "data": "#444444",
}
MARKERS = {"linear": "o", "relu": "s", "exponential": "^", "softmax": "D", "gaussian": "v", "arccosine": "P",
           "polynomial": "X", "composite": "*", "bayes": "", "data": "o"}
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
    """A matplotlib figure (width and height in inches) and its axes in the book's style; see `plt.subplots`."""
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
