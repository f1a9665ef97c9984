from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labeltide.training.objective import (
    Multipliers,
    Objective,
    Penalty,
    backward_loss,
    diagonal_norm,
    forward_loss,
    frobenius,
    label_losses,
    log_volume,
)
from oracles import slow_objective

PENALTIES = (
    Penalty("volume", log_volume, 0.3),
    Penalty("size", frobenius, 2.0),
    Penalty("d", diagonal_norm, 0.1),
)


class Case(NamedTuple):
    """Arguments of an objective, in its own order."""

    log_probs: Tensor  # (members, batch, steps, classes)
    labels: Tensor  # (members, batch, steps, annotators)
    weights: Tensor  # as labels
    trusted: Tensor  # (members, batch, steps)
    matrices: Tensor  # (members, steps, classes, classes)
    multipliers: Multipliers

    def score(self, objective, **changes):
        given = {"trusted": self.trusted, "matrices": self.matrices, "grid": self.matrices} | changes
        given.setdefault("multipliers", self.multipliers)
        return objective(self.log_probs, self.labels, self.weights, **given)


def make_case(seed, members=2, n_batch=3, n_steps=4, n_classes=3, n_annotators=2):
    rng = np.random.default_rng(seed)
    shape = (members, n_batch, n_steps)
    matrices = 0.4 * np.eye(n_classes) + 0.6 * rng.dirichlet(np.ones(n_classes), (members, n_steps, n_classes))
    return Case(
        torch.from_numpy(2 * rng.standard_normal((*shape, n_classes))).log_softmax(-1),
        torch.from_numpy(rng.integers(-1, n_classes, (*shape, n_annotators))),
        torch.from_numpy(rng.uniform(0.5, 2, (*shape, n_annotators)) * (rng.random((*shape, n_annotators)) < 0.8)),
        torch.from_numpy(rng.integers(-1, n_classes, shape)),
        torch.from_numpy(matrices),
        Multipliers(torch.from_numpy(rng.uniform(0.5, 3, members)), torch.from_numpy(rng.uniform(0, 3, members))),
    )


seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(("name", "loss"), [("forward", forward_loss), ("backward", backward_loss)])
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_objective_equals_a_slow_loop(name, loss, seed):
    case = make_case(seed)
    scored = case.score(Objective(loss=name, penalties=PENALTIES), trusted=None)
    values = loss(case.log_probs, case.labels, case.matrices).numpy()
    weights = (case.weights * (case.labels >= 0)).numpy()
    for m in range(2):
        linear, quadratic = float(case.multipliers.linear[m]), float(case.multipliers.quadratic[m])
        total, data = slow_objective(values[m], weights[m], linear, quadratic)
        penalty = sum(p.weight * np.mean([float(p.function(Q)) for Q in case.matrices[m]]) for p in PENALTIES)
        assert float(scored.total[m]) == pytest.approx(total + penalty)
        assert float(scored.data[m]) == pytest.approx(data)
        assert float(scored.labels[m]) == pytest.approx(weights[m].sum())


def test_every_annotator_speaks_through_the_own_matrices_and_penalties_average_over_them():
    case = make_case(0)
    grid = torch.stack([case.matrices, make_case(1).matrices], 1)  # (members, annotators, steps, classes, classes)
    alone = [forward_loss(case.log_probs, case.labels[..., a], grid[:, a]) for a in range(2)]
    trusted = label_losses(case.log_probs, case.trusted)
    values = torch.stack([*alone, trusted], -1).numpy()
    labels = torch.cat([case.labels, case.trusted[..., None]], -1)
    narrow = case._replace(weights=case.weights[..., :1])
    scored = narrow.score(Objective(penalties=PENALTIES), matrices=grid.movedim(1, 2)[:, None], grid=grid)
    weights = (narrow.weights * (labels >= 0)).numpy()
    for m in range(2):
        linear, quadratic = float(case.multipliers.linear[m]), float(case.multipliers.quadratic[m])
        total, data = slow_objective(values[m], weights[m], linear, quadratic)
        penalty = sum(
            p.weight * np.mean([float(p.function(Q)) for matrices in grid[m] for Q in matrices]) for p in PENALTIES
        )
        assert float(scored.total[m]) == pytest.approx(total + penalty)
        assert float(scored.data[m]) == pytest.approx(data)


