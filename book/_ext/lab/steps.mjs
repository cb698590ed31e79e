/* Step-size rules of the lab. Each takes the spectral form of the averaged risk (see core.mjs) and a depth and
   returns the steps r_0, ..., r_{k-1} of the layers. Attention, prompts and drawing do not belong here. */

import { symmetricEigen } from "./linalg.mjs";
import { TRAINED } from "./trained.mjs";

export const RULES = ["constant", "pairs", "chebyshev", "optimal", "trained"];
export const TRAINED_DEPTH = TRAINED.depths;
const LARGEST = 1e3;      // no rule uses a step above LARGEST / max |lambda|: rounding would drown the residuals

/** The steps of a setting {rule, step, depth, label, activation}. */
export function chooseSteps(setting, problem) {
  const { rule, step, depth } = setting;
  if (rule === "constant") return new Float64Array(depth).fill(step);
  if (rule === "pairs") return Float64Array.from({ length: depth }, (_, l) => l % 2 ? -step : step);
  if (rule === "chebyshev") return stableOrder(bestChebyshev(problem, depth), problem);
  if (rule === "optimal") return stableOrder(optimal(problem, depth), problem);
  if (rule === "trained") return Float64Array.from(TRAINED.steps[setting.label][setting.activation][depth - 1]);
  throw new RangeError(`unknown rule ${rule}; known are ${RULES.join(", ")}`);
}

const largest = (problem) => problem.values.reduce((a, x) => Math.max(a, Math.abs(x)), 0);

/** Is some eigenvalue negative beyond rounding? */
export const indefinite = (problem) => problem.values[0] < -1e-9 * largest(problem);

/** Chebyshev steps on [low, high]: 1/r are the zeros of the minimax residual polynomial. On an indefinite spectrum
 *  they are taken for lambda^2 and used as pairs +r, -r; an odd layer is then left without a step. */
export function chebyshev(low, high, depth, paired) {
  const zeros = (a, b, k) => Array.from({ length: k },
    (_, l) => (a + b) / 2 - (b - a) / 2 * Math.cos((2 * l + 1) * Math.PI / (2 * k)));
  if (!paired) return zeros(low, high, depth).map((x) => 1 / x);
  const steps = zeros(low * low, high * high, depth >> 1).flatMap((x) => [1 / Math.sqrt(x), -1 / Math.sqrt(x)]);
  return depth % 2 ? [...steps, 0] : steps;
}

/** Chebyshev steps on the interval [a, max |lambda|] whose lower end has the smallest averaged risk. */
export function bestChebyshev(problem, depth) {
  const high = largest(problem);
  let best = null;
  for (let power = 0; power <= 24; power++) {
    const steps = chebyshev(high * 10 ** (-power / 6), high, depth, indefinite(problem)), risk = finalRisk(problem, steps);
    if (!best || risk < best.risk) best = { risk, steps };
  }
  return best.steps;
}

/** q(lambda) and p(lambda) on the spectrum, without layer `skip`. */
function spectrum(problem, steps, skip = -1) {
  const z = new Float64Array(problem.n), p = new Float64Array(problem.n).fill(1);
  for (let l = 0; l < steps.length; l++) if (l !== skip) {
    const r = steps[l];
    for (let i = 0; i < problem.n; i++) { z[i] += r * p[i]; p[i] *= 1 - r * problem.values[i]; }
  }
  return { z, p };
}

function quadratic(g, n, a, b) {
  let sum = 0;
  for (let i = 0; i < n; i++) {
    let row = 0;
    for (let j = 0; j < n; j++) row += g[i * n + j] * b[j];
    sum += a[i] * row;
  }
  return sum;
}

/** Averaged risk after all layers. */
export function finalRisk(problem, steps) {
  const { z } = spectrum(problem, steps);
  let linear = 0;
  for (let i = 0; i < problem.n; i++) linear += problem.b[i] * z[i];
  return problem.constant - 2 * linear + quadratic(problem.g, problem.n, z, z);
}

/** Zeros of the least-squares residual polynomial for weights G_ii / lambda_i^2 on the spectrum: eigenvalues of the
 *  Jacobi matrix of the Lanczos process started at sqrt(G_ii / |lambda_i|). When attention and labels share their
 *  kernel and there is no noise, their reciprocals are the best steps of all, exactly. */
function leastSquaresSteps(problem, depth) {
  const { n, values, g } = problem, top = largest(problem), basis = [], t = new Float64Array(depth * depth);
  let v = values.map((x, i) => Math.abs(x) > 1e-12 * top ? Math.sqrt(Math.max(g[i * n + i], 0) / Math.abs(x)) : 0);
  const dot = (a, b) => a.reduce((s, x, i) => s + x * b[i], 0);
  let norm = Math.sqrt(dot(v, v)), k = 0;
  const start = norm;
  while (k < depth && norm > 1e-10 * (k ? top : start)) {
    v = v.map((x) => x / norm);
    if (k) t[(k - 1) * depth + k] = t[k * depth + k - 1] = norm;
    basis.push(v);
    let w = v.map((x, i) => x * values[i]);
    t[k * depth + k] = dot(v, w);
    for (const turn of [0, 1]) for (const u of basis) { const c = dot(w, u); w = w.map((x, i) => x - c * u[i]); }
    v = w; norm = Math.sqrt(dot(v, v)); k++;
  }
  const small = new Float64Array(k * k);
  for (let i = 0; i < k; i++) for (let j = 0; j < k; j++) small[i * k + j] = t[i * depth + j];
  const zeros = k ? symmetricEigen(small, k).values : [];
  const steps = Array.from(zeros, (x) => Math.abs(x) > top / LARGEST ? 1 / x : 0);
  return [...steps, ...new Array(depth - k).fill(0)];
}

