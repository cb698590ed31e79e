"""What a network is trained on: covariates, a label law and a context length, and the batches drawn from
them.

A batch holds covariates and the second moments of their labels; labels themselves are drawn only for the
sampled loss. How parameters change belongs in `loop`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from icfgd import checks
from icfgd.processes import Covariates, Labels


class Batch(NamedTuple):
    """Covariates X (..., n+q, d) and, per query, the second-moment blocks of the labels.

    K is (..., n, n), shared by all queries, or (..., q, n, n) if the label law depends on the query (|K|
    labels); nu is (..., q, n) and kappa (..., q). weights (..., contexts) sum to one: how much each context
    counts.
    """

    X: torch.Tensor
    K: torch.Tensor
    nu: torch.Tensor
    kappa: torch.Tensor
    weights: torch.Tensor

    def loss(self, w):
        """The weighted mean of `risk` over queries and contexts: one number per run."""
        return (self.weights * self.risk(w).mean(-1)).sum(-1)

    def risk(self, w):
        """Mean squared error (..., q) given X of the linear predictors with weights w (..., n, q)."""
        w = w.mT
        Kw = (self.K @ w.unsqueeze(-1)).squeeze(-1) if self.K.ndim == w.ndim + 1 else w @ self.K
        return self.kappa - 2 * (w * self.nu).sum(-1) + (w * Kw).sum(-1)


def stack(batches):
    """One batch with a leading dimension for the runs of a batched pass."""
    return Batch(*(torch.stack(parts) for parts in zip(*batches)))


@dataclass(frozen=True)
class Task:
    """A problem to learn in context: `context` labelled examples of `labels` at `covariates`."""

    covariates: Covariates
    labels: Labels
    context: int

    def __post_init__(self):
        checks.integer("context", self.context, low=1)

    def describe(self):
        """Everything that identifies the task, as plain values."""
        labels, covariates = self.labels, self.covariates
        sigmas = [None if sigma is None else sigma.tolist() for sigma in (covariates.sigma, labels.sigma)]
        kernel, width = repr(labels.kernel), getattr(labels, "width", None)
        return [self.context, covariates.law, labels.name, kernel, width, labels.noise, *sigmas]

    def draw(self, contexts, queries, generator, dtype=torch.float64, context=None, pool=1, sampled=False):
        """A `Batch` of `contexts` independent contexts with `queries` queries each.

        Queries that share a context lower the variance of the loss for little more work. If the label law
        depends on the whole point set (|K| labels), it is formed for each query with its own context.
        context: another length. pool: draw that many times `contexts` candidates and keep the half-batch of
        those with the largest Gram matrix and a random half-batch of the others, weighted so that the loss
        stays unbiased. Rare contexts whose covariates nearly align decide whether a deep network is stable;
        this shows them at every step. sampled: draw labels and put y y^T in the place of its mean K, which
        turns the risk into the sampled loss.
        """
        n = self.context if context is None else checks.integer("context", context, low=1)
        weights = torch.full((contexts,), 1 / contexts, dtype=dtype, device=generator.device)
        if pool == 1 or contexts == 1:
            xi = self.covariates.standard(contexts, n + queries, generator, dtype)
        else:
            total, hard = pool * contexts, contexts // 2
            xi = self.covariates.standard(total, n, generator, dtype)
            columns = xi.permute(2, 1, 0).contiguous()  # many tiny Gram matrices: candidates last is faster
            size = (columns[:, None] * columns).sum(2).square().sum((0, 1))
            top = size.topk(hard).indices
            easy = torch.ones(total, dtype=torch.bool, device=xi.device)
            easy[top] = False
            chosen = torch.cat([top, easy.nonzero().squeeze(-1)[: contexts - hard]])
            weights[:hard] = 1 / total
            weights[hard:] = (total - hard) / (total * (contexts - hard))
            xi = torch.cat([xi[chosen], self.covariates.standard(contexts, queries, generator, dtype)], dim=-2)
        X = xi @ self.covariates.root.to(xi)
        moments = self.moments(X, queries, generator if sampled else None)
        return Batch(X, *moments, weights)

    def moments(self, X, queries, sampler=None):
        """K, nu and kappa of a `Batch` at covariates X (..., n+q, d); a generator as `sampler` draws
        labels."""
        n = X.shape[-2] - queries
        sets, each = X, queries
        if self.labels.single_query:
            shape = (*X.shape[:-2], queries, n, X.shape[-1])
            sets, each = torch.cat([X[..., None, :n, :].expand(shape), X[..., n:, None, :]], dim=-2), 1
        if sampler is None:
            K, nu, kappa = self.labels.moments(sets, each)
            nu = nu.mT
        else:
            y = self.labels.sample(sets, sampler)
            context, query = y[..., :n], y[..., n:]
            K = context.unsqueeze(-1) * context.unsqueeze(-2)
            nu, kappa = query.unsqueeze(-1) * context.unsqueeze(-2), query**2
        if self.labels.single_query:
            nu, kappa = nu.squeeze(-2), kappa.squeeze(-1)
        return K, nu, kappa
