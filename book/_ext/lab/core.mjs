/* The numerical core of the lab: one prompt of a one-dimensional regression problem goes in, every number the
   page draws comes out. No document, no library, no state: the same functions run under node, where the tests
   compare them with icfgd. Step-size rules live in steps.mjs, eigenvalues in linalg.mjs, drawing elsewhere.

   Positions form a lattice of SIZE points t = -1, -0.99, ..., 1, and position t is the covariate
   (cos(pi t / 2), sin(pi t / 2)) on a half circle, so that <u, v> is the cosine of the angle between them.
   A matrix is a Float64Array, row by row. As in the book, attention has one row per summed (context) token and
   one column per output token, and there is no division by the number of context points. */

import { symmetricEigen } from "./linalg.mjs";
import { chooseSteps } from "./steps.mjs";

export const SIZE = 201;
export const LABELS = ["linear", "relu", "exponential", "gaussian"];
export const ACTIVATIONS = ["linear", "relu", "exponential", "gaussian", "softmax"];
export const position = (cell) => (cell - (SIZE - 1) / 2) / ((SIZE - 1) / 2);

/** The value of a kernel as a function of the inner product s of two points of the unit circle. */
export function kernelValue(name, parameter, s) {
  if (name === "linear") return s;
  if (name === "relu") return Math.max(s, 0);
  if (name === "exponential" || name === "softmax") return Math.exp(s / parameter);
  if (name === "gaussian") return Math.exp((s - 1) / (parameter * parameter));
  throw new RangeError(`unknown kernel ${name}; known are ${ACTIVATIONS.join(", ")}`);
}

const kept = new Map();
function remember(key, make) {
  if (!kept.has(key)) {
    if (kept.size >= 8) kept.delete(kept.keys().next().value);
    kept.set(key, make());
  }
  return kept.get(key);
}

/** A kernel on the whole lattice, SIZE*SIZE. */
export function latticeKernel(name, parameter) {
  return remember(`k ${name} ${parameter}`, () => {
    const row = Float64Array.from({ length: SIZE },
      (_, gap) => kernelValue(name, parameter, Math.cos(Math.PI * gap / (SIZE - 1))));
    const k = new Float64Array(SIZE * SIZE);
    for (let i = 0; i < SIZE; i++) for (let j = 0; j < SIZE; j++) k[i * SIZE + j] = row[Math.abs(i - j)];
    return k;
  });
}

/** The second moment of noise-free labels on the whole lattice, SIZE*SIZE. The ReLU matrix is indefinite, so its
 *  labels have the law |K| = Q |Lambda| Q^T, formed once on the whole lattice: one process, whatever the prompt. */
export function labelMoment(name, parameter) {
  const k = latticeKernel(name, parameter);
  if (name !== "relu") return k;
  return remember("law relu", () => {
    const { values, vectors } = symmetricEigen(k, SIZE);
    const scaled = new Float64Array(SIZE * SIZE), out = new Float64Array(SIZE * SIZE);
    for (let i = 0; i < SIZE; i++) for (let m = 0; m < SIZE; m++) {
      scaled[i * SIZE + m] = vectors[i * SIZE + m] * Math.abs(values[m]);
    }
    for (let i = 0; i < SIZE; i++) for (let j = 0; j <= i; j++) {
      out[i * SIZE + j] = out[j * SIZE + i] = dot(scaled, i * SIZE, vectors, j * SIZE, SIZE);
    }
    return out;
  });
}

/** product of a (rows x inner) and b (inner x columns) */
function times(a, b, rows, inner, columns) {
  const out = new Float64Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let m = 0; m < inner; m++) {
      const x = a[i * inner + m], o = i * columns, p = m * columns;
      for (let j = 0; j < columns; j++) out[o + j] += x * b[p + j];
    }
  }
  return out;
}

/** sum of a[i + m] * b[j + m] for m < count; four sums at a time, because one would wait for itself */
function dot(a, i, b, j, count) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, m = 0;
  for (; m + 3 < count; m += 4) {
    s0 += a[i + m] * b[j + m]; s1 += a[i + m + 1] * b[j + m + 1];
    s2 += a[i + m + 2] * b[j + m + 2]; s3 += a[i + m + 3] * b[j + m + 3];
  }
  for (; m < count; m++) s0 += a[i + m] * b[j + m];
  return s0 + s1 + (s2 + s3);
}

function transpose(a, rows, columns) {
  const out = new Float64Array(rows * columns);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) out[j * rows + i] = a[i * columns + j];
  return out;
}

/** rows `at` of a lattice matrix: (n, SIZE) */
function rowsOf(matrix, at) {
  const out = new Float64Array(at.length * SIZE);
  at.forEach((cell, i) => out.set(matrix.subarray(cell * SIZE, (cell + 1) * SIZE), i * SIZE));
  return out;
}

