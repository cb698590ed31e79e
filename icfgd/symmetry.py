"""The group that acts on prompts and parameters: rotations that preserve Sigma, equivariance, finite groups,
orbits.

U acts on covariates by U_Sigma = Sigma^(1/2) U Sigma^(-1/2) and on parameters by conjugation of the whitened
matrices. The fixed points are the symmetric set S: A = a I, B = b Sigma^(-1/2), C = c Sigma^(-1/2). This room
measures equivariance and averages over groups; stationarity and Hessians belong in `landscape`.
"""

import copy
import itertools
import math

import torch
from torch.func import jvp

from icfgd import checks
from icfgd.losses import evaluate_at
from icfgd.processes import power
from icfgd.transformer import Transformer

NAMES = ("A", "B", "C", "r")


def parameters(model):
    """The tensors A, B, C (k, m, d, d) and r (k, m) of a `Transformer`, detached, as a dict."""
    return {name: getattr(model, name).detach() for name in NAMES}


def with_parameters(model, values):
    """A copy of `model` with the tensors of `values` (a dict: any of A, B, C, r) in place of its own."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name, value in values.items():
            getattr(copied, checks.one_of("values", name, NAMES)).copy_(value)
    return copied


def whiten(values, sigma):
    """Whitened coordinates: A -> Sigma^(-1/2) A Sigma^(1/2), B -> B Sigma^(1/2), C -> C Sigma^(1/2), r
    unchanged.

    values: a dict with any of A, B, C, r; the inverse is `unwhiten`.
    """
    return _change(values, power(sigma, -0.5), power(sigma, 0.5))


def unwhiten(values, sigma):
    """The inverse of `whiten`."""
    return _change(values, power(sigma, 0.5), power(sigma, -0.5))


def _change(values, left, right):
    for name, value in values.items():
        if checks.one_of("values", name, NAMES) != "r" and value.shape[-2:] != left.shape:
            raise ValueError(
                f"sigma has shape {tuple(left.shape)}; {tuple(value.shape[-2:])}, that of {name}, is needed."
            )
    moved = dict(values)
    for name, value in values.items():
        if name == "A":
            moved[name] = left @ value @ right
        elif name in ("B", "C"):
            moved[name] = value @ right
    return moved


def u_sigma(U, sigma):
    """U_Sigma = Sigma^(1/2) U Sigma^(-1/2), which preserves x^T Sigma^(-1) x'; U (..., d, d) orthogonal."""
    checks.shape("U", _orthogonal(U), tuple(sigma.shape))
    return power(sigma, 0.5) @ U @ power(sigma, -0.5)


def act(U, values, sigma):
    """The action U . (A, B, C, r) = (U_Sigma^(-1) A U_Sigma, U^T B U_Sigma, U^T C U_Sigma, r); U (d, d)."""
    checks.shape("U", _orthogonal(U), tuple(sigma.shape))
    white = whiten(values, sigma)
    return unwhiten({name: v if name == "r" else U.mT @ v @ U for name, v in white.items()}, sigma)


def project(values, sigma, group=None):
    """The average of the action over a finite `group` (|G|, d, d), or over all rotations and reflections
    (None).

    Over O(d) each whitened matrix N becomes (tr N / d) I.
    """
    white = whiten(values, sigma)
    for name in white.keys() - {"r"}:
        N = white[name]
        if group is None:
            trace = torch.diagonal(N, dim1=-2, dim2=-1).mean(-1)
            white[name] = trace[..., None, None] * torch.eye(N.shape[-1], dtype=N.dtype, device=N.device)
        else:
            white[name] = sum(U.mT @ N @ U for U in _orthogonal(group)) / len(group)
    return unwhiten(white, sigma)


