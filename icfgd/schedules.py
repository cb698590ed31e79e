"""Step sizes for k layers of functional gradient descent, and the best that any k steps can do.

Steps r_1..r_k enter through the residual polynomial p(t) = prod (1 - r_l t) only. This room holds the
classical schedules, the least-squares optimal polynomial for a sample of prompts (with the lower bound it
attains) and conjugate gradients, the limit in which every prompt chooses its own polynomial. Putting steps
into a network belongs in `constructions`.
"""

import math
from dataclasses import dataclass

import torch

from icfgd import checks


class ComplexRoots(ValueError):
    """The best residual polynomial has complex roots: no real steps realise it, its value is only a bound."""


def constant(step, layers):
    """`layers` equal steps."""
    return [checks.number("step", step)] * checks.integer("layers", layers, low=1)


def harmonic(layers, scale=1.0):
    """Steps scale / l, l = 1..layers: they vanish but their sum diverges, so every prompt converges."""
    scale = checks.number("scale", scale)
    return [scale / (layer + 1) for layer in range(checks.integer("layers", layers, low=1))]


def chebyshev(low, high, layers):
    """The steps that minimise max |p| over [low, high], 0 < low <= high (reciprocal Chebyshev roots)."""
    low, high = _interval(low, high)
    k = checks.integer("layers", layers, low=1)
    middle, radius = (high + low) / 2, (high - low) / 2
    return leja([1 / (middle - radius * math.cos((2 * j + 1) * math.pi / (2 * k))) for j in range(k)])


def chebyshev_bound(low, high, layers):
    """max |p| over [low, high] of the Chebyshev steps, 1 / T_k((high + low) / (high - low))."""
    low, high = _interval(low, high)
    k = checks.integer("layers", layers, low=1)
    return 0.0 if low == high else 1 / math.cosh(k * math.acosh((high + low) / (high - low)))