def test_a_penalty_that_weighs_with_the_data_grows_with_their_multiplier():
    case, weight = make_case(0), torch.tensor([[0.3], [0.7]], dtype=torch.float64)
    grid = torch.stack([case.matrices, make_case(1).matrices], 1)
    noise = {"matrices": grid.movedim(1, 2)[:, None], "grid": grid, "trusted": None}
    prior = Objective(penalties=(Penalty("prior", frobenius, weight, with_data=True),))
    unscaled = weight[:, 0] * frobenius(grid).mean((1, 2))
    for multipliers, factor in ((case.multipliers, case.multipliers.linear), (None, 1.0)):
        without = case.score(Objective(), multipliers=multipliers, **noise).total
        torch.testing.assert_close(
            case.score(prior, multipliers=multipliers, **noise).total - without, factor * unscaled
        )


def test_objective_takes_labels_for_true_without_matrices():
    case = make_case(0)
    scored = case.score(Objective(), matrices=None, grid=None, trusted=None, multipliers=None)
    values = label_losses(case.log_probs, case.labels).numpy()
    weights = (case.weights * (case.labels >= 0)).numpy()
    for m in range(2):
        assert float(scored.total[m]) == pytest.approx(np.average(values[m], weights=weights[m]))
    torch.testing.assert_close(scored.total, scored.data)


def test_weights_may_broadcast_over_annotators():
    case = make_case(1)
    narrow = case.weights[..., :1]
    wide = case._replace(weights=narrow.expand(case.labels.shape))
    for one, two in zip(
        case._replace(weights=narrow).score(Objective()),
        Objective()(
            wide.log_probs,
            wide.labels,
            torch.cat([wide.weights, narrow], -1),
            trusted=wide.trusted,
            matrices=wide.matrices,
            grid=wide.matrices,
            multipliers=wide.multipliers,
        ),
        strict=True,
    ):
        torch.testing.assert_close(one, two)


@given(seed=seeds, loss=st.sampled_from(["forward", "backward"]))
@settings(max_examples=30, deadline=None)
def test_what_stands_on_padding_or_missing_labels_never_changes_the_objective(seed, loss):
    case = make_case(seed)
    dead = (case.weights[..., :1] == 0).expand(case.weights.shape)  # a step without weight is padding
    weights = case.weights.masked_fill(dead, 0)
    weights_all = torch.cat([weights, weights[..., :1]], -1)
    other = make_case(seed + 1)
    changed = case._replace(
        log_probs=torch.where(dead[..., :1], other.log_probs, case.log_probs),
        labels=torch.where(dead, other.labels, case.labels),
        trusted=torch.where(dead[..., 0], other.trusted, case.trusted),
    )
    objective = Objective(loss=loss, penalties=PENALTIES)
    scores = [each._replace(weights=weights_all).score(objective) for each in (case, changed)]
    for one, two in zip(*scores, strict=True):
        torch.testing.assert_close(one, two)


