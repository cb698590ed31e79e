"""Reservoirs inside in-context gradient descent: layers whose attention, step size, or both are frozen at
random.

The covariates are not moved (A = 0), so a layer is the map of the label row by I - (r / n) M H with H =
h(x_i^T W x_j), and the loss given the covariates is exact for labels of any second moment. The sign of r is
that of `icfgd.transformer`: positive steps descend. Random features as attention: pass a
`features.FeatureKernel` as head.
"""

import torch
from torch import nn

from icfgd import bayes, checks
from icfgd.kernels import activation
from icfgd.processes import power, random_rotation
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.stack import BACKSKIPS

TRAINED = ("all", "scales", "steps")
ATTENTION = ("tied", "untied", "gaussian", "whitened", "none")
LETTERS = "LRT"


class InContext(nn.Module):
    """A stack of in-context layers; `pattern` is a string of L (trained), R and T (frozen at random), input
    to output.

    L starts from `attention`, times `scale`: W = 'tied' (the identity: B = C orthogonal), 'untied' (B^T C for
    independent random rotations), 'gaussian' (B = C Gaussian with variance 1/d), 'whitened' (Sigma^(-1)) or
    'none' (0: plain averaging). trained: what an L trains: 'all' of W and r, 'scales' (a factor of W and r)
    or 'steps' (r only). R is frozen 'untied' attention and T frozen tied attention, both with a step drawn
    from (0, 2). start: where trained r start: 'spread' (0.5 to 2.5, evenly) or 'equal' (all 1; layers
    commute, so they stay equal). frozen_step: a fixed step for the frozen layers instead of a random one.
    backskip: as for `Stack`. head: kernel of the attention, divided by n. Random draws depend on (seed,
    layer) only.
    """

    def __init__(
        self,
        pattern,
        d,
        head="exponential",
        trained="all",
        attention="tied",
        scale=1.0,
        start="spread",
        sigma=None,
        frozen_step=None,
        backskip="exact",
        seed=0,
    ):
        super().__init__()
        if not isinstance(pattern, str) or not pattern or set(pattern) - set(LETTERS):
            raise ValueError(f"pattern = {pattern!r}; a non-empty string of the letters L, R, T is required.")
        self.pattern, self.d = pattern, checks.integer("d", d, low=1)
        self.head = activation(head)
        self.trained = checks.one_of("trained", trained, TRAINED)
        self.backskip = checks.one_of("backskip", backskip, BACKSKIPS)
        checks.one_of("attention", attention, ATTENTION)
        checks.one_of("start", start, ("spread", "equal"))
        self.weights, self.factors, self.r = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        last = max(1, pattern.count("L") - 1)
        for layer, letter in enumerate(pattern):
            generator = private_generator(seed, layer)
            kind = {"L": attention, "R": "untied", "T": "tied"}[letter]
            W = scale * _attention(kind, d, generator, sigma)
            ours = letter == "L"
            step = 2 * float(torch.rand((), generator=generator, dtype=torch.float64))
            if ours:
                step = 1.0 if start == "equal" else 0.5 + 2.0 * pattern[:layer].count("L") / last
            elif frozen_step is not None:
                step = checks.number("frozen_step", frozen_step)
            self.weights.append(nn.Parameter(W, requires_grad=ours and trained == "all"))
            self.factors.append(
                nn.Parameter(torch.ones((), dtype=torch.float64), ours and trained == "scales")
            )
            self.r.append(nn.Parameter(torch.tensor(step, dtype=torch.float64), requires_grad=ours))

    def attention(self, X, queries=1):
        """Matrices H_l / n (..., n, n+q) of every layer, for covariates X (..., n+q, d)."""
        n = checks.covariates("X", X, queries, self.d)
        return [
            self.head.weights(X[..., :n, :], X @ (c * W).mT) / n for W, c in zip(self.weights, self.factors)
        ]

    def predictor(self, X, queries=1):
        """Weights w (..., n, q): the prediction at a query is sum_i w_i y_i.

        The label rows of the n unit labels run through the layers together: slots (..., n, n+q), at first [I,
        0].
        """
        n = X.shape[-2] - queries
        slots = torch.eye(n, n + queries, dtype=X.dtype, device=X.device).expand(*X.shape[:-2], -1, -1)
        for letter, H, r in zip(self.pattern, self.attention(X, queries), self.r):
            change = -r * (slots[..., :n] @ H)
            if letter == "L" or self.backskip == "exact":
                slots = slots + change
            else:
                slots = (slots if self.backskip == "st" else slots.detach()) + change.detach()
        return -slots[..., n:]

    def forward(self, X, labels, queries=1):
        """Mean over prompts of the exact risk given X, for covariates X (..., n+q, d) and a `Labels`
        process.
        """
        return bayes.conditional_risk(labels.second_moment(X), self.predictor(X, queries), queries).mean()

    def steps(self):
        """The step sizes r of all layers, as a list of floats."""
        return [float(r.detach()) for r in self.r]

    def temperatures(self):
        """trace(W) / d of every layer, times its factor: c if W = c I."""
        return [float((c * torch.trace(W)).detach()) / self.d for W, c in zip(self.weights, self.factors)]


def _attention(kind, d, generator, sigma):
    eye = torch.eye(d, dtype=torch.float64)
    if kind == "tied":
        return eye
    if kind == "none":
        return 0 * eye
    if kind == "untied":
        return random_rotation(d, generator).T @ random_rotation(d, generator)
    if kind == "gaussian":
        B = torch.randn(d, d, generator=generator, dtype=torch.float64) / d**0.5
        return B.T @ B
    if sigma is None:
        raise ValueError("sigma = None; attention = 'whitened' requires the covariance of the covariates.")
    return power(sigma, -1.0)


def critical_step(H):
    """2 / lambda_max for symmetric H (..., n, n): repeated steps of size r contract iff 0 < r < this (if H
    > 0).
    """
    return 2 / torch.linalg.eigvalsh(checks.symmetric("H", H)).amax(-1)


def contraction(H, r):
    """max |1 - r lambda| over the (complex) eigenvalues of H (..., n, n): the echo state rate of one
    repeated layer.
    """
    checks.number("r", r)
    return (1 - r * torch.linalg.eigvals(checks.finite("H", H))).abs().amax(-1)
