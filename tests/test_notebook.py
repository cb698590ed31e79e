"""What notebooks publish: digests notice emptied figures, numbers are rounded once and the same everywhere."""

import json
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

matplotlib.use("Agg")
from icfgd import notebook  # noqa: E402
from icfgd.notebook import digest, glue, rounded, show, show_interactive, table  # noqa: E402
from icfgd.plots import figure  # noqa: E402

go = pytest.importorskip("plotly.graph_objects")
GRID = np.linspace(1.0, 2.0, 5)


@pytest.fixture
def shown(monkeypatch):
    """What `display` was called with."""
    import IPython.display

    found = []
    monkeypatch.setattr(IPython.display, "display", found.append)
    monkeypatch.delenv("ICFGD_PLOTLY", raising=False)
    return found


@pytest.fixture
def axes():
    fig, axes = figure()
    yield axes
    matplotlib.pyplot.close(fig)


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (0.0, 3, "0"), (-0.0, 3, "0"), (1.0, 3, "1"), (0.12345, 3, "0.123"), (-0.12345, 2, "-0.12"), (123456, 3, "123000"),
        (1e-4, 3, "0.0001"), (2e-5, 3, "0.00002"), (2e-7, 3, "2e-07"), (1e20, 2, "1e+20"), (np.float32(0.1), 3, "0.1"),
        (torch.tensor(2.5), 3, "2.5"), (99.96, 3, "100"), (-1e-300, 3, "-1e-300"), (True, 3, "1"),
    ],
)  # fmt: skip
def test_rounding(value, digits, text):
    assert rounded(value, digits) == text


@given(st.floats(-1e300, 1e300), st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_rounded_text_reads_back_to_the_digits_asked_for(value, digits):
    text = rounded(value, digits)
    assert not re.fullmatch(r"-0(\.0*)?", text)
    assert abs(float(text) - value) <= abs(value) * 10.0 ** (1 - digits) / 2 * (1 + 1e-9) + 5e-324
    assert rounded(float(text), digits) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "word", None, np.ones(2), torch.ones(2)])
def test_what_is_not_one_finite_number_is_not_rounded(value):
    with pytest.raises(ValueError, match="value = .*number is required"):
        rounded(value)


def test_glue_publishes_rounded_text_and_shows_nothing(monkeypatch, capsys):
    myst_nb = pytest.importorskip("myst_nb")
    calls = []
    monkeypatch.setattr(myst_nb, "glue", lambda *args, **options: calls.append((args, options)))
    glue("risk", 0.123456)
    glue("word", "seven")
    assert calls == [(("risk", "0.123"), {"display": False}), (("word", "seven"), {"display": False})]
    assert capsys.readouterr().out == ""


def test_glue_prints_where_myst_nb_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "myst_nb", None)
    glue("risk", 0.123456, digits=2)
    assert capsys.readouterr().out == "risk = 0.12\n"


DRAWN = {
    "line": lambda axes, y: axes.plot(GRID, y),
    "points": lambda axes, y: axes.scatter(GRID, y),
    "band": lambda axes, y: axes.fill_between(GRID, y, y + 1),
    "bars": lambda axes, y: axes.bar(GRID, y),
    "image": lambda axes, y: axes.imshow(np.outer(y, y)),
    "mesh": lambda axes, y: axes.pcolormesh(np.outer(y, y)),
    "levels": lambda axes, y: axes.hlines(y, 0, 1),
    "error bars": lambda axes, y: axes.errorbar(GRID, y, yerr=0.1),
    "histogram": lambda axes, y: axes.hist(y, bins=3),
    "steps": lambda axes, y: axes.step(GRID, y),
    "reference line": lambda axes, y: axes.axhline(y[0]),
}  # fmt: skip


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_digest_depends_on_the_data_and_not_on_rounding(draw, axes):
    texts = []
    for values in (GRID, GRID * (1 + 1e-13), GRID + 1):
        axes.clear()
        draw(axes, values)
        texts.append(digest(axes.figure))
    assert texts[0] == texts[1] != texts[2] or draw is DRAWN["histogram"]
    assert texts[0]
    assert not any(line.endswith("nothing") for line in texts[0])


def hidden(axes):
    axes.plot(GRID, GRID)[0].set_visible(False)


def beyond_the_limits(axes):
    axes.plot(GRID, GRID)
    axes.set_ylim(5, 6)


def to_the_left(axes):
    axes.scatter(GRID, GRID)
    axes.set_xlim(5, 6)


def negative_on_a_logarithmic_axis(axes):
    axes.plot(GRID, -GRID)
    axes.set_yscale("log")