/** columns `at` of an (n, SIZE) matrix: (n, n) */
function gather(wide, at) {
  const n = at.length, out = new Float64Array(n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) out[i * n + j] = wide[i * SIZE + at[j]];
  return out;
}

/** Attention of the context tokens to every lattice position, (n, SIZE), and the normalisers of its columns. */
function attentionColumns(name, parameter, at) {
  const columns = rowsOf(latticeKernel(name, parameter), at), sums = new Float64Array(SIZE).fill(1);
  if (name === "softmax") {
    sums.fill(0);
    for (let i = 0; i < at.length; i++) for (let j = 0; j < SIZE; j++) sums[j] += columns[i * SIZE + j];
    for (let i = 0; i < at.length; i++) for (let j = 0; j < SIZE; j++) columns[i * SIZE + j] /= sums[j];
  }
  return { columns, sums };
}

/** Gaussian-process posterior of the label at every lattice position (noise included), by the eigenvalues of the
 *  context moment; directions at rounding level are left out, with the cut-off of icfgd.bayes. */
function posterior(moment, cross, y, law, noise) {
  const n = y.length, { values, vectors } = symmetricEigen(moment, n);
  const floor = (n + 1) * Number.EPSILON * values[n - 1], turned = times(transpose(vectors, n, n), cross, n, n, SIZE);
  const mean = new Float64Array(SIZE), variance = new Float64Array(SIZE);
  for (let j = 0; j < SIZE; j++) variance[j] = law[j * SIZE + j] + noise;
  for (let m = 0; m < n; m++) {
    if (values[m] <= floor) continue;
    let score = 0;
    for (let i = 0; i < n; i++) score += vectors[i * n + m] * y[i];
    for (let j = 0; j < SIZE; j++) {
      const c = turned[m * SIZE + j];
      mean[j] += c * score / values[m];
      variance[j] -= c * c / values[m];
    }
  }
  for (let j = 0; j < SIZE; j++) variance[j] = Math.max(variance[j], 0);
  return { mean, variance };
}

/** The conditional risk, averaged over all lattice queries, as a quadratic in z = q(lambda), where the weights of
 *  the network are q(H) eta and lambda are the eigenvalues of the context attention H = D^(1/2) S D^(-1/2):
 *  risk = constant - 2 b.z + z.G z. Everything about step sizes happens in these coordinates. */
function spectralProblem(attention, wide, sums, moment, cross, law, noise, at) {
  const n = at.length, root = Float64Array.from(at, (cell) => Math.sqrt(sums[cell]));
  const symmetric = new Float64Array(n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j <= i; j++) {
    symmetric[i * n + j] = symmetric[j * n + i] = attention[i * n + j] * root[j] / root[i];
  }
  const { values, vectors } = symmetricEigen(symmetric, n);
  const v = new Float64Array(n * n), inverse = new Float64Array(n * n);
  for (let i = 0; i < n; i++) for (let m = 0; m < n; m++) {
    v[i * n + m] = vectors[i * n + m] * root[i];
    inverse[m * n + i] = vectors[i * n + m] / root[i];
  }
  const vt = transpose(v, n, n), c = times(inverse, wide, n, n, SIZE), t = times(vt, cross, n, n, SIZE);
  const g = times(vt, times(moment, v, n, n, n), n, n, n), b = new Float64Array(n);
  let constant = noise;
  for (let j = 0; j < SIZE; j++) constant += law[j * SIZE + j] / SIZE;
  for (let i = 0; i < n; i++) {
    b[i] = dot(c, i * SIZE, t, i * SIZE, SIZE) / SIZE;
    for (let m = 0; m <= i; m++) {
      g[i * n + m] *= dot(c, i * SIZE, c, m * SIZE, SIZE) / SIZE;
      g[m * n + i] = g[i * n + m];
    }
  }
  return { n, values, g, b, constant };
}

/** Forward pass over the layers: label row of the context tokens and, for all lattice positions at once, minus the
 *  query slot. Returns residuals (k+1, n) and curves (k+1, SIZE). */
function forward(attention, wide, y, steps) {
  const n = y.length, k = steps.length;
  const residuals = new Float64Array((k + 1) * n), curves = new Float64Array((k + 1) * SIZE);
  residuals.set(y);
  for (let l = 0; l < k; l++) {
    const now = residuals.subarray(l * n, (l + 1) * n), next = residuals.subarray((l + 1) * n, (l + 2) * n);
    const f = curves.subarray((l + 1) * SIZE, (l + 2) * SIZE);
    next.set(now);
    f.set(curves.subarray(l * SIZE, (l + 1) * SIZE));
    for (let i = 0; i < n; i++) {
      const push = steps[l] * now[i];
      for (let j = 0; j < n; j++) next[j] -= push * attention[i * n + j];
      for (let j = 0, w = i * SIZE; j < SIZE; j++) f[j] += push * wide[w++];
    }
  }
  return { residuals, curves };
}

