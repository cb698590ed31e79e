"""The built site in a real browser: every page, both themes, phone width, search, sliders, no request off the site."""

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "_build" / "html"
PAGES = (
    sorted(str(p.relative_to(SITE)) for p in (SITE / "book").glob("*.html"))
    if (SITE / "book").exists()
    else []
)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
PAGE_BYTES = 1_500_000
RAW_MATHS = """() => {
  const found = [], skip = "pre, code, script, style, mjx-container, .icfgd-plotly";
  const walk = document.createTreeWalker(document.querySelector("article") || document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent;
    if (!walk.currentNode.parentElement.closest(skip) && /\\\\\\(|\\\\\\[|\\$\\$|\\\\begin\\{|\\{(prf|eq|doc|numref|cite)[:}]/.test(text)) found.push(text.slice(0, 80));
  }
  return found;
}"""


@pytest.mark.parametrize("page", PAGES)
def test_page_is_sound(page, visit):
    tab = visit(page)
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
    assert (
        tab.evaluate(
            "document.querySelectorAll('.bd-header .search-button, .bd-sidebar .search-button, .search-button__wrapper.show').length"
        )
        <= 2
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_page_is_accessible(page, scheme, visit, axe_source):
    tab = visit(page, scheme=scheme)
    tab.add_script_tag(content=axe_source)
    violations = tab.evaluate(f"axe.run(document, {{preload: false, runOnly: {json.dumps(TAGS)}}})")[
        "violations"
    ]
    shown = [
        (v["id"], v["nodes"][0]["html"][:160], v["nodes"][0]["failureSummary"][:200]) for v in violations
    ]
    assert shown == []


@pytest.mark.parametrize("page", PAGES)
def test_no_horizontal_scroll_on_a_phone(page, visit):
    tab = visit(page, width=390, height=844)
    wide = tab.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          return [...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > width + 1)
            .slice(0, 3).map(e => e.outerHTML.slice(0, 120)).concat(["page is " + document.documentElement.scrollWidth]);
        }"""
    )
    assert wide == []


def test_internal_links_and_fragments_exist():
    identifiers, faults = {}, []

    def ids(path):
        if path not in identifiers:
            identifiers[path] = set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))
        return identifiers[path]

    for page in PAGES:
        source = SITE / page
        html = source.read_text(encoding="utf-8")
        for href in re.findall(r'<a\b[^>]*?\bhref="([^"]+)"', html):
            parts = urlsplit(href)
            if parts.scheme or parts.netloc:
                continue
            target = (source.parent / unquote(parts.path)).resolve() if parts.path else source
            if not target.exists():
                faults.append(f"{page}: {href}")
            elif (
                parts.fragment
                and target.suffix == ".html"
                and target.parent.name != "lab"
                and unquote(parts.fragment) not in ids(target)
            ):
                if not parts.fragment.startswith("scene="):
                    faults.append(f"{page}: {href} (no such fragment)")
    assert faults == []


def test_pages_are_light():
    for page in PAGES:
        size = (SITE / page).stat().st_size
        html = (SITE / page).read_text(encoding="utf-8")
        data = sum(
            len(m) for m in re.findall(r'<script type="application/json"[^>]*>.*?</script>', html, re.S)
        )
        assert size - data < PAGE_BYTES, f"{page} has {size - data} bytes without figure data"


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


def test_reference_preview_opens_and_closes(visit):
    for page in PAGES:
        tab = visit(page)
        links = tab.locator("article a.reference.internal[href*='#']")
        if links.count():
            links.first.focus()
            tab.wait_for_timeout(1500)
            tab.keyboard.press("Escape")
            assert tab.locator(".icfgd-preview").is_hidden()
            return
    pytest.fail("no page has a reference")


def test_there_are_pages():
    assert len(PAGES) >= 3, "run `make book` first"
