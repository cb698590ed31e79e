/* The form of the lab: selects, sliders and buttons that show a state and report changes of it. What a value means is
   said in state.mjs; nothing is computed or drawn here. */

import { ACTIVATIONS, LABELS } from "./core.mjs";
import { LIMITS, NAMES, PARAMETERS } from "./state.mjs";
import { RULES, TRAINED_DEPTH } from "./steps.mjs";
import { make, say, write } from "./svg.mjs";

const STEPS = 200;                    // positions of a logarithmic slider

let serial = 0;
const unique = (name) => `lab-${name}-${++serial}`;

/** A select with a label. */
class Select {
  constructor(label, names, change) {
    const id = unique("select");
    this.input = make("select", { id }, ...names.map((name) => make("option", { value: name }, NAMES[name])));
    this.node = make("div", { class: "lab-field" }, make("label", { for: id }, label), this.input);
    this.input.addEventListener("change", () => change(this.input.value));
  }
  show(value) { this.input.value = value; }
}

/** A slider with a label and its value in words. Logarithmic between low and high unless `whole`; with `zero` its
 *  leftmost position is 0. */
class Slider {
  constructor(label, { low, high, whole = false, zero = false, note = false }, change) {
    const id = unique("slider");
    Object.assign(this, { low, high, whole, zero });
    this.label = make("label", { for: id }, label);
    this.output = make("output", { for: id });
    this.input = make("input", { id, type: "range", min: whole ? low : 0, max: whole ? high : STEPS, step: 1 });
    this.note = note ? make("p", { class: "lab-note" }) : null;
    this.node = make("div", { class: "lab-field" }, this.label, this.output, this.input, ...(note ? [this.note] : []));
    this.input.addEventListener("input", () => change(this.read()));
  }
  read() {
    const at = Number(this.input.value);
    if (this.whole) return at;
    if (this.zero && at === 0) return 0;
    return Number((this.low * (this.high / this.low) ** (at / STEPS)).toPrecision(3));
  }
  show(value, words = say(value)) {
    const at = this.whole ? value : value <= 0 ? 0
      : Math.max(this.zero ? 1 : 0, Math.round(STEPS * Math.log(value / this.low) / Math.log(this.high / this.low)));
    if (document.activeElement !== this.input || this.read() !== value) this.input.value = at;
    this.input.setAttribute("aria-valuetext", words);
    if (this.output.textContent !== words) this.output.textContent = words;
  }
  range(low, high) {
    this.low = low; this.high = high;
    if (this.whole) { this.input.min = low; this.input.max = high; }
  }
  hide(hidden) { this.node.hidden = hidden; }
}

function button(text, action, attributes = {}) {
  const node = make("button", { type: "button", class: "lab-button", ...attributes }, text);
  node.addEventListener("click", action);
  return node;
}

export class Controls {
  /** change(patch): part of the state to change; actions: addSomewhere, removeSelected, redraw, pin, reset, copy. */
  constructor(change, actions) {
    const parameter = (prefix) => new Slider("", { low: 0.1, high: 1 }, (v) => change({ [`${prefix}Parameter`]: v }));
    const kernel = (prefix) => (name) => change({ [prefix]: name, [`${prefix}Parameter`]: PARAMETERS[name]?.start ?? 1 });
    this.label = new Select("Label kernel", LABELS, kernel("label"));
    this.labelParameter = parameter("label");
    this.noise = new Slider("Noise variance", { low: LIMITS.noise[0], high: LIMITS.noise[1], zero: true }, (noise) => change({ noise }));
    this.activation = new Select("Attention", ACTIVATIONS, kernel("activation"));
    this.activationParameter = parameter("activation");
    this.depth = new Slider("Depth k", { low: 1, high: LIMITS.depth, whole: true }, (depth) => change({ depth, layer: depth }));
    this.rule = new Select("Steps", RULES, (rule) => change({ rule }));
    this.step = new Slider("Step r", { low: LIMITS.step[0], high: LIMITS.step[1] }, (step) => change({ step }));
    this.note = make("p", { class: "lab-note" });
    this.remove = button("Remove point", actions.removeSelected);
    this.add = button("Add point", actions.addSomewhere);
    this.pin = button("Pin this network", actions.pin);
    this.copy = button("Copy link", actions.copy);
    const group = (name, ...nodes) => make("fieldset", {}, make("legend", {}, name), ...nodes);
    this.node = make("div", { class: "lab-controls" },
      group("Task", this.label.node, this.labelParameter.node, this.noise.node,
        make("div", { class: "lab-buttons" }, this.add, this.remove, button("Draw labels", actions.redraw,
          { title: "Draw new labels from the label law" }))),
      group("Network", this.activation.node, this.activationParameter.node, this.depth.node),
      group("Steps", this.rule.node, this.step.node, this.note,
        make("div", { class: "lab-buttons" }, this.pin, button("Reset scene", actions.reset), this.copy)));
  }

  show(state, result) {
    this.label.show(state.label);
    this.activation.show(state.activation);
    this.rule.show(state.rule);
    this.parameter(this.labelParameter, state.label, state.labelParameter, "Label");
    this.parameter(this.activationParameter, state.activation, state.activationParameter, "Attention");
    this.noise.show(state.noise);
    this.depth.range(1, state.rule === "trained" ? TRAINED_DEPTH : LIMITS.depth);
    this.depth.show(state.depth);
    this.step.hide(state.rule !== "constant" && state.rule !== "pairs");
    this.step.show(state.step);
    write(this.note, stepNote(state, result));
    this.add.disabled = state.points.length >= LIMITS.points;
    this.remove.disabled = state.points.length <= 1;
    this.pin.textContent = state.pin ? "Unpin" : "Pin this network";
  }

  parameter(slider, kernel, value, whose) {
    const p = PARAMETERS[kernel];
    slider.hide(!p);
    if (!p) return;
    slider.range(p.low, p.high);
    slider.label.textContent = `${whose} ${p.name}`;
    slider.show(value);
  }
}

/** What the present spectrum means for the present steps, in a sentence. */
function stepNote({ rule, step, depth }, { values, steps, n }) {
  const high = values[n - 1], low = values[0], size = Math.max(high, -low), negative = low < -1e-9 * size;
  if (rule === "constant") {
    const bound = 2 / high;
    if (negative) return `No constant step is stable here: the smallest eigenvalue is ${say(low)}.`;
    return step < bound ? `Stable: r is below 2/λ_max = ${say(bound)}.` : `Unstable: r is above 2/λ_max = ${say(bound)}.`;
  }
  if (rule === "pairs") {
    const bound = Math.SQRT2 / size;
    return `Layers alternate +r and \u2212r; ${step < bound ? "stable" : "unstable"}: r is ${step < bound ? "below" : "above"} √2/max|λ| = ${say(bound)}.`;
  }
  if (rule === "chebyshev") return `Zeros of the Chebyshev polynomial of degree ${depth}, on the best interval [a, max|λ|] for this prompt${negative ? ", in pairs of signs" : ""}.`;
  if (rule === "optimal") {
    const idle = steps.filter((r) => r === 0).length;
    const rest = idle ? ` ${idle} ${idle === 1 ? "layer stays" : "layers stay"} idle: longer steps would amplify rounding.` : "";
    return `The best steps found for this prompt, averaged over all queries: r from ${say(Math.min(...steps))} to ${say(Math.max(...steps))}.${rest}`;
  }
  return `One set of steps for all prompts, trained on random prompts of 8 points with noise 0.05 (up to ${TRAINED_DEPTH} layers).`;
}
