/* The lab: builds the page element, keeps the state, and ties core, stage, panels and controls together. At most one
   solve and one drawing per frame; text alternatives, tables and the address follow when the state has come to rest. */

import { SIZE, drawLabels, position, solve } from "./core.mjs";
import { Controls } from "./controls.mjs";
import { AttentionPanel, LossPanel, PolynomialPanel, StreamPanel } from "./panels.mjs";
import { pythonOf, tableOf } from "./report.mjs";
import { Stage } from "./stage.mjs";
import { LIMITS, SCENES, clampLabel, decode, encode, sceneState, tidy } from "./state.mjs";
import { make, say, write } from "./svg.mjs";

const REST = 250;                                   // milliseconds without a change before slow things follow
const still = matchMedia("(prefers-reduced-motion: reduce)");

class Lab {
  constructor(root) {
    this.root = root;
    this.state = decode(location.hash);
    this.cursor = this.state.layer;
    this.highlight = -1;
    this.stale = true;
    this.build();
    this.observe();
    this.show();
  }

  build() {
    const act = {
      move: (i, cell, y) => this.change({ points: this.state.points.map((p, j) => j === i ? [cell, y] : p) }),
      nudge: (i, dx, dy) => { const [cell, y] = this.state.points[i]; act.move(i, cell + dx, clampLabel(y + dy)); this.announcePoint(i); },
      add: (cell, y) => this.add(cell, y),
      addSomewhere: () => this.addSomewhere(),
      remove: (i) => this.remove(i),
      removeSelected: () => this.remove(this.selected ?? this.state.points.length - 1, false),
      query: (cell) => this.change({ query: cell }),
      nudgeQuery: (d) => { this.change({ query: this.state.query + d }); this.announce(`Query at t ${say(position(this.state.query))}`); },
      highlight: (i) => { if (i >= 0) this.selected = i; if (i !== this.highlight) { this.highlight = i; this.request(); } },
      layer: (d) => { this.stop(); this.change({ layer: this.state.layer + d }); this.announce(`Layer ${this.state.layer} of ${this.state.depth}`); },
      play: () => this.toggle(),
      redraw: () => this.redraw(),
      pin: () => this.change({ pin: this.state.pin ? null : (({ activation, activationParameter, rule, step }) => ({ activation, activationParameter, rule, step }))(this.state) }),
      reset: () => this.scene(this.state.scene),
      copy: () => this.copy(),
    };
    this.scenes = SCENES.map((scene, i) => {
      const node = make("button", { type: "button", class: "lab-scene" }, make("span", { class: "lab-number" }, String(i + 1)), scene.title);
      node.addEventListener("click", () => this.scene(i + 1));
      return node;
    });
    this.sentence = make("p", { class: "lab-sentence", "aria-live": "polite" });
    this.play = make("button", { type: "button", class: "lab-play", "aria-label": "Play the layers" });
    this.play.addEventListener("click", () => this.toggle());
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Layer shown" });
    this.slider.addEventListener("input", () => { this.stop(); this.change({ layer: Number(this.slider.value) }); });
    this.where = make("output", { class: "lab-where" });
    this.live = make("p", { class: "lab-hidden", role: "status" });
    this.holder = make("div", { class: "lab-holder" });
    this.panels = { loss: new LossPanel(), stream: new StreamPanel(), attention: new AttentionPanel(), polynomial: new PolynomialPanel() };
    this.controls = new Controls((patch) => { this.stop(); this.change(patch); }, act);
    this.table = make("div", { class: "lab-table", tabindex: 0, role: "region", "aria-label": "Numbers of this scene, layer by layer" });
    this.code = make("pre", { class: "lab-code", tabindex: 0, role: "region", "aria-label": "Python code of this scene" });
    this.details = [["The numbers, layer by layer", this.table], ["This scene in Python", this.code]].map(([title, node]) => {
      const details = make("details", { class: "lab-details" }, make("summary", {}, title), node);
      details.addEventListener("toggle", () => this.report());
      return details;
    });
    const key = (name, ...text) => make("li", { class: `lab-key-${name}` }, make("span", {}, ...text));
    this.pinKey = key("pin", "pinned network");
    this.root.replaceChildren(
      make("div", { class: "lab-scenes", role: "group", "aria-label": "Scenes" }, ...this.scenes), this.sentence,
      make("ul", { class: "lab-legend", "aria-label": "Curves" }, key("fit", "prediction ", make("i", {}, "f"), make("sub", {}, "\u2113"), " after the layers shown"),
        key("mean", "posterior mean, two standard deviations"), key("point", "context point"), key("query", "query"), this.pinKey),
      this.holder, make("div", { class: "lab-layer" }, this.play, this.slider, this.where), this.live,
      this.controls.node, make("div", { class: "lab-panels" }, ...Object.values(this.panels).map((p) => p.figure)), ...this.details);
    this.stage = new Stage(this.holder, act);
  }

