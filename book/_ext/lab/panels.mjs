/* The four panels beside the stage: loss against depth, residual stream, attention matrix, residual polynomial. Each
   draws a solved state into its own figure and writes its one-line reading; nothing here computes the model. */

import { position, residualPolynomial } from "./core.mjs";
import { axes, clamp, linear, make, path, pool, roundUp, say, set, ticks } from "./svg.mjs";

const HEIGHT = 250;

/** A figure with a title, a drawing and a reading below it. */
class Panel {
  constructor(title, says) {
    this.reading = make("p", { class: "lab-reading" });
    this.svg = make("svg:svg", { role: "img", "aria-label": title });
    this.axes = make("svg:g");
    this.window = make("svg:rect");
    this.inside = make("svg:g", { "clip-path": `url(#lab-clip-${title.split(" ")[0].toLowerCase()})` });
    this.svg.append(make("svg:clipPath", { id: `lab-clip-${title.split(" ")[0].toLowerCase()}` }, this.window), this.axes, this.inside);
    this.figure = make("figure", { class: "lab-panel" },
      make("figcaption", {}, make("strong", {}, title), ` ${says}`), this.svg, this.reading);
    this.title = title;
  }

  resize(width) {
    this.box = { left: 46, right: width - 12, top: 22, bottom: HEIGHT - 38 };
    set(this.svg, { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT });
    set(this.window, { x: this.box.left, y: this.box.top - 2, width: this.box.right - this.box.left + 4, height: this.box.bottom - this.box.top + 4 });
  }

  layerAxis(depth) {
    this.x = linear(0, depth, this.box.left, this.box.right);
    const marks = depth <= 8 ? Array.from({ length: depth + 1 }, (_, i) => i)
      : ticks(0, depth, 8).filter(Number.isInteger);
    return { ticks: marks, scale: this.x, label: "layers" };
  }

  say(text) { if (this.reading.textContent !== text) this.reading.textContent = text; }

  /** The text alternative of the drawing; called when the state has come to rest. */
  describe() { set(this.svg, { "aria-label": `${this.title}. ${this.reading.textContent}` }); }
}

export class LossPanel extends Panel {
  constructor() {
    super("Loss against depth.", "Expected squared error given the prompt: averaged over the interval (solid) and at the query (thin); Bayes lines dashed.");
    this.lines = ["bayes-query", "bayes", "pin", "query", "mean"].map((name) => make("svg:path", { class: `lab-loss-${name}` }));
    this.dots = make("svg:g", { class: "lab-loss-dots" });
    this.now = make("svg:path", { class: "lab-now" });
    this.inside.append(this.now, ...this.lines, this.dots);
  }

  draw(state, result, cursor, pinned) {
    const { box } = this, k = state.depth, prior = result.risks[0], floor = 1e-5 * prior;
    const x = this.layerAxis(k), least = Math.max(floor, 0.7 * Math.min(result.bayesRisk, result.bayesQueryRisk));
    const most = clamp(Math.max(...result.risks, ...result.queryRisks, ...(pinned?.risks ?? [])), prior, 100 * prior) * 1.4;
    const low = Math.floor(4 * Math.log10(least)) / 4, high = Math.ceil(4 * Math.log10(most)) / 4, y = linear(low, high, box.bottom, box.top);
    const at = (v) => y(clamp(Math.log10(Math.max(v, 1e-300)), low - 1, high + 9));
    axes(this.axes, box, x, { ticks: decades(low, high), scale: (v) => y(Math.log10(v)), label: "loss (log scale)" });
    const along = (values) => path(values.length, this.x, (l) => at(values[l]));
    const flat = (v) => `M${box.left} ${at(v).toFixed(1)}H${box.right}`;
    const shapes = [flat(result.bayesQueryRisk), flat(result.bayesRisk), pinned ? along(pinned.risks) : "",
      along(result.queryRisks), along(result.risks)];
    this.lines.forEach((line, i) => set(line, { d: shapes[i] }));
    const dots = pool(this.dots, "circle", k + 1, { r: 2.6 });
    for (let l = 0; l <= k; l++) set(dots[l], { cx: this.x(l).toFixed(1), cy: at(result.risks[l]).toFixed(1) });
    set(this.now, { d: `M${this.x(cursor).toFixed(1)} ${box.top}V${box.bottom}` });
    const l = Math.round(cursor), more = pinned && l < pinned.risks.length ? `, pinned ${say(pinned.risks[l])}` : "";
    this.say(`After ${l} of ${k} layers: ${say(result.risks[l])} on average${more} (Bayes ${say(result.bayesRisk)}); at the query ${say(result.queryRisks[l])} (Bayes ${say(result.bayesQueryRisk)}).`);
  }
}

