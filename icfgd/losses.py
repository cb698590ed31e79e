"""In-context losses: sampled with labels, and exactly integrated over the labels given the covariates.

The label row of the network is linear in the labels and the attention never sees them, so the squared error
has a closed expectation u^T K u over the labels, with u from a recursion that runs from the last layer to the
first. This room holds the two losses and the weights of the predictor; optimisers, gradients and Hessians
belong in floors above.
"""

import torch
from torch import nn
from torch.func import functional_call

from icfgd import checks
from icfgd.processes import Labels


def predictor_weights(model, X, queries=1):
    """The weights w (..., n, q) with which a network predicts: its output at query j is sum_i w_ij y_i.

    model: a `Transformer`; X: covariates (..., n+q, d). The recursion u <- (I - r M H) u is run for all
    queries at once on the n context rows, from the last layer to the first; the row of the query stays 1.
    """
    n = checks.covariates("X", X, queries, model.d)
    if X.dtype != model.r.dtype:
        raise ValueError(f"X has dtype {X.dtype}; {model.r.dtype}, that of the model, is required.")
    mixed = []
    # The range comes first, so that the last, unused covariates are never computed.
    for layer, (_, weights) in zip(range(model.layers), model.states(X, queries)):
        steps = model.r[layer].unsqueeze(-1).unsqueeze(-1)
        total = steps[0] * weights[0]
        for step, H in zip(steps[1:], weights[1:]):
            total = total + step * H
        mixed.append(total)
    w = mixed[-1][..., n:]
    for total in mixed[-2::-1]:
        w = w + total[..., n:] - total[..., :n] @ w
    return w


def integrated_risk(model, X, labels, queries=1):
    """E[(prediction - y)^2 | X] per prompt, exactly: shape (...), averaged over the q queries of a prompt.

    labels: a `Labels` process, or its ready moments (K_hat, nu, kappa) on X, which saves work when X is
    reused. Only second moments enter: no label is drawn and no matrix factorised (an indefinite label kernel
    needs |K|, hence an eigendecomposition, and one query). If scores overflow, the affected entries are not
    finite.
    """
    w = predictor_weights(model, X, queries)
    K_hat, nu, kappa = _moments(labels, X, queries)
    return (kappa - 2 * (w * nu).sum(-2) + (w * (K_hat @ w)).sum(-2)).mean(-1)


def integrated_loss(model, X, labels, queries=1, guard=True):
    """The mean of `integrated_risk` over prompts: a scalar, or one loss per network of a batch of networks.

    X: (..., n+q, d) for a model without batch shape; for batch shape (R, 1), X is (prompts, n+q, d) or (R,
    prompts, n+q, d) and the result (R,). With `guard` a loss that is not finite raises `FloatingPointError`;
    without it the caller must look.
    """
    return _average(model, integrated_risk(model, X, labels, queries), guard)


def sampled_loss(model, X, Y, queries=1, guard=True):
    """The mean squared error on sampled labels Y (..., n+q): context labels go in, query labels are targets.

    Shapes, reduction and `guard` as in `integrated_loss`.
    """
    n = checks.covariates("X", X, queries, model.d)
    checks.shape("Y", checks.finite("Y", Y), (n + queries,))
    error = model(X, Y[..., :n], queries) - Y[..., n:]
    return _average(model, (error**2).mean(-1), guard)


def evaluate_at(function, model, parameters, *arguments):
    """function(model, *arguments) with the tensors of `parameters` (a dict: any of A, B, C, r) in the model.

    A pure function of `parameters`, as `torch.func` and Hessians need it; the model is unchanged. Inside
    `vmap` use functions that do not look at their result, such as `integrated_risk`.
    """
    for name in parameters:
        checks.one_of("parameters", name, ("A", "B", "C", "r"))
    given = {f"model.{name}": value for name, value in parameters.items()}
    return functional_call(_Call(model), given, (function, *arguments))


class _Call(nn.Module):
    """A function of a model as a module: `functional_call` replaces the parameters of modules only."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, function, *arguments):
        return function(self.model, *arguments)


def _moments(labels, X, queries):
    if isinstance(labels, Labels):
        return labels.moments(X, queries)
    if not isinstance(labels, (tuple, list)) or len(labels) != 3:
        kind = type(labels).__name__
        raise ValueError(f"labels is {kind}; a label process or its moments (K_hat, nu, kappa) are required.")
    K_hat, nu, kappa = labels
    n = X.shape[-2] - queries
    checks.shape("labels[0]", K_hat, (n, n))
    checks.shape("labels[1]", nu, (n, queries))
    checks.shape("labels[2]", kappa, (queries,))
    return K_hat, nu, kappa


def _average(model, risk, guard):
    if model.batch and model.batch[-1] != 1:
        raise ValueError(f"model has batch shape {model.batch}; it must end in 1, the axis of the prompts.")
    loss = risk.mean(-1) if model.batch else risk.mean()
    if guard and not bool(torch.isfinite(loss).all()):
        count = int((~torch.isfinite(loss)).sum())
        raise FloatingPointError(f"{count} of {loss.numel()} losses are not finite; the scores overflow.")
    return loss
