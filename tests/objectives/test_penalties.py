import numpy as np
import pytest
import torch

from labeltide.objectives.penalties import diagonal_norm, frobenius, gradient, log_volume

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
    for place in np.ndindex(*shape):
        # The volume is that of Q with 1e-4 more on its diagonal.
        np.testing.assert_allclose(values[place], PLAIN[penalty](matrices[place]), rtol=1e-7, atol=2e-3)


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


@pytest.mark.parametrize("penalty", PLAIN, ids=lambda penalty: penalty.__name__)
def test_gradient_is_that_of_the_average_over_the_clock(penalty):
    rows = np.random.default_rng(1).dirichlet(np.ones(3), (2, 5, 3))
    matrices = torch.from_numpy((np.eye(3) + rows) / 2).requires_grad_()
    expected = torch.autograd.grad(penalty(matrices).mean(1).sum(), matrices)[0]
    torch.testing.assert_close(gradient(penalty, matrices.detach()), expected)
