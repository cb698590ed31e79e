"""Coordinates in which training is well scaled: one flat vector per run, mapped to the parameters of the
network.

In whitened coordinates A = s S A' S^-1, B = B' S^-1, C = C' S^-1 with S = Sigma^(1/2), so that the symmetric
set of Theorems 1 and 2 is the set of scalar matrices and gradient methods do not leave it; r = s r' and s
measures one over the size of an attention matrix. How the vector changes belongs in `loop`.
"""

import torch
from torch.func import functional_call

from icfgd import checks
from icfgd.losses import predictor_weights
from icfgd.processes import power
from icfgd.transformer import Transformer

COORDINATES = ("whitened", "raw")


class Coordinates:
    """Vectors theta (runs, P) as parameters of `runs` networks of one shape.

    tasks: one per run. heads, layers, divide_by_context: as for `Transformer`. free_A: whether A is trained
    or stays 0.
    """

    def __init__(
        self,
        tasks,
        heads,
        layers,
        divide_by_context,
        free_A=True,
        coordinates="whitened",
        dtype=torch.float64,
    ):
        checks.one_of("coordinates", coordinates, COORDINATES)
        d = tasks[0].covariates.d
        self.runs, self.free_A = len(tasks), bool(free_A)
        options = {"heads": heads, "divide_by_context": divide_by_context, "dtype": dtype}
        self.network = Transformer(d, layers, batch=(self.runs, 1), **options)
        self._weights = _Weights(self.network)
        self._tasks = tasks
        self._single = lambda: Transformer(d, layers, **{**options, "dtype": torch.float64})
        count = len(self.network.heads[0])
        self.shapes = {
            "A": (layers, count, d, d),
            "B": (layers, count, d, d),
            "C": (layers, count, d, d),
            "r": (layers, count),
        }
        if not self.free_A:
            del self.shapes["A"]
        self.size = sum(torch.Size(shape).numel() for shape in self.shapes.values())
        self.root = self.inverse = None
        self.whiten = coordinates == "whitened"
        if self.whiten:
            roots = torch.stack([power(task.covariates.sigma, 0.5) for task in tasks])
            eye = torch.eye(d, dtype=roots.dtype)
            if not torch.allclose(roots, eye.expand_as(roots), rtol=0, atol=1e-14):
                inverses = torch.stack([power(task.covariates.sigma, -0.5) for task in tasks])
                self.root, self.inverse = roots.to(dtype)[:, None], inverses.to(dtype)[:, None]
        self.scale = torch.stack([_attention_scale(self._single(), task) for task in tasks]).T.to(
            dtype
        )  # (m, runs)

    def split(self, theta):
        """Views A', B', C' (k, m, runs, d, d) and r' (k, m, runs) of theta (runs, P)."""
        parts, start = {}, 0
        for name, shape in self.shapes.items():
            size = torch.Size(shape).numel()
            parts[name] = theta[:, start : start + size].reshape(-1, *shape).movedim(0, 2)
            start += size
        return parts

    def parameters(self, theta):
        """Parameters A, B, C (k, m, runs, 1, d, d) and r (k, m, runs, 1) of the batched network at theta
        (runs, P)."""
        parts = self.split(theta)
        scale = self.scale.to(theta)[:, :, None]
        parameters = {name: value.unsqueeze(3) for name, value in parts.items()}
        parameters["r"] = parameters["r"] * scale
        if self.free_A:
            parameters["A"] = parameters["A"] * scale[..., None, None]
        else:
            parameters["A"] = torch.zeros_like(parameters["B"])
        if self.root is not None:
            root, inverse = self.root.to(theta), self.inverse.to(theta)
            parameters["A"] = root @ parameters["A"] @ inverse
            parameters["B"], parameters["C"] = parameters["B"] @ inverse, parameters["C"] @ inverse
        return parameters

    def weights(self, theta, X, queries):
        """Predictor weights (runs, contexts, n, q) of all runs at covariates X (runs, contexts, n+q, d)."""
        parameters = {f"network.{name}": value for name, value in self.parameters(theta).items()}
        return functional_call(self._weights, parameters, (X, queries), tie_weights=False)

    def models(self, theta):
        """One float64 `Transformer` per run."""
        parameters = self.parameters(theta.detach().double())
        models = []
        for run in range(self.runs):
            model = self._single()
            with torch.no_grad():
                for name, value in parameters.items():
                    getattr(model, name).copy_(value[:, :, run, 0])
            models.append(model)
        return models

    def whitened(self, theta):
        """Sigma^(-1/2) A Sigma^(1/2) and Sigma^(1/2) B^T C Sigma^(1/2), both (k, m, runs, d, d), at theta
        (runs, P)."""
        parts = self.split(theta)
        if self.whiten:
            A = (
                parts["A"] * self.scale.to(theta)[:, :, None, None]
                if self.free_A
                else torch.zeros_like(parts["B"])
            )
            return A, parts["B"].mT @ parts["C"]
        parameters = self.parameters(theta)
        roots = torch.stack([power(task.covariates.sigma, 0.5) for task in self._tasks]).to(theta)
        inverses = torch.stack([power(task.covariates.sigma, -0.5) for task in self._tasks]).to(theta)
        A, B, C = (parameters[name].squeeze(3) for name in "ABC")
        return inverses @ A @ roots, roots @ B.mT @ C @ roots

    def start(self, generators, noise=0.05, identity=1.0, spread=2.0):
        """Starting vectors theta (runs, P), one generator per run.

        B' and C' are identity * I plus noise, A' is a fifth of such noise (attention is exponentiated: large
        A overflow). The steps r' run geometrically from 1/spread to spread: equal steps are a saddle by
        symmetry between layers.
        """
        k, m = self.shapes["r"]
        steps = (
            float(spread) ** torch.linspace(-1, 1, k, dtype=torch.float64)
            if k > 1
            else torch.ones(1).double()
        )
        starts = []
        for generator in generators:
            theta = noise * torch.randn(1, self.size, generator=generator, dtype=torch.float64)
            parts = self.split(theta)
            for name in ("B", "C"):
                parts[name] += identity * torch.eye(parts[name].shape[-1], dtype=torch.float64)
            parts["r"] += (steps / m)[:, None, None]
            if self.free_A:
                parts["A"] *= 0.2
            starts.append(theta)
        return torch.cat(starts)


class _Weights(torch.nn.Module):
    """Predictor weights as a module, so that parameters can be substituted functionally."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, X, queries):
        return predictor_weights(self.network, X, queries)


@torch.no_grad()
def _attention_scale(model, task, contexts=64):
    """E tr H / E |H|_F^2 (m,) over the context block at B = C = S^-1: about one over the top eigenvalue of
    H."""
    generator = torch.Generator().manual_seed(0)
    X = task.covariates.sample(contexts, task.context + 1, generator) @ power(task.covariates.sigma, -0.5)
    H = model.attention(X)[0][..., :-1]
    return (H.diagonal(dim1=-2, dim2=-1).sum(-1).mean(0) / H.square().sum((-2, -1)).mean(0)).clamp(min=1e-6)
