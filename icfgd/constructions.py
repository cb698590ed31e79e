"""Parameter settings that make a transformer run a known algorithm; they return a ready `Transformer`.

Propositions 1 and 3 of the paper (functional gradient descent, heads that add kernels) and the linear
ancestors: gradient descent, preconditioned descent with its one-layer optimum, GD++ and the softmax smoother.
Choosing step sizes belongs in `schedules`, judging parameters in `landscape`.
"""

import torch

from icfgd import checks
from icfgd.kernels import activation, composite
from icfgd.processes import power
from icfgd.transformer import Transformer


def functional_descent(d, steps, kernel="exponential", sigma=None, context=None):
    """Functional gradient descent, one step f <- f + r sum_i (y_i - f(x_i)) K(., x_i) per layer (Prop. 1).

    steps: the numbers r_1..r_k; kernel: a name or a kernel, which acts on Sigma^(-1/2) x, so B = C =
    Sigma^(-1/2) (sigma None: the identity). context: None, or a length n if the network is to divide by n;
    then r is n times the step, and the algorithm is the same on prompts with n context tokens.
    """
    return _assemble(d, steps, [(1.0, activation(kernel), None)], sigma, context)


def composite_descent(d, steps, terms, sigma=None, context=None):
    """As `functional_descent`, for the kernel sum_h alpha_h K_h(G_h u, G_h v), one head per term (Prop. 3).

    terms: (alpha, kernel or name, G) as for `kernels.composite`; G is None or a matrix (rows <= d, d).
    """
    return _assemble(d, steps, composite(terms).terms, sigma, context)


def gradient_descent(d, steps, context=None):
    """Gradient descent for linear regression from w = 0: w <- w + r sum_i (y_i - <w, x_i>) x_i."""
    return functional_descent(d, steps, "linear", None, context)


def preconditioned_descent(d, steps, preconditioner, context=None):
    """Preconditioned descent w <- w + r P sum_i (y_i - <w, x_i>) x_i with one matrix P (d, d) for all layers.

    Linear attention, B = I, C = P^T; the prediction is <w, x>. P need not be symmetric.
    """
    P = checks.shape("preconditioner", checks.finite("preconditioner", preconditioner), (d, d))
    model = gradient_descent(d, steps, context)
    with torch.no_grad():
        model.C.copy_(P.T.expand_as(model.C))
    return model


def one_layer_moments(sigma, n, law="gaussian", W=None):
    """E[G W G] and E[G] for G = sum_(i<=n) x_i x_i^T of covariates x = Sigma^(1/2) xi.

    law: xi is standard normal or uniform on the unit sphere. sigma (d, d); W (d, d) symmetric, the second
    moment of the regression weights (default I). Isserlis' theorem for the normal law; on the sphere fourth
    moments are d / (d + 2) times those of the normal law with the same covariance.
    """
    checks.positive_semidefinite("sigma", sigma, strict=True)
    n, d = checks.integer("n", n, low=1), sigma.shape[-1]
    checks.one_of("law", law, ("gaussian", "sphere"))
    W = torch.eye(d, dtype=sigma.dtype) if W is None else checks.shape("W", checks.symmetric("W", W), (d, d))
    cov, fourth = (sigma, 1.0) if law == "gaussian" else (sigma / d, d / (d + 2))
    GWG = n * (n - 1 + 2 * fourth) * cov @ W @ cov + n * fourth * torch.trace(cov @ W) * cov
    return GWG, n * cov


def one_layer_optimum(sigma, n, law="gaussian", W=None):
    """The global minimiser N of one layer of linear attention, N = r B^T C, and its loss (a number).

    Labels <w, x> with E[w w^T] = W, arguments as in `one_layer_moments`: N = E[G W G]^(-1) E[G] W (von Oswald
    et al. 2023; Ahn et al. 2023).
    """
    GWG, G = one_layer_moments(sigma, n, law, W)
    W = torch.eye(len(sigma), dtype=sigma.dtype) if W is None else W
    N = torch.linalg.solve(GWG, G @ W)
    cov = G / n
    return N, float(torch.trace(W @ cov) - torch.trace(cov @ W @ G @ N))


