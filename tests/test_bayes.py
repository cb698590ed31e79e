"""The Bayes predictor against scikit-learn's Gaussian-process regressor, and its risk against closed forms."""

import numpy as np
import pytest
import torch
import witnesses
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct

from icfgd import bayes
from icfgd.device import generator
from icfgd.kernels import kernel
from icfgd.processes import Covariates, covariance, label_process

OUTSIDE = [
    ("gaussian", {"width": 0.7}, RBF(0.7, "fixed")),
    ("linear", {}, DotProduct(0.0, "fixed")),
    ("polynomial", {"degree": 2}, DotProduct(0.0, "fixed") ** 2),
]


@pytest.mark.parametrize("noise", [0.3, 0.01])
@pytest.mark.parametrize("name,options,outside", OUTSIDE, ids=[row[0] for row in OUTSIDE])
def test_mean_and_deviation_are_those_of_scikit_learn(name, options, outside, noise):
    X, y = witnesses.prompts(batch=1, tokens=9)
    X, y = X[0], y[0]
    K = label_process(name, noise=noise, **options).second_moment(X)
    regressor = GaussianProcessRegressor(outside, alpha=noise, optimizer=None).fit(X[:6].numpy(), y[:6].numpy())
    mean, deviation = regressor.predict(X[6:].numpy(), return_std=True)
    np.testing.assert_allclose(bayes.predict(K, y, 3), mean, rtol=1e-7, atol=1e-9)
    # its variance is that of the noiseless function; the risk here is that of a noisy label
    np.testing.assert_allclose(bayes.risk(K, 3), deviation**2 + noise, rtol=1e-6)


def test_composite_and_exponential_means_by_a_plain_solve():
    X, y = witnesses.prompts()
    for name, options in (("exponential", {"scale": 2.0}), ("composite", {"terms": [(0.5, "linear", None), (1.0, "arccosine", None)]})):
        K = label_process(name, witnesses.SIGMA, 0.1, **options).second_moment(X)
        for row in range(4):
            k = K[row].numpy()
            want = k[5:, :5] @ np.linalg.solve(k[:5, :5], y[row, :5].numpy())
            np.testing.assert_allclose(bayes.predict(K, y, 2)[row], want, rtol=1e-8)


def test_normal_equations_and_risks():
    witnesses.bayes_solves_the_normal_equations()


def test_singular_linear_kernel_with_more_points_than_dimensions_is_solved_exactly():
    X, _ = witnesses.prompts(tokens=9)
    K = label_process("linear").second_moment(X)
    assert bayes.risk(K, 2).max() < 1e-10
    w = torch.randn(4, 3, generator=generator(3), dtype=torch.float64)
    y = torch.einsum("bnd,bd->bn", X, w)
    torch.testing.assert_close(bayes.predict(K, y, 2), y[:, 7:], rtol=1e-8, atol=1e-9)


def test_pseudo_inverse_is_the_limit_of_small_noise():
    X, _ = witnesses.prompts(tokens=7)
    limit = bayes.weights(label_process("linear").second_moment(X))
    pinv = torch.linalg.pinv(label_process("linear").second_moment(X)[:, :6, :6], rtol=1e-10, hermitian=True)
    nu = label_process("linear").second_moment(X)[:, :6, 6:]
    torch.testing.assert_close(limit, pinv @ nu, rtol=1e-8, atol=1e-10)
    near = bayes.weights(label_process("linear", noise=1e-7).second_moment(X))
    torch.testing.assert_close(near, limit, rtol=1e-3, atol=1e-4)


