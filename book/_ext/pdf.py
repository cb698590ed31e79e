"""Print the built site to one PDF with headless Chromium: pages in order, a table of contents, links kept.

Each page is printed on its own and the results are joined. Links between pages of the book become links inside the PDF, down to
the statement or equation they name, and every page of the site gets a bookmark. Run by `make pdf`, after `make book`.
"""

import functools
import html
import re
import shutil
import sys
import tempfile
import threading
from collections import namedtuple
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Link
from pypdf.generic import Fit

from execute import ROOT
from statements import pages

SITE = ROOT / "_build" / "html"
TARGET = ROOT / "_build" / "icfgd.pdf"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
SCALE = 0.75  # text of 9 points
MARGIN = dict.fromkeys(("top", "bottom", "left", "right"), "14mm")
CONTENTS = """<html lang="en"><head><title>Contents</title><style>body {{ font-family: sans-serif }} td {{ padding: 0.2em 1em 0.2em 0 }}
td + td {{ text-align: right }} a {{ color: #0b4f9c }}</style></head><body><h1>{title}</h1><p>{author}</p><h2>Contents</h2><table>{rows}</table></body></html>"""
# Chromium keeps the place of an element only if the same page links to it: add invisible links to all places.
PLACES = """() => {
  const box = document.createElement("div");
  box.style = "font-size: 1px; line-height: 1px; color: transparent; height: 1px; overflow: hidden";
  for (const element of document.querySelectorAll("article [id]")) {
    const link = document.createElement("a");
    link.href = "#" + element.id;
    link.textContent = ".";
    box.append(link);
  }
  document.querySelector("article").append(box);
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
}"""
SHOWN = re.compile(rb"(/\S+) [\d.]+ Tf|<([0-9A-F]+)> Tj")  # fonts chosen and strings shown, as Chromium writes them
TITLE = "document.querySelector('article h1').textContent.replace('#', '').trim()"

Printed = namedtuple("Printed", "stem title file")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def print_site(stems, folder, site=SITE):
    """Print the pages and a table of contents to PDF files in `folder`: returns (file of the contents, list of Printed)."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("Chromium is needed for the PDF: apt-get install chromium fonts-ipafont-gothic")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/book/"
    printed = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        tab = browser.new_page(color_scheme="light")
        for stem in stems:
            tab.goto(f"{base}{stem}.html", wait_until="load")
            tab.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
            tab.wait_for_function(
                "[...document.querySelectorAll('.icfgd-plotly')].every(d => d.querySelector('.main-svg'))"
            )
            tab.evaluate(PLACES)
            file = folder / f"{stem}.pdf"
            tab.pdf(path=file, format="A4", print_background=True, margin=MARGIN, scale=SCALE)
            printed.append(Printed(stem, tab.evaluate(TITLE), file))
        contents = folder / "contents.pdf"
        first = 1
        for _ in range(2):  # the contents push everything back by as many pages as they fill
            tab.set_content(contents_html(base, printed, first))
            tab.pdf(path=contents, format="A4", margin=MARGIN)
            first = len(PdfReader(contents).pages) + 1
        browser.close()
    server.shutdown()
    return contents, printed


def contents_html(base, printed, first):
    """The table of contents; the first page of the book proper has number `first`."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    rows = []
    for page in printed:
        rows.append(f'<tr><td><a href="{base}{page.stem}.html">{html.escape(page.title)}</a></td><td>{first}</td></tr>')
        first += len(PdfReader(page.file).pages)
    return CONTENTS.format(title=config["title"], author=config["author"], rows="".join(rows))


def join(contents, printed, target):
    """One PDF with bookmarks and working links, written to `target`."""
    writer, starts, places = PdfWriter(), {}, {}
    readers = [(None, "Contents", PdfReader(contents)), *((p.stem, p.title, PdfReader(p.file)) for p in printed)]
    begin = 0
    for stem, _, reader in readers:
        starts[stem] = begin
        for name, place in reader.named_destinations.items():
            where = begin + reader.get_destination_page_number(place)
            places[stem, name.removeprefix("/")] = (where, float(place.top or 0))
        begin += len(reader.pages)
    for stem, title, reader in readers:
        for page in reader.pages:
            annotations = [a.get_object() for a in page.get("/Annots", [])]
            page.pop("/Annots", None)
            writer.add_page(page)
            for annotation in annotations:
                add_link(writer, annotation, stem, starts, places)
        writer.add_outline_item(title=title, page_number=starts[stem])
    writer.add_metadata({"/Title": "In-Context Functional Gradient Descent"})
    temporary = target.with_suffix(".part")
    writer.write(temporary)
    temporary.replace(target)


def add_link(writer, annotation, stem, starts, places):
    """Put one link of a printed page on the last page of the book; links to other files of the site are dropped."""
    address = urlsplit(str(annotation.get("/A", {}).get("/URI", "")))
    box = [float(x) for x in annotation["/Rect"]]
    if box[3] - box[1] < 3:  # one of the invisible links
        return
    if "/Dest" in annotation:
        goal = (stem, str(annotation["/Dest"]).removeprefix("/"))
    elif address.hostname == "127.0.0.1":
        goal = (Path(address.path).stem, unquote(address.fragment))
    else:
        writer.add_annotation(len(writer.pages) - 1, Link(rect=box, url=address.geturl()))
        return
    if goal[0] in starts:
        page, top = places.get(goal, (starts[goal[0]], 842.0))
        writer.add_annotation(len(writer.pages) - 1, Link(rect=box, target_page_index=page, fit=Fit.xyz(0, top, 0)))


def missing_glyphs(reader):
    """Numbers (from 1) of the pages on which some character had no glyph in any font, so that a box stands in its place."""
    return [number for number, page in enumerate(reader.pages, start=1) if _lacks_a_glyph(page)]


def _lacks_a_glyph(page):
    fonts = page["/Resources"].get("/Font", {})
    wide = {name.encode() for name, font in fonts.items() if font.get_object()["/Subtype"] == "/Type0"}
    font = None
    for name, text in SHOWN.findall(page.get_contents().get_data()):
        font = name or font
        if text and font in wide and b"0000" in (text[i : i + 4] for i in range(0, len(text), 4)):
            return True
    return False


def main(target=TARGET):
    with tempfile.TemporaryDirectory() as folder:
        join(*print_site([path.stem for path, _ in pages()], Path(folder)), target)
    reader = PdfReader(target)
    if lacking := missing_glyphs(reader):
        sys.exit(f"Characters without a glyph on pages {lacking}; is a font missing? apt-get install fonts-ipafont-gothic")
    print(f"{target.name}: {len(reader.pages)} pages")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