  observe() {
    new ResizeObserver(() => { this.resized = true; this.request(); }).observe(this.holder);
    new MutationObserver(() => { this.panels.attention.restyle(); this.request(); })
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.panels.attention.restyle(); this.request(); });
    addEventListener("hashchange", () => {
      if (location.hash === this.written || !location.hash.startsWith("#scene=")) return;
      this.load(decode(location.hash), false);
      this.root.scrollIntoView();
    });
  }

  /** Change part of the state; everything shown follows in the next frame. */
  change(patch) {
    const before = this.state;
    this.state = tidy({ ...before, ...patch });
    if (Object.keys(patch).some((key) => key !== "layer")) this.stale = true;
    if (!this.playing) this.cursor = this.state.layer;
    this.request();
  }

  load(state, animate) {
    this.stop();
    this.selected = undefined;
    this.state = state;
    this.cursor = state.layer;
    this.stale = true;
    this.highlight = -1;
    if (animate && !still.matches && state.depth > 1) this.start(0);
    this.request();
  }

  scene(number) { this.load(sceneState(number), true); }

  request() {
    if (!this.pending) this.pending = requestAnimationFrame((time) => { this.pending = 0; this.frame(time); });
  }

  frame(time) {
    if (this.playing) this.advance(time);
    this.show();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.rest(), REST);
    if (this.playing) this.request();
  }

  /** Solve if something changed, and draw everything. */
  show() {
    if (this.stale) {
      this.result = solve(this.state);
      this.pinned = this.state.pin ? solve({ ...this.state, ...this.state.pin, depth: pinDepth(this.state) }) : null;
      this.stale = false;
    }
    if (this.resized !== false) this.resize();
    const { state, result, cursor } = this, whole = Math.floor(cursor), share = cursor - whole, n = result.n;
    const now = result.curves.subarray(whole * SIZE, (whole + 1) * SIZE);
    const next = share ? result.curves.subarray((whole + 1) * SIZE, (whole + 2) * SIZE) : now;
    const curve = share ? now.map((v, i) => v + share * (next[i] - v)) : now;
    const pinnedLayer = this.pinned ? Math.min(whole, this.pinned.steps.length) : 0;
    const highlight = this.highlight < n ? this.highlight : -1;
    this.stage.draw(state, result, curve, whole, this.pinned?.curves.subarray(pinnedLayer * SIZE, (pinnedLayer + 1) * SIZE), highlight);
    const atQuery = (l) => result.curves[l * SIZE + state.query];
    this.panels.loss.draw(state, result, cursor, this.pinned);
    this.panels.stream.draw(state, result, atQuery, cursor, highlight);
    this.panels.attention.draw(state, result, highlight);
    this.panels.polynomial.draw(state, result, Math.round(cursor));
    this.controls.show(state, result);
    this.showLayer(Math.round(cursor));
    this.scenes.forEach((node, i) => node.setAttribute("aria-pressed", String(i + 1 === state.scene)));
    write(this.sentence, SCENES[state.scene - 1].say);
    this.pinKey.hidden = !this.pinned;
  }

  showLayer(layer) {
    const { depth } = this.state, words = layer === 0 ? `before the first of ${depth} ${depth === 1 ? "layer" : "layers"}`
      : `layer ${layer} of ${depth}, step r = ${say(this.result.steps[layer - 1])}`;
    this.slider.max = depth;
    this.slider.value = layer;
    this.slider.setAttribute("aria-valuetext", words);
    if (this.where.textContent !== words) this.where.textContent = words;
    this.play.classList.toggle("lab-playing", Boolean(this.playing));
    this.play.setAttribute("aria-label", this.playing ? "Pause" : "Play the layers");
  }

  resize() {
    this.resized = false;
    this.stage.resize(Math.max(280, Math.floor(this.holder.clientWidth)));
    for (const panel of Object.values(this.panels)) panel.resize(Math.max(220, Math.floor(panel.figure.clientWidth)));
  }

  toggle() {
    if (this.playing) { this.change({ layer: Math.round(this.cursor) }); this.stop(); } else this.start(this.cursor >= this.state.depth ? 0 : this.cursor);
    this.request();
  }

  /** Let the layers pass from layer `from` to the last; in whole layers, one a second, if motion is to be reduced. */
  start(from) {
    this.playing = { from, time: null, pace: still.matches ? 1000 : Math.min(700, Math.max(90, 3200 / this.state.depth)) };
    this.cursor = from;
  }

  advance(time) {
    const run = this.playing;
    run.time ??= time;
    const passed = (time - run.time) / run.pace, at = run.from + (still.matches ? Math.floor(passed) : passed);
    this.cursor = Math.min(at, this.state.depth);
    if (this.cursor >= this.state.depth) { this.stop(); this.change({ layer: this.state.depth }); }
  }

  stop() { this.playing = null; }

  add(cell, y) {
    if (this.state.points.length >= LIMITS.points) { this.announce(`There are already ${LIMITS.points} points.`); return; }
    this.change({ points: [...this.state.points, [cell, clampLabel(y)]] });
    this.show();
    this.stage.focusPoint(this.state.points.length - 1);
    this.announcePoint(this.state.points.length - 1);
  }

  /** Add a point in the middle of the widest gap, on the posterior mean. */
  addSomewhere() {
    const cells = [-10, ...this.state.points.map((p) => p[0]).sort((a, b) => a - b), SIZE + 9];
    let best = 0;
    for (let i = 1; i < cells.length - 1; i++) if (cells[i + 1] - cells[i] > cells[best + 1] - cells[best]) best = i;
    const cell = Math.min(SIZE - 1, Math.max(0, Math.round((cells[best] + cells[best + 1]) / 2)));
    this.add(cell, this.result.mean[cell]);
  }

  remove(index, focus = true) {
    if (this.state.points.length <= 1 || !this.state.points[index]) { this.announce("The last point stays."); return; }
    this.change({ points: this.state.points.filter((_, i) => i !== index) });
    this.highlight = -1;
    this.selected = undefined;
    this.show();
    if (focus) this.stage.focusPoint(Math.min(index, this.state.points.length - 1));
    this.announce(`Point removed, ${this.state.points.length} left.`);
  }

  redraw() {
    let spare = null;
    const normal = () => {
      if (spare !== null) { const z = spare; spare = null; return z; }
      const radius = Math.sqrt(-2 * Math.log(1 - Math.random())), turn = 2 * Math.PI * Math.random();
      spare = radius * Math.sin(turn);
      return radius * Math.cos(turn);
    };
    const y = drawLabels(this.state, normal);
    this.change({ points: this.state.points.map(([cell], i) => [cell, clampLabel(y[i])]) });
    this.announce("New labels drawn.");
  }

  async copy() {
    this.write();
    try { await navigator.clipboard.writeText(location.href); this.announce("Link copied."); }
    catch { this.announce("The link is in the address bar."); }
    this.controls.copy.textContent = "Link is ready";
    setTimeout(() => { this.controls.copy.textContent = "Copy link"; }, 1500);
  }

  announce(text) { this.live.textContent = text; }

  announcePoint(i) {
    const [cell, y] = this.state.points[i];
    this.announce(`Point ${i + 1}: t ${say(position(cell))}, y ${say(y)}`);
  }

  rest() {
    if (this.playing) return;
    this.write();
    for (const panel of Object.values(this.panels)) panel.describe();
    this.report();
  }

  write() {
    const hash = encode(this.state);
    if (location.hash === hash || (location.hash === "" && hash === "#scene=2")) return;
    this.written = hash;
    history.replaceState(null, "", hash);
  }

  report() {
    if (this.details[0].open) this.table.replaceChildren(tableOf(this.state, this.result));
    if (this.details[1].open) this.code.textContent = pythonOf(this.state, this.result);
  }
}

/** A pinned network has the depth of the other; a table of trained steps may end earlier. */
const pinDepth = (state) => tidy({ ...state, ...state.pin }).depth;

const root = document.getElementById("lab");
if (root) root.lab = new Lab(root);
