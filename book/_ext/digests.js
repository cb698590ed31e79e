// The lines "drawn [...]" above a figure are there for the tests; fold them away for the reader.
window.addEventListener("DOMContentLoaded", () => {
  for (const output of document.querySelectorAll("article div.output.stream")) {
    if (!output.textContent.trim().split("\n").every((line) => line.startsWith("drawn ["))) continue;
    const fold = document.createElement("details");
    const title = document.createElement("summary");
    fold.className = "icfgd-digest";
    title.textContent = "What the figure contains, in numbers";
    output.replaceWith(fold);
    fold.append(title, output);
  }
});