def test_repeated_points_share_their_weight():
    X, y = witnesses.prompts(tokens=5)
    twice = torch.cat([X[:, :3], X[:, 2:3], X[:, 4:]], 1)
    labels = torch.cat([y[:, :3], y[:, 2:3]], 1)
    K = label_process("gaussian").second_moment(twice)
    once = label_process("gaussian").second_moment(torch.cat([X[:, :3], X[:, 4:]], 1))
    w = bayes.weights(K)
    torch.testing.assert_close(w[:, 2], w[:, 3], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(bayes.predict(K, labels), bayes.predict(once, y[:, :3]), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("law", ["sphere", "gaussian"])
@pytest.mark.parametrize("d,n", [(4, 1), (5, 3)])
def test_linear_risk_is_a_fraction_of_missing_dimensions(d, n, law):
    """Rotation-invariant xi: the Bayes risk of linear labels is (d - n)/d of E|xi|^2, and 0 once n >= d."""
    sigma = covariance(torch.linspace(0.5, 2.0, d, dtype=torch.float64), generator(1))
    X = Covariates(sigma, law).sample(4000, n + 1, generator(2))
    risk = bayes.risk(label_process("linear", sigma).second_moment(X)).squeeze(-1)
    want = (d - n) / d * (1.0 if law == "sphere" else d)
    assert abs(float((risk.mean() - want) / (risk.std() / 4000**0.5))) < 4.5
    many = Covariates(sigma, law).sample(3, d + 1, generator(2))
    assert bayes.risk(label_process("linear", sigma).second_moment(many)).max() < 1e-9


def test_predictions_of_sampled_labels_err_by_the_risk():
    """The mean squared error of predictions of sampled noisy labels is the Bayes risk given X, by z-score."""
    process = label_process("exponential", witnesses.SIGMA, noise=0.2)
    X = witnesses.prompts(batch=1, tokens=6)[0].expand(8000, 6, 3)
    y = process.sample(X, generator(9))
    K = process.second_moment(X[:1])
    error = (bayes.predict(K, y, 2) - y[:, 4:]) ** 2
    score = (error.mean(0) - bayes.risk(K, 2)[0]) / (error.std(0) / 8000**0.5)
    assert score.abs().max() < 4.5


@given(st.integers(0, 10**6), st.sampled_from(["linear", "exponential", "gaussian", "arccosine"]), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_risk_is_never_negative_and_never_grows_with_context(seed, name, n):
    X = Covariates(torch.eye(3, dtype=torch.float64)).sample(1, n + 2, generator(seed))
    gram = kernel(name).gram(X)
    more = bayes.risk(gram)
    less = bayes.risk(gram[:, 1:, 1:])
    assert (more >= 0).all()
    assert (more <= less + 1e-7).all()
    assert (less <= torch.diagonal(gram, dim1=-2, dim2=-1)[:, -1:] + 1e-9).all()


def test_exponential_kernel_on_the_sphere_is_scikit_learns_gaussian_one():
    """On the unit sphere exp(<u,v>) = e exp(-|u-v|^2/2), so means agree and variances differ by the factor e."""
    X, y = Covariates(torch.eye(5, dtype=torch.float64)).sample(1, 15, generator(3))[0], witnesses.prompts(tokens=15)[1][0]
    K = label_process("exponential").second_moment(X)
    regressor = GaussianProcessRegressor(RBF(1.0, "fixed"), alpha=1e-14, optimizer=None).fit(X[:14].numpy(), y[:14].numpy())
    mean, deviation = regressor.predict(X[14:].numpy(), return_std=True)
    np.testing.assert_allclose(bayes.predict(K, y), mean, atol=1e-8)
    np.testing.assert_allclose(bayes.risk(K).sqrt(), np.exp(0.5) * deviation, rtol=1e-6)


def test_singular_gram_matrix_agrees_with_scikit_learn_at_a_tiny_jitter():
    X, _ = witnesses.prompts(batch=1, tokens=9)
    K = label_process("linear").second_moment(X)[0]
    y = (X[0] @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)).numpy()
    regressor = GaussianProcessRegressor(DotProduct(0.0, "fixed"), alpha=1e-9, optimizer=None).fit(X[0, :7].numpy(), y[:7])
    np.testing.assert_allclose(bayes.predict(K, torch.tensor(y), 2), regressor.predict(X[0, 7:].numpy()), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0, 1e12, 1e200])
def test_what_counts_as_semidefinite_does_not_depend_on_the_unit(scale):
    X, _ = witnesses.prompts(tokens=9)
    K = label_process("linear").second_moment(X)
    torch.testing.assert_close(bayes.weights(scale * K, 2), bayes.weights(K, 2), rtol=1e-6, atol=1e-8)
    indefinite = scale * torch.diag(torch.tensor([1.0, 1.0, -1e-6, 1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="eigenvalue -1.* semi-definite"):
        bayes.risk(indefinite)


@pytest.mark.parametrize(
    "rows",
    [
        [[0.0, 1.0], [1.0, 1.0]],  # nu outside the range of K_hat
        [[1.0, 1.0], [1.0, 1.0 - 1e-5]],  # Schur complement -1e-5
        [[1.0, 0.0, 0.9], [0.0, 1.0, 0.9], [0.9, 0.9, 1.0]],  # a context block that is fine, a query that is not
        [[1.0, 1.0, 0.1], [1.0, 1.0, 0.0], [0.1, 0.0, 1.0]],  # equal context points, unequal covariances with the query
    ],
)
def test_matrices_that_are_no_covariances_are_refused(rows):
    with pytest.raises(ValueError, match="must be semi-definite"):
        bayes.risk(torch.tensor(rows, dtype=torch.float64))


def test_without_any_variance_nothing_is_predicted():
    K = torch.zeros(3, 3, dtype=torch.float64)
    assert not bayes.weights(K).any()
    assert not bayes.risk(K).any()


@given(
    st.integers(0, 10**6),
    st.sampled_from(["linear", "exponential", "gaussian", "arccosine", "polynomial"]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(1, 4),
    st.floats(1e-12, 1e-2),
)
@settings(max_examples=60, deadline=None)
def test_nearly_singular_covariances_are_accepted(seed, name, dtype, d, gap):
    """Repeated and nearly repeated points, more points than dimensions: rounding is not mistaken for indefiniteness."""
    X = Covariates(torch.eye(d, dtype=torch.float64), "gaussian").sample(4, 9, generator(seed))
    X[:, 1], X[:, 2], X[:, -1] = X[:, 0], X[:, 0] + gap * X[:, 2], X[:, 0] * (1 + gap)
    risk = bayes.risk(kernel(name).gram(X.to(dtype)), 2)
    assert torch.isfinite(risk).all()
    assert (risk >= 0).all()


def test_several_queries_are_single_queries():
    X, y = witnesses.prompts()
    K = label_process("exponential", noise=0.1).second_moment(X)
    for j in range(3):
        keep = [0, 1, 2, 3, 4 + j]
        part = K[:, keep][:, :, keep]
        torch.testing.assert_close(bayes.predict(K, y, 3)[:, j], bayes.predict(part, y)[:, 0])
        torch.testing.assert_close(bayes.risk(K, 3)[:, j], bayes.risk(part)[:, 0])


def test_float32_is_kept():
    X, y = witnesses.prompts()
    K = label_process("exponential", noise=0.1).second_moment(X)
    got = bayes.predict(K.float(), y.float())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), bayes.predict(K, y), rtol=1e-3, atol=1e-3)