def contour_without_level(axes):
    axes.contour(np.outer(GRID, GRID), levels=[50.0, 60.0])


def masked(axes):
    axes.plot(GRID, np.ma.masked_all(5))


EMPTY = {
    "no data": lambda axes: axes.plot([], []),
    "NaN": lambda axes: axes.plot(GRID, GRID * np.nan),
    "NaN for x": lambda axes: axes.plot(GRID * np.nan, GRID),
    "a colour without points": lambda axes: axes.scatter([], [], c=[]),
    "no points": lambda axes: axes.scatter([], []),
    "NaN points": lambda axes: axes.scatter(GRID * np.nan, GRID),
    "NaN band": lambda axes: axes.fill_between(GRID, GRID * np.nan, GRID),
    "NaN image": lambda axes: axes.imshow(np.full((2, 2), np.nan)),
    "NaN bars": lambda axes: axes.bar(GRID, GRID * np.nan),
    "no axes": lambda axes: axes.remove(),
    "empty axes": lambda axes: None,
    **{f.__name__: f for f in (hidden, beyond_the_limits, to_the_left, negative_on_a_logarithmic_axis, masked)},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("draw", EMPTY.values(), ids=EMPTY)
def test_an_emptied_figure_is_refused_and_one_emptied_part_is_named(draw, axes, shown):
    fig = axes.figure
    draw(axes)
    with pytest.raises(ValueError, match="draws no data"):
        show(fig)
    assert shown == []
    if fig.axes:
        other = fig.add_axes([0, 0, 0.1, 0.1])
        other.plot(GRID, GRID)
        before = [line for line in digest(fig) if not line.endswith("nothing")]
        assert len(before) == 1
        show(fig)
        assert shown == [fig]


@pytest.mark.filterwarnings("ignore")
def test_a_contour_without_a_visible_level_counts_as_nothing(axes):
    contour_without_level(axes)
    assert digest(axes.figure) == ["drawn [axes 1] QuadContourSet: nothing"]


def test_a_colour_bar_adds_its_scale_only(axes):
    image = axes.imshow(np.outer(GRID, GRID))
    axes.figure.colorbar(image, label="size")
    assert [re.sub(r": .*", "", line) for line in digest(axes.figure)] == ["drawn [axes 1] image", "drawn [size] QuadMesh"]


def test_patches_are_described_and_bars_only_once(axes):
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), 2.0, label="disc"))
    axes.bar([1, 2], [3.0, 4.0], label="height")
    assert [re.sub(r": .*", "", line) for line in digest(axes.figure)] == ["drawn [axes 1] bars height", "drawn [axes 1] Circle disc"]


def test_digest_names_axes_labels_and_rounds(axes, shown, capsys):
    axes.set_title("risk")
    axes.plot(GRID, 1e-17 * (GRID - 1.5) + 0.123456, label="Bayes")
    show(axes.figure)
    assert capsys.readouterr().out == "drawn [risk] line Bayes: 5 values, min 0.123, mean 0.123, max 0.123\n"
    assert shown == [axes.figure]
    assert not matplotlib.pyplot.fignum_exists(axes.figure.number)


def test_a_mean_of_rounding_noise_is_zero_without_a_sign(axes):
    axes.plot([0, 1], [1.0, -1.0 - 1e-15])
    assert "mean 0," in digest(axes.figure)[0]


def plotly(y=(1.0, 2.0), **options):
    return go.Figure(go.Scatter(x=np.arange(2), y=np.asarray(y), name="loss"), **options)


def html(shown):
    (page,) = shown
    spec = re.search(r'<script type="application/json" data-plotly-for="[^"]*">(.*)</script>', page.data, re.S)
    return page.data, json.loads(spec.group(1))