/** Lower the averaged risk over real steps. It is a quadratic in each single step, so every move is exact. */
export function polish(problem, start, sweeps) {
  let steps = Float64Array.from(start), last = finalRisk(problem, steps);
  const { n, g, b } = problem, limit = LARGEST / largest(problem);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const before = steps.slice();
    for (let l = 0; l < steps.length; l++) {
      const { z, p } = spectrum(problem, steps, l), curvature = quadratic(g, n, p, p);
      let slope = -quadratic(g, n, p, z);
      for (let i = 0; i < n; i++) slope += p[i] * b[i];
      const best = slope / curvature;
      if (Number.isFinite(best)) steps[l] = Math.max(-limit, Math.min(limit, best));
    }
    const risk = finalRisk(problem, steps);
    if (!(risk < last)) steps = before;                      // rounding, or a step at its limit
    if (!(last - risk > 1e-7 * risk)) break;
    last = risk;
  }
  return withoutIdle(problem, steps, last);
}

/** Give up long steps that gain nothing: they would only amplify rounding. */
function withoutIdle(problem, steps, risk) {
  for (let l = 0; l < steps.length; l++) {
    const r = steps[l];
    if (Math.abs(r) * largest(problem) < 20) continue;
    steps[l] = 0;
    if (finalRisk(problem, steps) > risk * (1 + 1e-7)) steps[l] = r;
  }
  return steps;
}

/** The best steps for this prompt found from two starts, the least-squares and the Chebyshev steps. */
export function optimal(problem, depth) {
  const small = active(problem), starts = [leastSquaresSteps(small, depth), bestChebyshev(small, depth)];
  const [first, second] = starts.map((s) => polish(small, s, 12));
  return finalRisk(small, first) <= finalRisk(small, second) ? first : second;
}

/** The same problem without the directions that carry no loss that could be seen (most of them, with many points). */
function active(problem) {
  const { n, values, g, b, constant } = problem, top = largest(problem);
  const keep = Array.from(values.keys()).filter((i) => g[i * n + i] * (LARGEST / top) ** 2 > 1e-13 * constant || Math.abs(values[i]) === top);
  const m = keep.length, small = new Float64Array(m * m);
  keep.forEach((from, i) => keep.forEach((other, j) => { small[i * m + j] = g[from * n + other]; }));
  return { n: m, values: Float64Array.from(keep, (i) => values[i]), g: small, b: Float64Array.from(keep, (i) => b[i]), constant };
}

/** The order of the layers does not change the result, only the way there. Greedily, take next the step that leaves the
 *  least loss, among those under which no direction of the spectrum has grown more than fourfold; where that order would
 *  amplify rounding, the Leja order of the zeros instead. Layers without a step come last. */
export function stableOrder(steps, problem) {
  const { n, values, g } = problem, top = largest(problem), out = [], p = new Float64Array(n).fill(1);
  const left = Array.from(steps).filter((r) => Math.abs(r) * top > 1e-6);
  const order = [...left], idle = new Array(steps.length - left.length).fill(0);
  while (left.length) {
    let best = 0, score = Infinity;
    left.forEach((r, at) => {
      let worst = 0, loss = 0;
      for (let i = 0; i < n; i++) {
        const after = Math.abs(p[i] * (1 - r * values[i]));
        worst = Math.max(worst, after);
        if (Math.abs(values[i]) > 1e-9 * top) loss += g[i * n + i] * (after / values[i]) ** 2;
      }
      const mark = worst > 4 ? 1e9 * worst : loss;
      if (mark < score) { score = mark; best = at; }
    });
    const [r] = left.splice(best, 1);
    for (let i = 0; i < n; i++) p[i] *= 1 - r * values[i];
    out.push(r);
  }
  return Float64Array.from([...(rounding(out, values) < 1e4 ? out : leja(order)), ...idle]);
}

/** By how much an error made in one layer can grow in the later ones. */
function rounding(steps, values) {
  let worst = 0;
  for (const x of [values[0], values[values.length - 1]]) {
    let size = 1;
    for (const r of steps) size = Math.max(1, size * Math.abs(1 - r * x));
    worst = Math.max(worst, size);
  }
  return worst;
}

function leja(steps) {
  const left = steps.sort((a, b) => Math.abs(a) - Math.abs(b)), out = [];
  while (left.length) {
    const far = left.map((s) => out.reduce((sum, t) => sum + Math.log(Math.abs(1 / s - 1 / t) + 1e-300), 0));
    out.push(left.splice(far.indexOf(Math.max(...far)), 1)[0]);
  }
  return out;
}
