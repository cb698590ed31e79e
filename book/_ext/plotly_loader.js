// Draws the interactive figures of a page with the site's own copy of Plotly, loaded only where there is a figure.
(() => {
  const figures = document.querySelectorAll(".icfgd-plotly");
  if (!figures.length) return;
  const amd = window.define && window.define.amd;
  if (amd) window.define.amd = undefined; // Plotly must not register with require.js
  const script = document.createElement("script");
  script.src = (document.documentElement.dataset.content_root || "./") + "_static/plotly.min.js";
  script.onload = () => {
    if (amd) window.define.amd = amd;
    for (const figure of figures) {
      const data = document.querySelector(`script[data-plotly-for="${figure.id}"]`);
      const { data: traces, layout } = JSON.parse(data.textContent);
      layout.paper_bgcolor = layout.plot_bgcolor = "white";
      window.Plotly.newPlot(figure, traces, layout, { responsive: true, displaylogo: false }).then(() => keys(figure));
    }
  };
  document.head.appendChild(script);

  // Sliders of Plotly know the mouse only: let the arrow keys move the first slider of a focused figure.
  function keys(figure) {
    const slider = figure.layout.sliders && figure.layout.sliders[0];
    if (!slider) return;
    figure.tabIndex = 0;
    figure.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      const now = figure.layout.sliders[0].active || 0;
      const next = Math.min(slider.steps.length - 1, Math.max(0, now + move));
      const step = slider.steps[next];
      Promise.resolve(window.Plotly[step.method](figure, ...structuredClone(step.args))).then(() =>
        window.Plotly.relayout(figure, { "sliders[0].active": next }));
    });
  }
})();
