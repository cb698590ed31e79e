"""Covariates and labels have the laws they claim: exact identities where there are any, z-scores elsewhere."""

import pytest
import torch
import witnesses
from witnesses import SIGMA

from icfgd.device import generator
from icfgd.kernels import KERNELS, absolute, kernel
from icfgd.processes import LAWS, Covariates, covariance, label_process, power, random_rotation

COUNT = 20000


def z_scores(samples, want):
    return ((samples.mean(0) - want) / (samples.std(0) / len(samples) ** 0.5).clamp(min=1e-300)).abs().max()


def test_covariance_has_its_eigenvalues_and_depends_on_its_generator_alone():
    values = torch.tensor([0.5, 1.0, 2.25], dtype=torch.float64)
    sigma = covariance(values.tolist(), generator(3))
    torch.testing.assert_close(torch.linalg.eigvalsh(sigma), values)
    assert torch.equal(sigma, covariance(values.tolist(), generator(3)))
    assert (sigma - covariance(values.tolist(), generator(4))).abs().max() > 1e-2
    assert torch.equal(covariance(values.tolist()), torch.diag(values))


def test_powers_add_up():
    torch.testing.assert_close(power(SIGMA, 0.5) @ power(SIGMA, 0.5), SIGMA)
    torch.testing.assert_close(power(SIGMA, -0.5) @ SIGMA @ power(SIGMA, -0.5), torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(power(SIGMA, 0.3), power(SIGMA, 0.3).T)


def test_random_rotations_are_orthogonal_and_uniform():
    draw = generator(0)
    sample = torch.stack([random_rotation(3, draw) for _ in range(3000)])
    torch.testing.assert_close(sample @ sample.mT, torch.eye(3, dtype=torch.float64).expand(3000, 3, 3))
    assert z_scores(sample, torch.zeros(3, 3)) < 4.5
    assert z_scores(sample**2, torch.full((3, 3), 1 / 3)) < 4.5
    assert z_scores(torch.linalg.det(sample)[:, None], torch.zeros(1)) < 4.5
    assert z_scores(sample[:, 0, 0, None] ** 4, torch.full((1,), 1 / 5)) < 4.5  # 3/(d(d+2)): a bias of QR would show


@pytest.mark.parametrize("law", LAWS)
def test_covariates_have_the_covariance_sigma(law):
    law_of = Covariates(SIGMA, law)
    X = law_of.sample(COUNT, 2, generator(1))
    assert X.shape == (COUNT, 2, 3)
    size = 3 if law == "gaussian" else 1  # E|xi|^2
    assert z_scores(X[:, 0, :, None] * X[:, 0, None, :], SIGMA * size / 3) < 4.5
    assert z_scores(X[:, 0, :, None] * X[:, 1, None, :], torch.zeros(3, 3)) < 4.5
    assert z_scores(X[:, 0], torch.zeros(3)) < 4.5


def test_laws_differ_where_they_should():
    xi = {law: Covariates(SIGMA, law).standard(500, 2, generator(1)) for law in LAWS}
    for law in ("sphere", "cube"):
        torch.testing.assert_close(xi[law].norm(dim=-1), torch.ones(500, 2, dtype=torch.float64))
    torch.testing.assert_close(xi["cube"].abs(), torch.full((500, 2, 3), 3**-0.5, dtype=torch.float64))
    assert xi["gaussian"].norm(dim=-1).std() > 0.1
    assert xi["sphere"][..., 0].abs().std() > 0.1


def test_whitening_undoes_the_root():
    law = Covariates(SIGMA)
    process = label_process("linear", SIGMA)
    torch.testing.assert_close(process.whiten(law.sample(5, 3, generator(2))), law.standard(5, 3, generator(2)))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_act_on_whitened_covariates(name):
    if kernel(name).semidefinite:
        witnesses.kernels_act_on_whitened(name)
    law = Covariates(SIGMA)
    gram = kernel(name).gram(law.standard(2, 5, generator(4)))
    want = gram if kernel(name).semidefinite else absolute(gram)
    torch.testing.assert_close(label_process(name, SIGMA).second_moment(law.sample(2, 5, generator(4))), want)


def test_relu_labels_take_the_absolute_value_of_the_whole():
    witnesses.relu_blocks_are_of_the_whole()


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("name,parameters", [
    ("linear", {}), ("relu", {}), ("exponential", {"scale": 2.0}), ("gaussian", {}), ("arccosine", {}),
    ("polynomial", {"degree": 2}), ("composite", {"terms": [(0.5, "linear", [[1.0, 0, 0]]), (0.5, "gaussian", None)]}),
    ("relu_network", {"width": 1}), ("relu_network", {"width": 4}), ("relu_network", {"width": 64}),
], ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values()))[:8])
def test_sampled_labels_have_the_second_moment_of_prediction(name, parameters, noise):
    witnesses.labels_have_their_second_moment(noise, name, COUNT if name != "relu_network" else 8000, **parameters)


