// Wide tables, code and formulae scroll inside their own box; give that box to the keyboard as well.
window.addEventListener("load", () => {
  const article = document.querySelector("article");
  if (!article) return;
  for (const table of article.querySelectorAll("table")) {
    if (table.parentElement.classList.contains("icfgd-scroll") || table.closest(".pst-scrollable-table-container")) continue;
    const box = document.createElement("div");
    box.className = "icfgd-scroll";
    table.replaceWith(box);
    box.append(table);
  }
  const ready = (window.MathJax && window.MathJax.startup && window.MathJax.startup.promise) || Promise.resolve();
  ready.then(() => {
    for (const box of article.querySelectorAll(".icfgd-scroll, pre, div.math, mjx-container[display], .pst-scrollable-table-container"))
      if (box.scrollWidth > box.clientWidth + 1 && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  });
});
