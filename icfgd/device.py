"""Choice of device. The same code runs on CPU and GPU; nothing requires a GPU."""

import torch

from icfgd import checks


def default_device():
    """The first CUDA device if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def generator(seed, device="cpu"):
    """A fresh random generator with a given integer `seed`; the only way randomness enters this package."""
    try:
        fresh = torch.Generator(device=device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device = {device!r} is not available here; 'cpu' always is. ({error})") from None
    return fresh.manual_seed(checks.integer("seed", seed, low=0))
