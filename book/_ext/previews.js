// Hover or focus a reference to a statement, an equation or a glossary term on the same site: a card shows it.
(() => {
  const card = document.createElement("div");
  card.className = "icfgd-preview";
  card.setAttribute("role", "tooltip");
  card.id = "icfgd-preview";
  card.hidden = true;
  const pages = new Map();
  let timer;

  const wanted = "a.reference.internal[href*='#']";

  async function find(link) {
    const url = new URL(link.href, location.href);
    const id = decodeURIComponent(url.hash.slice(1));
    if (!id) return null;
    let root = document;
    if (url.pathname !== location.pathname) {
      if (!pages.has(url.pathname))
        pages.set(url.pathname, fetch(url.pathname).then((r) => (r.ok ? r.text() : "")).then((t) => new DOMParser().parseFromString(t, "text/html")));
      root = await pages.get(url.pathname);
    }
    const target = root.getElementById(id);
    if (!target) return null;
    if (target.matches("div.proof, div.math, figure, div.exercise")) return target;
    if (target.tagName === "DT") return target.nextElementSibling;
    return target.closest("div.proof, div.math");
  }

  function hide() {
    clearTimeout(timer);
    card.hidden = true;
    const owner = document.querySelector("[aria-describedby='icfgd-preview']");
    if (owner) owner.removeAttribute("aria-describedby");
  }

  async function show(link) {
    const found = await find(link).catch(() => null);
    if (!found || !(link.matches(":hover") || link === document.activeElement)) return;
    const copy = found.cloneNode(true);
    copy.removeAttribute("id");
    copy.querySelectorAll("[id]").forEach((e) => e.removeAttribute("id"));
    copy.querySelectorAll("a.headerlink, button, script").forEach((e) => e.remove());
    card.replaceChildren(copy);
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    if (window.MathJax && window.MathJax.typesetPromise && found.ownerDocument !== document) await window.MathJax.typesetPromise([card]);
    const at = link.getBoundingClientRect(), size = card.getBoundingClientRect();
    card.style.left = Math.max(8, Math.min(at.left, innerWidth - size.width - 8)) + scrollX + "px";
    card.style.top = (at.bottom + size.height + 8 < innerHeight ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)) + scrollY + "px";
  }

  window.addEventListener("load", () => {
    document.body.append(card);
    for (const link of document.querySelectorAll("article " + wanted)) {
      const later = () => { clearTimeout(timer); timer = setTimeout(() => show(link), 250); };
      link.addEventListener("mouseenter", later);
      link.addEventListener("focus", later);
      link.addEventListener("mouseleave", hide);
      link.addEventListener("blur", hide);
    }
    addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  });
})();
