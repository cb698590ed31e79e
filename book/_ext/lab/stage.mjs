/* The stage: the regression problem itself, with context points and query that can be moved by mouse, touch and
   keyboard. It draws what it is given and reports wishes ("this point should go there") through callbacks; it neither
   computes nor keeps any state of the problem. */

import { SIZE, position } from "./core.mjs";
import { LIMITS, clampCell, clampLabel } from "./state.mjs";
import { axes, clamp, linear, make, path, pool, say, set } from "./svg.mjs";

const DOUBLE_TAP = { time: 400, distance: 24 };

export class Stage {
  /** actions: {move(i, cell, y), add(cell, y), addSomewhere(), remove(i), query(cell), highlight(i), layer(change), play()} */
  constructor(holder, actions) {
    this.actions = actions;
    this.layers = {};
    const layer = (name, attributes = {}) => (this.layers[name] = make("svg:g", { class: `lab-${name}`, ...attributes }));
    this.band = make("svg:path", { class: "lab-band" });
    this.mean = make("svg:path", { class: "lab-mean" });
    this.fit = make("svg:path", { class: "lab-fit" });
    this.pinned = make("svg:path", { class: "lab-pinned" });
    this.stems = make("svg:path", { class: "lab-stems" });
    this.clip = make("svg:rect");
    this.queryLine = make("svg:path", { class: "lab-query-line" });
    this.queryDot = make("svg:circle", { class: "lab-query-dot", r: 4.5 });
    this.query = make("svg:g", { class: "lab-query", tabindex: 0, role: "slider", "aria-orientation": "horizontal",
      "aria-label": "Query position", "aria-valuemin": -1, "aria-valuemax": 1 },
    make("svg:rect", { class: "lab-hit", x: -20, y: -30, width: 40, height: 52 }),
    make("svg:path", { class: "lab-handle", d: "M0 -13L9 0L0 13L-9 0Z" }));
    const curves = make("svg:g", { "clip-path": "url(#lab-clip)", "aria-hidden": "true" },
      this.band, layer("trail"), this.pinned, this.stems, this.fit, this.mean, this.queryLine, this.queryDot);
    this.svg = make("svg:svg", { class: "lab-stage", role: "group", "aria-label": "Regression problem: context points and query" },
      make("svg:defs", {}, make("svg:clipPath", { id: "lab-clip" }, this.clip)),
      layer("axes", { "aria-hidden": "true" }), curves, this.query, layer("points"));
    holder.append(this.svg);
    this.listen();
  }

  resize(width) {
    const height = Math.round(clamp(width * 0.5, 270, 430));
    this.box = { left: 34, right: width - 10, top: 22, bottom: height - 40 };
    this.x = linear(0, SIZE - 1, this.box.left, this.box.right);
    this.y = linear(-LIMITS.label, LIMITS.label, this.box.bottom, this.box.top);
    set(this.svg, { viewBox: `0 0 ${width} ${height}`, width, height });
    set(this.clip, { x: this.box.left, y: this.box.top, width: this.box.right - this.box.left, height: this.box.bottom - this.box.top });
    axes(this.layers.axes, this.box,
      { ticks: [-1, -0.5, 0, 0.5, 1], scale: linear(-1, 1, this.box.left, this.box.right), label: "position t" },
      { ticks: [-3, -2, -1, 0, 1, 2, 3], scale: this.y, zero: 0, label: "label y" });
  }

  /** Lattice cell and label under a pointer event. */
  at(event) {
    const rect = this.svg.getBoundingClientRect(), { left, right, top, bottom } = this.box;
    return {
      cell: clampCell((event.clientX - rect.left - left) / (right - left) * (SIZE - 1)),
      y: clampLabel(LIMITS.label - (event.clientY - rect.top - top) / (bottom - top) * 2 * LIMITS.label),
    };
  }

  /** Draw a solved state. curve: f at the layer shown (SIZE numbers); whole: number of complete layers below it. */
  draw(state, result, curve, whole, pinnedCurve, highlight) {
    const { x, y } = this, cut = (v) => y(clamp(v, -40, 40)), stride = 2;
    const sd = (i, sign) => cut(result.mean[i] + sign * 2 * Math.sqrt(result.variance[i]));
    set(this.mean, { d: path(SIZE, x, (i) => cut(result.mean[i]), stride) });
    set(this.band, { d: `${path(SIZE, x, (i) => sd(i, 1), stride)}L${path(SIZE, (i) => x(SIZE - 1 - i), (i) => sd(SIZE - 1 - i, -1), stride).slice(1)}Z` });
    set(this.fit, { d: path(SIZE, x, (i) => cut(curve[i]), stride) });
    set(this.pinned, { d: pinnedCurve ? path(SIZE, x, (i) => cut(pinnedCurve[i]), stride) : "" });
    const trail = pool(this.layers.trail, "path", whole + 1);
    for (let l = 0; l <= whole; l++) {
      const f = result.curves.subarray(l * SIZE, (l + 1) * SIZE);
      set(trail[l], { d: path(SIZE, x, (i) => cut(f[i]), whole > 16 ? 2 * stride : stride), "stroke-opacity": (0.3 + 0.4 * l / (whole + 1)).toFixed(2) });
    }
    let stems = "";
    state.points.forEach(([cell, label]) => { stems += `M${x(cell).toFixed(1)} ${y(label).toFixed(1)}V${cut(curve[cell]).toFixed(1)}`; });
    set(this.stems, { d: stems });
    this.drawPoints(state, highlight);
    const q = x(state.query).toFixed(1), t = position(state.query);
    set(this.queryLine, { d: `M${q} ${this.box.top}V${this.box.bottom}` });
    set(this.queryDot, { cx: q, cy: cut(curve[state.query]).toFixed(1) });
    set(this.query, { transform: `translate(${q} ${this.box.bottom})`, "aria-valuenow": t, "aria-valuetext": `t = ${say(t)}` });
  }

