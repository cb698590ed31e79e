"""The same code on a GPU gives the numbers of the CPU; without one these tests are skipped and say so."""

import pytest
import torch
import witnesses

from icfgd import attention, bayes, descent
from icfgd.device import default_device, generator
from icfgd.kernels import KERNELS, activation, kernel
from icfgd.processes import Covariates, label_process
from icfgd.transformer import Transformer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")


def both(call, *tensors):
    """Results of `call` on the CPU and, copied back, on the GPU."""
    gpu = call(*(t.to(default_device()) for t in tensors))
    assert gpu.device.type == "cuda"
    return call(*tensors), gpu.cpu()


@pytest.mark.parametrize("heads", [["softmax", "linear"], ["arccosine"], ["relu", "gaussian"]])
@torch.no_grad()
def test_network(heads):
    X, y = witnesses.prompts()
    model = Transformer(3, 3, heads).randomise(generator(0), 0.1, 0.2)
    want = model(X, y, 2)
    got = model.to(default_device())(X.to(default_device()), y.to(default_device()), 2)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_moments_predictions_and_descent(name):
    X, y = witnesses.prompts()
    process = label_process(name, witnesses.SIGMA, noise=0.1)
    torch.testing.assert_close(*both(process.second_moment, X), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(*both(lambda X, y: bayes.predict(process.second_moment(X), y), X, y), rtol=1e-8, atol=1e-9)
    steps = [0.1, 0.2]
    torch.testing.assert_close(*both(lambda X, y: descent.descend(kernel(name), X, y, steps)[-1](X), X, y), rtol=1e-9, atol=1e-11)


def test_literal_layer():
    X, y = witnesses.prompts(batch=1)
    eye = torch.eye(3, dtype=torch.float64)

    def run(X, y, eye):
        heads = [(attention.value_matrix(0.1 * eye, 0.2), eye, eye, activation("softmax"))]
        return attention.forward(attention.prompt(X.mT, y), [heads] * 2, 5)[-1]

    torch.testing.assert_close(*both(run, X[0], y[0, :5], eye), rtol=1e-10, atol=1e-12)


def test_sampling_stays_on_the_device_of_its_generator():
    draw = generator(0, default_device())
    X = Covariates(witnesses.SIGMA).sample(2, 5, draw)
    for name, options in (("exponential", {"noise": 0.1}), ("relu", {}), ("relu_network", {"width": 3})):
        assert label_process(name, witnesses.SIGMA, **options).sample(X, draw).device.type == "cuda"
    with pytest.raises(ValueError, match="generator is on device cpu; cuda"):
        label_process("linear").sample(X, generator(0))
