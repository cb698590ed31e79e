"""Trained step sizes for the lab: writes trained.mjs beside this file.

For every pair of label kernel and attention, and every depth up to DEPTHS, the steps r_l of a network with A = 0 and
B = C = I are trained with `icfgd`: the conditional risk of its predictions, averaged over random prompts of the lab's
lattice, is minimised by L-BFGS. The steps are one set for all prompts, as in a trained transformer; no prompt-dependent
rule belongs here. Run `python book/_ext/lab/trained.py` from the root of the repository (a few minutes on one core).
"""

import json
import math
import os
from pathlib import Path

import torch

from icfgd import bayes
from icfgd.kernels import activation
from icfgd.processes import label_process
from icfgd.transformer import Transformer

SEED, PROMPTS, CONTEXT, NOISE, DEPTHS, SIZE = 20240, 512, 8, 0.05, 8, 201
PARAMETERS = {
    "linear": {},
    "relu": {},
    "exponential": {"scale": 1.0},
    "gaussian": {"width": 0.35},
    "softmax": {"scale": 0.12},
}
LABELS = ("linear", "relu", "exponential", "gaussian")


def lattice():
    """All positions of the lab as covariates (SIZE, 2) on a half circle."""
    angle = torch.linspace(-1, 1, SIZE, dtype=torch.float64) * (math.pi / 2)
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


def prompts(label, generator):
    """Covariates (PROMPTS, CONTEXT + 1, 2) and second moments of their labels, noise included."""
    points = lattice()
    cells = torch.randint(SIZE, (PROMPTS, CONTEXT + 1), generator=generator)
    law = label_process(label, **PARAMETERS[label]).second_moment(points)
    moment = law[cells[:, :, None], cells[:, None, :]] + NOISE * torch.eye(CONTEXT + 1, dtype=torch.float64)
    return points[cells], moment


def risk(model, X, moment):
    """Mean conditional risk; the weights of the network are its answers to unit label vectors."""
    units = torch.eye(CONTEXT, dtype=torch.float64).expand(PROMPTS, CONTEXT, CONTEXT)
    answers = model(X[:, None].expand(-1, CONTEXT, -1, -1), units)
    return bayes.conditional_risk(moment, answers).mean()


def train(name, depth, X, moment, start):
    """Steps of the best of one run from `start`: a list of depth floats, and the risk reached."""
    model = Transformer(2, depth, [activation(name, **PARAMETERS[name])])
    for parameter in (model.A, model.B, model.C):
        parameter.requires_grad_(False)
    with torch.no_grad():
        model.r.copy_(torch.as_tensor(start, dtype=torch.float64)[:, None])
    optimiser = torch.optim.LBFGS([model.r], max_iter=80, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = risk(model, X, moment)
        loss.backward()
        return loss

    optimiser.step(closure)
    return model.r.detach().flatten().tolist(), float(risk(model, X, moment).detach())


def table():
    """Steps for every label kernel, attention and depth, rounded to six digits."""
    steps = {}
    for label in LABELS:
        X, moment = prompts(label, torch.Generator().manual_seed(SEED))
        for name in PARAMETERS:
            rows = steps.setdefault(label, {}).setdefault(name, [])
            for depth in range(1, DEPTHS + 1):
                # A layer without a step changes nothing, so the shallower optimum is a start that can only improve.
                start = [*rows[-1], 0.02] if rows else [0.1]
                found, value = train(name, depth, X, moment, start)
                rows.append([float(f"{r:.6g}") for r in found])
            print(f"{label:12s} {name:12s} depth {DEPTHS} risk {value:.4f}", flush=True)
    return steps


if __name__ == "__main__":
    torch.set_num_threads(1)
    data = {
        "context": CONTEXT, "noise": NOISE, "prompts": PROMPTS, "seed": SEED, "depths": DEPTHS,
        "parameters": PARAMETERS, "steps": table(),
    }  # fmt: skip
    out = Path(__file__).with_name("trained.mjs")
    body = json.dumps(data, separators=(",", ":")).replace('},"', '},\n"').replace('"steps"', '\n"steps"')
    part = out.with_suffix(".part")
    part.write_text(f"/* Written by trained.py; do not edit. */\nexport const TRAINED = {body};\n")
    os.replace(part, out)
