/* Dense linear algebra of the lab: the symmetric eigenvalue problem and nothing else.
   Householder reduction to tridiagonal form followed by implicit QL with shifts, the classical pair
   described in Golub and Van Loan, Matrix Computations, sections 8.3.1 and 8.3.3.
   Kernels, attention and step sizes do not belong here. */

/** Eigenvalues in ascending order and orthonormal eigenvectors of a symmetric matrix.
 *  matrix: Float64Array of n*n numbers, row by row; it is not changed.
 *  Returns {values: n numbers, vectors: n*n numbers with eigenvector j in column j}. */
export function symmetricEigen(matrix, n) {
  const v = Float64Array.from(matrix), d = new Float64Array(n), e = new Float64Array(n);
  tridiagonalise(v, d, e, n);
  implicitQL(v, d, e, n);
  return sorted(v, d, n);
}

function tridiagonalise(v, d, e, n) {
  for (let j = 0; j < n; j++) d[j] = v[(n - 1) * n + j];
  for (let i = n - 1; i > 0; i--) {
    let scale = 0, h = 0;
    for (let k = 0; k < i; k++) scale += Math.abs(d[k]);
    if (scale === 0) {
      e[i] = d[i - 1];
      for (let j = 0; j < i; j++) { d[j] = v[(i - 1) * n + j]; v[i * n + j] = 0; v[j * n + i] = 0; }
    } else {
      for (let k = 0; k < i; k++) { d[k] /= scale; h += d[k] * d[k]; }
      let f = d[i - 1], g = f > 0 ? -Math.sqrt(h) : Math.sqrt(h);
      e[i] = scale * g; h -= f * g; d[i - 1] = f - g;
      e.fill(0, 0, i);
      for (let j = 0; j < i; j++) {
        f = d[j]; v[j * n + i] = f; g = e[j] + v[j * n + j] * f;
        for (let k = j + 1; k < i; k++) { g += v[k * n + j] * d[k]; e[k] += v[k * n + j] * f; }
        e[j] = g;
      }
      f = 0;
      for (let j = 0; j < i; j++) { e[j] /= h; f += e[j] * d[j]; }
      const hh = f / (h + h);
      for (let j = 0; j < i; j++) e[j] -= hh * d[j];
      for (let j = 0; j < i; j++) {
        f = d[j]; g = e[j];
        for (let k = j; k < i; k++) v[k * n + j] -= f * e[k] + g * d[k];
        d[j] = v[(i - 1) * n + j]; v[i * n + j] = 0;
      }
    }
    d[i] = h;
  }
  for (let i = 0; i < n - 1; i++) {
    v[(n - 1) * n + i] = v[i * n + i]; v[i * n + i] = 1;
    const h = d[i + 1];
    if (h !== 0) {
      for (let k = 0; k <= i; k++) d[k] = v[k * n + i + 1] / h;
      for (let j = 0; j <= i; j++) {
        let g = 0;
        for (let k = 0; k <= i; k++) g += v[k * n + i + 1] * v[k * n + j];
        for (let k = 0; k <= i; k++) v[k * n + j] -= g * d[k];
      }
    }
    for (let k = 0; k <= i; k++) v[k * n + i + 1] = 0;
  }
  for (let j = 0; j < n; j++) { d[j] = v[(n - 1) * n + j]; v[(n - 1) * n + j] = 0; }
  v[n * n - 1] = 1; e[0] = 0;
}

function implicitQL(v, d, e, n) {
  e.copyWithin(0, 1); e[n - 1] = 0;
  let shift = 0, size = 0;
  for (let l = 0; l < n; l++) {
    size = Math.max(size, Math.abs(d[l]) + Math.abs(e[l]));
    let m = l;
    while (m < n - 1 && Math.abs(e[m]) > Number.EPSILON * size) m++;
    if (m > l) {
      do {
        let g = d[l], p = (d[l + 1] - g) / (2 * e[l]), r = Math.hypot(p, 1);
        if (p < 0) r = -r;
        d[l] = e[l] / (p + r); d[l + 1] = e[l] * (p + r);
        const dl1 = d[l + 1], h0 = g - d[l];
        for (let i = l + 2; i < n; i++) d[i] -= h0;
        shift += h0;
        p = d[m];
        let c = 1, c2 = c, c3 = c, s = 0, s2 = 0;
        const el1 = e[l + 1];
        for (let i = m - 1; i >= l; i--) {
          c3 = c2; c2 = c; s2 = s;
          g = c * e[i]; const h = c * p;
          r = Math.sqrt(p * p + e[i] * e[i]);
          e[i + 1] = s * r; s = e[i] / r; c = p / r;
          p = c * d[i] - s * g; d[i + 1] = h + s * (c * g + s * d[i]);
          for (let k = 0, at = i; k < n; k++, at += n) {
            const x = v[at + 1], w = v[at];
            v[at + 1] = s * w + c * x; v[at] = c * w - s * x;
          }
        }
        p = -s * s2 * c3 * el1 * e[l] / dl1;
        e[l] = s * p; d[l] = c * p;
      } while (Math.abs(e[l]) > Number.EPSILON * size);
    }
    d[l] += shift; e[l] = 0;
  }
}

function sorted(v, d, n) {
  const order = Array.from(d.keys()).sort((a, b) => d[a] - d[b]);
  const values = new Float64Array(n), vectors = new Float64Array(n * n);
  order.forEach((from, to) => {
    values[to] = d[from];
    for (let k = 0; k < n; k++) vectors[k * n + to] = v[k * n + from];
  });
  return { values, vectors };
}