def equivariance_error(model, X, y, U, sigma, queries=1, transform=True):
    """Violation of X_i(U_Sigma X) = U_Sigma X_i(X; U . theta) and Y_i(U_Sigma X, y) = Y_i(X, y; U . theta).

    Covariates X (..., n+q, d), labels y (..., n). Returns two numbers, for covariates and for label slots:
    the largest difference over all layers i, relative to the largest entry if that exceeds 1. This holds for
    every theta if the attention is invariant under U (eq. 8.1). With `transform` False the right side keeps
    theta: identity (C.30) of the paper, which needs theta in S.
    """
    values = parameters(model)
    moved = act(U, values, sigma) if transform else values
    T = u_sigma(U, sigma)
    left = evaluate_at(Transformer.trace, model, values, X @ T.mT, y, queries)
    right = evaluate_at(Transformer.trace, model, moved, X, y, queries)
    return _gap(left.covariates, right.covariates @ T.mT), max(
        _gap(left.residuals, right.residuals), _gap(left.predictions, right.predictions)
    )


def tangent_error(model, direction, X, y, U, sigma, queries=1):
    """Largest violation of the derivative of equivariance along `direction` (a dict like `parameters`), eq.
    (C.31).

    Compares U_Sigma^(-1) d/dt X_i(U_Sigma X; theta + t R) with d/dt X_i(X; theta + t U . R) at t = 0, theta
    in S, and the same for the label slots. Returns two numbers, for covariates and label slots. Forward-mode
    derivatives.
    """
    values = parameters(model)
    if set(direction) != set(values):
        raise ValueError(f"direction has the entries {sorted(direction)}; {sorted(values)} are required.")
    T = u_sigma(U, sigma)

    def derivative(points, along):
        def run(v):
            return evaluate_at(Transformer.trace, model, v, points, y, queries)

        return jvp(run, (values,), (along,))[1]

    left = derivative(X @ T.mT, direction)
    right = derivative(X, act(U, direction, sigma))
    return _gap(left.covariates @ torch.linalg.inv(T).mT, right.covariates), max(
        _gap(left.residuals, right.residuals), _gap(left.predictions, right.predictions)
    )


def signed_permutations(d, dtype=torch.float64):
    """The 2^d d! signed permutation matrices of R^d, (2^d d!, d, d): absolutely irreducible for every d."""
    if checks.integer("d", d, low=1) > 5:
        raise ValueError(f"d = {d}; at most 5 is allowed (2^d d! matrices).")
    eye = torch.eye(d, dtype=dtype)
    signs = itertools.product((1.0, -1.0), repeat=d)
    orders = list(itertools.permutations(range(d)))
    return torch.stack([torch.tensor(s, dtype=dtype)[:, None] * eye[list(o)] for s in signs for o in orders])


def dihedral(m, dtype=torch.float64):
    """The 2m rotations and reflections of a regular m-gon, (2m, 2, 2): absolutely irreducible for m >= 3."""
    turns = torch.arange(checks.integer("m", m, low=1), dtype=dtype) * (2 * math.pi / m)
    rotations = torch.stack([turns.cos(), -turns.sin(), turns.sin(), turns.cos()], -1).reshape(m, 2, 2)
    return torch.cat([rotations, rotations @ torch.diag(torch.tensor([1.0, -1.0], dtype=dtype))])


def commutant_dimension(group):
    """The dimension of the space of matrices that commute with all of `group` (|G|, d, d), a whole finite
    group.

    Equal to the mean of tr(U)^2; 1 means that only multiples of I commute (absolutely irreducible).
    """
    traces = torch.diagonal(_orthogonal(group), dim1=-2, dim2=-1).sum(-1)
    return round(float((traces**2).mean()))


def orbit(X, group, sigma=None):
    """The images of prompts X (P, N, d) under all of `group` (|G|, d, d): (|G| P, N, d), x -> U_Sigma x.

    The empirical law of the result is exactly invariant under the group (sigma None: the identity).
    """
    checks.shape("X", checks.finite("X", X), (None, None, group.shape[-1]))
    T = _orthogonal(group) if sigma is None else u_sigma(group, sigma)
    return torch.cat([X @ t.mT for t in T])


def _gap(a, b):
    return float((a - b).abs().max() / b.abs().max().clamp(min=1))


def _orthogonal(U):
    checks.finite("U", U)
    d = U.shape[-1]
    checks.shape("U", U, (d, d))
    gap = float((U.mT @ U - torch.eye(d, dtype=U.dtype, device=U.device)).abs().max())
    if gap > 1e-8:
        raise ValueError(f"U is not orthogonal (U^T U differs from I by {gap:.1e}).")
    return U
