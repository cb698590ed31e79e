"""What a training step costs: counted in multiplications, and measured for several variants in turns in
one process.
"""

import statistics

import torch

from icfgd.reservoirs.clock import PROCESS_TIME
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.stack import Stack


def cost(settings, checkpoint, log):
    """CPU time of one training step of several variants, measured in turns in one process (median of
    `rounds`).

    variants: name -> [pattern, backskip, update_frozen]; with update_frozen the gradients of frozen layers
    are computed and not applied.
    """
    d, T, B, heads = settings["d"], settings["tokens"], settings["batch"], settings.get("heads", 4)
    x = torch.randn(B, T, d, generator=private_generator(settings["seed"]))
    steps = {}
    for name, (pattern, backskip, compute) in settings["variants"].items():
        model = Stack(pattern, d, heads, backskip=backskip, seed=settings["seed"])
        parameters = [p for p in model.parameters() if p.requires_grad]
        if compute:
            model.requires_grad_(True)
        steps[name] = _step(model, torch.optim.Adam(parameters, lr=1e-4), x)
    times = {name: [] for name in steps}
    for turn in range(settings["rounds"] + 2):
        for name, step in steps.items():
            start = PROCESS_TIME()
            step()
            if turn >= 2:
                times[name].append(PROCESS_TIME() - start)
    base = statistics.median(times[settings["base"]])
    depth = len(settings["variants"][settings["base"]][0])
    rows = [
        {
            "variant": name,
            "pattern": settings["variants"][name][0],
            "seconds": statistics.median(t),
            "ratio": statistics.median(t) / base,
            "predicted": predicted_cost(*settings["variants"][name], depth),
        }
        for name, t in times.items()
    ]
    return {"final": {}, "rows": rows}


def predicted_cost(pattern, backskip="exact", computed=False, depth=None):
    """Predicted step cost of a pattern of L and R relative to `depth` trained blocks (default: its own
    depth).

    None if the pattern has other layers, whose cost is another.

    Per linear map 2 T m n multiplications for each of: value, input product, weight product. Trained 6,
    frozen 4, skipped 2.
    """
    if set(pattern) - set("LR"):
        return None
    each = {"L": 6, "R": 6 if computed else 4 if backskip == "exact" else 2}
    return sum(each[letter] for letter in pattern) / (6 * (depth or len(pattern)))


def _step(model, updates, x):
    def step():
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        updates.step()

    return step
