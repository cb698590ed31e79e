"""Where prompts come from: covariates x = Sigma^(1/2) xi and labels with a given second moment.

A label process is one object: the kernel, Sigma (kernels act on the whitened xi, as the theorems need), the law of the
labels and the noise, which is the same in sampling and in prediction. Predictors belong in `bayes`.
"""

import torch

from icfgd import checks
from icfgd.kernels import KERNELS, absolute, composite
from icfgd.kernels import kernel as named_kernel

LAWS = ("sphere", "gaussian", "cube")
PROCESSES = (*KERNELS, "composite", "relu_network")


def random_rotation(d, generator, dtype=torch.float64):
    """A d x d orthogonal matrix from Haar measure (QR of a Gaussian matrix with the signs of R fixed)."""
    checks.integer("d", d, low=1), checks.generator("generator", generator), checks.floating("dtype", dtype)
    gauss = torch.randn(d, d, generator=generator, dtype=dtype, device=generator.device)
    Q, R = torch.linalg.qr(gauss)
    return Q * torch.sign(torch.diagonal(R))


def covariance(eigenvalues, generator=None):
    """Sigma = U^T D U (d, d) with D = diag(eigenvalues), all positive; U is Haar random, or I without a generator."""
    try:
        values = checks.finite("eigenvalues", torch.as_tensor(eigenvalues, dtype=torch.float64))
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"eigenvalues = {eigenvalues!r}; a list of numbers is required.") from error
    if values.ndim != 1 or values.numel() < 1 or float(values.min()) <= 0:
        raise ValueError(f"eigenvalues = {values.tolist()}; a list of at least one positive number is required.")
    if generator is None:
        return torch.diag(values)
    U = random_rotation(values.numel(), generator).to(values.device)
    return U.T @ torch.diag(values) @ U


def power(sigma, exponent):
    """The symmetric power Sigma^exponent of a positive definite matrix (d, d)."""
    checks.positive_semidefinite("sigma", sigma, strict=True)
    if sigma.ndim != 2:
        raise ValueError(f"sigma has shape {tuple(sigma.shape)}; one matrix (d, d) is required.")
    exponent = checks.number("exponent", exponent)
    values, vectors = torch.linalg.eigh(sigma)
    return (vectors * values**exponent) @ vectors.T


class Covariates:
    """Covariates x = Sigma^(1/2) xi with independent xi.

    law: 'sphere' (xi uniform on the unit sphere; the paper's choice), 'gaussian' (standard normal) or 'cube' (signs
    divided by sqrt(d): unit length, but not rotation invariant).
    """

    def __init__(self, sigma, law="sphere"):
        self.root = power(sigma, 0.5)
        self.sigma = sigma
        self.law = checks.one_of("law", law, LAWS)
        self.d = sigma.shape[-1]

    def standard(self, batch, tokens, generator, dtype=torch.float64):
        """The whitened xi (batch, tokens, d) on the generator's device."""
        size = (checks.integer("batch", batch, low=1), checks.integer("tokens", tokens, low=1), self.d)
        checks.generator("generator", generator), checks.floating("dtype", dtype)
        xi = torch.randn(size, generator=generator, dtype=dtype, device=generator.device)
        if self.law == "sphere":
            xi = xi / xi.norm(dim=-1, keepdim=True)
        elif self.law == "cube":
            xi = torch.where(xi > 0, 1.0, -1.0).to(dtype) / self.d**0.5
        return xi

    def sample(self, batch, tokens, generator, dtype=torch.float64):
        """Covariates (batch, tokens, d) on the generator's device."""
        xi = self.standard(batch, tokens, generator, dtype)
        return xi @ self.root.to(xi)