def test_interactive_output_is_plain_deterministic_and_self_hosted(shown, capsys):
    values = np.random.default_rng(0).normal(size=(50, 2))
    pages = []
    for noise in (0.0, 1e-12):
        shown.clear()
        fig = go.Figure([go.Scatter(x=values[:, 0], y=values[:, 1] * (1 + noise)), go.Heatmap(z=np.outer(values[:, 0], values[:, 0]))])
        show_interactive(fig, "fig-a", "points & a map")
        pages.append(html(shown)[0])
    assert pages[0] == pages[1]
    text, spec = pages[0], html(shown)[1]
    assert "bdata" not in text
    assert "http" not in text
    assert "template" not in spec["layout"]
    assert 'aria-label="points &amp; a map"' in text
    assert text.startswith('<div id="fig-a"')
    np.testing.assert_allclose(spec["data"][0]["y"], values[:, 1], rtol=1e-4)
    np.testing.assert_allclose(np.array(spec["data"][1]["z"]), np.outer(values[:, 0], values[:, 0]), rtol=1e-4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("drawn [fig-a] scatter: 50 values")
    assert lines[1].startswith("drawn [fig-a] heatmap: 2500 values")


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8"])
def test_packed_arrays_are_unpacked_with_their_shape(dtype, shown):
    values = np.arange(6).reshape(2, 3).astype(dtype)
    show_interactive(go.Figure(go.Heatmap(z=values)), "fig-a", "map")
    assert html(shown)[1]["data"][0]["z"] == values.tolist()


def test_no_minus_zero_and_no_nan_in_interactive_output(shown):
    show_interactive(plotly([-0.0, 1.0]), "fig-a", "line")
    assert "-0.0" not in shown[0].data
    shown.clear()
    show_interactive(plotly([np.nan, 1.0]), "fig-a", "line")
    assert html(shown)[1]["data"][0]["y"] == [None, 1.0]
    assert "NaN" not in shown[0].data


def test_text_cannot_leave_the_script(shown):
    show_interactive(plotly(layout={"title": {"text": "</script><!-- <script>"}}), "fig-a", 'quote " <b>')
    page, spec = html(shown)
    assert page.count("</script>") == 1
    assert "<!--" not in page
    assert spec["layout"]["title"]["text"] == "</script><!-- <script>"
    assert 'aria-label="quote &quot; &lt;b&gt;"' in page


@pytest.mark.parametrize(
    "fig, name, alt, message",
    [
        (go.Figure(), "fig-a", "alt", "draws no data"),
        (go.Figure(go.Scatter(x=[], y=[])), "fig-a", "alt", "draws no data"),
        (plotly([np.nan, np.nan]), "fig-a", "alt", "draws no data"),
        (plotly(), "", "alt", "name = ''"),
        (plotly(), "fig a", "alt", "name = 'fig a'"),
        (plotly(), "fig-a", " ", "alt = ' '"),
    ],
)
def test_interactive_figures_need_data_a_name_and_a_text(fig, name, alt, message, shown, capsys):
    with pytest.raises(ValueError, match=message):
        show_interactive(fig, name, alt)
    assert shown == []
    assert capsys.readouterr().out == ""


def test_interactive_values_may_be_words(shown, capsys):
    show_interactive(go.Figure(go.Bar(x=[1, 2], y=["a", "b"], orientation="h")), "fig-a", "bars")
    assert "bar: nothing" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["colab", "environment"])
def test_plotly_draws_itself_in_colab(where, monkeypatch, shown, capsys):
    if where == "colab":
        monkeypatch.setitem(sys.modules, "google.colab", object())
    else:
        monkeypatch.setenv("ICFGD_PLOTLY", "show")
    fig, calls = plotly(), []
    monkeypatch.setattr(type(fig), "show", lambda self: calls.append(self))
    show_interactive(fig, "fig-a", "line")
    assert calls == [fig]
    assert shown == []
    assert capsys.readouterr().out.startswith("drawn [fig-a]")


def test_table_rounds_numbers_keeps_integers_and_escapes(shown):
    rows = [{"n": np.int64(12345), "risk": 0.123456789, "word": "<b>", "ok": True, "none": None}]
    table(rows, ["n", "risk", "word", "ok", "none"], caption="a < b")
    text = shown[0].data
    assert "<td>12345</td><td>0.1235</td><td>&lt;b&gt;</td><td>True</td><td>None</td>" in text
    assert "<caption>a &lt; b</caption>" in text
    assert text.count('<th scope="col">') == 5


@pytest.mark.parametrize(
    "rows, columns, message",
    [([], ["a"], "rows is empty"), ([{"a": 1}], ["b"], r"without \['b'\]"), ([{"a": float("nan")}], ["a"], "value = nan")],
)
def test_table_refuses_holes(rows, columns, message, shown):
    with pytest.raises(ValueError, match=message):
        table(rows, columns)
    assert shown == []


def test_the_room_needs_neither_jupyter_nor_plotly_to_import():
    """Colab and the test machine of a reader may lack either; only what is called is imported."""
    code = (
        "import sys\n"
        "for name in ('plotly', 'myst_nb', 'IPython', 'sklearn', 'scipy'):\n"
        "    sys.modules[name] = None\n"
        "from icfgd import notebook, claims, kernels, processes, transformer, descent, bayes\n"
        "notebook.glue('a', 1.0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a = 1\n"
    assert done.stderr == ""
    assert notebook.__doc__
