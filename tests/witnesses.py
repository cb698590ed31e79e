"""Checks that several tests share: each compares a room with an independent witness and raises on a difference.

`test_mutants` shows that each of them can fail. Sizes are small; a check that one test file needs stays there.
"""

import sympy as sp
import torch

from icfgd import attention, bayes, descent
from icfgd.device import generator
from icfgd.kernels import activation, kernel
from icfgd.processes import Covariates, covariance, label_process
from icfgd.transformer import Transformer

SIGMA = covariance([0.5, 1.0, 2.25], generator(5))


def prompts(batch=4, tokens=7, sigma=SIGMA, seed=1, law="sphere"):
    """Covariates (batch, tokens, d) and labels (batch, tokens)."""
    X = Covariates(sigma, law).sample(batch, tokens, generator(seed))
    return X, torch.randn(batch, tokens, generator=generator(seed + 1), dtype=torch.float64)


def literal_trace(model, X, y, queries):
    """Slots (k+1, n+q) and covariates (k+1, n+q, d) of one prompt, by the literal layer with the model's parameters."""
    n = X.shape[-2] - queries
    scale = 1 / n if model.divide_by_context else 1.0
    layers = []
    for k in range(model.layers):
        layers.append([
            (scale * attention.value_matrix(model.A[k, m], model.r[k, m]), model.B[k, m], model.C[k, m], h)
            for m, h in enumerate(model.heads[k])
        ])
    states = torch.stack(attention.forward(attention.prompt(X.T, y[:n]), layers, n))
    return states[:, -1], states[:, :-1].mT


