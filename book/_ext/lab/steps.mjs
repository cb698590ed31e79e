/* Step-size rules of the lab. Each takes the spectral form of the averaged risk (see core.mjs) and a depth and
   returns the steps r_0, ..., r_{k-1} of the layers. Attention, prompts and drawing do not belong here. */

import { symmetricEigen } from "./linalg.mjs";
import { TRAINED } from "./trained.mjs";

export const RULES = ["constant", "pairs", "chebyshev", "optimal", "trained"];
export const TRAINED_DEPTH = TRAINED.depths;
const LARGEST = 1e3;      // optimal steps stay below LARGEST / max |lambda|, and an error made in one layer may
const ROUNDING = 1e6;     // grow by at most ROUNDING in the later ones: rounding would drown the residuals

/** The steps of a setting {rule, step, depth, label, activation}. */
export function chooseSteps(setting, problem) {
  const { rule, step, depth } = setting;
  if (rule === "constant") return new Float64Array(depth).fill(step);
  if (rule === "pairs") return Float64Array.from({ length: depth }, (_, l) => l % 2 ? -step : step);
  if (rule === "chebyshev") return stableOrder(bestChebyshev(problem, depth), problem);
  if (rule === "optimal") return optimal(problem, depth);
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

/** q(lambda) on the spectrum. */
function weights(problem, steps) {
  const z = new Float64Array(problem.n), p = new Float64Array(problem.n).fill(1);
  for (const r of steps) for (let i = 0; i < problem.n; i++) { z[i] += r * p[i]; p[i] *= 1 - r * problem.values[i]; }
  return z;
}

/** Averaged risk after all layers. */
export function finalRisk(problem, steps) {
  const { n, g, b, constant } = problem, z = weights(problem, steps);
  let risk = constant;
  for (let i = 0; i < n; i++) {
    let row = -2 * b[i];
    for (let j = 0; j < n; j++) row += g[i * n + j] * z[j];
    risk += z[i] * row;
  }
  return risk;
}

/** Zeros of the least-squares residual polynomial for weights G_ii / lambda_i^2 on the spectrum: eigenvalues of the
 *  Jacobi matrix of the Lanczos process started at sqrt(G_ii / |lambda_i|). When attention and labels share their
 *  kernel and there is no noise, their reciprocals are the best steps of all, exactly. */
function leastSquaresSteps(problem, depth) {
  const { n, values, g } = problem, top = largest(problem), basis = [], t = new Float64Array(depth * depth);
  const dot = (a, b) => { let sum = 0; for (let i = 0; i < n; i++) sum += a[i] * b[i]; return sum; };
  let v = values.map((x, i) => Math.abs(x) > 1e-12 * top ? Math.sqrt(Math.max(g[i * n + i], 0) / Math.abs(x)) : 0);
  let norm = Math.sqrt(dot(v, v)), k = 0;
  const start = norm;
  while (k < depth && norm > 1e-10 * (k ? top : start)) {
    const unit = v.map((x) => x / norm), w = new Float64Array(n);
    if (k) t[(k - 1) * depth + k] = t[k * depth + k - 1] = norm;
    basis.push(unit);
    for (let i = 0; i < n; i++) w[i] = unit[i] * values[i];
    t[k * depth + k] = dot(unit, w);
    for (const turn of [0, 1]) for (const u of basis) {
      const c = dot(w, u);
      for (let i = 0; i < n; i++) w[i] -= c * u[i];
    }
    v = w; norm = Math.sqrt(dot(v, v)); k++;
  }
  const small = new Float64Array(k * k);
  for (let i = 0; i < k; i++) for (let j = 0; j < k; j++) small[i * k + j] = t[i * depth + j];
  const zeros = k ? symmetricEigen(small, k).values : [];
  const steps = Array.from(zeros, (x) => Math.abs(x) > top / LARGEST ? 1 / x : 0);
  return [...steps, ...new Array(depth - k).fill(0)];
}

/** Lower the averaged risk over real steps. It is a quadratic in each single step, so every move is exact. */
export function polish(problem, start, sweeps, longest = LARGEST) {
  const { n, values } = problem, limit = longest / largest(problem), cut = (r) => Math.max(-limit, Math.min(limit, r));
  let steps = Float64Array.from(start, cut), last = finalRisk(problem, steps);
  const k = steps.length, after = Array.from({ length: k + 1 }, () => ({ p: new Float64Array(n).fill(1), z: new Float64Array(n) }));
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const before = steps.slice(), head = { p: new Float64Array(n).fill(1), z: new Float64Array(n) };
    for (let l = k - 1; l >= 0; l--) for (let i = 0; i < n; i++) {             // layers l, ..., k - 1 alone
      after[l].p[i] = (1 - steps[l] * values[i]) * after[l + 1].p[i];
      after[l].z[i] = steps[l] + (1 - steps[l] * values[i]) * after[l + 1].z[i];
    }
    for (let l = 0; l < k; l++) {
      const best = bestStep(problem, head, after[l + 1]);
      if (Number.isFinite(best)) steps[l] = cut(best);
      for (let i = 0; i < n; i++) { head.z[i] += steps[l] * head.p[i]; head.p[i] *= 1 - steps[l] * values[i]; }
    }
    const risk = finalRisk(problem, steps);
    if (!(risk < last)) steps = before;                      // rounding, or a step at its limit
    if (!(last - risk > 1e-7 * risk)) break;
    last = risk;
  }
  return withoutIdle(problem, steps, last);
}

