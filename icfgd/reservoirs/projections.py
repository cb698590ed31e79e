"""Two classical theorems behind random layers: Johnson-Lindenstrauss (distances) and Cover (separability),
with numbers.

Random features, which the theorem of Bochner concerns, are in `features`.
"""

import itertools
import math

import numpy as np
import torch

from icfgd import checks


def jl_dimension(points, epsilon):
    """Smallest integer m with m >= 4 ln(points) / (eps^2/2 - eps^3/3): the form of Dasgupta and Gupta
    (2003).
    """
    checks.integer("points", points, low=2)
    epsilon = checks.number("epsilon", epsilon, low=0, high=1, strict=True)
    return math.ceil(4 * math.log(points) / (epsilon**2 / 2 - epsilon**3 / 3))


def jl_epsilon(points, dimension):
    """Smallest distortion that `jl_dimension` grants with `dimension` directions, in (0, 1); None if there
    is none.
    """
    checks.integer("dimension", dimension, low=1)
    if jl_dimension(points, 1.0) > dimension:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if jl_dimension(points, middle) > dimension else (low, middle)
    return high


def distortion(X, Y):
    """Largest |squared distance in Y / squared distance in X - 1| over pairs of rows; X (N, d), Y (N, m),
    rows distinct.
    """
    checks.finite("X", X)
    checks.finite("Y", Y)
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y) or len(X) < 2:
        raise ValueError(
            f"X and Y have shapes {tuple(X.shape)}, {tuple(Y.shape)}; (N, d), (N, m), N >= 2, are required."
        )
    before, after = torch.pdist(X) ** 2, torch.pdist(Y) ** 2
    if float(before.min()) == 0:
        raise ValueError("X has two equal rows; distinct rows are required.")
    return float((after / before - 1).abs().max())


def cover_count(points, dimension):
    """C(N, D) = 2 sum_{k < D} binom(N - 1, k): dichotomies of N points in general position that a
    hyperplane through 0 can cut in R^D (Cover 1965).
    """
    checks.integer("points", points, low=1)
    checks.integer("dimension", dimension, low=1)
    return 2 * sum(math.comb(points - 1, k) for k in range(dimension))


def dichotomies(X):
    """All separable sign patterns of the rows of X (N, D), N >= D, in general position: a set of tuples of +1
    and -1.

    A hyperplane can be turned until it passes through D - 1 of the points, and those can then be put on
    either side. Cost N^(D-1) 2^(D-1); for small N and D.
    """
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or not np.isfinite(X).all() or len(X) < X.shape[1]:
        raise ValueError(f"X has shape {X.shape}; finite points (N, D) with N >= D are required.")
    N, D = X.shape
    found = set()
    for chosen in itertools.combinations(range(N), D - 1):
        normal = np.linalg.svd(np.vstack([X[list(chosen)], np.zeros((1, D))]))[2][-1]
        heights = X @ normal
        others = np.delete(heights, chosen)
        if others.size and np.abs(others).min() < 1e-9 * np.abs(X).max():
            raise ValueError(
                f"X is not in general position: a further point lies in the span of the points {chosen}."
            )
        for side in (1, -1):
            signs = np.where(side * heights > 0, 1, -1)
            for free in itertools.product((1, -1), repeat=D - 1):
                signs[list(chosen)] = free
                found.add(tuple(int(s) for s in signs))
    return found


def separable(X, signs):
    """Whether a hyperplane through 0 has all rows of X (N, D) on the sides given by `signs` (N, entries +1 or
    -1).

    Exact up to rounding: the point of least norm in the convex hull of signs * X is 0 or not; non-negative
    least squares finds it (Lawson and Hanson 1974).
    """
    X, signs = np.asarray(X, dtype=float), np.asarray(signs, dtype=float)
    if (
        X.ndim != 2
        or signs.shape != (len(X),)
        or not np.isin(signs, (-1, 1)).all()
        or not np.isfinite(X).all()
    ):
        raise ValueError(
            f"X and signs have shapes {X.shape} and {signs.shape}; (N, D) and (N,) of +1 and -1 are required."
        )
    points = signs[:, None] * X
    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    # Minimise |P^T a|^2 + (1 - sum a)^2 over a >= 0: the residual is 0 exactly if 0 is in the hull.
    A = np.vstack([points.T, np.ones(len(points))])
    b = np.append(np.zeros(points.shape[1]), 1.0)
    return float(np.linalg.norm(A @ _nonnegative(A, b) - b)) > 1e-7


def _nonnegative(A, b):
    """argmin |A x - b| over x >= 0 by the active-set method of Lawson and Hanson."""
    x, active = np.zeros(A.shape[1]), np.zeros(A.shape[1], dtype=bool)
    for _ in range(10 * A.shape[1]):
        slope = A.T @ (b - A @ x)
        slope[active] = 0
        if slope.max(initial=0) < 1e-12 or active.all():
            break
        active[int(np.argmax(slope))] = True
        while True:
            trial = np.zeros_like(x)
            trial[active] = np.linalg.lstsq(A[:, active], b, rcond=None)[0]
            if trial[active].min() > 0:
                break
            low = active & (trial <= 0)
            x = x + (x[low] / (x[low] - trial[low])).min() * (trial - x)
            active &= x > 1e-14
            x[~active] = 0
            if not active.any():
                break
        x = np.where(active, trial, 0.0)
    return x
