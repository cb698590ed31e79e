"""Write book/ledger.md: every numbered statement with its executed checks, and the graph of what leans on what."""

import re
import sys
from collections import Counter
from html import escape
from itertools import groupby

from execute import write
from statements import ROOT, problems, read

LEDGER = ROOT / "book" / "ledger.md"
WIDTH, HEIGHT, GAP_X, GAP_Y = 118, 26, 56, 12
FILLS = {"exact": "#d6efe4", "other": "#e2ecf7"}
SHORT = {
    "proposition": "Prop.",
    "theorem": "Thm",
    "lemma": "Lemma",
    "corollary": "Cor.",
    "definition": "Def.",
    "remark": "Remark",
}

INTRODUCTION = """# Ledger of claims

Every numbered statement of this book is tied to checks that run whenever the book is tested. This page is generated from the
stored outputs of the notebooks; nobody types it, and a statement without a check, or a check without a statement, fails the tests.

*Exact* checks are proofs by computer algebra of an identity or inequality for symbols; *numeric* checks compare numbers in double precision,
within a stated tolerance; *bound* checks an inequality; *monte carlo* checks compare sample means in units of their standard error; a *control* drops a
hypothesis and must fail.
"""


def plain(title):
    """A title without LaTeX and role markup, for tooltips."""
    return re.sub(r"\s+", " ", re.sub(r"[$\\{}]", "", title)).strip()


def graph(statements):
    """An SVG with one column per page and an arrow from each statement to those it refers to."""
    columns = [list(group) for _, group in groupby(statements.values(), key=lambda s: s.page)]
    place = {}
    for x, column in enumerate(columns):
        for y, statement in enumerate(column):
            place[statement.label] = (10 + x * (WIDTH + GAP_X), 34 + y * (HEIGHT + GAP_Y))
    width = 20 + len(columns) * (WIDTH + GAP_X) - GAP_X
    height = 44 + max(len(c) for c in columns) * (HEIGHT + GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="group" aria-labelledby="graph-title graph-desc" font-family="sans-serif" font-size="12">',
        '<title id="graph-title">Dependency graph of the statements</title>',
        '<desc id="graph-desc">One column per chapter. An arrow leads from a statement to each statement that its text or proof cites. '
        "The tables below list the same statements.</desc>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
    ]
    for x, column in enumerate(columns):
        number = column[0].number.split(".")[0] if "." in column[0].number else ""
        text = f"Chapter {number}" if number else column[0].page
        parts.append(
            f'<text x="{10 + x * (WIDTH + GAP_X)}" y="20" fill="#222" font-weight="bold">{escape(text)}</text>'
        )
    for statement in statements.values():
        x0, y0 = place[statement.label]
        for target in sorted(statement.refers):
            x1, y1 = place[target]
            if x1 == x0:
                bend = x0 + WIDTH + 26
                path = f"M{x0 + WIDTH} {y0 + HEIGHT / 2}C{bend} {y0 + HEIGHT / 2} {bend} {y1 + HEIGHT / 2} {x1 + WIDTH + 1} {y1 + HEIGHT / 2}"
            else:
                start, end = (x0, x1 + WIDTH + 1) if x1 < x0 else (x0 + WIDTH, x1 - 1)
                middle = (start + end) / 2
                path = f"M{start} {y0 + HEIGHT / 2}C{middle} {y0 + HEIGHT / 2} {middle} {y1 + HEIGHT / 2} {end} {y1 + HEIGHT / 2}"
            parts.append(
                f'<path d="{path}" fill="none" stroke="#555" stroke-opacity="0.55" marker-end="url(#tip)"/>'
            )
    for statement in statements.values():
        x, y = place[statement.label]
        fill = FILLS["exact" if any(c.kind == "exact" for c in statement.checks) else "other"]
        name = f"{SHORT.get(statement.kind, statement.kind.capitalize())} {statement.number}"
        parts.append(
            f'<a href="{statement.page}.html#{statement.label}"><title>{escape(statement.name + ": " + plain(statement.title))}</title>'
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{fill}" stroke="#444"/>'
            f'<text x="{x + WIDTH / 2}" y="{y + 17}" text-anchor="middle" fill="#123">{escape(name)}</text></a>'
        )
    parts.append("</svg>")
    return "\n".join(parts)


def text():
    """The whole page."""
    statements, checks = read()
    kinds = Counter(c.kind for c in checks)
    counted = ", ".join(
        f"{number} {kind}" for kind, number in sorted(kinds.items(), key=lambda item: -item[1])
    )
    lines = [
        INTRODUCTION,
        f"At present there are {len(statements)} statements and {len(checks)} checks: {counted}.\n",
        "## Which statement leans on which\n",
        "Columns are chapters. Green statements have at least one exact check, blue ones only numerical checks. An arrow points to a statement that is used.\n",
        '```{raw} html\n<div class="icfgd-graph" tabindex="0" role="region" aria-label="Dependency graph, scrollable">',
        graph(statements),
        "</div>\n```\n",
        "## All statements and their checks\n",
    ]
    for page, group in groupby(statements.values(), key=lambda s: s.page):
        lines.append(f"### {{doc}}`{page}`\n")
        for statement in group:
            lines.append(f"{{prf:ref}}`{statement.label}` {statement.title}\n")
            for what, same in groupby(statement.checks, key=lambda c: c.kind):
                lines += [f"- *{what}*: {'; '.join(escape_markup(c.what) for c in same)}"]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def escape_markup(value):
    """A description as literal Markdown text."""
    return re.sub(r"([\\`*_{}\[\]<>$|#])", r"\\\1", value)


def main():
    found = problems()
    if found:
        sys.exit("\n".join(found))
    write(LEDGER, text())


if __name__ == "__main__":
    main()
