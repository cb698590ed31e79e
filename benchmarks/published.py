"""The published training recipe, written out as its description says, to race against. It shares no code with
ours.

30 000 prompts per step, redrawn every 10 steps; labels sampled with the eigenvalues of K(X); squared error of
(output + y); AdamW with betas (0.9, 0.9), no weight decay, learning rate 0.1; gradients clipped layer by
layer and matrix by matrix; all parameters start as Gaussian noise of standard deviation 0.1; cross blocks of
V and the label rows of B and C stay 0.
"""

import time

import torch

BATCH, REDRAW, RATE, BETAS, START, CLIP = 30_000, 10, 0.1, (0.9, 0.9), 0.1, 1.0


def draw(batch, n, d, generator):
    """Covariates (batch, n+1, d) on the sphere and labels (batch, n+1) with covariance exp(<x, x'>/2)."""
    X = torch.randn(batch, n + 1, d, generator=generator)
    X = X / X.norm(dim=-1, keepdim=True)
    values, vectors = torch.linalg.eigh(torch.exp(X @ X.mT / 2))
    normal = torch.randn(batch, n + 1, 1, generator=generator)
    y = vectors @ (values.abs().sqrt().unsqueeze(-1) * normal)
    return X, y.squeeze(-1)


def output(parameters, X, y):
    """The query slot of the last layer: exponential attention, every sum divided by n."""
    A, B, C, corner = parameters
    n = X.shape[1] - 1
    slots = torch.cat([y[:, :n], torch.zeros_like(y[:, n:])], dim=1)
    for layer in range(len(A)):
        scores = torch.einsum("bni,ij,bmj->bnm", X[:, :n], B[layer].T @ C[layer], X)
        H = torch.exp(scores) / n
        X, slots = (
            X + torch.einsum("bnm,bnj,ij->bmi", H, X[:, :n], A[layer]),
            slots + corner[layer] * torch.einsum("bnm,bn->bm", H, slots[:, :n]),
        )
    return slots[:, n]


def clip(parameters):
    """Shorten the gradient of every matrix of every layer to length CLIP."""
    for parameter in parameters:
        size = parameter.grad.flatten(1).norm(dim=1) if parameter.ndim > 1 else parameter.grad.abs()
        factor = torch.clamp(CLIP / size.clamp(min=1e-30), max=1.0)
        parameter.grad.mul_(factor.view(-1, *[1] * (parameter.ndim - 1)))


def race(layers, n, d, test, budget, seed=0):
    """Train until `budget` CPU seconds are used or the exact `test` loss is not finite; returns looks.

    test: function from (A, B, C, r) to the exact loss; its time does not count. A look is (step, seconds,
    cpu, loss).
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = [(layers, d, d)] * 3 + [(layers,)]
    parameters = [(START * torch.randn(s, generator=generator)).requires_grad_(True) for s in shapes]
    optimiser = torch.optim.AdamW(parameters, lr=RATE, betas=BETAS, weight_decay=0.0)
    looks, seconds, cpu, step = [], 0.0, 0.0, 0
    while True:
        loss = test(*[p.detach() for p in parameters[:3]], -parameters[3].detach())
        looks.append((step, seconds, cpu, loss))
        if not loss < float("inf") or cpu >= budget:
            return looks
        start = (time.perf_counter(), time.process_time())
        X, y = draw(BATCH, n, d, generator)
        for _ in range(REDRAW):
            optimiser.zero_grad()
            ((output(parameters, X, y) + y[:, n]) ** 2).mean().backward()
            clip(parameters)
            optimiser.step()
            step += 1
        seconds += time.perf_counter() - start[0]
        cpu += time.process_time() - start[1]
