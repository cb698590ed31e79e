"""What a notebook needs to publish results: glued numbers, digests of figures, self-hosted interactive figures, tables.

Nothing here computes anything about the subject. Output is the same on every machine: rounded, without addresses.
"""

import json
import math
import os
import sys
from numbers import Integral

import numpy as np

from icfgd import checks


def rounded(value, digits=3):
    """`value` with `digits` significant digits as text; plain notation where that is short, never '-0'."""
    try:
        value = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"value = {value!r}; one number is required.") from None
    if not math.isfinite(value):
        raise ValueError(f"value = {value}; a finite number is required.")
    text = f"{value:.{checks.integer('digits', digits, low=1)}g}"
    if "e" in text and 1e-5 <= abs(value) < 1e15:
        text = np.format_float_positional(float(text), trim="-")
    return "0" if float(text) == 0 else text


def glue(key, value, digits=3):
    """Publish `value` (a number, rounded to `digits` significant digits, or a text) under `key` for the prose.

    Shows nothing itself. Without `myst_nb` (Colab) the value is printed instead, so that a reader still sees it.
    """
    text = value if isinstance(value, str) else rounded(value, digits)
    try:
        from myst_nb import glue as publish
    except ImportError:
        print(f"{key} = {text}")
        return
    publish(key, text, display=False)


def digest(figure):
    """Lines that describe everything a matplotlib figure draws, rounded: kind, label, count and range of the data.

    Where no point of a line or collection can be seen (hidden, beyond the limits, not positive on a logarithmic axis)
    its data count as nothing.
    """
    lines = []
    for number, axes in enumerate(figure.axes, start=1):
        name = axes.get_title() or axes.get_ylabel() or f"axes {number}"

        def add(artist, kind, data, points=None, axes=axes, name=name):
            lines.append(_describe(name, kind, artist.get_label(), data if _shows(axes, artist, points) else []))

        for line in axes.lines:
            in_data = line.get_transform() == axes.transData
            add(line, "line", line.get_ydata(orig=False), line.get_xydata() if in_data else None)
        dividers = getattr(getattr(axes, "_colorbar", None), "dividers", None)  # of a colour bar; no data
        for collection in axes.collections:
            if collection is not dividers:
                add(collection, type(collection).__name__, *_collection_data(axes, collection))
        for image in axes.images:
            add(image, "image", image.get_array())
        bars = [container for container in axes.containers if hasattr(container, "datavalues")]
        for container in bars:
            visible = [bar for bar in container if bar.get_visible()]
            lines.append(_describe(name, "bars", container.get_label(), container.datavalues if visible else []))
        for patch in axes.patches:
            if not any(patch in container for container in bars):
                add(patch, type(patch).__name__, patch.get_patch_transform().transform_path(patch.get_path()).vertices[:, 1])
    return lines


def _collection_data(axes, collection):
    """The numbers behind a collection (colour values, positions or heights of outlines), and its points in the plane."""
    if collection.get_offset_transform() == axes.transData:  # markers at positions; their outlines say nothing
        points = np.ma.filled(np.ma.asarray(collection.get_offsets(), dtype=float), np.nan).reshape(-1, 2)
        numbers = points
    else:
        outlines = np.concatenate([path.vertices for path in collection.get_paths()] or [np.empty((0, 2))])
        points = outlines if collection.get_transform() == axes.transData else None
        numbers = outlines[:, 1]
    values = collection.get_array()
    return (numbers if values is None else values), points


def _shows(axes, artist, points):
    """Whether an artist shows: it is visible and some of its points (N, 2), if known, can lie within the axes."""
    if not (axes.get_visible() and artist.get_visible()):
        return False
    if points is None:
        return True
    points = np.ma.filled(np.ma.asarray(points, dtype=float), np.nan)
    good = np.isfinite(points).all(axis=1)
    for axis, column in ((axes.xaxis, points[:, 0]), (axes.yaxis, points[:, 1])):
        good &= (column > 0) | (axis.get_scale() != "log")
    low, high = np.sort([axes.get_xlim(), axes.get_ylim()]).T
    return bool(good.any()) and not ((points[good] < low).all(axis=0) | (points[good] > high).all(axis=0)).any()