def one_layer_network(sigma, n, law="gaussian", W=None, context=None):
    """The one-layer network at the global minimum of `one_layer_optimum`: r = 1, B = I, C = N."""
    N, _ = one_layer_optimum(sigma, n, law, W)
    return preconditioned_descent(len(sigma), [1.0], N.T, context)


def gdpp(d, steps, transforms, sigma=None, context=None):
    """GD++: linear attention that also transforms covariates, A_l = a_l I (von Oswald et al. 2023).

    steps r_l and transforms a_l have equal length; B = C = Sigma^(-1/2). `gdpp_polynomials` says what it
    computes.
    """
    steps, transforms = _numbers("steps", steps), _numbers("transforms", transforms)
    _same_length(steps, transforms)
    model = functional_descent(d, steps, "linear", sigma, context)
    scale = 1.0 if context is None else float(context)
    with torch.no_grad():
        for layer, a in enumerate(transforms):
            model.A[layer, 0] = scale * a * torch.eye(d, dtype=model.A.dtype)
    return model


def gdpp_polynomials(steps, transforms, spectrum):
    """Polynomials p_l and q_l, l = 0..k, of GD++ at `spectrum` (...): two tensors (k+1, ...).

    p <- p (1 - r t q^2), q <- q (1 + a t q^2), p_0 = q_0 = 1: with S the Gram matrix of the whitened
    covariates (d x d), covariates are q_l(S) x and residuals w^T p_l(S) x for labels <w, x>. Works on sympy
    symbols as well.
    """
    _same_length(steps, transforms)
    one = torch.ones_like(spectrum) if isinstance(spectrum, torch.Tensor) else spectrum**0
    p, q = [one], [one]
    for r, a in zip(steps, transforms):
        stretched = spectrum * q[-1] ** 2
        p.append(p[-1] * (1 - r * stretched))
        q.append(q[-1] * (1 + a * stretched))
    return (torch.stack(p), torch.stack(q)) if isinstance(spectrum, torch.Tensor) else (p, q)


def softmax_smoother(d, steps=(1.0,), scale=1.0, sigma=None):
    """Softmax attention with weights proportional to K(x_i, x) = exp(<xi_i, xi> / scale).

    One step of size 1 is the Nadaraya-Watson smoother; further steps smooth the residuals.
    """
    return functional_descent(d, steps, activation("softmax", scale=scale), sigma)


def _assemble(d, steps, terms, sigma, context):
    steps = _numbers("steps", steps)
    checks.integer("d", d, low=1)
    scale = 1.0 if context is None else float(checks.integer("context", context, low=1))
    whitening = torch.eye(d, dtype=torch.float64)
    if sigma is not None:
        whitening = power(checks.shape("sigma", sigma, (d, d)), -0.5).to(torch.float64)
    model = Transformer(d, len(steps), [k for _, k, _ in terms], divide_by_context=context is not None)
    with torch.no_grad():
        for head, (alpha, _, G) in enumerate(terms):
            projection = _embed(G, d) @ whitening
            model.B[:, head] = projection
            model.C[:, head] = projection
            model.r[:, head] = scale * alpha * torch.tensor(steps, dtype=model.r.dtype)
    return model


def _embed(G, d):
    """G (rows, d) with rows of zeros below, (d, d): inner products of projected vectors are unchanged."""
    if G is None:
        return torch.eye(d, dtype=torch.float64)
    G = torch.as_tensor(G, dtype=torch.float64)
    if G.ndim != 2 or G.shape[1] != d or G.shape[0] > d:
        raise ValueError(f"G has shape {tuple(G.shape)}; (rows, {d}) with at most {d} rows is required.")
    return torch.cat([G, G.new_zeros(d - G.shape[0], d)])


def _same_length(steps, transforms):
    if len(transforms) != len(steps):
        raise ValueError(f"transforms has {len(transforms)} entries; {len(steps)}, one per step, are needed.")


def _numbers(name, values):
    values = [checks.number(name, float(value)) for value in values]
    if not values:
        raise ValueError(f"{name} is empty; one number per layer is required.")
    return values
