"""Print the built site to one PDF with headless Chromium: chapters in order, a table of contents, links between pages kept.

Each page is printed on its own; the pages are joined, links to other pages of the book become links inside the PDF, and every
chapter gets a bookmark. Run by `make pdf`, after `make book`.
"""

import functools
import shutil
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Link
from pypdf.generic import Fit

from execute import ROOT
from statements import pages

SITE = ROOT / "_build" / "html"
TARGET = ROOT / "_build" / "icfgd.pdf"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
CONTENTS = """<html lang="en"><head><title>Contents</title><style>body {{ font-family: sans-serif; margin: 3em }} li {{ margin: .35em }}</style></head>
<body><h1>{title}</h1><h2>Contents</h2><ol>{items}</ol></body></html>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def print_pages(names, folder):
    """Print each page to a PDF of its own; returns (stem, title, file) in order."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("Chromium is needed for the PDF: apt-get install chromium")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/book/"
    printed = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        tab = browser.new_page(color_scheme="light")
        for name in names:
            tab.goto(f"{base}{name}.html", wait_until="load")
            tab.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
            tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            tab.wait_for_timeout(300)
            file = folder / f"{name}.pdf"
            tab.pdf(
                path=file,
                format="A4",
                print_background=True,
                margin=dict.fromkeys(("top", "bottom", "left", "right"), "14mm"),
            )
            printed.append(
                (
                    name,
                    tab.evaluate("document.querySelector('article h1').textContent.replace('#', '').trim()"),
                    file,
                )
            )
        items = "".join(f'<li><a href="{base}{name}.html">{title}</a></li>' for name, title, _ in printed)
        tab.set_content(CONTENTS.format(title="In-Context Functional Gradient Descent", items=items))
        contents = folder / "contents.pdf"
        tab.pdf(path=contents, format="A4")
        browser.close()
    server.shutdown()
    return contents, printed


def join(contents, printed, target):
    """One PDF with bookmarks; links to pages of the book lead to the first page of that chapter."""
    writer, starts = PdfWriter(), {}
    writer.append(contents, import_outline=False)
    for name, title, file in printed:
        starts[name] = len(writer.pages)
        writer.append(file, outline_item=title, import_outline=False)
    for number, page in enumerate(writer.pages):
        kept, added = [], []
        for reference in page.get("/Annots", []):
            annotation = reference.get_object()
            address = urlsplit(str(annotation.get("/A", {}).get("/URI", "")))
            stem = Path(address.path).stem
            if address.hostname == "127.0.0.1" and stem in starts:
                added.append(
                    Link(
                        rect=[float(x) for x in annotation["/Rect"]],
                        target_page_index=starts[stem],
                        fit=Fit.fit(),
                    )
                )
            elif address.hostname != "127.0.0.1":
                kept.append(reference)
        if "/Annots" in page:
            page["/Annots"].clear()
            page["/Annots"].extend(kept)
        for link in added:
            writer.add_annotation(number, link)
    writer.add_metadata({"/Title": "In-Context Functional Gradient Descent"})
    temporary = target.with_suffix(".part")
    writer.write(temporary)
    temporary.replace(target)


def main():
    names = [path.stem for path, _ in pages()]
    with tempfile.TemporaryDirectory() as folder:
        contents, printed = print_pages(names, Path(folder))
        join(contents, printed, TARGET)
    print(f"{TARGET.relative_to(ROOT)}: {len(PdfReader(TARGET).pages)} pages")


if __name__ == "__main__":
    main()