/** Conditional risk at one query after 0, ..., k layers: u^T K u with u = (-w, 1) and w the weights of the network. */
function queryRisk(attention, eta, moment, nu, kappa, steps) {
  const n = nu.length, w = new Float64Array(n), risks = new Float64Array(steps.length + 1);
  const v = Float64Array.from(eta);
  for (let l = 0; l <= steps.length; l++) {
    risks[l] = kappa;
    for (let i = 0; i < n; i++) risks[l] += w[i] * (dot(moment, i * n, w, 0, n) - 2 * nu[i]);
    if (l === steps.length) break;
    const before = v.slice();
    for (let i = 0; i < n; i++) { w[i] += steps[l] * before[i]; v[i] -= steps[l] * dot(attention, i * n, before, 0, n); }
  }
  return risks;
}

/** Risk averaged over the interval after 0, ..., k layers. */
export function meanRisks(problem, steps) {
  const { n, values, g, b, constant } = problem, z = new Float64Array(n), p = new Float64Array(n).fill(1);
  return Float64Array.from({ length: steps.length + 1 }, (_, l) => {
    if (l > 0) for (let i = 0; i < n; i++) { z[i] += steps[l - 1] * p[i]; p[i] *= 1 - steps[l - 1] * values[i]; }
    let risk = constant;
    for (let i = 0; i < n; i++) {
      let row = -2 * b[i];
      for (let j = 0; j < n; j++) row += g[i * n + j] * z[j];
      risk += z[i] * row;
    }
    return risk;
  });
}

/** The residual polynomial after `layers` layers, the product of (1 - r lambda). */
export function residualPolynomial(steps, layers, lambda) {
  let p = 1;
  for (let l = 0; l < layers; l++) p *= 1 - steps[l] * lambda;
  return p;
}

/** Labels for the context points drawn from the label law. normal: a function that returns standard normal numbers. */
export function drawLabels(setting, normal) {
  const at = setting.points.map((p) => p[0]), n = at.length;
  const law = gather(rowsOf(labelMoment(setting.label, setting.labelParameter), at), at);
  const { values, vectors } = symmetricEigen(law, n), y = new Float64Array(n);
  for (let m = 0; m < n; m++) {
    const score = Math.sqrt(Math.max(values[m], 0)) * normal();
    for (let i = 0; i < n; i++) y[i] += vectors[i * n + m] * score;
  }
  return y.map((v) => v + Math.sqrt(setting.noise) * normal());
}

/** Everything about one prompt and one network.
 *  setting: {points: [[cell, y], ...], query: cell, label, labelParameter, activation, activationParameter, noise,
 *            rule, step, depth}; see steps.mjs for the rules.
 *  Returns n, y, at, attention (n,n), wide (n,SIZE), mean and variance (SIZE), steps (k), residuals (k+1,n),
 *  curves (k+1,SIZE), values (n eigenvalues of the attention), shares (n, how much of the loss each carries),
 *  risks and queryRisks (k+1), bayesRisk and bayesQueryRisk, problem. */
export function solve(setting) {
  const at = setting.points.map((p) => p[0]), y = Float64Array.from(setting.points, (p) => p[1]), n = at.length;
  if (n < 1) throw new RangeError("points: at least one context point is needed");
  const law = labelMoment(setting.label, setting.labelParameter), cross = rowsOf(law, at), moment = gather(cross, at);
  for (let i = 0; i < n; i++) moment[i * n + i] += setting.noise;
  const { columns: wide, sums } = attentionColumns(setting.activation, setting.activationParameter, at);
  const attention = gather(wide, at);
  const { mean, variance } = posterior(moment, cross, y, law, setting.noise);
  const problem = spectralProblem(attention, wide, sums, moment, cross, law, setting.noise, at);
  const steps = chooseSteps(setting, problem);
  const { residuals, curves } = forward(attention, wide, y, steps);
  const q = setting.query, column = (m) => Float64Array.from(at, (_, i) => m[i * SIZE + q]);
  const queryRisks = queryRisk(attention, column(wide), moment, column(cross), law[q * SIZE + q] + setting.noise, steps);
  const top = Math.max(...problem.values.map(Math.abs));
  const shares = problem.values.map((x, i) => Math.abs(x) > 1e-9 * top ? problem.g[i * n + i] / (x * x) : 0);
  const total = shares.reduce((a, s) => a + s, 0) || 1;
  return {
    n, y, at, attention, wide, mean, variance, steps, residuals, curves, problem, values: problem.values,
    shares: shares.map((s) => s / total), risks: meanRisks(problem, steps), queryRisks,
    bayesRisk: variance.reduce((a, s) => a + s, 0) / SIZE, bayesQueryRisk: variance[q],
  };
}
