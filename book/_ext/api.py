"""Write book/api.md: the public names of every room of the package, from their docstrings."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import icfgd
from execute import ROOT, write

PAGE = ROOT / "book" / "api.md"
INTRODUCTION = """# The package

Generated from the docstrings of `icfgd`. Tensors are batch first with tokens in rows: covariates `(..., n+q, d)`, labels `(..., n+q)`, the
context first and then the `q` queries. Only `icfgd.attention` uses the paper's layout with tokens in columns.
"""


def rooms():
    """All modules of the package with a docstring, in order of name; `__main__` is the command line and is left out."""
    names = [
        m.name for m in pkgutil.walk_packages(icfgd.__path__, "icfgd.") if not m.name.endswith("__main__")
    ]
    return [importlib.import_module(name) for name in sorted(names)]


def public(module):
    """(name, object) of the functions and classes that a module defines itself and does not hide."""
    for name, thing in vars(module).items():
        if name.startswith("_") or not (inspect.isfunction(thing) or inspect.isclass(thing)):
            continue
        if thing.__module__ == module.__name__:
            yield name, thing


def prose(docstring):
    """A docstring as Markdown text that no parser takes for markup."""
    text = inspect.cleandoc(docstring or "")
    parts = re.split(r"(`[^`]+`)", text)  # code stands as it is
    return "".join(p if p.startswith("`") else re.sub(r"([*_<>$#|\[\]{}\\^])", r"\\\1", p) for p in parts)


def signature(name, thing):
    try:
        text = f"{name}{inspect.signature(thing)}"
    except (TypeError, ValueError):
        return name
    text = re.sub(r"PosixPath\('[^']*'\)", "(package data)", text)
    return re.sub(
        r"<[\w.]*?(\w+) at 0x[0-9a-f]+>|<(?:function|class) '?(?:[\w.]*\.)?(\w+)'?[^>]*>", r"\1\2", text
    )


def entry(name, thing):
    kind = "class " if inspect.isclass(thing) else ""
    lines = [f"`{kind}{signature(name, thing)}`", "", ": " + prose(thing.__doc__).replace("\n", "\n  "), ""]
    if inspect.isclass(thing):
        for method, function in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                lines += [f"  `.{signature(method, function)}` {prose(function.__doc__).splitlines()[0]}", ""]
    return lines


def text():
    lines = [INTRODUCTION]
    for module in rooms():
        entries = list(public(module))
        if not entries and not module.__doc__:
            continue
        lines += [f"## {module.__name__}", "", prose(module.__doc__), ""]
        for name, thing in entries:
            lines += entry(name, thing)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    write(Path(PAGE), text())
