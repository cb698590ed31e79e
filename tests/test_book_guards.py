"""Guards over the stored notebooks: what nbval does not notice."""

import base64
import io
import json
from pathlib import Path

import pytest
from PIL import Image

BOOK = Path(__file__).parents[1] / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))
ALLOWED = {
    "parameters",
    "remove-cell",
    "hide-input",
    "hide-cell",
    "remove-input",
    "hide-output",
    "raises-exception",
}
CHECKS = tuple(f"{name}(" for name in ("exact", "close", "below", "montecarlo", "fails", "refuted"))


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook):
    return [(i, c) for i, c in enumerate(notebook["cells"]) if c["cell_type"] == "code"]


def faults(notebook):
    """Sentences that name the cell of every fault in a stored notebook."""
    found = []
    code = code_cells(notebook)
    for expected, (i, cell) in enumerate(code, start=1):
        source = "".join(cell["source"])
        tags = set(cell["metadata"].get("tags", []))
        printed = "".join("".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream")
        if cell["execution_count"] != expected:
            found.append(
                f"cell {i}: execution count {cell['execution_count']}, {expected} expected (outputs stripped?)"
            )
        if not tags <= ALLOWED:
            found.append(f"cell {i}: tags {sorted(tags - ALLOWED)} are not allowed")
        if any(
            line.strip().lstrip("# ").startswith(("NBVAL_", "PYTEST_VALIDATE"))
            for line in source.splitlines()
        ):
            found.append(f"cell {i}: a comment that switches the comparison off")
        if any(o["output_type"] == "error" for o in cell["outputs"]) != ("raises-exception" in tags):
            found.append(f"cell {i}: an error output and the tag raises-exception do not go together")
        if any(o["output_type"] == "stream" and o["name"] == "stderr" for o in cell["outputs"]):
            found.append(f"cell {i}: stored stderr")
        pictures = [
            "".join(o["data"]["image/png"]) for o in cell["outputs"] if "image/png" in o.get("data", {})
        ]
        if "show(" in source and not pictures:
            found.append(f"cell {i}: draws a figure, but no picture is stored")
        if pictures and "drawn [" not in printed:
            found.append(f"cell {i}: a picture without a digest of what it draws")
        if pictures and not cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "").strip():
            found.append(f"cell {i}: a picture without a text alternative")
        found += [f"cell {i}: {why}" for why in map(picture_fault, pictures) if why]
        calls = any(line.strip().startswith(CHECKS) for line in source.splitlines())
        if calls and "def " not in source and "check " not in printed:
            found.append(f"cell {i}: calls a check, but no check line is stored")
    return found


def picture_fault(text):
    try:
        image = Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")
        image.load()
    except Exception:
        return "a picture that is not a readable PNG"
    colours = image.getcolors(maxcolors=1 << 24)
    return "an empty picture" if len(colours) < 8 else None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_outputs_are_complete(path):
    assert faults(load(path)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_one_parameter_cell_and_a_title(path):
    cells = load(path)["cells"]
    tagged = [i for i, c in enumerate(cells) if "parameters" in c["metadata"].get("tags", [])]
    assert len(tagged) == 1, f"cells tagged 'parameters': {tagged}; exactly one is required"
    first = next(c for c in cells if c["cell_type"] == "markdown" and not c["metadata"].get("tags"))
    assert "".join(first["source"]).startswith("# "), "the first visible cell must be the title"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_chapter_has_exercises_sources_and_a_figure(path):
    if not path.stem[:2].isdigit():
        pytest.skip("not a chapter")
    text = path.read_text(encoding="utf-8")
    for needed in ("## Exercises", "## Sources", "{exercise", "{solution", "After this chapter you can"):
        assert needed in text, f"{path.name} lacks {needed!r}"
    assert '"image/png"' in text or "icfgd-plotly" in text, f"{path.name} shows no figure"


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3
