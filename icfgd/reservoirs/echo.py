"""Echo state networks: a frozen recurrent map, its spectral radius, and a linear readout fitted by ridge
regression.

The classical reservoir (Jaeger 2001), for contrast with feed-forward reservoirs between trained layers.
"""

import torch

from icfgd import checks


def spectral_radius(matrix):
    """Largest absolute value of an eigenvalue of a square matrix (..., N, N)."""
    checks.finite("matrix", matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"matrix has shape {tuple(matrix.shape)}; (..., N, N) is required.")
    return torch.linalg.eigvals(matrix).abs().amax(-1)


def scaled(matrix, radius):
    """`matrix` (N, N) multiplied by a number so that its spectral radius is `radius`. A nilpotent matrix
    is refused.
    """
    checks.number("radius", radius, low=0, strict=True)
    own = float(spectral_radius(matrix))
    if own <= 1e3 * torch.finfo(matrix.dtype).eps * float(matrix.abs().max()):
        raise ValueError(f"matrix has spectral radius {own:.1e}; a positive one is required.")
    return matrix * (radius / own)


class EchoState:
    """h_t = tanh(W h_{t-1} + V x_t) with frozen W (units, units) of the given spectral radius and V (units,
    inputs).

    The influence of h_0 is sure to fade if the spectral norm of W is below 1; a spectral radius below 1 is
    the customary rule, which is neither sufficient nor necessary. input_scale multiplies the standard normal
    V.
    """

    def __init__(self, inputs, units, generator, radius=0.9, input_scale=1.0, dtype=torch.float64):
        checks.integer("inputs", inputs, low=1)
        checks.integer("units", units, low=1)
        checks.number("input_scale", input_scale, low=0)

        def normal(*size):
            return torch.randn(size, generator=generator, dtype=dtype, device=generator.device)

        self.W = scaled(normal(units, units), radius)
        self.V = input_scale * normal(units, inputs)

    @property
    def norm(self):
        """Spectral norm of W; below 1 the network surely forgets."""
        return float(torch.linalg.matrix_norm(self.W, 2))

    def run(self, x, start=None):
        """States (..., T, units) for inputs x (..., T, inputs), from `start` (..., units), by default 0."""
        checks.finite("x", x)
        checks.shape("x", x, (None, self.V.shape[1]))
        h = x.new_zeros(*x.shape[:-2], self.W.shape[0]) if start is None else start
        states = []
        for t in range(x.shape[-2]):
            h = torch.tanh(h @ self.W.mT + x[..., t, :] @ self.V.mT)
            states.append(h)
        return torch.stack(states, dim=-2)


def ridge(states, targets, penalty=1e-6):
    """Readout (units, outputs) minimising |S A - Y|^2 + penalty |A|^2 for S (T, units), Y (T, outputs)."""
    checks.finite("states", states)
    checks.shape("targets", checks.finite("targets", targets), (states.shape[-2], None))
    checks.number("penalty", penalty, low=0, strict=True)
    eye = torch.eye(states.shape[-1], dtype=states.dtype, device=states.device)
    return torch.linalg.solve(states.mT @ states + penalty * eye, states.mT @ targets)