function decades(low, high) {
  const out = [];
  for (let e = Math.ceil(low); e <= Math.floor(high); e++) out.push(10 ** e);
  if (out.length < 2) for (let e = Math.floor(low); e <= high; e++) for (const m of [2, 5]) {
    const v = m * 10 ** e;
    if (Math.log10(v) >= low && Math.log10(v) <= high) out.push(Number(v.toPrecision(3)));
  }
  return out.sort((a, b) => a - b);
}

export class StreamPanel extends Panel {
  constructor() {
    super("Residual stream.", "The label slot of every token, layer by layer: residuals of the context points, and the query slot, which holds minus the prediction.");
    this.context = make("svg:g", { class: "lab-stream" });
    this.query = make("svg:path", { class: "lab-stream-query" });
    this.target = make("svg:path", { class: "lab-stream-target" });
    this.now = make("svg:path", { class: "lab-now" });
    this.inside.append(this.now, this.context, this.target, this.query);
  }

  draw(state, result, curveAt, cursor, highlight) {
    const { box } = this, { n, residuals } = result, k = state.depth, x = this.layerAxis(k);
    const goal = -result.mean[state.query];
    let most = Math.max(1, Math.abs(goal));
    for (let i = 0; i < n; i++) most = Math.max(most, Math.abs(residuals[i]));
    most = roundUp(Math.min(most * 1.1, 12));
    const y = linear(-most, most, box.bottom, box.top), cut = (v) => y(clamp(v, -9 * most, 9 * most));
    axes(this.axes, box, x, { ticks: ticks(-most, most, 5), scale: y, zero: 0, label: "value" });
    const lines = pool(this.context, "path", n);
    for (let i = 0; i < n; i++) {
      set(lines[i], { d: path(k + 1, this.x, (l) => cut(residuals[l * n + i])), class: i === highlight ? "lab-lit" : "" });
    }
    set(this.query, { d: path(k + 1, this.x, (l) => cut(-curveAt(l))) });
    set(this.target, { d: `M${box.left} ${cut(goal).toFixed(1)}H${box.right}` });
    set(this.now, { d: `M${this.x(cursor).toFixed(1)} ${box.top}V${box.bottom}` });
    const l = Math.round(cursor);
    let largest = 0;
    for (let i = 0; i < n; i++) largest = Math.max(largest, Math.abs(residuals[l * n + i]));
    this.say(highlight >= 0 && highlight < n
      ? `After ${l} layers point ${highlight + 1} holds the residual ${say(residuals[l * n + highlight])}; the query slot holds ${say(-curveAt(l))}.`
      : `After ${l} layers the largest residual is ${say(largest)}; the query slot holds ${say(-curveAt(l))} (Bayes ${say(goal)}).`);
  }
}