class Labels:
    """Labels with second moment E[Y Y^T | X] = K(Sigma^(-1/2) X) + noise I, Gaussian given X.

    kernel: acts on the whitened covariates. sigma (d, d): None for the identity. noise: variance of the independent
    noise on every label, context and query alike. If the kernel is indefinite (ReLU), K is replaced by |K| of the whole
    point set (the paper's K_+); that law depends on the set, so it allows one query at a time.
    """

    def __init__(self, kernel, sigma=None, noise=0.0, name=None):
        self.kernel = kernel = named_kernel(kernel)
        self.noise = checks.number("noise", noise, low=0)
        self.sigma = sigma
        self.whitening = None if sigma is None else power(sigma, -0.5)
        self.name = name or kernel.name

    @property
    def single_query(self):
        """Whether the law allows only one query per prompt (because it takes |K| of the whole point set)."""
        return not self.kernel.semidefinite

    def whiten(self, X):
        """xi = Sigma^(-1/2) x for covariates (..., N, d)."""
        checks.shape("X", checks.finite("X", X), (None, None if self.sigma is None else len(self.sigma)))
        return X if self.whitening is None else X @ self.whitening.to(X)

    def second_moment(self, X):
        """E[Y Y^T | X] of shape (..., N, N) for covariates X (..., N, d), noise included."""
        K = self.kernel.gram(self.whiten(X))
        if self.single_query:
            K = absolute(K)
        if self.noise:
            K = K + self.noise * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        return K

    def moments(self, X, queries=1):
        """The blocks (K_hat, nu, kappa) of the second moment: (..., n, n), (..., n, q) and (..., q)."""
        n = checks.covariates("X", X, queries)
        if self.single_query and queries != 1:
            raise ValueError(
                f"queries = {queries}; labels of an indefinite kernel take |K| of all tokens, so queries = 1 is required."
            )
        K = self.second_moment(X)
        return K[..., :n, :n], K[..., :n, n:], torch.diagonal(K, dim1=-2, dim2=-1)[..., n:]

    def sample(self, X, generator):
        """Labels (..., N) for covariates X (..., N, d): the symmetric root of the covariance times normal variables.

        The symmetric root exists for singular covariances and, unlike the eigenvectors themselves, does not depend on
        the signs and bases that a linear-algebra library happens to choose.
        """
        K = self.second_moment(X)
        checks.generator("generator", generator, X.device)
        values, vectors = torch.linalg.eigh(K)
        normal = torch.randn(X.shape[:-1], generator=generator, dtype=X.dtype, device=generator.device).unsqueeze(-1)
        return (vectors @ (values.clamp(min=0).sqrt().unsqueeze(-1) * (vectors.mT @ normal))).squeeze(-1)


class ReLUNetworkLabels(Labels):
    """Labels y(x) = width^(-1/2) sum_j a_j max(<w_j, xi>, 0) + noise of random one-hidden-layer ReLU networks.

    w_j and a_j are standard normal and fresh for every prompt. For every width the second moment is the arc-cosine
    kernel of order 1, halved (Cho and Saul 2009), so second-moment quantities equal those of a Gaussian process.
    """

    def __init__(self, width, sigma=None, noise=0.0):
        super().__init__("arccosine", sigma, noise, name="relu_network")
        self.width = checks.integer("width", width, low=1)

    def sample(self, X, generator):
        """Labels (..., N) for covariates X (..., N, d), one network per prompt."""
        xi = self.whiten(X)
        checks.generator("generator", generator, X.device)

        def normal(*size):
            return torch.randn(size, generator=generator, dtype=X.dtype, device=generator.device)

        w = normal(*xi.shape[:-2], xi.shape[-1], self.width)
        a = normal(*xi.shape[:-2], self.width, 1)
        y = (torch.relu(xi @ w) @ a).squeeze(-1) / self.width**0.5
        return y + self.noise**0.5 * normal(*y.shape) if self.noise else y


def label_process(name, sigma=None, noise=0.0, **parameters):
    """The label process called `name`: any kernel of `kernels`, 'composite' (terms=...) or 'relu_network' (width=...).

    Raises `ValueError` on an unknown name (with the nearest match) or parameter.
    """
    checks.one_of("name", name, PROCESSES)
    if name in ("composite", "relu_network"):
        needed = "terms" if name == "composite" else "width"
        if set(parameters) != {needed}:
            raise ValueError(f"parameters = {sorted(parameters)} for {name!r}; exactly {needed!r} is required.")
        if name == "relu_network":
            return ReLUNetworkLabels(parameters["width"], sigma, noise)
        return Labels(composite(parameters["terms"]), sigma, noise)
    return Labels(named_kernel(name, **parameters), sigma, noise)
