"""Gaussian-process regression: the Bayes predictor, its risk, and the risk of any other linear predictor.

Everything is a function of the second moment K = E[Y Y^T | X] with blocks K_hat (context), nu (context-query) and kappa
(query). For Gaussian labels the predictor is the posterior mean; for other labels with the same K it is the best linear
one. Nothing here knows about attention or descent. See Rasmussen and Williams (2006), chapter 2.
"""

import torch

from icfgd import checks


def blocks(K, queries=1):
    """Split K (..., n+q, n+q) into K_hat (..., n, n), nu (..., n, q) and kappa (..., q)."""
    checks.symmetric("K", K)
    n = K.shape[-1] - checks.integer("queries", queries, low=1)
    if n < 1:
        raise ValueError(f"K has {K.shape[-1]} tokens, of which queries = {queries}; n >= 1 is required.")
    return K[..., :n, :n], K[..., :n, n:], torch.diagonal(K, dim1=-2, dim2=-1)[..., n:]


def weights(K, queries=1):
    """The weights w = K_hat^+ nu of the Bayes predictor: shape (..., n, q), one column per query.

    A singular K_hat (linear kernel with n > d, repeated points) uses the pseudo-inverse, whose cut-off is relative to
    the largest eigenvalue. Raises `ValueError` if K_hat or a Schur complement is negative beyond rounding.
    """
    return _solve(K, queries)[0]


def predict(K, y, queries=1):
    """Posterior means (..., q) from context labels y (..., n or more; only the first n are read)."""
    w = weights(K, queries)
    n = w.shape[-2]
    checks.labels("y", y, n)
    checks.alike(K=K, y=y)
    checks.batches(K=K.shape[:-2], y=y.shape[:-1])
    return (y[..., None, :n] @ w).squeeze(-2)


def risk(K, queries=1):
    """The Bayes risk kappa - nu^T K_hat^+ nu given X: shape (..., q); the posterior variance, never negative."""
    return _solve(K, queries)[1]


def conditional_risk(K, w, queries=1):
    """Risk kappa - 2 w^T nu + w^T K_hat w (..., q) given X of the linear predictor with weights w (..., n, q)."""
    K_hat, nu, kappa = blocks(K, queries)
    _check_weights(w, K, nu)
    return kappa - 2 * (w * nu).sum(-2) + (w * (K_hat @ w)).sum(-2)


def excess_risk(K, w, queries=1):
    """Risk above Bayes, (w - w*)^T K_hat (w - w*) of shape (..., q); computed without cancellation."""
    K_hat, nu, _ = blocks(K, queries)
    _check_weights(w, K, nu)
    gap = w - weights(K, queries)
    return (gap * (K_hat @ gap)).sum(-2)


def _check_weights(w, K, nu):
    checks.shape("w", checks.finite("w", w), tuple(nu.shape[-2:]))
    checks.alike(K=K, w=w)
    checks.batches(K=K.shape[:-2], w=w.shape[:-2])


def _solve(K, queries):
    K_hat, nu, kappa = blocks(K, queries)
    values, vectors = torch.linalg.eigh(K_hat)
    top = torch.maximum(values[..., -1:].abs(), kappa.abs().amax(-1, keepdim=True))
    cut = K.shape[-1] * torch.finfo(K.dtype).eps * top  # rounding level of eigenvalues
    if bool((values < -64 * cut).any()):
        raise ValueError(f"K has a context block with eigenvalue {float(values.min()):.3e}; K must be semi-definite.")
    kept = values > cut
    inverse = torch.where(kept, 1 / torch.where(kept, values, torch.ones_like(values)), torch.zeros_like(values))
    coordinates = vectors.mT @ nu
    scaled = inverse.unsqueeze(-1) * coordinates
    w = vectors @ scaled
    schur = kappa - (scaled * coordinates).sum(-2)
    # In a semi-definite K a direction of eigenvalue lambda has |coordinate| <= sqrt(lambda kappa); lambda <= cut here.
    lost = torch.where(kept.unsqueeze(-1), torch.zeros_like(coordinates), coordinates).abs().amax(-2)
    level = 8 * cut.sqrt() * top.sqrt()
    # An eigenvalue is known up to cut only, which the Schur complement feels by w^2 cut in that direction.
    doubt = level + 8 * (scaled**2).sum(-2) * cut
    if bool((schur < -doubt).any()) or bool((lost > level).any()):
        worst = f"Schur complement {float(schur.min()):.3e} and coupling {float(lost.max()):.3e} to null directions"
        raise ValueError(f"K has {worst}; K must be semi-definite.")
    return w, schur.clamp(min=0)
