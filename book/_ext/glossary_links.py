"""Link the first mention of each glossary term on a page to the glossary, so that its preview is one hover away.

Only running text counts: nothing in headings, links, code, formulae, captions or citations. Pages that list terms
themselves (glossary, ledger, package) are left alone. The links are ordinary `term` references, resolved by Sphinx.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

GLOSSARY = Path(__file__).parents[1] / "glossary.md"
SKIPPED_PAGES = ("glossary", "ledger", "api", "bibliography", "cite", "status")
# Words that a chapter uses all the time in their plain sense would only add noise.
TOO_COMMON = {
    "attention",
    "context",
    "head",
    "kernel",
    "label",
    "layer",
    "loss",
    "prompt",
    "query",
    "token",
    "activation",
}
CLOSED = (
    nodes.reference,
    nodes.literal,
    nodes.title,
    nodes.caption,
    nodes.math,
    nodes.raw,
    nodes.term,
    nodes.table,
)


def terms(text):
    """The English terms of the glossary, each the first line of its entry."""
    (body,) = re.findall(r"^```\{glossary\}\n(.*?)^```", text, re.M | re.S)
    entries = re.split(r"\n\s*\n(?=\S)", body.strip())
    return [entry.splitlines()[0].strip() for entry in entries]


def pattern(names):
    """One regular expression for all names, longest first, singular or plural, in any case."""
    ordered = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, ordered))})(?:s|es)?(?![\w-])", re.I)


def closed(node):
    """Whether text under this node is not running text."""
    while node is not None:
        if isinstance(node, CLOSED) or isinstance(node, addnodes.pending_xref):
            return True
        node = node.parent
    return False


def link_terms(app, doctree):
    """Replace first mentions by pending references (event `doctree-read`)."""
    document = app.env.docname
    if document.rsplit("/", 1)[-1] in SKIPPED_PAGES:
        return
    app.env.note_dependency(str(GLOSSARY))
    names = {
        name.lower(): name
        for name in terms(GLOSSARY.read_text(encoding="utf-8"))
        if name.lower() not in TOO_COMMON
    }
    search, seen = pattern(names.values()), set()
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.paragraph) or closed(text.parent):
            continue
        parts, end = [], 0
        for found in search.finditer(text.astext()):
            key = named(found[0].lower(), names)
            if key in seen:
                continue
            seen.add(key)
            parts += [
                nodes.Text(text.astext()[end : found.start()]),
                reference(document, names[key], found[0]),
            ]
            end = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text.astext()[end:])])


def named(mention, names):
    """The term that a mention, perhaps a plural, stands for."""
    return next(
        form for form in (mention, mention.removesuffix("s"), mention.removesuffix("es")) if form in names
    )


def reference(document, name, shown):
    node = addnodes.pending_xref(
        "",
        nodes.inline("", shown),
        refdoc=document,
        refdomain="std",
        reftype="term",
        reftarget=name,
        refexplicit=True,
        refwarn=True,
    )
    node["classes"].append("icfgd-term")
    return node
