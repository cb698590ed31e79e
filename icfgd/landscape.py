"""The loss around a point: gradients along and across the symmetric set, distances from it, Hessian spectra.

Losses are means of the label-integrated risk over given prompts, so that a finite sample that is symmetrised
by `symmetry.orbit` shows the theorems exactly. Matrices are measured in whitened coordinates, in which the
symmetric set is A, B, C = multiples of I. Finding stationary points belongs in `stationary`.
"""

from dataclasses import dataclass

import torch

from icfgd import checks
from icfgd.losses import evaluate_at, integrated_risk
from icfgd.processes import Labels, power
from icfgd.symmetry import NAMES, parameters, unwhiten, whiten, with_parameters

PARTS = ("scalar", "symmetric", "skew")


def matrix_basis(d):
    """An orthonormal basis (d^2, d, d) of matrices and the part of each: I, traceless symmetric, skew."""
    eye = torch.eye(checks.integer("d", d, low=1), dtype=torch.float64)
    rows, parts = [eye / d**0.5], ["scalar"]
    for j in range(1, d):
        diagonal = torch.cat([torch.ones(j), torch.tensor([-float(j)]), torch.zeros(d - j - 1)]).to(eye)
        rows.append(torch.diag(diagonal / diagonal.norm()))
    for sign, part in ((1, "symmetric"), (-1, "skew")):
        for i in range(d):
            for j in range(i):
                E = torch.outer(eye[i], eye[j])
                rows.append((E + sign * E.T) / 2**0.5)
        parts += [part] * (len(rows) - len(parts))
    return torch.stack(rows), parts


class Chart:
    """Coordinates z (D,) for a choice of a network's parameters; those not chosen keep the values of `model`.

    names: any of A, B, C, r. parts: the parts of whitened matrices that may move, of 'scalar', 'symmetric',
    'skew'. Coordinates are coefficients in `matrix_basis`, orthonormal in whitened parameters. kinds: for
    each coordinate 'r' or the part it belongs to. With parts=('scalar',) the chart covers the symmetric set,
    if the model lies in it.
    """

    def __init__(self, model, sigma, names=("r", "B", "C"), parts=PARTS):
        if model.batch:
            raise ValueError(f"model has batch shape {model.batch}; a single network is required.")
        checks.shape("sigma", sigma, (model.d, model.d))
        self.names = [checks.one_of("names", name, NAMES) for name in names]
        self.parts = [checks.one_of("parts", part, PARTS) for part in parts]
        basis, kinds = matrix_basis(model.d)
        kept = [i for i, kind in enumerate(kinds) if kind in self.parts]
        self.model, self.sigma = model, sigma
        self.basis = basis[kept].to(model.r)
        self._fixed = whiten(parameters(model), sigma)
        heads = self._fixed["r"].numel()
        self._sizes = [heads * (1 if name == "r" else len(kept)) for name in self.names]
        self.size = sum(self._sizes)
        self.kinds = []
        for name in self.names:
            self.kinds += (["r"] if name == "r" else [kinds[i] for i in kept]) * heads

    def coordinates(self, values=None):
        """The vector z of the parameters `values` (a dict; default: those of the model)."""
        white = self._fixed if values is None else whiten(values, self.sigma)
        return torch.cat([self._coefficients(name, white[name]).reshape(-1) for name in self.names])

    def parameters(self, z):
        """The parameters A, B, C, r (a dict) at z, differentiable in z: the inverse of `coordinates`."""
        checks.shape("z", z, (self.size,))
        white = dict(self._fixed)
        for name, piece in zip(self.names, z.split(self._sizes)):
            old = self._coefficients(name, white[name])
            change = piece.reshape(old.shape) - old
            white[name] = white[name] + (change if name == "r" else torch.tensordot(change, self.basis, 1))
        return unwhiten(white, self.sigma)

    def _coefficients(self, name, white):
        return white if name == "r" else torch.einsum("...ij,pij->...p", white, self.basis)

    def loss(self, z, X, moments, queries=1):
        """The mean label-integrated risk at z on covariates X, given `moments` or a `Labels`."""
        return evaluate_at(integrated_risk, self.model, self.parameters(z), X, moments, queries).mean()

    def model_at(self, z):
        """A copy of the network with the parameters at z."""
        return with_parameters(self.model, self.parameters(z))


@dataclass(frozen=True)
class Stationarity:
    """Gradient of the loss at a network. All dicts are by parameter name; k layers, m heads.

    norms: Frobenius norms of the plain gradients. scalars (k, m): the whitened gradient is scalars * I plus a
    deviation (for r: the gradient). deviations: the largest Frobenius norm of the deviation of any layer and
    head, relative to the largest whitened gradient of that name (0 if the gradient vanishes).
    """

    norms: dict
    scalars: dict
    deviations: dict


