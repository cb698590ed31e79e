"""The site's own Sphinx extension: self-hosted assets, quieter pages, and facts about each page.

Copies MathJax, Plotly, the lab and the small scripts to the built site; removes third-party scripts; repairs ARIA roles;
adds reading and running time under each title. Pages ask no other server for anything.
"""

import json
import re
import shutil
from pathlib import Path

from glossary_links import link_terms
from lab_bundle import bundle

HERE = Path(__file__).parent
WORDS_PER_MINUTE = 160  # technical prose with formulae
FILES = ("book.css", "digests.js", "plotly_loader.js", "previews.js", "scroll_spy.js", "scrollable.js")


def clean_page(app, pagename, templatename, context, doctree):
    """Drop thebe and repeated inline scripts, invalid roles; add the times under the title."""
    seen, kept = set(), []
    for script in context.get("script_files", []):
        name = str(getattr(script, "filename", script) or "")
        body = getattr(script, "attributes", {}).get("body", "")
        if "thebe" in (name + body).lower() or (not name and body in seen):
            continue
        seen.add(body)
        kept.append(script)
    context["script_files"][:] = kept
    if "body" in context:
        body = context["body"]
        body = body.replace('role="list" class="citation-list"', 'class="citation-list"')
        body = body.replace(' role="doc-biblioentry"', "")
        context["body"] = add_times(app, pagename, body)


def add_times(app, pagename, body):
    """Insert reading and running time, and what can be done with the notebook, after the title of an executed chapter."""
    times = run_times()
    stem = pagename.rsplit("/", 1)[-1]
    if stem not in times:
        return body
    prose = re.sub(r"<(script|style|pre|svg)\b.*?</\1>", " ", body, flags=re.S)
    minutes = max(1, round(len(re.sub(r"<[^>]+>", " ", prose).split()) / WORDS_PER_MINUTE))
    address = app.config.html_theme_options["repository_url"].removeprefix("https://github.com/")
    place = f"{address}/blob/main/{pagename}.ipynb"
    links = {
        f"https://colab.research.google.com/github/{place}": "Open in Colab",
        f"../_sources/{pagename}.ipynb": "Download the notebook",
        "cite.html": "Cite",
    }
    note = f"Reading time about {minutes} min, running time about {times[stem]} s on two CPU cores. "
    note += " &middot; ".join(f'<a href="{target}">{name}</a>' for target, name in links.items())
    return re.sub(r"</h1>", f'</h1><p class="icfgd-times">{note}</p>', body, count=1)


def run_times():
    path = HERE / "run_times.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def fill_status(app, docname, source):
    """Fill the placeholder of the status page with the time of each notebook that is in the book."""
    if not docname.endswith("/status"):
        return
    known = {name.rsplit("/", 1)[-1] for name in app.env.found_docs}
    rows = "".join(
        f'<tr><td><a href="{stem}.html">{stem}</a></td><td>{seconds}</td></tr>'
        for stem, seconds in run_times().items()
        if stem in known
    )
    head = '<thead><tr><th scope="col">notebook</th><th scope="col">seconds</th></tr></thead>'
    source[0] = source[0].replace(
        "@RUN_TIMES@", f'<table class="icfgd-table">{head}<tbody>{rows}</tbody></table>'
    )


def copy_assets(app, error):
    """Copy what the pages load. Done last, so that Jupyter Book does not put it into the head of every page."""
    if error or app.builder.format != "html":
        return
    import plotly

    static = Path(app.outdir) / "_static"
    shutil.copy(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", static)
    for name in FILES:
        shutil.copy(HERE / name, static)
    for folder in ("mathjax", "lab"):
        if (HERE / folder).exists():
            shutil.copytree(
                HERE / folder,
                static / folder,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
    (static / "lab" / "lab.file.js").write_text(bundle(HERE / "lab"), encoding="utf-8")
    # The theme ships its icons twice: as fonts, and as a script of 1.5 MB that redraws them. The fonts are enough.
    icons = static / "scripts" / "fontawesome.js"
    icons.write_text("/* icons come from the fonts of the style sheet */\n", encoding="utf-8")


def setup(app):
    app.connect("source-read", fill_status)
    app.connect("doctree-read", link_terms)
    app.connect("html-page-context", clean_page, priority=900)
    app.connect("build-finished", copy_assets)
    for name in FILES:
        if name.endswith(".js"):
            app.add_js_file(name, loading_method="defer")
        else:
            app.add_css_file(name)
    return {"version": "1", "env_version": 2, "parallel_read_safe": True, "parallel_write_safe": True}