export class AttentionPanel extends Panel {
  constructor() {
    super("Attention matrix.", "Row: summed context token. Column: output token, the query last. Tokens are sorted by position; the matrix is the same in every layer.");
    this.canvas = make("canvas", { class: "lab-heat", role: "img", "aria-label": this.title });
    this.svg.replaceWith(this.canvas);
    this.svg = this.canvas;
    this.key = make("span", { class: "lab-heat-key", "aria-hidden": "true" });
    this.reading.before(this.key);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.say(this.summary));
  }

  resize(width) {
    this.size = { width, height: HEIGHT - 22 };
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    set(this.canvas, { width: Math.round(width * ratio), height: Math.round(this.size.height * ratio),
      style: `width:${width}px;height:${this.size.height}px` });
    this.ratio = ratio;
    this.colours = null;
  }

  /** Colours come from the style sheet and are read again when the theme changes. */
  restyle() { this.colours = null; }

  draw(state, result, highlight) {
    const { n, attention, wide } = result, context = this.canvas.getContext("2d"), { width, height } = this.size;
    if (!this.colours) {
      const style = getComputedStyle(this.canvas);
      this.colours = Object.fromEntries(["positive", "negative", "edge"].map((c) => [c, style.getPropertyValue(`--lab-${c}`).trim()]));
    }
    this.order = Array.from(result.at.keys()).sort((a, b) => result.at[a] - result.at[b]);
    const weight = (row, column) => column === n ? wide[this.order[row] * (wide.length / n) + state.query]
      : attention[this.order[row] * n + this.order[column]];
    const gap = 8, cw = Math.min((width - gap) / (n + 1), 64), ch = height / n;
    this.grid = { cw, ch, gap, n, weight };
    let most = 0, least = 0;
    for (let i = 0; i < n; i++) for (let j = 0; j <= n; j++) { most = Math.max(most, weight(i, j)); least = Math.min(least, weight(i, j)); }
    const top = Math.max(most, -least) || 1, inset = n > 20 ? 0 : 1;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    for (const positive of [true, false]) {
      context.fillStyle = positive ? this.colours.positive : this.colours.negative;
      for (let i = 0; i < n; i++) for (let j = 0; j <= n; j++) {
        const w = weight(i, j);
        if (w === 0 || w > 0 !== positive) continue;
        context.globalAlpha = Math.abs(w) / top;
        context.fillRect(j * cw + (j === n ? gap : 0), i * ch, cw - inset, ch - inset);
      }
    }
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.edge;
    context.strokeRect(0.5, 0.5, n * cw - 1, height - 1);
    context.strokeRect(n * cw + gap + 0.5, 0.5, cw - 1, height - 1);
    if (highlight >= 0 && highlight < n) {
      const at = this.order.indexOf(highlight);
      context.lineWidth = 2;
      context.strokeRect(1, at * ch + 1, n * cw + gap + cw - 2, ch - 2);
      context.strokeRect(at * cw + 1, 1, cw - 2, height - 2);
      context.lineWidth = 1;
    }
    const legend = least < -1e-12 ? `weights from ${say(least)} (orange) through 0 (clear) to ${say(most)} (blue)` : `weights from 0 (clear) to ${say(most)} (blue)`;
    if (this.key.textContent !== legend) this.key.textContent = legend;
    let strongest = 0;
    for (let i = 0; i < n; i++) if (Math.abs(weight(i, n)) > Math.abs(weight(strongest, n))) strongest = i;
    this.summary = `The query weighs the point at t = ${say(position(result.at[this.order[strongest]]))} most, with ${say(weight(strongest, n))}.`;
    this.say(this.summary);
  }

  hover(event) {
    const rect = this.canvas.getBoundingClientRect(), { cw, ch, gap, n, weight } = this.grid;
    const px = event.clientX - rect.left, row = clamp(Math.floor((event.clientY - rect.top) / ch), 0, n - 1);
    const column = px > n * cw + gap / 2 ? n : clamp(Math.floor(px / cw), 0, n - 1);
    const name = (i) => i === n ? "the query" : `point ${this.order[i] + 1}`;
    this.say(`From ${name(row)} to ${name(column)}: ${say(weight(row, column))}.`);
  }
}

export class PolynomialPanel extends Panel {
  constructor() {
    super("Residual polynomial.", "What is left of each eigendirection of the attention after the layers shown; the area of a dot is its share of the loss, a tick marks a zero 1/r.");
    this.curve = make("svg:path", { class: "lab-fit" });
    this.dots = make("svg:g", { class: "lab-eigen" });
    this.zeros = make("svg:path", { class: "lab-roots" });
    this.inside.append(this.curve, this.zeros);
    this.svg.append(this.dots);
  }

  draw(state, result, layers) {
    const { box } = this, { values, steps, n } = result, high = roundUp(1.04 * Math.max(values[n - 1], 1e-6));
    const low = values[0] < -0.001 * high ? -roundUp(-1.1 * values[0]) : 0, x = linear(low, high, box.left, box.right);
    const y = linear(-1.35, 1.35, box.bottom, box.top), cut = (v) => y(clamp(v, -9, 9));
    axes(this.axes, box, { ticks: ticks(low, high, 6), scale: x, label: "eigenvalue λ" },
      { ticks: [-1, 0, 1], scale: y, zero: 0, label: "p(λ)" });
    const count = 181, lambda = (i) => low + (high - low) * i / (count - 1);
    set(this.curve, { d: path(count, (i) => x(lambda(i)), (i) => cut(residualPolynomial(steps, layers, lambda(i)))) });
    const dots = pool(this.dots, "circle", n);
    let outside = 0;
    for (let i = 0; i < n; i++) {
      const p = residualPolynomial(steps, layers, values[i]);
      if (Math.abs(p) > 1) outside++;
      set(dots[i], { cx: x(values[i]).toFixed(1), cy: y(clamp(p, -1.35, 1.35)).toFixed(1), r: (2.2 + 11 * Math.sqrt(result.shares[i])).toFixed(1) });
    }
    let roots = "";
    for (let l = 0; l < layers; l++) {
      const zero = 1 / steps[l];
      if (zero > low && zero < high) roots += `M${x(zero).toFixed(1)} ${(y(0) - 6).toFixed(1)}v12`;
    }
    set(this.zeros, { d: roots });
    const range = `Eigenvalues from ${say(values[0])} to ${say(values[n - 1])}`;
    this.say(layers === 0 ? `${range}; no step taken yet.`
      : outside ? `${range}; after ${layers} layers ${outside} of ${n} directions ${outside === 1 ? "has" : "have"} grown.`
        : `${range}; after ${layers} layers no direction has grown.`);
  }
}
