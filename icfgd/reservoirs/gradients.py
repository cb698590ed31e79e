"""Gradients with respect to inputs, and the fast gradient sign method that uses them (Goodfellow et al.
2015).
"""

import torch

from icfgd import checks


def input_gradient(loss, x):
    """d loss(x) / dx, of the shape of x, without touching the gradients of any parameter. `loss` returns a
    scalar.
    """
    checks.finite("x", x)
    x = x.detach().clone().requires_grad_(True)
    return torch.autograd.grad(loss(x), x)[0]


def fast_gradient_sign(loss, x, epsilon):
    """x + epsilon sign(d loss / dx): the step of size epsilon in the maximum norm that raises the
    linearised loss most.
    """
    epsilon = checks.number("epsilon", epsilon, low=0)
    return x.detach() + epsilon * input_gradient(loss, x).sign()


def cotangents(layers, x, loss):
    """Gradients dJ/dL_i at the input of every layer and at the output of the last, for J = loss(output).

    layers: an iterable of maps applied in turn. Returns a list of tensors, input first.
    """
    states = [x.detach().clone().requires_grad_(True)]
    for layer in layers:
        states.append(layer(states[-1]))
    return list(torch.autograd.grad(loss(states[-1]), states))
