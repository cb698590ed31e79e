"""The book as one PDF: every page of the site in it, nothing empty, no character without a glyph, links that lead somewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

pypdf = pytest.importorskip("pypdf")
EXT = Path(__file__).parents[2] / "book" / "_ext"
sys.path.insert(0, str(EXT))
from pdf import missing_glyphs  # noqa: E402
from statements import pages  # noqa: E402


@pytest.fixture(scope="module")
def printed(tmp_path_factory, browser, base):
    """The PDF, made as `make pdf` makes it; `browser` and `base` skip or fail where there is nothing to print with."""
    target = tmp_path_factory.mktemp("pdf") / "icfgd.pdf"
    made = subprocess.run(
        [sys.executable, EXT / "pdf.py", target], capture_output=True, text=True, timeout=600
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return pypdf.PdfReader(target)


def test_every_page_of_the_site_is_in_it(printed):
    starts = [printed.get_destination_page_number(mark) for mark in printed.outline]
    assert len(starts) == len(pages()) + 1
    assert starts == sorted(set(starts))
    for mark, start in zip(printed.outline, starts, strict=True):
        words = "".join(mark.title.split())[:20]
        assert words in "".join(printed.pages[start].extract_text().split()), mark.title


def test_page_count(printed):
    assert 250 < len(printed.pages) < 500  # many more: code or tables push each other to new pages, as they once did


def test_no_page_is_empty(printed):
    drawn = [page.get_contents().get_data() for page in printed.pages]
    assert [n for n, data in enumerate(drawn, 1) if b"> Tj" not in data and b" Do" not in data] == []


def test_no_glyph_is_missing(printed):
    assert missing_glyphs(printed) == []


def test_links_lead_to_pages_of_the_book(printed):
    inside = outside = 0
    for page in printed.pages:
        for note in page.get("/Annots", []):
            note = note.get_object()
            outside += "/A" in note and "/URI" in note["/A"]
            inside += "/Dest" in note or note.get("/A", {}).get("/S") == "/GoTo"
    assert inside > 1000
    assert outside > 20


def test_a_missing_glyph_is_found(browser, tmp_path):
    tab = browser.new_page()
    counts = []
    for text in ("a kernel", "a kernel \U0010fffd"):  # the last private code point: no font has it
        tab.set_content(f"<p>{text}</p>")
        tab.pdf(path=tmp_path / "one.pdf")
        counts.append(missing_glyphs(pypdf.PdfReader(tmp_path / "one.pdf")))
    tab.close()
    assert counts == [[], [1]]
