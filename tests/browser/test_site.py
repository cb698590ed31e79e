"""The built site in a real browser: every page, both themes, phone width, weight, search, sliders, previews.

Each page is loaded once, and all tests of that page share the tab. The lab and the PDF have files of their own.
"""

import gzip
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import SITE, opening

sys.path.insert(0, str(Path(__file__).parents[2] / "book" / "_ext"))
import statements  # noqa: E402

PAGES = sorted(str(p.relative_to(SITE)) for p in (SITE / "book").glob("*.html"))
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
PAGE_BYTES = 1_500_000
# What stands inside typeset formulae and highlighted code is the same everywhere; it is looked at on one page, as it is slow.
INSIDE = ["mjx-math", "mjx-assistive-mml", "pre"]
LOOKED_INTO = "book/notation.html"
FIRST_PAINT_MS = 2_000
RAW_MATHS = """() => {
  const found = [], skip = "pre, code, script, style, mjx-container, .icfgd-plotly";
  const raw = /\\\\\\(|\\\\\\[|\\$\\$|\\\\begin\\{|\\{(prf|eq|doc|numref|cite|term|glue)[:}]/;
  const walk = document.createTreeWalker(document.querySelector("article") || document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent;
    if (!walk.currentNode.parentElement.closest(skip) && raw.test(text)) found.push(text.slice(0, 80));
  }
  return found;
}"""
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("article *")].filter((e) => e.getBoundingClientRect().right > width + 1)
    .slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).concat(["page is " + document.documentElement.scrollWidth]);
}"""


@pytest.fixture(scope="module", params=PAGES)
def tab(request, browser, base):
    """Each page of the book in turn, loaded once; `tab.page_name` is its path."""
    with opening(browser, base) as open_page:
        page = open_page(request.param)
        page.page_name = request.param
        yield page


def test_page_is_sound(tab):
    assert tab.faults == []
    maths, done, wrong = tab.evaluate(
        "['.math', 'mjx-container', 'mjx-merror'].map(s => document.querySelectorAll(s).length)"
    )
    assert done >= maths, f"{maths - done} formulae are not typeset"
    assert wrong == 0
    assert tab.evaluate(RAW_MATHS) == []
    images = tab.evaluate(
        "[...document.querySelectorAll('article img')].map(i => [i.naturalWidth, i.alt, i.src.split('/').pop()])"
    )
    for width, alt, name in images:
        assert width > 0, f"{name} does not load"
        assert alt.strip(), f"{name} has no text alternative"
        assert not re.fullmatch(r"\S+\.(png|svg|jpg)", alt), f"{name} has its file name as text alternative"


def test_page_has_one_search_box_and_its_buttons(tab):
    shown = "[...document.querySelectorAll(s)].filter(e => e.checkVisibility() && e.getBoundingClientRect().width > 0)"
    boxes = tab.evaluate(f"(s => {shown}.length)('.search-button, .search-button-field')")
    assert boxes == 1
    assert tab.evaluate("[...document.querySelectorAll('.theme-switch-button')].length") >= 1


def test_figures_of_this_page_are_drawn(tab):
    tab.wait_for_function(
        "[...document.querySelectorAll('.icfgd-plotly')].every(d => d.querySelector('.main-svg'))",
        timeout=20_000,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible(tab, scheme, axe_source):
    tab.emulate_media(color_scheme=scheme)
    tab.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
    tab.add_style_tag(content="* { transition: none !important; }")
    if not tab.evaluate("Boolean(window.axe)"):
        tab.evaluate(axe_source + "; undefined")
    leave = [] if tab.page_name == LOOKED_INTO else [[selector] for selector in INSIDE]
    options = {"preload": False, "runOnly": TAGS, "resultTypes": ["violations"]}
    found = tab.evaluate(f"axe.run({json.dumps({'exclude': leave})}, {json.dumps(options)})")["violations"]
    shown = [(v["id"], n["html"][:160], n["failureSummary"][:200]) for v in found for n in v["nodes"][:2]]
    assert shown == []


def test_no_horizontal_scroll_on_a_phone(tab):
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.wait_for_timeout(100)
    wide = tab.evaluate(TOO_WIDE)
    tab.set_viewport_size({"width": 1280, "height": 900})
    assert wide == []


def test_page_is_light(tab):
    """HTML, scripts, styles and fonts as a server sends them (text compressed), without pictures and figures' data."""
    loaded = tab.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    paths = {unquote(urlsplit(name).path).lstrip("/") for name in loaded} | {tab.page_name}
    total = 0
    for path in paths:
        data = (SITE / path).read_bytes()
        if path == tab.page_name:
            data = re.sub(rb'<script type="application/json"[^>]*>.*?</script>', b"", data, flags=re.S)
        if path.startswith("_images/") or path.endswith("plotly.min.js"):
            continue
        total += len(data) if path.endswith((".woff", ".woff2", ".png")) else len(gzip.compress(data, 6))
    assert total < PAGE_BYTES, f"{tab.page_name} loads {total} bytes without pictures and figures' data"


def test_first_paint_of_the_heaviest_page(visit):
    heaviest = max(PAGES, key=lambda page: (SITE / page).stat().st_size)
    paint = visit(heaviest).evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint < FIRST_PAINT_MS, f"{heaviest} shows nothing for {paint:.0f} ms"