@torch.no_grad()
def engine_equals_literal(heads=("softmax", "linear"), queries=2, layers=3, divide=False, seed=0):
    """The batched engine and the literal layer agree in every slot and covariate of every layer."""
    model = Transformer(3, layers, heads, divide_by_context=divide).randomise(generator(seed), 0.04, 0.1)
    X, y = prompts(batch=3)
    trace = model.trace(X, y, queries)
    for i in range(len(X)):
        slots, covariates = literal_trace(model, X[i], y[i], queries)
        n = X.shape[-2] - queries
        torch.testing.assert_close(trace.residuals[:, i], slots[:, :n], rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(-trace.predictions[:, i], slots[:, n:], rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(trace.covariates[:, i], covariates, rtol=1e-10, atol=1e-11)


def literal_equals_sympy():
    """The literal layer gives the same numbers on sympy matrices and on torch tensors (softmax beside ReLU)."""
    n, q = 2, 2
    X = sp.Matrix([[1, -1, 2, 3], [2, 1, -3, 1]]) / 2
    y = [sp.Rational(3, 2), -1]
    A, B, C = sp.Matrix([[1, 2], [0, -1]]) / 4, sp.Matrix([[1, 1], [0, 1]]), sp.Matrix([[1, 0], [-1, 2]])
    heads = [(A, "softmax", sp.Rational(1, 3)), (A.T, "relu", sp.Rational(-1, 2))]
    exact = attention.forward(
        attention.prompt(X, y), [[(attention.value_matrix(a, r), B, C, activation(h)) for a, h, r in heads]] * 2, n
    )

    def tensor(matrix):
        return torch.tensor(sp.Matrix(matrix).evalf().tolist(), dtype=torch.float64)

    layer = [(attention.value_matrix(tensor(a), float(r)), tensor(B), tensor(C), activation(h)) for a, h, r in heads]
    got = attention.forward(attention.prompt(tensor(X), tensor([y])[0]), [layer] * 2, n)
    assert exact[0].cols == n + q
    for a, b in zip(got, exact):
        torch.testing.assert_close(a, tensor(b), rtol=1e-10, atol=1e-10)


def softmax_normalises_over_context():
    """Each column of softmax weights is exp(s) over its sum down the context rows, computed by hand."""
    X, _ = prompts(batch=2)
    scores = X[:, :5] @ X.mT
    want = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
    torch.testing.assert_close(activation("softmax").weights(X[:, :5], X), want)


@torch.no_grad()
def dividing_is_shorter_steps():
    """For entrywise heads, dividing by the context length is the same as parameters A and r divided by n."""
    X, y = prompts()
    one = Transformer(3, 2, ["relu"], divide_by_context=True).randomise(generator(3), 0.2, 0.5)
    two = Transformer(3, 2, ["relu"])
    for name, parameter in one.named_parameters():
        getattr(two, name).copy_(parameter / 5 if name in "Ar" else parameter)
    torch.testing.assert_close(one(X, y, 2), two(X, y, 2))
    torch.testing.assert_close(one.attention(X, 2)[0], two.attention(X, 2)[0] / 5)


@torch.no_grad()
def proposition_one(name="exponential", steps=(0.3, 0.2, 0.1, 0.25, 0.05, 0.15, 0.1), queries=2):
    """With A = 0, B = C = I, layer l holds residuals y - f_l and predictions f_l of functional gradient descent."""
    X, y = prompts()
    n = X.shape[-2] - queries
    model = Transformer(3, len(steps), [name])
    model.r[:, 0] = torch.tensor(steps, dtype=torch.float64)
    trace = model.trace(X, y, queries)
    iterates = descent.descend(kernel(name), X[..., :n, :], y, steps)
    for layer, f in enumerate(iterates):
        values = f(X)
        scale = max(1.0, float(values.abs().max()))
        assert (trace.residuals[layer] - (y[..., :n] - values[..., :n])).abs().max() < 1e-12 * scale, layer
        assert (trace.predictions[layer] - values[..., n:]).abs().max() < 1e-12 * scale, layer


def gradient_by_differences(name="exponential"):
    """<grad L(f), g> in the RKHS is the derivative of L along g, by central differences."""
    X, y = prompts(batch=2, tokens=5)
    K = kernel(name)
    f, g = (descent.Expansion(K, X, c) for c in torch.randn(2, 2, 5, generator=generator(8), dtype=torch.float64))
    h = 1e-4
    slope = (descent.squared_loss(f.plus(h, g), X, y) - descent.squared_loss(f.plus(-h, g), X, y)) / (2 * h)
    torch.testing.assert_close(descent.functional_gradient(f, X, y).inner(g), slope, rtol=1e-7, atol=1e-8)


def relu_blocks_are_of_the_whole():
    """The blocks of the ReLU label law are sub-blocks of sqrt(K^2) for all tokens (square root by Newton's iteration)."""
    X, _ = prompts(batch=2)
    blocks = label_process("relu").moments(X)
    K = torch.relu(X @ X.mT)
    square = K @ K
    root = torch.linalg.eigvals(K).abs().sum(-1)  # the trace of |K|
    whole = torch.cat([torch.cat([blocks[0], blocks[1]], -1), torch.cat([blocks[1].mT, blocks[2][..., None]], -1)], -2)
    torch.testing.assert_close(whole @ whole, square, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(torch.diagonal(whole, dim1=-2, dim2=-1).sum(-1), root)


def kernels_act_on_whitened(name="exponential"):
    """Label covariances are K(xi_i, xi_j), for x = Sigma^(1/2) xi, whatever Sigma."""
    law = Covariates(SIGMA)
    xi = law.standard(2, 5, generator(4))
    X = law.sample(2, 5, generator(4))
    torch.testing.assert_close(label_process(name, SIGMA).second_moment(X), kernel(name).gram(xi))


def labels_have_their_second_moment(noise=0.5, name="linear", count=20000, **parameters):
    """Sampled labels have the second moment that prediction uses, noise included, by z-scores."""
    process = label_process(name, SIGMA, noise, **parameters)
    X = prompts(batch=1, tokens=4)[0].expand(count, 4, 3)
    y = process.sample(X, generator(6))
    products = y[..., :, None] * y[..., None, :]
    error = products.std(0) / count**0.5
    score = (products.mean(0) - process.second_moment(X[:1])[0]) / error
    assert score.abs().max() < 4.5


def bayes_solves_the_normal_equations():
    """K_hat w = nu, and the Bayes risk is the conditional risk at w, below that of any other weights."""
    X, y = prompts()
    K = label_process("exponential", SIGMA, noise=0.2).second_moment(X)
    w = bayes.weights(K, 2)
    K_hat, nu = K[..., :5, :5], K[..., :5, 5:]
    torch.testing.assert_close(K_hat @ w, nu)
    torch.testing.assert_close(bayes.predict(K, y, 2), torch.einsum("bn,bnq->bq", y[:, :5], w))
    torch.testing.assert_close(bayes.risk(K, 2), bayes.conditional_risk(K, w, 2))
    other = w + 0.1
    excess = bayes.conditional_risk(K, other, 2) - bayes.risk(K, 2)
    assert (excess > 0).all()
    torch.testing.assert_close(bayes.excess_risk(K, other, 2), excess)
