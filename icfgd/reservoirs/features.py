"""Frozen random features, and the kernels and linear attention they stand for.

A random-feature map phi is a reservoir without attention: it is drawn once and works on every token by
itself. Bochner's theorem (Rahimi and Recht 2007) and the arc-cosine kernel (Cho and Saul 2009) say which
kernel E<phi(u), phi(v)> is. `FeatureKernel` makes a map usable wherever this package expects a kernel, so as
attention of the in-context transformer.
"""

import torch
from torch import nn

from icfgd import checks
from icfgd.kernels import kernel


def frequencies(d, count, generator, orthogonal=False, dtype=torch.float64):
    """Directions (count, d), each row with the law of a standard normal vector; returned rows are scaled
    likewise.

    orthogonal: rows are orthogonal within consecutive groups of d, with independent chi-distributed lengths
    (orthogonal random features, Yu et al. 2016); every single row is still standard normal.
    """
    checks.integer("d", d, low=1)
    checks.integer("count", count, low=1)

    def normal(rows):
        return torch.randn(rows, d, generator=generator, dtype=dtype, device=generator.device)

    if not orthogonal:
        return normal(count)
    groups = []
    for start in range(0, count, d):
        Q, R = torch.linalg.qr(normal(d))
        Q = Q * torch.sign(torch.diagonal(R))
        groups.append((normal(d).norm(dim=-1, keepdim=True) * Q)[: count - start])
    return torch.cat(groups)


class FourierFeatures(nn.Module):
    """phi(x) = D^(-1/2) [cos(Omega x), sin(Omega x)] (..., 2 D), Omega (D, d) normal with variance
    width^(-2).

    E<phi(u), phi(v)> = exp(-|u - v|^2 / (2 width^2)), the kernel 'gaussian'; |phi(x)| = 1.
    """

    def __init__(self, d, count, generator, width=1.0, orthogonal=False, dtype=torch.float64):
        super().__init__()
        checks.number("width", width, low=0, strict=True)
        self.register_buffer("omega", frequencies(d, count, generator, orthogonal, dtype) / width)
        self.expected = kernel("gaussian", width=width)

    def forward(self, x):
        """Tokens (..., N, d) -> features (..., N, 2 D)."""
        phase = x @ self.omega.mT
        return torch.cat([torch.cos(phase), torch.sin(phase)], dim=-1) / self.omega.shape[0] ** 0.5


class ReLUFeatures(nn.Module):
    """phi(x) = D^(-1/2) max(Omega x, 0) (..., D) with standard normal Omega (D, d).

    E<phi(u), phi(v)> is the kernel 'arccosine' (order 1, halved).
    """

    def __init__(self, d, count, generator, orthogonal=False, dtype=torch.float64):
        super().__init__()
        self.register_buffer("omega", frequencies(d, count, generator, orthogonal, dtype))
        self.expected = kernel("arccosine")

    def forward(self, x):
        """Tokens (..., N, d) -> features (..., N, D)."""
        return torch.relu(x @ self.omega.mT) / self.omega.shape[0] ** 0.5


class FeatureKernel:
    """The kernel scale * <phi(u), phi(v)> of a feature map `phi`, with the methods of `icfgd.kernels.Kernel`
    that use tensors.

    It can be a head of `icfgd.transformer.Transformer` and the kernel of `icfgd.processes.Labels`.
    """

    semidefinite = True
    normalised = False
    parameters = ()

    def __init__(self, phi, scale=1.0, name="features"):
        self.phi, self.name = phi, name
        self.scale = checks.number("scale", scale, low=0, strict=True)

    def matrix(self, U, W):
        """Values (..., a, b) for tokens U (..., a, d) and W (..., b, d)."""
        return self.scale * self.phi(U) @ self.phi(W).mT

    def gram(self, X):
        """The Gram matrix (..., N, N) of tokens X (..., N, d)."""
        return self.matrix(X, X)

    weights = matrix


def linear_attention(queries, keys, values, causal=False):
    """Values mixed with weights <phi(k_i), phi(q_j)>, never forming the matrix of weights.

    queries (..., m, D) and keys (..., n, D) are features, values (..., n, v); returns (..., m, v). The cost
    grows like n D v instead of n m. causal (needs m = n): token j reads i <= j.
    """
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        checks.finite(name, tensor)
    if keys.shape[-2] != values.shape[-2] or keys.shape[-1] != queries.shape[-1]:
        raise ValueError(
            f"keys has shape {tuple(keys.shape)}; (..., {values.shape[-2]}, {queries.shape[-1]}) is required."
        )
    if not causal:
        return queries @ (keys.mT @ values)
    if queries.shape[-2] != keys.shape[-2]:
        raise ValueError(
            f"queries has {queries.shape[-2]} tokens; causal attention requires {keys.shape[-2]}."
        )
    sums = torch.cumsum(keys.unsqueeze(-1) * values.unsqueeze(-2), dim=-3)
    return (queries.unsqueeze(-2) @ sums).squeeze(-2)


def root_mean_square_error(phi, X, expected=None, scale=1.0):
    """Root mean square over pairs i < j of scale <phi(x_i), phi(x_j)> minus the `expected` kernel; X (N,
    d).
    """
    expected = phi.expected if expected is None else expected
    gap = FeatureKernel(phi, scale).gram(X) - expected.gram(X)
    i, j = torch.triu_indices(X.shape[-2], X.shape[-2], offset=1)
    return gap[..., i, j].square().mean().sqrt()
