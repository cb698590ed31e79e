"""Random parameters from one explicit generator: PyTorch's defaults for trained layers, orthogonal for
reservoirs.

Modules are created without touching torch's global generator and filled here. What the modules compute
belongs in `layers`.
"""

import numpy as np
import torch
from torch import nn

from icfgd import checks


def private_generator(seed, *path):
    """A generator that depends on the integer `seed` and the integers of `path` only (a layer's position,
    for example).
    """
    words = [checks.integer("seed", seed, low=0), *(checks.integer("path", p, low=0) for p in path)]
    state = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator().manual_seed(state)


def linear(inputs, outputs, dtype, bias=True):
    """An `nn.Linear` with parameters not yet set."""
    return nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias, dtype=dtype)


@torch.no_grad()
def fill(weight, bias, generator, orthogonal, bound=None, bias_bound=None):
    """Set one projection: (semi-)orthogonal, or uniform in +-bound (default 1/sqrt(inputs), PyTorch's); then
    its bias.

    bias_bound: the bias is uniform in +-bias_bound, default 1/sqrt(inputs); 0 gives zeros.
    """
    default = weight.shape[1] ** -0.5
    if orthogonal:
        nn.init.orthogonal_(weight, generator=generator)
    else:
        bound = default if bound is None else bound
        nn.init.uniform_(weight, -bound, bound, generator=generator)
    if bias is not None:
        bound = default if bias_bound is None else bias_bound
        nn.init.uniform_(bias, -bound, bound, generator=generator)
