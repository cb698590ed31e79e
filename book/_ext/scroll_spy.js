// The theme points Bootstrap's scroll spy at a class that its contents list does not carry; the spy then takes every link
// of the page for a section and fails on fragments that are no selectors, such as lab.html#scene=3.
if (document.getElementById("pst-page-toc-nav")) document.body.dataset.bsTarget = "#pst-page-toc-nav";
else document.body.removeAttribute("data-bs-spy");