@given(seed=seeds, loss=st.sampled_from(["forward", "backward"]))
@settings(max_examples=30, deadline=None)
def test_added_rows_and_steps_without_weight_or_label_never_change_the_objective(seed, loss):
    case, other = make_case(seed), make_case(seed + 1)
    grid = case.matrices

    def more_rows(values, extra):
        return torch.cat([values, extra], 1)

    def score(each):
        return each.score(Objective(loss=loss, penalties=PENALTIES), trusted=None, grid=grid)

    before = score(case)
    zero_rows = case._replace(
        log_probs=more_rows(case.log_probs, other.log_probs),
        labels=more_rows(case.labels, other.labels),
        weights=more_rows(case.weights, torch.zeros_like(other.weights)),
    )
    missing_rows = zero_rows._replace(
        labels=more_rows(case.labels, torch.full_like(other.labels, -1)),
        weights=more_rows(case.weights, other.weights),
    )
    zero_steps = case._replace(
        log_probs=torch.cat([case.log_probs, other.log_probs], 2),
        labels=torch.cat([case.labels, other.labels], 2),
        weights=torch.cat([case.weights, torch.zeros_like(other.weights)], 2),
        matrices=torch.cat([case.matrices, other.matrices], 1),
    )
    for changed in (zero_rows, missing_rows, zero_steps):
        for one, two in zip(score(changed), before, strict=True):
            torch.testing.assert_close(one, two)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_members_do_not_mix(seed):
    case, other = make_case(seed, members=3, n_annotators=1), make_case(seed + 1, members=3, n_annotators=1)
    objective = Objective(penalties=PENALTIES)
    log_probs, matrices = case.log_probs.clone().requires_grad_(), case.matrices.clone().requires_grad_()
    whole = case._replace(log_probs=log_probs, matrices=matrices).score(objective)
    for gradient in torch.autograd.grad(whole.total[1], [log_probs, matrices]):
        assert (gradient[[0, 2]] == 0).all()
    for m in range(3):
        rows = slice(m, m + 1)
        multipliers = Multipliers(case.multipliers.linear[rows], case.multipliers.quadratic[rows])
        alone = Case(*(value[rows] for value in case[:-1]), multipliers).score(objective)
        for one, all_ in zip(alone, whole, strict=True):
            torch.testing.assert_close(one, all_[rows].detach(), check_dtype=False)
    pieces = [torch.stack([a[0], b[1], a[2]]) for a, b in zip(case[:-1], other[:-1], strict=True)]
    changed = Case(*pieces, case.multipliers).score(objective)
    torch.testing.assert_close(changed.total[[0, 2]], whole.total[[0, 2]].detach())
    assert changed.total[1] != whole.total[1]


def test_trusted_labels_count_as_one_more_perfect_annotator():
    """As another annotator whose own matrices are the identity."""
    case = make_case(3)
    with_trust = case._replace(weights=case.weights[..., :1]).score(Objective())
    values = torch.cat(
        [
            forward_loss(case.log_probs, case.labels, case.matrices),
            forward_loss(case.log_probs, case.trusted, torch.eye(3, dtype=torch.float64)).unsqueeze(-1),
        ],
        -1,
    ).numpy()
    labels = torch.cat([case.labels, case.trusted.unsqueeze(-1)], -1)
    weights = (case.weights[..., :1] * (labels >= 0)).numpy()
    for m in range(2):
        linear, quadratic = float(case.multipliers.linear[m]), float(case.multipliers.quadratic[m])
        total, data = slow_objective(values[m], weights[m], linear, quadratic)
        assert float(with_trust.total[m]) == pytest.approx(total)
        assert float(with_trust.data[m]) == pytest.approx(data)


def test_no_label_at_all_gives_zero_and_no_gradient():
    case = make_case(4)
    log_probs = case.log_probs.clone().requires_grad_()
    empty = case._replace(log_probs=log_probs, labels=torch.full_like(case.labels, -1))
    scored = empty.score(Objective(), trusted=None)
    assert (scored.total == 0).all()
    assert (scored.labels == 0).all()
    (gradient,) = torch.autograd.grad(scored.total.sum(), log_probs)
    assert (gradient == 0).all()


def test_multipliers_one_and_zero_change_nothing():
    case = make_case(5)
    neutral = Multipliers(torch.ones(2), torch.zeros(2))
    with_them = case.score(Objective(penalties=PENALTIES), trusted=None, multipliers=neutral)
    without = case.score(Objective(penalties=PENALTIES), trusted=None, multipliers=None)
    torch.testing.assert_close(with_them.total, without.total)
