"""Tidy tables: rows with the same keys, as text (CSV) and back. What the rows mean belongs in `runs`."""

import csv
import io
import math

import numpy as np

from icfgd import checks


class Table(list):
    """Rows (dicts with the same keys) with the few operations that figures need."""

    def where(self, **conditions):
        """The rows that agree with all conditions; a list or tuple as condition allows any of its values."""
        for name in conditions:
            checks.one_of("column", name, self[0] if self else conditions)

        def agrees(value, wanted):
            return value in wanted if isinstance(wanted, (list, tuple)) else value == wanted

        return Table(row for row in self if all(agrees(row[n], w) for n, w in conditions.items()))

    def column(self, name):
        """The values of a column, as an array."""
        return np.array([row[name] for row in self])

    def values(self, name):
        """The distinct values of a column, in order of appearance."""
        return list(dict.fromkeys(row[name] for row in self))

    def series(self, x, y, **conditions):
        """x values (points,) and y values (seeds, points) of the rows that agree with `conditions`, sorted by
        x."""
        rows = self.where(**conditions)
        points, seeds = sorted(set(rows.column(x).tolist())), sorted(set(rows.column("seed").tolist()))
        table = {(row["seed"], row[x]): row[y] for row in rows}
        if len(table) != len(rows) or len(table) != len(points) * len(seeds):
            raise ValueError(
                f"conditions = {conditions} leave {len(rows)} rows for {len(points)} values of {x!r} and "
                f"{len(seeds)} seeds; exactly one row for each pair is required."
            )
        return np.array(points), np.array([[table[s, p] for p in points] for s in seeds])


def render(rows):
    """Rows as CSV text. Raises `ValueError` on a number that is not finite."""
    if not rows:
        raise ValueError("rows is empty; at least one row is required.")
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(
                    f"column {name!r} of run {row.get('run')!r} holds {value}; finite numbers are required."
                )
        writer.writerow({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()


def parse(text):
    """The `Table` of CSV text; whole numbers, numbers and truth values get their types back."""
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or any(len(row) != len(rows[0]) for row in rows) or not text.endswith("\n"):
        raise ValueError("the table is damaged: its rows have different lengths or its end is missing.")
    return Table(dict(zip(rows[0], map(_typed, row))) for row in rows[1:])


def _typed(text):
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