def test_noise_is_on_the_diagonal_of_context_and_query_alike():
    X, _ = witnesses.prompts()
    clean, noisy = (label_process("exponential", noise=noise).second_moment(X) for noise in (0.0, 0.4))
    torch.testing.assert_close(noisy - clean, (0.4 * torch.eye(7, dtype=torch.float64)).expand(4, 7, 7))
    K_hat, nu, kappa = label_process("exponential", noise=0.4).moments(X, 2)
    assert torch.equal(K_hat, noisy[:, :5, :5])
    assert torch.equal(nu, noisy[:, :5, 5:])
    assert torch.equal(kappa, torch.diagonal(noisy, dim1=-2, dim2=-1)[:, 5:])


def test_singular_covariances_are_sampled_without_noise():
    """Noiseless linear labels are linear in xi, also with more points than dimensions."""
    X, _ = witnesses.prompts(tokens=8)
    y = label_process("linear").sample(X, generator(0))
    fit = torch.linalg.lstsq(X, y.unsqueeze(-1)).solution
    torch.testing.assert_close((X @ fit).squeeze(-1), y, rtol=1e-6, atol=1e-7)


def test_relu_networks_of_width_one_are_not_gaussian_and_wide_ones_nearly():
    X = witnesses.prompts(batch=1, tokens=1)[0].expand(8000, 1, 3)

    def kurtosis(width):
        y = label_process("relu_network", width=width).sample(X, generator(3))
        return float((y**4).mean() / (y**2).mean() ** 2)

    assert kurtosis(1) > 8  # 18 in the limit of many samples
    assert abs(kurtosis(64) - 3) < 0.8


def test_samples_depend_on_their_generator_alone():
    X, _ = witnesses.prompts()
    for name, options in (("exponential", {"noise": 0.1}), ("relu_network", {"width": 3})):
        process = label_process(name, SIGMA, **options)
        assert torch.equal(process.sample(X, generator(1)), process.sample(X, generator(1)))
        assert not torch.equal(process.sample(X, generator(1)), process.sample(X, generator(2)))
        assert process.sample(X, generator(1)).shape == (4, 7)


def test_float32_is_kept():
    X, _ = witnesses.prompts()
    process = label_process("exponential", SIGMA, 0.1)
    assert process.second_moment(X.float()).dtype == torch.float32
    assert process.sample(X.float(), generator(0)).dtype == torch.float32
    assert Covariates(SIGMA).sample(2, 3, generator(0), torch.float32).dtype == torch.float32


def test_only_indefinite_kernels_need_single_queries():
    X, _ = witnesses.prompts()
    assert label_process("relu").single_query
    assert not label_process("arccosine").single_query
    with pytest.raises(ValueError, match="queries = 2.*queries = 1 is required"):
        label_process("relu").moments(X, 2)
