"""A stack of trained and frozen layers built from a pattern; what its frozen layers do in the backward pass.

Embeddings, heads and losses belong in `models`; the stochastic form of backskipping belongs in `backskip`.
"""

import torch
from torch import nn

from icfgd import checks
from icfgd.reservoirs import patterns
from icfgd.reservoirs.backskip import stop, straight_through
from icfgd.reservoirs.freezing import freeze
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.layers import KINDS

BACKSKIPS = ("exact", "st", "stop")


class Stack(nn.Module):
    """Layers (B, T, d) -> (B, T, d) given by a `pattern` such as 'LRLRL' (see `patterns`), input to output.

    heads, ffn, causal: as for the layers. seed: where the trained layers start. reservoir_seed: the frozen
    layers; the layer at position i depends on (reservoir_seed, i), its kind and its sizes only, so that a
    reservoir is its seed. backskip: in the backward pass a frozen layer multiplies by its Jacobian ('exact'),
    by the identity ('st', straight through) or by zero ('stop': nothing below the highest frozen layer
    trains). The forward pass is the same for all.
    """

    def __init__(
        self,
        pattern,
        d,
        heads=4,
        ffn=None,
        causal=False,
        backskip="exact",
        seed=0,
        reservoir_seed=0,
        dtype=torch.float32,
    ):
        super().__init__()
        self.pattern = patterns.parse(pattern)
        self.backskip = checks.one_of("backskip", backskip, BACKSKIPS)
        self.layers = nn.ModuleList()
        for position, letter in enumerate(pattern):
            layer = KINDS[letter](d, heads, ffn, causal=causal, dtype=dtype)
            if letter == patterns.TRAINED:
                layer.initialise(private_generator(seed, position))
            else:
                freeze(layer.initialise(private_generator(reservoir_seed, position), orthogonal=True))
            self.layers.append(layer)

    def train(self, mode=True):
        """As for any module; frozen layers stay in evaluation mode."""
        super().train(mode)
        for position in patterns.frozen(self.pattern):
            self.layers[position].eval()
        return self

    def forward(self, x):
        """x (B, T, d) -> (B, T, d)."""
        for letter, layer in zip(self.pattern, self.layers):
            if letter == patterns.TRAINED or self.backskip == "exact":
                x = layer(x)
            else:
                x = (straight_through if self.backskip == "st" else stop)(layer, x)
        return x