def stationarity(model, X, labels, sigma, queries=1):
    """The gradient of the mean label-integrated loss, split along and across the symmetric set; a
    `Stationarity`.

    X (..., n+q, d); labels: a `Labels` or its moments on X. On the symmetric set, with invariant data,
    deviations are zero up to rounding (Theorems 1 and 2 of the paper, eq. 9.1).
    """
    values = {name: v.clone().requires_grad_() for name, v in parameters(model).items()}
    loss = evaluate_at(integrated_risk, model, values, X, labels, queries).mean()
    gradient = dict(zip(values, torch.autograd.grad(loss, list(values.values()), materialize_grads=True)))
    if not all(bool(torch.isfinite(g).all()) for g in gradient.values()):
        raise FloatingPointError("the gradient is not finite; the scores overflow.")
    norms = {name: float(g.norm()) for name, g in gradient.items()}
    # Whitening a gradient is the adjoint of unwhitening a parameter, and that has the formula of unwhitening.
    white = unwhiten(gradient, sigma)
    scalars, deviations = {"r": white["r"]}, {}
    for name in ("A", "B", "C"):
        N = white[name]
        scalars[name] = torch.diagonal(N, dim1=-2, dim2=-1).mean(-1)
        eye = torch.eye(model.d, dtype=N.dtype, device=N.device)
        across = torch.linalg.matrix_norm(N - scalars[name][..., None, None] * eye).max()
        largest = torch.linalg.matrix_norm(N).max()
        deviations[name] = float(across / largest) if largest > 0 else 0.0
    return Stationarity(norms, scalars, deviations)


def distance_to_multiples(M, target):
    """min over c of |M - c T|_F / |M|_F for matrices M and T (..., d, d), shape (...); 0 where M = 0."""
    checks.finite("M", M)
    checks.shape("target", checks.finite("target", target), tuple(M.shape[-2:]))
    inner = (M * target).sum((-2, -1)) / (target * target).sum((-2, -1))
    size = torch.linalg.matrix_norm(M)
    gap = torch.linalg.matrix_norm(M - inner[..., None, None] * target)
    return torch.where(size > 0, gap / torch.where(size > 0, size, 1.0), 0.0)


def distances(model, sigma):
    """How far a network is from the symmetric set, each layer and head: a dict of tensors (k, m, *batch).

    'BC': distance of B^T C to multiples of Sigma^(-1), measured as that of Sigma^(1/2) B^T C Sigma^(1/2) to
    multiples of I; 'A': distance of A to multiples of I. Both relative, between 0 and 1.
    """
    root = power(sigma, 0.5)
    eye = torch.eye(model.d, dtype=root.dtype)
    values = {name: v.to("cpu", root.dtype) for name, v in parameters(model).items()}
    product = root @ values["B"].mT @ values["C"] @ root
    return {"BC": distance_to_multiples(product, eye), "A": distance_to_multiples(values["A"], eye)}


def hessian(chart, X, labels, queries=1, z=None):
    """The Hessian (D, D) of the mean label-integrated loss in the coordinates of `chart`, at z (default: the
    model).

    X (..., n+q, d); labels: a `Labels` or its moments on X.
    """
    moments = labels.moments(X, queries) if isinstance(labels, Labels) else labels
    z = (chart.coordinates() if z is None else z).detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(chart.loss(z, X, moments, queries), z, create_graph=True)
    rows = [torch.autograd.grad(g, z, retain_graph=True, materialize_grads=True)[0] for g in gradient]
    matrix = torch.stack(rows)
    if not bool(torch.isfinite(matrix).all()):
        raise FloatingPointError("the Hessian is not finite; the scores overflow.")
    return (matrix + matrix.T) / 2


def coupling(matrix, kinds):
    """The largest entry of a Hessian (D, D) between coordinates of different kinds, relative to its largest
    entry.

    kinds: as `Chart.kinds`; 'r' and 'scalar' count as one kind (moves within the symmetric set).
    """
    groups = ["scalar" if kind == "r" else kind for kind in kinds]
    checks.shape("matrix", matrix, (len(groups), len(groups)))
    across = torch.tensor([[a != b for b in groups] for a in groups])
    return float((matrix.abs() * across.to(matrix)).max() / matrix.abs().max())


def gauge(chart):
    """An orthonormal basis (D, g) of directions that cannot change the loss, at the network of `chart`.

    The loss depends on B^T C only (B -> S B, C -> S^(-T) C), and for attention that is homogeneous in B^T C
    also on r B^T C only. The chart must cover r, B and C with all parts.
    """
    if not {"r", "B", "C"} <= set(chart.names) or not set(PARTS) <= set(chart.parts):
        raise ValueError(f"chart covers {chart.names} with {chart.parts}; r, B, C with all parts are needed.")
    here = whiten(parameters(chart.model), chart.sigma)
    d, rows = chart.model.d, []

    def add(layer, head, **changes):
        moved = {name: torch.zeros_like(v) for name, v in here.items()}
        for name, change in changes.items():
            moved[name][layer, head] = change
        rows.append(chart.coordinates(unwhiten(moved, chart.sigma)))

    for layer, heads in enumerate(chart.model.heads):
        for head, kernel in enumerate(heads):
            B, C, r = (here[name][layer, head] for name in ("B", "C", "r"))
            for N in torch.eye(d * d, dtype=B.dtype).reshape(-1, d, d):
                add(layer, head, B=N @ B, C=-N.T @ C)
            if _homogeneous(kernel, d):
                add(layer, head, r=-r, C=C)
    Q, sizes, _ = torch.linalg.svd(torch.stack(rows).T, full_matrices=False)
    return Q[:, sizes > 1e-10 * sizes.max()]


def reduced_spectrum(matrix, directions):
    """Eigenvalues, ascending, of a Hessian (D, D) on the orthogonal complement of `directions` (D, g)."""
    full = torch.linalg.qr(directions, mode="complete").Q
    complement = full[:, directions.shape[1] :]
    return torch.linalg.eigvalsh(complement.T @ matrix @ complement)


def _homogeneous(kernel, d):
    U = torch.linspace(-1.0, 1.3, 2 * d, dtype=torch.float64).reshape(2, d)
    W = U.flip(0)
    return torch.allclose(kernel.weights(2 * U, W), 2 * kernel.weights(U, W), rtol=1e-12, atol=0)