/** The best single step between the layers before it and the layers after it, each given as {p, z}. */
function bestStep({ n, g, b }, head, tail) {
  const p = new Float64Array(n), z = new Float64Array(n);
  for (let i = 0; i < n; i++) { p[i] = head.p[i] * tail.p[i]; z[i] = head.z[i] + head.p[i] * tail.z[i]; }
  let slope = 0, curvature = 0;
  for (let i = 0; i < n; i++) {
    let row = 0;
    for (let j = 0; j < n; j++) row += g[i * n + j] * p[j];
    curvature += row * p[i];
    slope += b[i] * p[i] - row * z[i];
  }
  return slope / curvature;
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

/** The best steps for this prompt found from two starts, the least-squares and the Chebyshev steps, in order. Where they
 *  are so long that rounding would show, the best of fewer layers or of shorter steps. */
export function optimal(problem, depth) {
  const small = active(problem), plain = bestChebyshev(problem, depth);
  const order = (s) => stableOrder([...s, ...new Array(depth - s.length).fill(0)], problem);
  const sound = (s) => rounding(s, problem.values) <= ROUNDING;
  const found = [leastSquaresSteps(small, depth), plain].map((s) => polish(small, s, 12));
  let steps = finalRisk(small, found[0]) <= finalRisk(small, found[1]) ? found[0] : found[1], ordered = order(steps);
  const all = [ordered, order(plain), new Float64Array(depth)];
  if (!sound(ordered)) {
    for (let m = Math.min(depth, small.n) - 1, fewer = ordered; m > 0 && !sound(fewer); m--) {
      fewer = order(polish(small, leastSquaresSteps(small, m), 3));
      all.push(fewer);
    }
    for (const limit of [100, 20, 4]) {
      steps = polish(small, steps, 6, limit);
      ordered = order(steps);
      all.push(ordered);
      if (sound(ordered)) break;
    }
  }
  const risks = all.map((s) => sound(s) ? finalRisk(problem, s) : Infinity);
  return all[risks.indexOf(Math.min(...risks))];
}

/** The same problem without the directions that carry no loss that could be seen (most of them, with many points).
 *  Directions that no query sees, and those of negative eigenvalues, could grow out of all bounds with the residuals in
 *  them; a small multiple of p^2 there keeps them from doing so. */
function active(problem) {
  const { n, values, g, b, constant } = problem, top = largest(problem), weight = 1e-6 * constant / n;
  const seen = (i) => g[i * n + i] * (LARGEST / top) ** 2 > 1e-13 * constant || Math.abs(values[i]) === top;
  const guarded = (i) => values[i] < -1e-9 * top || (values[i] > 1e-3 * top && !seen(i));
  const keep = Array.from(values.keys()).filter((i) => guarded(i) || seen(i)), m = keep.length;
  const small = { n: m, values: Float64Array.from(keep, (i) => values[i]), g: new Float64Array(m * m), b: new Float64Array(m), constant };
  keep.forEach((from, i) => {
    keep.forEach((other, j) => { small.g[i * m + j] = g[from * n + other]; });
    const lambda = guarded(from) ? values[from] : 0;
    small.g[i * m + i] += weight * lambda * lambda;
    small.b[i] = b[from] + weight * lambda;
    if (lambda) small.constant += weight;
  });
  return small;
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
  const other = rounding(out, values) < ROUNDING ? out : leja(order);
  return Float64Array.from([...(rounding(other, values) < rounding(out, values) ? other : out), ...idle]);
}

/** By how much an error made in one layer can grow in the later ones. */
function rounding(steps, values) {
  let worst = 0;
  for (const x of values) {
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
