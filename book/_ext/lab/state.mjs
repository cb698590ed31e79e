/* The state of the lab: what a scene is, which values are allowed, and how a state is written into the fragment of
   the address and read back. Numbers that follow from a state are computed in core.mjs, drawings made elsewhere. */

import { ACTIVATIONS, LABELS, SIZE, position } from "./core.mjs";
import { RULES, TRAINED_DEPTH } from "./steps.mjs";

export const LIMITS = { points: 40, depth: 32, label: 3, step: [0.01, 3], noise: [1e-4, 1] };

/** Parameters of the kernels that have one: its name, the allowed range and the value a fresh choice starts from. */
export const PARAMETERS = {
  exponential: { name: "scale", low: 0.3, high: 3, start: 1 },
  gaussian: { name: "width", low: 0.1, high: 1.5, start: 0.35 },
  softmax: { name: "scale", low: 0.02, high: 3, start: 0.12 },
};

export const NAMES = {
  linear: "linear", relu: "ReLU", exponential: "exponential", gaussian: "Gaussian", softmax: "softmax",
  constant: "constant", pairs: "sign pairs", chebyshev: "Chebyshev", optimal: "optimal", trained: "trained",
};

const BASE = {
  label: "gaussian", labelParameter: 0.35, activation: "gaussian", activationParameter: 0.35,
  noise: 0, rule: "constant", step: 0.5, depth: 8, query: 110, pin: null,
};
const SEVEN = [[14, 0.4], [42, 1.5], [68, 0.2], [94, -1.1], [128, -0.5], [156, 1.2], [186, 0.5]];
const FIVE = [[4, 0.5], [39, 1.4], [103, 0.6], [139, -0.9], [196, -0.3]];
const CLUSTER = [[18, -1.59], [26, -1.54], [33, -1.43], [41, -1.24], [52, -0.89], [96, 0.81], [130, 1.33], [172, 0.74]];
const TEN = [[8, -0.72], [24, -1.39], [40, -1.62], [60, -1.23], [84, -0.18], [104, 0.64], [128, 1.05], [150, 0.88], [170, 0.54], [192, 0.18]];

export const SCENES = [
  {
    title: "One point, one step", points: [[76, 1.6]], depth: 1, step: 1, query: 120,
    say: "With one context point a single layer with step 1/K(x, x) is already the posterior mean: wherever you drag the point, the two curves stay on top of each other.",
  },
  {
    title: "Depth reaches the posterior", points: SEVEN, depth: 24, step: 0.4, query: 110,
    say: "Each layer takes one step of functional gradient descent, and layer after layer the prediction settles on the posterior mean while the loss falls to the Bayes line.",
  },
  {
    title: "A step too long", points: SEVEN, depth: 24, step: 1.12, query: 110,
    say: "The same network with a step above 2/λ_max first improves and then diverges; spread the points out or remove one until λ_max is small enough, and it converges again.",
  },
  {
    title: "ReLU is no kernel", points: FIVE, label: "relu", activation: "relu", rule: "pairs", step: 0.55, depth: 32, query: 70,
    pin: { activation: "relu", activationParameter: 1, rule: "constant", step: 0.55 },
    say: "The ReLU Gram matrix has a negative eigenvalue, so every constant step ends in divergence (grey). Steps of alternating sign contract every direction, slowly, and towards a limit that is not the Bayes predictor.",
  },
  {
    title: "Softmax: early, not right", points: CLUSTER, labelParameter: 0.5, activation: "softmax",
    activationParameter: 0.25, step: 1, depth: 16, query: 140,
    pin: { activation: "gaussian", activationParameter: 0.5, rule: "constant", step: 0.3 },
    say: "Softmax attention smooths with weights that sum to one and needs no small step: after one layer it beats the matching kernel (grey), but with depth it converges to a predictor that is not the Bayes one.",
  },
  {
    title: "Better steps", points: TEN, labelParameter: 0.5, activationParameter: 0.5, rule: "optimal", step: 0.4,
    depth: 6, query: 110,
    pin: { activation: "gaussian", activationParameter: 0.5, rule: "constant", step: 0.4 },
    say: "Six layers whose steps fit the spectrum get far closer to Bayes than six equal ones (grey): the zeros of the residual polynomial sit where the loss is.",
  },
];

/** The state of scene number 1, 2, ... */
export function sceneState(number) {
  const { title, say, ...own } = SCENES[number - 1];
  return tidy({ ...BASE, layer: own.depth, ...own, scene: number });
}