def test_internal_links_and_fragments_exist():
    identifiers, faults = {}, []

    def ids(path):
        if path not in identifiers:
            identifiers[path] = set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))
        return identifiers[path]

    for page in PAGES:
        source = SITE / page
        for href in re.findall(r'<a\b[^>]*?\bhref="([^"]+)"', source.read_text(encoding="utf-8")):
            parts = urlsplit(href)
            if parts.scheme or parts.netloc:
                continue
            target = (source.parent / unquote(parts.path)).resolve() if parts.path else source
            fragment = unquote(parts.fragment)
            if not target.exists():
                faults.append(f"{page}: {href}")
            elif fragment and not fragment.startswith("scene=") and fragment not in ids(target):
                faults.append(f"{page}: {href} (no such fragment)")
    assert faults == []


@pytest.mark.parametrize("word", ["kernel", "Chebyshev", "reservoir"])
def test_search_finds(word, visit):
    tab = visit(f"search.html?q={word}")
    tab.wait_for_selector("#search-results ul.search li", timeout=10_000)
    assert tab.locator("#search-results ul.search li").count() >= 1
    assert tab.faults == []


SLIDERS = [p for p in PAGES if '"sliders"' in (SITE / p).read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", SLIDERS)
def test_sliders_answer_mouse_and_keyboard(page, visit):
    tab = visit(page)
    tab.wait_for_function(
        "[...document.querySelectorAll('.icfgd-plotly')].every(d => d.layout)", timeout=20_000
    )
    number = tab.evaluate("[...document.querySelectorAll('.icfgd-plotly')].findIndex(d => d.layout.sliders)")
    figure = tab.locator(".icfgd-plotly").nth(number)
    figure.scroll_into_view_if_needed()
    active = f"document.querySelectorAll('.icfgd-plotly')[{number}].layout.sliders[0].active || 0"
    before = tab.evaluate(active)
    box = figure.locator(".slider-rail-touch-rect").first.bounding_box()
    tab.mouse.click(box["x"] + box["width"] * (0.95 if before == 0 else 0.05), box["y"] + box["height"] / 2)
    tab.wait_for_function(f"({active}) !== {before}", timeout=5_000)
    moved = tab.evaluate(active)
    figure.focus()
    tab.keyboard.press("ArrowLeft" if moved > 0 else "ArrowRight")
    tab.wait_for_function(f"({active}) !== {moved}", timeout=5_000)
    assert tab.faults == []


def page_with(pattern):
    """The first page whose HTML has a match of a pattern."""
    return next(p for p in PAGES if re.search(pattern, (SITE / p).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "pattern, link",
    [
        (r'internal" href="#(def|prop)-', ":is([href^='#def-'], [href^='#prop-'])"),
        (r'internal" href="\d\d_\w+\.html#(def|prop)-', ":is([href*='.html#def-'], [href*='.html#prop-'])"),
        (r'internal" href="#equation-', "[href^='#equation-']"),
        (r'internal" href="glossary\.html#term', "[href*='glossary.html#term']"),
    ],
    ids=["statement here", "statement elsewhere", "equation", "glossary term"],
)
def test_preview_opens_on_focus_and_closes(pattern, link, visit):
    tab = visit(page_with(pattern))
    first = tab.locator(f"article a.reference.internal{link}").first
    first.focus()
    card = tab.locator(".icfgd-preview")
    card.wait_for(state="visible", timeout=5_000)
    assert len(card.inner_text().strip()) > 10
    assert tab.evaluate("document.querySelectorAll('.icfgd-preview mjx-merror').length") == 0
    assert first.get_attribute("aria-describedby") == card.get_attribute("id")
    box = card.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= tab.viewport_size["width"]
    tab.keyboard.press("Escape")
    assert card.is_hidden()
    assert tab.faults == []


def test_preview_stays_while_the_pointer_is_on_it(visit):
    tab = visit(page_with(r'internal" href="#(def|prop)-'))
    link = tab.locator("article a.reference.internal:is([href^='#def-'], [href^='#prop-'])").first
    link.scroll_into_view_if_needed()
    link.hover()
    card = tab.locator(".icfgd-preview")
    card.wait_for(state="visible", timeout=5_000)
    card.hover()
    tab.wait_for_timeout(600)
    assert card.is_visible()
    tab.mouse.move(2, 2)
    card.wait_for(state="hidden", timeout=2_000)


def test_statements_are_numbered_as_in_the_ledger():
    wrong = []
    for statement in statements.read()[0].values():
        html = (SITE / "book" / f"{statement.page}.html").read_text(encoding="utf-8")
        shown = re.search(rf'id="{statement.label}">.*?class="caption-number">([^<]*)<', html, re.S)
        if not shown or shown[1].strip() != statement.name:
            wrong.append((statement.label, statement.name, shown and shown[1]))
    assert wrong == []


def test_there_are_pages():
    assert len(PAGES) >= 3, "run `make book` first"


def test_every_page_of_the_contents_is_built():
    toc = (Path(__file__).parents[2] / "_toc.yml").read_text(encoding="utf-8")
    wanted = {f"{name}.html" for name in re.findall(r"(book/\w+)", toc)}
    assert wanted == set(PAGES)
