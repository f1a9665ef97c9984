from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.training.objective import backward_loss, forward_loss, label_losses
from oracles import backward_loss_of_step, cross_entropy_of_step, forward_loss_of_step, matrix_of


class Case(NamedTuple):
    log_probs: torch.Tensor
    labels: torch.Tensor
    matrices: torch.Tensor
    kind: str


def random_matrices(rng, shape, n_classes, diagonal=0.5):
    """Valid matrices whose diagonal passes `diagonal`, so that they can be inverted."""
    rows = rng.dirichlet(np.ones(n_classes), (*shape, n_classes))
    return diagonal * np.eye(n_classes) + (1 - diagonal) * rows


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_batch, n_steps, n_classes = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    members = draw(st.sampled_from([(), (1,), (2,)]))
    annotators = draw(st.sampled_from([(), (1,), (3,)]))
    kinds = ["static", "shared", "own"] + (["each, shared", "each, own"] if annotators == (3,) else [])
    kind = draw(st.sampled_from(kinds))  # "each" has an own Q for every annotator
    logits = torch.from_numpy(3 * rng.standard_normal((*members, n_batch, n_steps, n_classes)))
    labels = rng.integers(-1, n_classes, (*members, n_batch, n_steps, *annotators))
    shape = {
        "static": (),
        "shared": (*members, n_steps),
        "own": (*members, n_batch, n_steps),
        "each, shared": (*members, 1, n_steps, *annotators),
        "each, own": (*members, n_batch, n_steps, *annotators),
    }[kind]
    matrices = random_matrices(rng, shape, n_classes)
    dtype = draw(st.sampled_from([torch.int8, torch.int64]))
    return Case(logits.log_softmax(-1), torch.from_numpy(labels).to(dtype), torch.from_numpy(matrices), kind)


def enumerate_losses(case, loss_of_step):
    """Every loss on its own, with the same shape as the labels."""
    probs, labels, matrices = case.log_probs.exp().numpy(), case.labels.numpy(), case.matrices.numpy()
    with_members = probs.ndim == 4
    expected = np.zeros(labels.shape)
    for index in np.ndindex(*labels.shape):
        member, row, step = index[:3] if with_members else (None, *index[:2])
        p = probs[member, row, step] if with_members else probs[row, step]
        matrix = matrix_of(matrices, member, row, step, case.kind, index[-1])
        expected[index] = loss_of_step(p, labels[index], matrix)
    return expected


@given(cases())
@settings(max_examples=60, deadline=None)
def test_forward_loss_equals_enumeration_over_true_labels(case):
    values = forward_loss(case.log_probs, case.labels, case.matrices)
    assert values.shape == case.labels.shape
    np.testing.assert_allclose(values, enumerate_losses(case, forward_loss_of_step), atol=1e-10)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_backward_loss_equals_the_explicit_inverse(case):
    values = backward_loss(case.log_probs, case.labels, case.matrices)
    assert values.shape == case.labels.shape
    np.testing.assert_allclose(values, enumerate_losses(case, backward_loss_of_step), atol=1e-9)


@given(cases())
@settings(max_examples=30, deadline=None)
def test_both_losses_equal_cross_entropy_without_noise(case):
    identity = torch.eye(case.log_probs.shape[-1], dtype=torch.float64)
    matrices = identity.expand(case.matrices.shape)
    plain = label_losses(case.log_probs, case.labels)
    slow = enumerate_losses(case, lambda probs, label, _: cross_entropy_of_step(probs, label))
    np.testing.assert_allclose(plain, slow, atol=1e-12)
    torch.testing.assert_close(forward_loss(case.log_probs, case.labels, matrices), plain)
    torch.testing.assert_close(backward_loss(case.log_probs, case.labels, matrices), plain)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_backward_loss_is_unbiased_for_the_clean_loss(n_classes):
    rng = np.random.default_rng(n_classes)
    log_probs = torch.from_numpy(rng.standard_normal((1, 6, n_classes))).log_softmax(-1)
    matrices = torch.from_numpy(random_matrices(rng, (6,), n_classes, diagonal=0.3))
    for true in range(n_classes):
        expectation = torch.zeros(1, 6, dtype=torch.float64)
        for recorded in range(n_classes):
            labels = torch.full((1, 6), recorded)
            expectation += matrices[:, true, recorded] * backward_loss(log_probs, labels, matrices)
        torch.testing.assert_close(expectation, label_losses(log_probs, torch.full((1, 6), true)))


