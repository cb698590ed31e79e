"""The batched transformer: linear projections, any attention non-linearity, residual stream, nothing else.

This is the engine that trains. It is a second implementation of `attention.layer` and is tested equal to it. It knows
nothing of losses, label laws or functional gradient descent.
"""

from typing import NamedTuple

import torch
from torch import nn

from icfgd import checks
from icfgd.kernels import activation, unchecked_weights


class Trace(NamedTuple):
    """States of all layers 0..k: predictions (k+1, ..., q), residuals (k+1, ..., n), covariates (k+1, ..., n+q, d)."""

    predictions: torch.Tensor
    residuals: torch.Tensor
    covariates: torch.Tensor


class Transformer(nn.Module):
    """A stack of `layers` attention layers on covariates of size `d` (paper, sec. 2; label rows of V are block diagonal).

    heads: activation names or kernels, the same list in every layer, or a list of such lists, one per layer.
    Parameters: A, B, C of shape (k, m, *batch, d, d) and r of shape (k, m, *batch) for k layers and m heads;
    V = diag(A, -r). Fresh parameters are A = 0, B = C = I, r = 0: a network that predicts 0.
    divide_by_context: divide every sum over the context by n, as the paper's code does.
    batch: shape in front of each parameter, which must broadcast with the batch shape of the covariates; it lets many
    networks of one shape run in a single pass, e.g. batch=(3, 1) for covariates (3, prompts, n+q, d).
    """

    def __init__(self, d, layers, heads=("exponential",), divide_by_context=False, batch=(), dtype=torch.float64):
        super().__init__()
        self.d = checks.integer("d", d, low=1)
        self.layers = checks.integer("layers", layers, low=1)
        self.divide_by_context = bool(divide_by_context)
        self.batch = tuple(checks.integer("batch", size, low=1) for size in batch)
        checks.floating("dtype", dtype)
        self.heads = self._read_heads(heads)
        count = len(self.heads[0])
        eye = torch.eye(d, dtype=dtype).expand(layers, count, *self.batch, d, d)
        self.A = nn.Parameter(torch.zeros_like(eye))
        self.B = nn.Parameter(eye.clone())
        self.C = nn.Parameter(eye.clone())
        self.r = nn.Parameter(torch.zeros(layers, count, *self.batch, dtype=dtype))

    def _read_heads(self, heads):
        if not isinstance(heads, (list, tuple)) or not heads:
            raise ValueError(f"heads = {heads!r}; a non-empty list of activation names or kernels is required.")
        nested = all(isinstance(row, (list, tuple)) for row in heads)
        rows = [list(row) for row in heads] if nested else [list(heads)] * self.layers
        if len(rows) != self.layers or len({len(row) for row in rows}) != 1 or not rows[0]:
            sizes = [len(row) for row in rows]
            raise ValueError(f"heads has rows of sizes {sizes}; {self.layers} rows of one positive size are required.")
        return [[activation(h) for h in row] for row in rows]

    @torch.no_grad()
    def randomise(self, generator, scale=0.1, steps=0.0):
        """Set B and C to I plus Gaussian noise of standard deviation `scale`, A to such noise, r to `steps` plus noise.

        Returns self. All noise comes from `generator`.
        """
        checks.generator("generator", generator)
        scale, steps = checks.number("scale", scale, low=0), checks.number("steps", steps)
        for parameter in (self.A, self.B, self.C, self.r):
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype, device=generator.device)
            parameter.copy_(scale * noise.to(parameter.device))
        eye = torch.eye(self.d, dtype=self.A.dtype, device=self.A.device)
        self.B += eye
        self.C += eye
        self.r += steps
        return self

    def states(self, X, queries=1):
        """Yield (X_l, [H_l of each head]) for l = 0..k-1 and then (X_k, None).

        X (..., n+q, d). H (..., n, n+q) are attention weights of context tokens (rows) for all tokens (columns),
        already divided by n where the model divides by the context length. What overflows is not finite here; `trace`
        and `attention` look and raise.
        """
        n = checks.covariates("X", X, queries, self.d)
        checks.alike(A=self.A, X=X)
        checks.batches(X=X.shape[:-2], r=self.r.shape[2:])
        return self._states(X, n)

    def _states(self, X, n):
        for layer in range(self.layers):
            context = X[..., :n, :]
            weights, change = [], 0
            for head, h in enumerate(self.heads[layer]):
                B, C, A = self.B[layer, head], self.C[layer, head], self.A[layer, head]
                H = unchecked_weights(h, context @ B.mT, X @ C.mT)
                if self.divide_by_context:
                    H = H / n
                weights.append(H)
                change = change + (H.mT @ context) @ A.mT
            yield X, weights
            X = X + change
        yield X, None

    def attention(self, X, queries=1):
        """The attention weights (..., m, n, n+q) of every layer, as a list of length k. X (..., n+q, d).

        Raises `FloatingPointError` if they overflow.
        """
        found = [torch.stack(weights, dim=-3) for _, weights in self.states(X, queries) if weights is not None]
        return [checks.overflow(f"attention of layer {layer + 1} of {self.layers}", H) for layer, H in enumerate(found)]

    def trace(self, X, y, queries=1):
        """Run covariates X (..., n+q, d) and labels y (..., n or more; only the n context labels are read).

        Returns a `Trace`. Predictions are minus the query slots; residuals are the context label slots. Raises
        `FloatingPointError` naming the layer if the forward pass overflows.
        """
        n = checks.covariates("X", X, queries, self.d)
        checks.labels("y", y, n)
        checks.alike(A=self.A, y=y)
        checks.batches(X=X.shape[:-2], y=y.shape[:-1], r=self.r.shape[2:])
        slots = torch.cat([y[..., :n], y.new_zeros(*y.shape[:-1], queries)], dim=-1)
        labels, covariates = [], []
        for layer, (tokens, weights) in enumerate(self.states(X, queries)):
            labels.append(slots)
            covariates.append(tokens)
            if weights is not None:
                slots = slots - sum(
                    self.r[layer, head].unsqueeze(-1) * (slots[..., None, :n] @ H).squeeze(-2)
                    for head, H in enumerate(weights)
                )
        labels = torch.stack(torch.broadcast_tensors(*labels))
        covariates = torch.stack(torch.broadcast_tensors(*covariates))
        finite = torch.isfinite(labels.flatten(1)).all(1) & torch.isfinite(covariates.flatten(1)).all(1)
        if not finite.all():
            layer = int((~finite).nonzero()[0])
            raise FloatingPointError(f"the state after layer {layer} of {self.layers} is not finite; the scores overflow.")
        return Trace(-labels[..., n:], labels[..., :n], covariates)

    def forward(self, X, y, queries=1):
        """Predictions (..., q) of the last layer; arguments as in `trace`."""
        return self.trace(X, y, queries).predictions[-1]
