// Hover or focus a reference to a statement, an equation, a figure or a glossary term of the site: a card shows it.
(() => {
  const card = document.createElement("div");
  card.className = "icfgd-preview";
  card.id = "icfgd-preview";
  card.setAttribute("role", "tooltip");
  card.hidden = true;
  const pages = new Map();
  let timer, owner;

  async function documentOf(url) {
    if (url.pathname === location.pathname) return document;
    if (location.protocol === "file:") throw new Error("pages opened from a folder cannot read each other");
    if (!pages.has(url.pathname))
      pages.set(url.pathname, fetch(url.pathname).then((r) => (r.ok ? r.text() : "")).then((t) => new DOMParser().parseFromString(t, "text/html")));
    return pages.get(url.pathname);
  }

  function definitionOf(term) { // several terms (here a second language) may share one definition
    let next = term.nextElementSibling;
    while (next && next.tagName === "DT") next = next.nextElementSibling;
    return next;
  }

  async function find(link) {
    const url = new URL(link.href, location.href);
    const id = decodeURIComponent(url.hash.slice(1));
    const target = id && (await documentOf(url)).getElementById(id);
    if (!target) return null;
    if (target.tagName === "DT") return definitionOf(target);
    return target.closest("div.proof, div.exercise, div.math, figure");
  }

  function copyOf(found) {
    const copy = found.cloneNode(true);
    for (const element of [copy, ...copy.querySelectorAll("[id]")]) element.removeAttribute("id");
    copy.querySelectorAll("a.headerlink, button, script").forEach((e) => e.remove());
    return copy;
  }

  function hide() {
    clearTimeout(timer);
    card.hidden = true;
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
  }

  async function show(link) {
    const found = await find(link).catch(() => null);
    if (!found || !(link.matches(":hover") || link === document.activeElement)) return;
    hide();
    owner = link;
    card.replaceChildren(copyOf(found));
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    if (found.ownerDocument !== document && window.MathJax && MathJax.typesetPromise) await MathJax.typesetPromise([card]);
    const at = link.getClientRects()[0] || link.getBoundingClientRect(), size = card.getBoundingClientRect();
    const below = at.bottom + size.height + 4 < innerHeight || at.top < size.height + 4;
    card.style.left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8)) + scrollX + "px";
    card.style.top = (below ? at.bottom + 2 : at.top - size.height - 2) + scrollY + "px";
  }

  window.addEventListener("load", () => {
    document.body.append(card);
    const leave = () => { clearTimeout(timer); timer = setTimeout(hide, 250); }; // time to move the pointer onto the card
    for (const link of document.querySelectorAll("article a.reference.internal[href*='#']")) {
      const enter = () => { clearTimeout(timer); timer = setTimeout(() => show(link), 250); };
      link.addEventListener("mouseenter", enter);
      link.addEventListener("mouseleave", leave);
      link.addEventListener("focus", enter);
      link.addEventListener("blur", hide);
    }
    card.addEventListener("mouseenter", () => clearTimeout(timer));
    card.addEventListener("mouseleave", leave);
    addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  });
})();
