import numpy as np
import pytest
import torch

from labeltide.training.objective import add_gradient, average, diagonal_norm, frobenius, log_volume, spread

PLAIN = {
    log_volume: lambda Q: np.log(abs(np.linalg.det(Q))),
    frobenius: np.linalg.norm,
    diagonal_norm: lambda Q: np.linalg.norm(np.diag(Q)),
}


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_penalty_equals_numpy_for_each_matrix(penalty, shape, n_classes):
    rows = np.random.default_rng(0).dirichlet(np.ones(n_classes), (*shape, n_classes))
    matrices = (np.eye(n_classes) + rows) / 2
    values = penalty(torch.from_numpy(matrices)).numpy()
    assert values.shape == shape
    for index in np.ndindex(*shape):
        # The volume is that of Q with 1e-4 more on its diagonal.
        np.testing.assert_allclose(values[index], PLAIN[penalty](matrices[index]), rtol=1e-7, atol=2e-3)


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
def test_penalty_is_largest_without_noise_and_shrinks_as_noise_grows(penalty):
    noise = torch.linspace(0, 0.6, 7, dtype=torch.float64)[:, None, None]
    values = penalty((1 - noise) * torch.eye(3) + noise / 3)
    assert (values.diff() < 0).all()


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_penalty_of_a_matrix_whose_rows_coincide_is_finite_with_its_gradient(penalty, dtype):
    matrices = torch.tensor([[[0.2, 0.3, 0.5]] * 3, [[1 / 3] * 3] * 3], dtype=dtype, requires_grad=True)
    values = penalty(matrices)
    (gradient,) = torch.autograd.grad(values.sum(), matrices)
    assert values.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
def test_penalty_gradients_equal_finite_differences(penalty):
    matrices = np.random.default_rng(1).dirichlet(np.ones(3), (2, 3))
    assert torch.autograd.gradcheck(penalty, torch.from_numpy(matrices).requires_grad_())


def random_matrices(*shape):
    rows = np.random.default_rng(1).dirichlet(np.ones(3), (*shape, 3))
    return torch.from_numpy((np.eye(3) + rows) / 2)


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
@pytest.mark.parametrize("shape", [(2, 5), (2, 4, 5)], ids=["shared", "own"])
def test_gradient_is_that_of_the_average_over_annotators_and_the_clock(penalty, shape):
    matrices = random_matrices(*shape).requires_grad_()
    expected = torch.autograd.grad(0.3 * penalty(matrices).flatten(1).mean(1).sum(), matrices)[0]
    gradient = torch.ones_like(matrices)
    add_gradient(gradient, penalty, 0.3, matrices.detach())
    torch.testing.assert_close(gradient - 1, expected)


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
@pytest.mark.parametrize("columns", [1, 4])
def test_weights_may_differ_among_members_and_annotators(penalty, columns):
    matrices, weight = random_matrices(2, 4, 5).requires_grad_(), torch.rand(2, columns, dtype=torch.float64)
    values = average(penalty, weight, matrices)
    for m in range(2):
        terms = [weight[m, a % columns] * penalty(matrices[m, a, t].detach()) for a in range(4) for t in range(5)]
        assert float(values[m].detach()) == pytest.approx(float(sum(terms)) / 20)
    gradient = torch.zeros_like(matrices)
    add_gradient(gradient, penalty, weight, matrices.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(values.sum(), matrices)[0])


def test_spread_is_the_distance_from_the_average_that_shares_weigh():
    matrices = random_matrices(2, 4, 5)
    shares = torch.from_numpy(np.random.default_rng(2).dirichlet(np.ones(4), 2))
    values = spread(matrices, shares)
    assert values.shape == (2, 4, 5)
    for m, a, t in np.ndindex(2, 4, 5):
        common = sum(shares[m, b] * matrices[m, b, t] for b in range(4))
        assert float(values[m, a, t]) == pytest.approx(float(np.linalg.norm(matrices[m, a, t] - common) ** 2))
    alike = matrices[:, :1].expand(-1, 4, -1, -1, -1)
    torch.testing.assert_close(spread(alike, shares), torch.zeros(2, 4, 5, dtype=torch.float64))
