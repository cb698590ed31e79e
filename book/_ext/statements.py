"""Read the book: which statements it makes, which checks ran for each, and which statement leans on which.

Statements are the numbered `prf:` directives of the pages in _toc.yml; checks are the lines that `icfgd.claims` left in the
stored outputs. Writing the ledger belongs in `ledger`.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
OPENING = re.compile(r"^(?P<fence>`{3,}|:{3,})\{prf:(?P<kind>\w+)\}\s*(?P<title>.*)$")
REFERENCE = re.compile(r"\{prf:ref\}`(?:[^`<]*<)?([\w-]+)>?`")
CHECK = re.compile(r"^check (\S+) \| (\w[\w ]*) \| (.+) \| (holds|fails, as it must)$")


@dataclass
class Statement:
    """A numbered statement: label, kind, title, page (stem), number ('5.1' or ''), cell, what it refers to, checks."""

    label: str
    kind: str
    title: str
    page: str
    number: str = ""
    cell: int = 0
    refers: set = field(default_factory=set)
    checks: list = field(default_factory=list)

    @property
    def name(self):
        return f"{self.kind.capitalize()} {self.number}".strip()


@dataclass(frozen=True)
class Check:
    """One executed check: the statement's label, kind, what was checked, page and cell."""

    label: str
    kind: str
    what: str
    page: str
    cell: int


class BookError(ValueError):
    """The sources of the book contradict themselves."""


def pages():
    """(path, chapter number or None) of every page of _toc.yml, in order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found, chapter = [(toc["root"], None)], 0
    for part in toc.get("parts", []):
        for entry in part["chapters"]:
            chapter += bool(part.get("numbered"))
            found.append((entry["file"], chapter if part.get("numbered") else None))
    result = []
    for name, number in found:
        for suffix in (".ipynb", ".md"):
            if (ROOT / (name + suffix)).exists():
                result.append((ROOT / (name + suffix), number))
                break
        else:
            raise BookError(f"_toc.yml names {name}, which does not exist.")
    return result


def cells(path):
    """(number, type, source, printed text) of each cell of a notebook; a Markdown page counts as one cell."""
    if path.suffix == ".md":
        return [(0, "markdown", path.read_text(encoding="utf-8"), "")]
    notebook = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for number, cell in enumerate(notebook["cells"]):
        printed = "".join("".join(o["text"]) for o in cell.get("outputs", []) if o["output_type"] == "stream")
        rows.append((number, cell["cell_type"], "".join(cell["source"]), printed))
    return rows


def directives(source):
    """(kind, title, options, body) of every prf directive in a Markdown source."""
    lines = source.splitlines()
    for start, line in enumerate(lines):
        opening = OPENING.match(line)
        if not opening:
            continue
        body = []
        for inner in lines[start + 1 :]:
            if inner.startswith(opening["fence"]) and not inner.strip(opening["fence"][0]).strip():
                break
            body.append(inner)
        else:
            raise BookError(f"prf:{opening['kind']} {opening['title']!r} is not closed.")
        options = dict(re.findall(r"^:(\w+):\s*(.*)$", "\n".join(body), re.M))
        yield opening["kind"], opening["title"].strip(), options, "\n".join(body)


def read():
    """All numbered statements (label -> Statement, in order) and all checks (list of Check) of the book."""
    statements, checks = {}, []
    for path, chapter in pages():
        counters, last = {}, None
        for number, kind_of_cell, source, printed in cells(path):
            if kind_of_cell == "markdown":
                for kind, title, options, body in directives(source):
                    if kind == "proof":
                        if last is None:
                            raise BookError(
                                f"{path.name}, cell {number}: a proof without a statement before it."
                            )
                        last.refers |= set(REFERENCE.findall(body))
                        continue
                    if "nonumber" in options:
                        continue
                    if not options.get("label"):
                        raise BookError(f"{path.name}, cell {number}: prf:{kind} {title!r} has no label.")
                    counters[kind] = counters.get(kind, 0) + 1
                    text = f"{chapter}.{counters[kind]}" if chapter else str(counters[kind])
                    last = Statement(
                        options["label"], kind, title, path.stem, text, number, set(REFERENCE.findall(body))
                    )
                    if last.label in statements:
                        raise BookError(f"{path.name}, cell {number}: label {last.label} is used twice.")
                    statements[last.label] = last
            for line in printed.splitlines():
                found = CHECK.match(line)
                if found:
                    checks.append(Check(found[1], found[2], found[3], path.stem, number))
                elif line.startswith("check "):
                    raise BookError(f"{path.name}, cell {number}: {line!r} is not a line of icfgd.claims.")
    for check in checks:
        if check.label in statements:
            statements[check.label].checks.append(check)
    for statement in statements.values():
        statement.refers = {r for r in statement.refers if r in statements and r != statement.label}
    return statements, checks


def problems():
    """Sentences, each naming a statement without a check or a check without a statement; empty if all is well."""
    statements, checks = read()
    lines = [
        f"{s.page}, cell {s.cell}: {s.name} ({s.label}) has no check."
        for s in statements.values()
        if not s.checks
    ]
    lines += [
        f"{c.page}, cell {c.cell}: check of {c.label!r} ({c.what}), but no statement has that label."
        for c in checks
        if c.label not in statements
    ]
    return lines