  drawPoints(state, highlight) {
    const group = this.layers.points;
    while (group.childElementCount > state.points.length) group.lastElementChild.remove();
    while (group.childElementCount < state.points.length) {
      group.append(make("svg:g", { class: "lab-point", tabindex: 0, role: "button", "aria-roledescription": "movable point" },
        make("svg:circle", { class: "lab-hit", r: 18 }), make("svg:circle", { class: "lab-dot", r: 6.5 })));
    }
    state.points.forEach(([cell, label], i) => {
      const node = group.children[i];
      set(node, { transform: `translate(${this.x(cell).toFixed(1)} ${this.y(label).toFixed(1)})`,
        "aria-label": `Context point ${i + 1} of ${state.points.length}: t ${say(position(cell))}, y ${say(label)}` });
      node.classList.toggle("lab-lit", i === highlight);
    });
  }

  focusPoint(i) { this.layers.points.children[i]?.focus(); }

  /** Index of the point an event target belongs to, or -1. */
  indexOf(target) {
    const node = target.closest?.(".lab-point");
    return node ? Array.prototype.indexOf.call(this.layers.points.children, node) : -1;
  }

  listen() {
    let drag = null, tap = { time: -Infinity };
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const index = this.indexOf(event.target), query = this.query.contains(event.target);
      if (index < 0 && !query) return;
      event.preventDefault();
      drag = { index, pointer: event.pointerId };
      this.svg.setPointerCapture(event.pointerId);
      (query ? this.query : this.layers.points.children[index]).focus({ preventScroll: true });
    });
    // The touch-action of parts of an svg is not heeded everywhere: keep a touch on a handle from scrolling the page.
    this.svg.addEventListener("touchstart", (event) => { if (event.target.closest(".lab-point, .lab-query")) event.preventDefault(); }, { passive: false });
    this.svg.addEventListener("pointermove", (event) => {
      if (!drag) { if (event.pointerType === "mouse") this.actions.highlight(this.indexOf(event.target)); return; }
      if (event.pointerId !== drag.pointer) return;
      const { cell, y } = this.at(event);
      if (drag.index < 0) this.actions.query(cell); else this.actions.move(drag.index, cell, y);
    });
    const end = (event) => { if (drag && event.pointerId === drag.pointer) drag = null; };
    this.svg.addEventListener("pointercancel", end);
    this.svg.addEventListener("pointerup", (event) => {
      if (drag) { end(event); tap = { time: -Infinity }; return; }
      const again = event.timeStamp - tap.time < DOUBLE_TAP.time
        && Math.hypot(event.clientX - tap.x, event.clientY - tap.y) < DOUBLE_TAP.distance;
      tap = again ? { time: -Infinity } : { time: event.timeStamp, x: event.clientX, y: event.clientY };
      if (again) { const { cell, y } = this.at(event); this.actions.add(cell, y); }
    });
    this.svg.addEventListener("pointerleave", () => { if (!drag) this.actions.highlight(-1); });
    // On the holder, because Chromium gives the keyboard focus to an svg element that listens for it.
    this.svg.parentElement.addEventListener("focusin", (event) => this.actions.highlight(this.indexOf(event.target)));
    this.svg.parentElement.addEventListener("focusout", () => this.actions.highlight(-1));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.indexOf(event.target), far = event.shiftKey;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const commands = {
      a: () => this.actions.addSomewhere(), "[": () => this.actions.layer(-1), "]": () => this.actions.layer(1),
      p: () => this.actions.play(),
      Delete: () => index >= 0 && this.actions.remove(index), Backspace: () => index >= 0 && this.actions.remove(index),
    };
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (moves[name]) {
      const [dx, dy] = moves[name];
      if (index >= 0) this.actions.nudge(index, dx * (far ? 10 : 1), dy * (far ? 0.5 : 0.05));
      else this.actions.nudgeQuery((dx || dy) * (far ? 10 : 1));
    } else if (index < 0 && (name === "Home" || name === "End")) this.actions.query(name === "Home" ? 0 : SIZE - 1);
    else if (commands[name]) commands[name]();
    else return;
    event.preventDefault();
  }
}
