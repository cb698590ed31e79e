"""Choice of device. The same code runs on CPU and GPU; nothing requires a GPU."""

import torch


def default_device():
    """The first CUDA device if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def generator(seed, device="cpu"):
    """A fresh random generator with a given integer `seed`; the only way randomness enters this package."""
    return torch.Generator(device=device).manual_seed(int(seed))
