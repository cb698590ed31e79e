"""Freezing parameters so that the work of training them is really saved, and counting what is left.

A frozen layer still passes the gradient on to the layers below it; only the product of the incoming gradient
with the layer's own input (its weight gradient) is never computed. Replacing that passed-on gradient belongs
in `backskip`.
"""

from torch import nn


def freeze(module):
    """Stop training every parameter of `module`: no gradient is computed, no update happens. Returns the
    module.

    The module is also put into evaluation mode, and gradients left from before are dropped.
    """
    _module("module", module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    return module.eval()


def count(module):
    """(trainable, total) numbers of scalar parameters; shared parameters count once."""
    _module("module", module)
    parameters = list(module.parameters())
    return sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)


def trainable(module):
    """The parameters an optimiser should get: those that still train, as a non-empty list."""
    _module("module", module)
    kept = [p for p in module.parameters() if p.requires_grad]
    if not kept:
        raise ValueError("module has no trainable parameter; at least one is required.")
    return kept


def normalisation_only(module, also=()):
    """Freeze all of `module` but the scale and shift of its normalisation layers and the submodules named in
    `also`.

    The analogue, for layer normalisation, of training batch normalisation only (Frankle, Schwab and Morcos
    2021). also: dotted names of submodules, for instance ('head',). Returns the module.
    """
    freeze(module)
    known = dict(module.named_modules())
    kept = [m for m in known.values() if isinstance(m, (nn.LayerNorm, nn.modules.batchnorm._BatchNorm))]
    for name in also:
        if name not in known:
            raise ValueError(
                f"also has {name!r}; the submodules are {', '.join(sorted(k for k in known if k))}."
            )
        kept.append(known[name])
    for part in kept:
        part.train()
        for parameter in part.parameters():
            parameter.requires_grad_(True)
    if not kept:
        raise ValueError("module has no normalisation layer; at least one is required.")
    return module


def _module(name, value):
    if not isinstance(value, nn.Module):
        raise ValueError(f"{name} is {type(value).__name__}; a torch module is required.")
