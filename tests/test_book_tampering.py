"""The tests must notice tampering: each case alters a copy of a notebook and expects a failure that names the cell."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
EXT = ROOT / "book" / "_ext"
sys.path[:0] = [str(EXT), str(Path(__file__).parent)]

from test_book_guards import NOTEBOOKS, faults, load  # noqa: E402

import ledger  # noqa: E402
import statements  # noqa: E402
from execute import execute  # noqa: E402

SOURCE = """
# %% check
from icfgd.claims import close
close("thm-x", "two numbers", 1.0, 1.0)
print("value", 0.25)
# %% draw
from icfgd.notebook import show
from icfgd.plots import figure
fig, ax = figure()
ax.plot([0, 1, 2, 3], [0, 1, 4, 9], label="squares")
show(fig)
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small executed notebook with a check, a printed number and a figure."""
    folder = tmp_path_factory.mktemp("small")
    cells = [nbformat.v4.new_markdown_cell("# Small")]
    for block in SOURCE.split("# %% ")[1:]:
        name, code = block.split("\n", 1)
        cell = nbformat.v4.new_code_cell(code.strip())
        if name == "draw":
            cell.metadata = {"mystnb": {"image": {"alt": "A rising curve"}}}
        cells.append(cell)
    path = folder / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    notebook, _ = execute(path)
    return json.loads(nbformat.writes(notebook))


def run_nbval(notebook, folder):
    path = folder / "copy.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--nbval",
        "--nbval-current-env",
        "-p",
        "compare_pictures",
    ]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder), str(path)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    return done.returncode, done.stdout


def environment():
    import os

    return dict(os.environ, PYTHONPATH=str(EXT), OMP_NUM_THREADS="1", PYTHONHASHSEED="0")


def code(notebook, words):
    return next(c for c in notebook["cells"] if c["cell_type"] == "code" and words in "".join(c["source"]))


def picture(notebook):
    for output in code(notebook, "show(fig)")["outputs"]:
        if "image/png" in output.get("data", {}):
            return output["data"]


def test_untouched_passes(small, tmp_path):
    assert faults(small) == []
    status, printed = run_nbval(small, tmp_path)
    assert status == 0, printed


def test_altered_number_fails(small, tmp_path):
    changed = copy.deepcopy(small)
    for output in code(changed, "close(")["outputs"]:
        output["text"] = [line.replace("0.25", "0.26") for line in output["text"]]
    status, printed = run_nbval(changed, tmp_path)
    assert status != 0
    assert "0.26" in printed


def test_other_picture_fails(small, tmp_path):
    from base64 import b64encode
    from io import BytesIO

    from PIL import Image

    changed = copy.deepcopy(small)
    data = picture(changed)
    stored = Image.open(BytesIO(__import__("base64").b64decode("".join(data["image/png"]))))
    other = BytesIO()
    stored.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(other, "PNG")
    data["image/png"] = b64encode(other.getvalue()).decode()
    status, printed = run_nbval(changed, tmp_path)
    assert status != 0
    assert "pictures differ" in printed


def test_emptied_picture_fails_and_names_the_cell(small):
    changed = copy.deepcopy(small)
    picture(changed)["image/png"] = ""
    assert any("not a readable PNG" in why for why in faults(changed))
    changed = copy.deepcopy(small)
    del picture(changed)["image/png"]
    number = changed["cells"].index(code(changed, "show(fig)"))
    assert faults(changed) == [f"cell {number}: draws a figure, but no picture is stored"]


def test_stripped_outputs_fail_and_name_the_cell(small):
    changed = copy.deepcopy(small)
    cell = code(changed, "close(")
    cell["outputs"], cell["execution_count"] = [], None
    assert any("execution count None" in why for why in faults(changed))
    cell["execution_count"] = 2
    assert faults(changed)


@pytest.mark.parametrize("tag", ["nbval-ignore-output", "nbval-skip", "nbval-raises-exception"])
def test_tags_that_switch_comparison_off_fail(small, tag):
    changed = copy.deepcopy(small)
    code(changed, "close(")["metadata"]["tags"] = [tag]
    assert any(tag in why for why in faults(changed))


def test_comment_that_switches_comparison_off_fails(small):
    changed = copy.deepcopy(small)
    code(changed, "close(")["source"] = "# NBVAL_IGNORE_OUTPUT\nprint(1)"
    assert any("switches the comparison off" in why for why in faults(changed))


def test_stored_stderr_fails(small):
    changed = copy.deepcopy(small)
    code(changed, "close(")["outputs"].append(
        {"output_type": "stream", "name": "stderr", "text": ["careful"]}
    )
    assert any("stderr" in why for why in faults(changed))


def test_removing_one_check_changes_the_ledger(monkeypatch):
    """Every single check line matters: drop one and the generated ledger differs from the stored one."""
    stored = ledger.LEDGER.read_text(encoding="utf-8")
    original = statements.cells
    notebook = next(p for p, _ in statements.pages() if "check " in p.read_text(encoding="utf-8"))
    dropped = []

    def without_one(path):
        for number, kind, source, printed in original(path):
            if path == notebook and not dropped and "check " in printed:
                lines = printed.splitlines()
                dropped.append(next(line for line in lines if line.startswith("check ")))
                lines.remove(dropped[0])
                printed = "\n".join(lines)
            yield number, kind, source, printed

    monkeypatch.setattr(statements, "cells", without_one)
    assert ledger.text() != stored
    assert dropped


def test_statement_without_check_and_check_without_statement_are_named(monkeypatch):
    original = statements.cells

    def renamed(path):
        for number, kind, source, printed in original(path):
            yield (
                number,
                kind,
                source,
                printed.replace("check thm-", "check nothing-").replace("check prop-", "check nothing-"),
            )

    monkeypatch.setattr(statements, "cells", renamed)
    found = statements.problems()
    assert any("has no check" in line and "cell" in line for line in found)
    assert any("no statement has that label" in line for line in found)


def test_every_notebook_was_loaded():
    assert all(load(path)["cells"] for path in NOTEBOOKS)