def _describe(axes, kind, label, data):
    data = np.asarray(np.ma.filled(np.ma.asarray(data, dtype=float), np.nan)).ravel()
    good = data[np.isfinite(data)]
    label = "" if label in (None, "") or str(label).startswith("_") else f" {label}"
    if not good.size:
        return f"drawn [{axes}] {kind}{label}: nothing"
    low, mean, high = (_coarse(v, good) for v in (good.min(), good.mean(), good.max()))
    return f"drawn [{axes}] {kind}{label}: {good.size} values, min {low}, mean {mean}, max {high}"


def _coarse(value, data):
    # Three digits relative to the spread, so that rounding noise in a mean near zero is not printed.
    scale = float(np.abs(data).max()) or 1.0
    decimals = 2 - int(math.floor(math.log10(scale)))
    return rounded(round(value, decimals), 3)


def show(figure):
    """Print the digest of a matplotlib `figure`, then display it and close it.

    The digest is what the tests compare: a figure that lost its data changes it. Raises `ValueError` if nothing is drawn.
    """
    import matplotlib.pyplot as plt
    from IPython.display import display

    lines = digest(figure)
    if not lines or all(line.endswith("nothing") for line in lines):
        raise ValueError("figure draws no data; at least one line, point, bar or image is required.")
    print("\n".join(lines))
    display(figure)
    plt.close(figure)


def show_interactive(figure, name, alt, height=450):
    """Show a Plotly `figure` without any third-party request and print a digest of its data.

    name: a unique element id. alt: text alternative. The site's own loader draws it; in Colab, or where the environment
    variable ICFGD_PLOTLY is 'show', Plotly's own display is used.
    """
    from html import escape

    from IPython.display import HTML, display

    spec = _plain(json.loads(figure.to_json(engine="json")))
    if not isinstance(name, str) or not name or any(c.isspace() for c in name):
        raise ValueError(f"name = {name!r}; an element id without spaces is required.")
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt = {alt!r}; a text that says what the figure shows is required.")
    lines = []
    for trace in spec["data"]:
        values = [v for v in np.ravel(np.asarray(trace.get("y", trace.get("z", [])), dtype=object)) if v is not None]
        if values:
            numbers = [v if isinstance(v, (int, float)) else math.nan for v in values]
            lines.append(_describe(name, trace.get("type", "trace"), trace.get("name", ""), numbers))
    if not lines:
        raise ValueError(f"figure {name!r} draws no data; at least one trace with values is required.")
    print("\n".join(lines))
    if "google.colab" in sys.modules or os.environ.get("ICFGD_PLOTLY") == "show":
        figure.show()
        return
    text = json.dumps(spec, sort_keys=True).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    display(
        HTML(
            f'<div id="{escape(name)}" class="icfgd-plotly" role="group" aria-label="{escape(alt)}" '
            f'style="height:{int(height)}px"></div>\n'
            f'<script type="application/json" data-plotly-for="{escape(name)}">{text}</script>'
        )
    )


def _plain(value, digits=5):
    """Nested lists and numbers rounded to `digits` significant digits; Plotly's packed arrays are unpacked."""
    if isinstance(value, dict):
        if set(value) >= {"bdata", "dtype"}:
            import base64

            array = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
            shape = [int(n) for n in str(value.get("shape", array.size)).split(",")]
            return _plain(array.reshape(shape).tolist(), digits)
        return {k: _plain(v, digits) for k, v in value.items() if k != "template"}
    if isinstance(value, list):
        return [_plain(v, digits) for v in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") + 0.0 if math.isfinite(value) else None
    return value


def table(rows, columns, digits=4, caption=None):
    """Show rows (dicts) as an HTML table with the given column names; numbers are rounded to `digits` digits."""
    from html import escape

    from IPython.display import HTML, display

    rows = list(rows)
    for row in rows:
        missing = [c for c in columns if c not in row]
        if missing:
            raise ValueError(f"rows has a row without {missing}; all of columns = {list(columns)} are required.")
    if not rows:
        raise ValueError("rows is empty; at least one row is required.")

    def cell(value):
        if value is None or isinstance(value, (str, Integral)):
            return escape(str(value))
        return rounded(value, digits)

    head = "".join(f'<th scope="col">{escape(str(c))}</th>' for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell(row[c])}</td>" for c in columns) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    display(HTML(f'<table class="icfgd-table">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'))
