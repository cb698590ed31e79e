// Wide tables, code and formulae scroll inside their own box; give that box to the keyboard as well.
window.addEventListener("load", () => {
  const boxes = ".icfgd-scroll, pre, div.math, mjx-container[display], .pst-scrollable-table-container";
  const article = document.querySelector("article");
  if (!article) return;
  for (const table of article.querySelectorAll("table")) {
    if (table.parentElement.classList.contains("icfgd-scroll") || table.closest(".pst-scrollable-table-container")) continue;
    const box = document.createElement("div");
    box.className = "icfgd-scroll";
    table.replaceWith(box);
    box.append(table);
  }
  const ours = new WeakSet();
  const mark = () => {
    for (const box of article.querySelectorAll(boxes)) {
      const scrolls = box.scrollWidth > box.clientWidth + 1;
      if (scrolls && !box.hasAttribute("tabindex")) { box.tabIndex = 0; ours.add(box); }
      else if (!scrolls && ours.has(box) && box !== document.activeElement) { box.removeAttribute("tabindex"); ours.delete(box); }
    }
  };
  const ready = (window.MathJax && window.MathJax.startup && window.MathJax.startup.promise) || Promise.resolve();
  ready.then(() => { // what fits changes with fonts, folded parts and the window
    mark();
    new ResizeObserver(mark).observe(article);
    document.fonts.addEventListener("loadingdone", mark);
  });
});