const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const round = (x, digits) => Number(x.toFixed(digits));
export const clampCell = (cell) => clamp(Math.round(cell), 0, SIZE - 1);
export const clampLabel = (y) => round(clamp(y, -LIMITS.label, LIMITS.label), 2);

/** The same state with every value brought into its allowed range. */
export function tidy(state) {
  const s = { ...state };
  s.points = s.points.slice(0, LIMITS.points).map(([cell, y]) => [clampCell(cell), clampLabel(y)]);
  s.query = clampCell(s.query);
  s.noise = s.noise < LIMITS.noise[0] / 2 ? 0 : round(clamp(s.noise, ...LIMITS.noise), 5);
  s.labelParameter = parameterOf(s.label, s.labelParameter);
  s.activationParameter = parameterOf(s.activation, s.activationParameter);
  s.step = round(clamp(s.step, ...LIMITS.step), 4);
  s.depth = clamp(Math.round(s.depth), 1, s.rule === "trained" ? TRAINED_DEPTH : LIMITS.depth);
  s.layer = clamp(Math.round(s.layer), 0, s.depth);
  return s;
}

function parameterOf(name, value) {
  const p = PARAMETERS[name];
  return p ? round(clamp(Number.isFinite(value) ? value : p.start, p.low, p.high), 4) : 1;
}

const kernelText = (name, value) => PARAMETERS[name] ? `${name}:${value}` : name;
const ruleText = (rule, step) => rule === "constant" || rule === "pairs" ? `${rule}:${step}` : rule;

function fields(s) {
  return {
    points: s.points.map(([cell, y]) => `${position(cell)},${y}`).join(";"),
    query: String(position(s.query)), label: kernelText(s.label, s.labelParameter),
    attention: kernelText(s.activation, s.activationParameter), noise: String(s.noise),
    steps: ruleText(s.rule, s.step), depth: String(s.depth), layer: String(s.layer),
    pin: s.pin ? `${kernelText(s.pin.activation, s.pin.activationParameter)},${ruleText(s.pin.rule, s.pin.step)}` : "none",
  };
}

/** The fragment of a state: its scene, and every field in which it differs from it. */
export function encode(state) {
  const own = fields(state), base = fields(sceneState(state.scene));
  base.layer = own.depth;                          // all layers shown is the default at every depth
  const changed = Object.keys(own).filter((key) => own[key] !== base[key]);
  return `#${[`scene=${state.scene}`, ...changed.map((key) => `${key}=${own[key]}`)].join("&")}`;
}

const cellOf = (t) => clampCell((Number(t) + 1) * (SIZE - 1) / 2);

function readKernel(text, allowed) {
  const [name, value] = text.split(":");
  return allowed.includes(name) ? [name, parameterOf(name, Number(value ?? NaN))] : null;
}

function readRule(text, otherwise = 0.5) {
  const [rule, step] = text.split(":");
  return RULES.includes(rule) ? [rule, Number.isFinite(Number(step)) ? Number(step) : otherwise] : null;
}

const READERS = {
  points(s, text) {
    const points = text.split(";").map((pair) => pair.split(",").map(Number)).filter((p) => p.length === 2 && p.every(Number.isFinite));
    if (points.length) s.points = points.map(([t, y]) => [cellOf(t), y]);
  },
  query(s, text) { if (Number.isFinite(Number(text))) s.query = cellOf(text); },
  label(s, text) { const k = readKernel(text, LABELS); if (k) [s.label, s.labelParameter] = k; },
  attention(s, text) { const k = readKernel(text, ACTIVATIONS); if (k) [s.activation, s.activationParameter] = k; },
  noise(s, text) { if (Number(text) >= 0) s.noise = Number(text); },
  steps(s, text) { const r = readRule(text, s.step); if (r) [s.rule, s.step] = r; },
  depth(s, text) { if (Number(text) >= 1) s.depth = s.layer = Number(text); },
  layer(s, text) { if (Number(text) >= 0) s.layer = Number(text); },
  pin(s, text) {
    const [kernel, rule] = text.split(",").map((part, i) => i ? readRule(part) : readKernel(part, ACTIVATIONS));
    s.pin = kernel && rule ? { activation: kernel[0], activationParameter: kernel[1], rule: rule[0], step: rule[1] } : null;
  },
};

/** The state written in a fragment. Unknown fields and unreadable values are passed over. */
export function decode(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, "")), number = Number(given.get("scene"));
  const state = sceneState(Number.isInteger(number) && SCENES[number - 1] ? number : 2);
  for (const [key, read] of Object.entries(READERS)) if (given.has(key)) read(state, given.get(key));
  return tidy(state);
}
