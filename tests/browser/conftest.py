"""A headless Chromium on a loopback server; skipped, with the command that installs it, where there is none."""

import contextlib
import functools
import os
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SITE = Path(os.environ.get("ICFGD_SITE", Path(__file__).parents[2] / "_build" / "html"))
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def base():
    """The address of the built site."""
    if not (SITE / "index.html").exists():
        pytest.fail("the site is not built; run `make book` first")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe_source():
    axe = pytest.importorskip("axe_playwright_python")
    return (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def watch(tab, base):
    """Collect in `tab.faults` what goes wrong: console messages, script errors, failed requests and foreign ones."""
    tab.faults = []

    def route(handled):
        url = handled.request.url
        if url.startswith((base, "data:", "blob:")):
            handled.continue_()
        else:
            tab.faults.append(f"request off the site: {url}")
            handled.abort()

    def console(message):
        if message.type in ("error", "warning"):
            tab.faults.append(message.text)

    def response(answer):
        if answer.status >= 400:
            tab.faults.append(f"{answer.status}: {answer.url}")

    tab.route("**/*", route)
    tab.on("console", console)
    tab.on("pageerror", lambda error: tab.faults.append(str(error)))
    tab.on("response", response)


@contextlib.contextmanager
def opening(browser, base):
    """A function that opens pages of the site, watched and typeset; their tabs close at the end."""
    contexts = []

    def open_page(path, scheme="light", width=1280, height=900, **options):
        viewport = {"width": width, "height": height}
        contexts.append(browser.new_context(color_scheme=scheme, viewport=viewport, **options))
        tab = contexts[-1].new_page()
        watch(tab, base)
        tab.goto(base + path, wait_until="load")
        tab.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
        return tab

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def visit(browser, base):
    """Open a page of the site: visit(path, scheme, width, height) gives a tab with a list `faults`."""
    with opening(browser, base) as open_page:
        yield open_page
