"""Reservoir transformers: networks in which some layers stay at their random initialisation for ever.

After Shen, Baevski, Morcos, Keutzer, Auli and Kiela, 'Reservoir Transformers' (ACL 2021). Rooms, from the
ground up:

`patterns` (which layers are frozen, as letters), `initialise` (random parameters from a seed), `layers`
(transformer block and the four kinds of reservoir), `freezing`, `backskip`, `stack` (layers from a pattern);
`features`, `projections`, `echo` and `gradients` (the older theory, and gradients in the input); `metrics`,
`clock`, `ngram`; `tasks` (real data), `models`, `training`; `incontext` (reservoirs inside in-context
gradient descent); `runs` and `experiments` (the book's experiments).
"""

from icfgd.reservoirs.freezing import count, freeze, normalisation_only, trainable
from icfgd.reservoirs.layers import BiGRU, Block, DynamicConvolution, FeedForward
from icfgd.reservoirs.patterns import alternating, place
from icfgd.reservoirs.stack import Stack

__all__ = [
    "BiGRU",
    "Block",
    "DynamicConvolution",
    "FeedForward",
    "Stack",
    "alternating",
    "count",
    "freeze",
    "normalisation_only",
    "place",
    "trainable",
]