@pytest.mark.parametrize("seed", range(4))
def test_minimiser_of_the_forward_loss_on_noisy_labels_is_the_clean_posterior(seed):
    """Proposition 1: a free prediction for each context, the exact expectation over recorded labels."""
    rng = np.random.default_rng(seed)
    n_contexts, n_steps, n_classes = 3, 4, 2 + seed % 3
    posterior = torch.from_numpy(rng.dirichlet(2 * np.ones(n_classes), (n_contexts, n_steps)))
    matrices = torch.from_numpy(random_matrices(rng, (n_steps,), n_classes, diagonal=0.6))
    if seed > 2:  # far from the identity, and still invertible
        matrices = matrices[:, rng.permutation(n_classes)]
    recorded = torch.einsum("bti,tij->btj", posterior, matrices)  # P(recorded label | context)
    logits = torch.zeros_like(posterior, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def expected_loss():
        optimiser.zero_grad()
        labels = torch.arange(n_classes).expand(n_contexts, n_steps, -1)  # every label once, as if by annotators
        total = (recorded * forward_loss(logits.log_softmax(-1), labels, matrices)).sum()
        total.backward()
        return total

    optimiser.step(expected_loss)
    torch.testing.assert_close(logits.detach().softmax(-1), posterior, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_missing_labels_give_no_loss_and_no_gradient(loss, case):
    log_probs, matrices = case.log_probs.requires_grad_(), case.matrices.requires_grad_()
    missing = torch.full_like(case.labels, -1)
    values = loss(log_probs, missing, matrices)
    assert (values == 0).all()
    for gradient in torch.autograd.grad(values.sum(), [log_probs, matrices]):
        assert (gradient == 0).all()


@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
def test_a_missing_label_leaves_the_gradient_of_its_neighbours_alone(loss):
    rng = np.random.default_rng(0)
    log_probs = torch.from_numpy(rng.standard_normal((2, 3, 3))).log_softmax(-1).requires_grad_()
    matrices = torch.from_numpy(random_matrices(rng, (3,), 3))
    labels = torch.from_numpy(rng.integers(0, 3, (2, 3)))
    (whole,) = torch.autograd.grad(loss(log_probs, labels, matrices).sum(), log_probs)
    labels[0, 1] = -1
    (gappy,) = torch.autograd.grad(loss(log_probs, labels, matrices).sum(), log_probs)
    assert (gappy[0, 1] == 0).all()
    gappy[0, 1] = whole[0, 1]
    torch.testing.assert_close(gappy, whole)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e30])
@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
def test_huge_logits_stay_finite(loss, scale):
    logits = (scale * torch.tensor([[[1.0, -1.0, 0.5], [-1.0, 1.0, 0.0]]])).requires_grad_()
    matrices = torch.from_numpy(random_matrices(np.random.default_rng(0), (2,), 3)).float()
    for label in range(3):
        values = loss(logits.log_softmax(-1), torch.full((1, 2), label), matrices)
        (gradient,) = torch.autograd.grad(values.sum(), logits)
        assert values.isfinite().all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_in_the_matrices_give_no_nan(dtype):
    logits = torch.tensor([[[0.3, -0.2, 0.1]] * 3], dtype=dtype, requires_grad=True)
    # One perfect annotator, one class never recorded, one label that only a single true class can give.
    matrices = torch.tensor(
        [
            [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
            [[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0]],
            [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]],
        ],
        dtype=dtype,
        requires_grad=True,
    )
    for label in range(3):
        values = forward_loss(logits.log_softmax(-1), torch.full((1, 3), label), matrices)
        assert values.isfinite().all()
        for gradient in torch.autograd.grad(values.sum(), [logits, matrices]):
            assert gradient.isfinite().all()


@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
@pytest.mark.parametrize(
    "shape", [(), (2,), (3, 2), (1, 2, 2), (3, 2, 2)], ids=["static", "shared", "own", "each, shared", "each, own"]
)
def test_gradients_equal_finite_differences(loss, shape):
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.standard_normal((3, 2, 3))).requires_grad_()
    matrices = torch.from_numpy(random_matrices(rng, shape, 3)).requires_grad_()
    labels = torch.from_numpy(rng.integers(-1, 3, (3, 2, 2)))
    assert torch.autograd.gradcheck(lambda z, q: loss(z.log_softmax(-1), labels, q), (logits, matrices))


@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        (np.eye(2), "must be a tensor. Got ndarray"),
        (torch.eye(3), r"Got shape \(3, 3\)"),
        (torch.eye(2).expand(4, 2, 2), r"must have shape \(2, 2\) or \('...', 5, 2, 2\).*Got shape \(4, 2, 2\)"),
        (torch.eye(2).expand(3, 4, 2, 2), r"Got shape \(3, 4, 2, 2\)"),
        (torch.eye(2).expand(3, 4, 1, 2, 2), r"Got shape \(3, 4, 1, 2, 2\)"),
    ],
)
def test_matrices_that_do_not_fit_the_predictions_are_refused(loss, matrices, words):
    log_probs, labels = torch.zeros(3, 5, 2).log_softmax(-1), torch.zeros(3, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=words):
        loss(log_probs, labels, matrices)


@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
@pytest.mark.parametrize("given", [lambda logits: logits.softmax(-1), lambda logits: logits])
def test_what_is_no_logarithm_of_a_probability_is_refused(loss, given):
    logits, labels = torch.tensor([[[2.0, -1.0], [0.0, 3.0]]]), torch.tensor([[0, 1]])
    Q = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    with pytest.raises(ValueError, match=r"at most 0\. The largest is .* logits\.log_softmax"):
        loss(given(logits), labels, Q)
    assert torch.isfinite(loss(logits.log_softmax(-1), labels, Q)).all()