def sign_pairs(low, high, layers):
    """Steps of both signs for a spectrum with low <= |t| <= high: +-1/sqrt(z), z Chebyshev roots for t^2.

    `layers` must be even. A polynomial with p(0) = 1 that is small on both sides of 0 needs roots on both
    sides.
    """
    low, high = _interval(low, high)
    if checks.integer("layers", layers, low=2) % 2:
        raise ValueError(f"layers = {layers}; an even number is required: steps come in pairs of signs.")
    squares = chebyshev(low**2, high**2, layers // 2)
    return [sign * math.sqrt(square) for square in squares for sign in (1, -1)]


def leja(steps):
    """The same steps in the Leja order of their roots 1/r, which keeps partial products of 1 - r t small.

    Zero steps (no root) come last. The order does not change the residual polynomial.
    """
    steps = [checks.number("steps", float(step)) for step in steps]
    rest = sorted((step for step in steps if step), key=abs)  # the root of largest modulus first
    order = []
    while rest:
        scores = [sum(math.log(abs(1 / s - 1 / t) + 1e-300) for t in order) for s in rest]
        order.append(rest.pop(max(range(len(rest)), key=lambda i: scores[i])))
    return order + [0.0] * (len(steps) - len(order))


@dataclass(frozen=True)
class Optimum:
    """The best residual polynomials of degree 0..k for a sample of prompts.

    losses (k+1,): the least mean loss over all real polynomials with p(0) = 1 of each degree, a lower bound
    for the loss at each depth. roots (k or fewer, complex): the roots of the best polynomial of degree k.
    """

    losses: torch.Tensor
    roots: torch.Tensor

    @property
    def attained(self):
        """Whether real steps realise the best polynomial of degree k: whether its roots are real."""
        return bool((self.roots.imag.abs() <= 1e-7 * self.roots.abs()).all())

    @property
    def steps(self):
        """The k steps 1/root in Leja order (padded with zeros); raises `ComplexRoots` if there are none."""
        if not self.attained:
            shown = ", ".join(f"{z.real:.4g}{z.imag:+.4g}i" for z in self.roots.tolist())
            raise ComplexRoots(f"the best polynomial has the roots {shown}; no real steps realise it.")
        missing = len(self.losses) - 1 - len(self.roots)
        return leja([1 / z for z in self.roots.real.tolist()] + [0.0] * missing)


def optimal(moments, layers, attention=None):
    """The `Optimum` over `layers` steps shared by all prompts of a sample.

    moments: (K_hat, nu, kappa) of the labels, shapes (..., n, n), (..., n, q), (..., q), as `Labels.moments`
    gives. attention: None when the attention matrix is the label kernel (then the roots are real, positive
    and distinct), or the blocks (H_hat, eta) of another one, or of the noiseless kernel when the labels are
    noisy (roots may be complex). No eigendecomposition of any prompt's matrix: Lanczos or Arnoldi steps on
    the direct sum of all prompts.
    """
    K_hat, nu, kappa = moments
    _system(K_hat, nu)
    k = checks.integer("layers", layers, low=1)
    prior = checks.finite("kappa", kappa).mean()
    if attention is None:
        diagonal, off, norm = jacobi(K_hat, nu, k)
        J = torch.diag(diagonal) + torch.diag(off, 1) + torch.diag(off, -1)
        first = torch.eye(len(diagonal), dtype=J.dtype, device=J.device)[:, 0]
        gains = [norm**2 * torch.linalg.solve(J[:j, :j], first[:j])[0] for j in range(1, len(J) + 1)]
        gains += gains[-1:] * (k - len(J))
        roots = torch.linalg.eigvalsh(J)
        return Optimum(prior - torch.stack([torch.zeros_like(prior), *gains]), roots.to(torch.complex128))
    H_hat, eta = attention
    checks.shape("attention[0]", checks.finite("attention[0]", H_hat), tuple(K_hat.shape[-2:]))
    checks.shape("attention[1]", checks.finite("attention[1]", eta), tuple(nu.shape[-2:]))
    return _mismatched(K_hat, nu, prior, H_hat, eta, k)


def _mismatched(K_hat, nu, prior, H_hat, eta, k):
    """Least squares over weights q(H) eta, deg q < k, in an Arnoldi basis that is orthonormal for E[u^T K_hat
    v].

    With H V_k = V_(k+1) R and weights V_k c, the residual polynomial 1 - t q(t) has coefficients e_0 |eta| -
    R c in the polynomials of the basis, and its roots are the eigenvalues of R with a corrected last column
    (comrade matrix).
    """

    def energy(u, v):
        return _inner(u, K_hat @ v)

    size = energy(eta, eta).clamp(min=0).sqrt()
    if size == 0:
        raise ValueError("attention[1] vanishes on every prompt; some weight on the context is required.")
    basis, R = [eta / size], torch.zeros(k + 1, k, dtype=K_hat.dtype, device=K_hat.device)
    for j in range(k):
        vector = H_hat @ basis[j]
        scale = energy(vector, vector).clamp(min=0).sqrt()
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            for i, v in enumerate(basis):
                part = energy(v, vector)
                R[i, j] += part
                vector = vector - part * v
        R[j + 1, j] = energy(vector, vector).clamp(min=0).sqrt()
        if R[j + 1, j] <= 1e-10 * scale:
            break
        basis.append(vector / R[j + 1, j])
    m = j + 1
    c = torch.stack([_inner(v, nu) for v in basis[:m]])
    losses = prior - torch.cat([torch.zeros_like(c[:1]), (c**2).cumsum(0)])
    losses = torch.cat([losses, losses[-1:].expand(k - m)])
    a = -R[: m + 1, :m] @ c
    a[0] = a[0] + size
    comrade = R[:m, :m].clone()
    if len(basis) > m:
        comrade[:, -1] -= R[m, m - 1] * a[:m] / a[m]
    return Optimum(losses, torch.linalg.eigvals(comrade))


def jacobi(K_hat, nu, layers):
    """The Jacobi matrix of the direct sum over prompts of K_hat w = nu: (diagonal, off-diagonal, norm of nu).

    K_hat (..., n, n), nu (..., n, q). Its eigenvalues are the roots of the residual polynomial of `layers`
    conjugate gradient steps whose scalars are shared by all prompts. The matrix is smaller than `layers` if
    the sample has fewer distinct eigenvalues. Lanczos with full reorthogonalisation (Golub and Welsch 1969).
    """
    _system(K_hat, nu)
    return _lanczos(lambda v: K_hat @ v, nu, checks.integer("layers", layers, low=1), _inner)


def _lanczos(apply, start, count, inner):
    norm = inner(start, start).sqrt()
    if norm == 0:
        raise ValueError("nu vanishes on every prompt; the sample says nothing about steps.")
    basis, diagonal, off = [start / norm], [], []
    for j in range(count):
        vector = apply(basis[j])
        scale = inner(vector, vector).sqrt()
        diagonal.append(inner(basis[j], vector))
        for _ in range(2):
            for v in basis:
                vector = vector - inner(v, vector) * v
        rest = inner(vector, vector).sqrt()
        if j + 1 == count or rest <= 1e-12 * scale:
            break
        off.append(rest)
        basis.append(vector / rest)
    off = torch.stack(off) if off else norm.new_zeros(0)
    return torch.stack(diagonal), off, norm


def moments(K_hat, nu, count):
    """Moments m_j, j = 1..count, of the spectral measure: means over prompts of nu^T K_hat^(j-1) nu.

    K_hat (..., n, n), nu (..., n, q). No eigendecomposition.
    """
    _system(K_hat, nu)
    values, vector = [], nu
    for _ in range(checks.integer("count", count, low=1)):
        values.append(_inner(nu, vector))
        vector = K_hat @ vector
    return torch.stack(values)


def spectral_measure(K_hat, nu):
    """Atoms t (all eigenvalues of all prompts) and masses (q_i . nu)^2 / t, averaged over prompts; two
    vectors.

    The loss of steps with residual polynomial p is Bayes plus the sum of masses p(t)^2. Eigenvalues at
    rounding level are dropped (nu has no part there if the kernel is semi-definite). K_hat (..., n, n), nu
    (..., n, q).
    """
    _system(K_hat, nu)
    values, vectors = torch.linalg.eigh(K_hat)
    floor = 64 * K_hat.shape[-1] * torch.finfo(K_hat.dtype).eps * values[..., -1:]
    if bool((values < -floor).any()):
        raise ValueError(f"K_hat has eigenvalue {float(values.min()):.3e}; it must be semi-definite.")
    kept = values > floor
    squares = ((vectors.mT @ nu) ** 2).mean(-1)
    prompts = values[..., 0].numel()
    return values[kept], squares[kept] / values[kept] / prompts


def christoffel(atoms, masses, degree):
    """min of the integral of p^2 over polynomials of `degree` with p(0) = 1, as 1 / sum_j pi_j(0)^2.

    pi_j are orthonormal for the measure with `masses` at `atoms` (two vectors); Szegoe (1939). The measure
    needs more than `degree` atoms.
    """
    checks.finite("atoms", atoms)
    checks.shape("masses", checks.finite("masses", masses), tuple(atoms.shape))
    count = checks.integer("degree", degree, low=0) + 1
    diagonal, off, norm = _lanczos(lambda v: atoms * v, masses.sqrt(), count, lambda u, v: (u * v).sum())
    if len(diagonal) < count:
        raise ValueError(f"degree = {degree}; these atoms allow at most {len(diagonal) - 1}.")
    before, now = torch.zeros_like(norm), 1 / norm
    total = now**2
    for j in range(count - 1):
        previous = off[j - 1] * before if j else 0
        before, now = now, (-diagonal[j] * now - previous) / off[j]
        total = total + now**2
    return 1 / total


def conjugate_gradients(K, b, iterations, shared=False):
    """Iterates of conjugate gradients on K w = b from w = 0, shape (iterations+1, *b.shape).

    Hestenes and Stiefel (1952). K (..., n, n) semi-definite, b (..., n, q): every column of every prompt is a
    system of its own, or, with `shared`, one system with common scalars (their direct sum). A solved system
    stays put.
    """
    _system(K, b)
    total = (lambda v: v.sum()) if shared else (lambda v: v.sum(-2, keepdim=True))
    w, residual, direction = torch.zeros_like(b), b, b
    iterates, size = [w], total(b * b)
    floor = size * torch.finfo(b.dtype).eps ** 2
    for _ in range(checks.integer("iterations", iterations, low=1)):
        image = K @ direction
        curvature = total(direction * image)
        alive = (size > floor) & (curvature > 0)
        alpha = torch.where(alive, size / torch.where(alive, curvature, 1.0), 0.0)
        w, residual = w + alpha * direction, residual - alpha * image
        new = total(residual * residual)
        beta = torch.where(alive, new / torch.where(alive, size, 1.0), 0.0)
        direction, size = residual + beta * direction, new
        iterates.append(w)
    return torch.stack(iterates)


def _inner(u, v):
    return (u * v).sum(-2).mean()


def _system(K_hat, nu):
    checks.symmetric("K_hat", K_hat)
    checks.finite("nu", nu)
    if nu.ndim < 2 or nu.shape[-2] != K_hat.shape[-1]:
        raise ValueError(f"nu has shape {tuple(nu.shape)}; (..., {K_hat.shape[-1]}, queries) is required.")


def _interval(low, high):
    low = checks.number("low", low, low=0, strict=True)
    return low, checks.number("high", high, low=low)
