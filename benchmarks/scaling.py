"""What a forward pass costs as the context grows, and what a training step costs as depth and batch grow."""

import time

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from icfgd.device import generator
from icfgd.processes import Covariates, label_process
from icfgd.training import Settings, Task
from icfgd.training.coordinates import Coordinates
from icfgd.training.engine import Engine
from icfgd.transformer import Transformer

LENGTHS = (256, 1024, 4096, 16384)
PLAIN = 4096  # the longest context for which all n x n weights are formed
D, LAYERS = 5, 3


def network(head):
    """A three-layer network with small random parameters."""
    return Transformer(D, LAYERS, [head], divide_by_context=True).randomise(generator(0), 0.05, steps=0.5)


def linear_forward(model, X, y):
    """Predictions of a linear-attention network in time O(n): sums over the context are d x d and d
    matrices."""
    n = X.shape[-2] - 1
    slots = torch.cat([y[..., :n], torch.zeros_like(y[..., :1])], -1).unsqueeze(-1)
    for A, B, C, r in zip(model.A[:, 0], model.B[:, 0], model.C[:, 0], model.r[:, 0]):
        context = X[..., :n, :]
        moved = X @ (C.T @ B) / n  # sum_i <B x_i, C x_j> v_i = V^T X_c (B^T C x_j)
        change, labels = moved @ (context.mT @ context) @ A.T, moved @ (context.mT @ slots[..., :n, :])
        X, slots = X + change, slots - r * labels
    return -slots[..., n:, 0]


def softmax_forward(model, X, y):
    """Predictions of a softmax network through torch's fused attention; covariates and labels travel as
    values."""
    n = X.shape[-2] - 1
    slots = torch.cat([y[..., :n], torch.zeros_like(y[..., :1])], -1).unsqueeze(-1)
    for A, B, C, r in zip(model.A[:, 0], model.B[:, 0], model.C[:, 0], model.r[:, 0]):
        values = torch.cat([X, slots], -1)[..., :n, :]
        keys, queries = pad(X[..., :n, :] @ B.T, (0, 1)), pad(X @ C.T, (0, 1))
        mixed = scaled_dot_product_attention(queries, keys, values, scale=1.0) / n
        X, slots = X + mixed[..., :D] @ A.T, slots - r * mixed[..., D:]
    return -slots[..., n:, 0]


def plain_forward(model, X, y):
    """Predictions with all n x n attention weights in memory."""
    return model(X, y)


CASES = {
    "linear, O(n)": ("linear", linear_forward),
    "linear, n x n": ("linear", plain_forward),
    "softmax, fused": ("softmax", softmax_forward),
    "softmax, n x n": ("softmax", plain_forward),
    "exponential, n x n": ("exponential", plain_forward),
}


def prompt(n, seed=1):
    """One prompt: covariates (1, 1, n+1, d) on the sphere and labels (1, 1, n)."""
    X = Covariates(torch.eye(D, dtype=torch.float64)).sample(1, n + 1, generator(seed))
    return X.unsqueeze(0), torch.randn(1, 1, n, generator=generator(seed), dtype=torch.float64)


def best_seconds(function, repeats=7, least=0.02):
    """CPU seconds of one call: the best of `repeats` measurements of at least `least` seconds each.

    One thread computes, so this is the wall time on an idle machine; other load disturbs it little.
    """
    function()
    start = time.process_time()
    function()
    count = max(1, int(least / max(time.process_time() - start, 1e-7)))
    samples = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(count):
            function()
        samples.append((time.process_time() - start) / count)
    return min(samples)


def peak_megabytes(function):
    """The most memory that torch holds at once for results and intermediate values of one call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        function()
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 1e6


@torch.no_grad()
def context_rows(lengths=LENGTHS):
    """Forward cost against context length: time and peak memory of one prompt, float64, three layers."""
    rows = []
    for case, (head, forward) in CASES.items():
        model = network(head)
        for n in lengths:
            if forward is plain_forward and n > PLAIN:
                continue
            X, y = prompt(n)
            repeats = 7 if n <= 1024 or forward is not plain_forward else 2
            seconds = best_seconds(lambda m=model, x=X, v=y, f=forward: f(m, x, v), repeats)
            rows.append(_row("context", case, f"n = {n}", "forward", 1e3 * seconds, "ms"))
            memory = peak_megabytes(lambda m=model, x=X, v=y, f=forward: f(m, x, v))
            rows.append(_row("context", case, f"n = {n}", "peak memory", memory, "MB"))
    return rows


def engine(layers=3, contexts=64, queries=4, head="exponential", n=14):
    """A training engine at its start, for timing single steps."""
    task = Task(Covariates(torch.eye(D, dtype=torch.float64)), label_process("exponential", scale=2.0), n)
    settings = Settings(contexts=contexts, queries=queries, held_out=8)
    found = Engine([task], [0], Coordinates([task], [head], layers, True, dtype=torch.float32), settings)
    found.begin()
    return found


def depth_rows(depths=(1, 2, 3, 5, 7), batches=(16, 64, 256, 1024)):
    """Cost of a training step (draw, forward, backward, update) against depth and against contexts per
    step."""
    rows = []
    for layers in depths:
        seconds = best_seconds(engine(layers).advance)
        rows.append(_row("depth", "training step", f"{layers} layers, 64 contexts", "step", 1e3 * seconds, "ms"))
    for contexts in batches:
        seconds = best_seconds(engine(3, contexts).advance)
        size = f"3 layers, {contexts} contexts"
        rows.append(_row("depth", "training step", size, "step", 1e3 * seconds, "ms"))
        rows.append(_row("depth", "training step", size, "per context", 1e6 * seconds / contexts, "us"))
    return rows


def _row(part, case, size, quantity, value, unit):
    return {"part": part, "case": case, "size": size, "quantity": quantity, "value": float(value), "unit": unit}
