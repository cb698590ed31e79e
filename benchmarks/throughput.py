"""Which share of the machine's measured matrix-multiply and exponential throughput a training step
reaches."""

import torch
from scaling import best_seconds, engine
from torch.utils.flop_counter import FlopCounterMode


def machine_rates(size=768, count=1 << 20):
    """Multiply-add operations per second of a large float32 product (2 per entry), and exponentials per
    second."""
    a, b, x = torch.randn(size, size), torch.randn(size, size), torch.randn(count)
    out, e = torch.empty(size, size), torch.empty(count)
    flops = 2 * size**3 / best_seconds(lambda: torch.mm(a, b, out=out))
    exps = count / best_seconds(lambda: torch.exp(x, out=e))
    return flops, exps


def rows(contexts=(64, 1024)):
    """Rates of the machine and the shares of a training step of three layers of exponential attention, n =
    14."""
    flops, exps = machine_rates()
    found = [_row("machine", "", "matrix product", flops / 1e9, "GFLOP/s"),
             _row("machine", "", "exponentials", exps / 1e9, "G/s")]
    for count in contexts:
        run = engine(3, count, 4)
        with FlopCounterMode(display=False) as counter:
            run.gradient()
        seconds = best_seconds(run.advance)
        n, q = 14, 4
        exponentials = 3 * count * n * (n + q) + count * (n + q) ** 2  # attention weights, and the label kernel
        needed = counter.get_total_flops() / flops, exponentials / exps
        size = f"3 layers, {count} contexts"
        found.append(_row("training step", size, "matrix products", 100 * needed[0] / seconds, "% of machine"))
        found.append(_row("training step", size, "exponentials", 100 * needed[1] / seconds, "% of machine"))
    return found


def _row(case, size, quantity, value, unit):
    return {"part": "throughput", "case": case, "size": size, "quantity": quantity, "value": float(value), "unit": unit}
