"""The classifier of single steps learns from other folds, and from one step at a time."""

from __future__ import annotations

import numpy as np
import torch

from labeltide.estimators.step_evidence import fit_step_model


def make(seed=0, rows=40, steps=20):
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 3, (rows, steps))
    features = generator.standard_normal((rows, steps, 4)) + 3 * np.eye(4)[truth]
    folds = torch.arange(rows) % 5
    targets = torch.nn.functional.one_hot(torch.from_numpy(truth), 3).float()
    return torch.from_numpy(features).float(), torch.ones(rows, steps, dtype=torch.bool), targets, folds


def test_it_predicts_rows_that_it_has_not_seen():
    features, mask, targets, folds = make()
    log_probs = fit_step_model(features, mask, targets, folds).log_probs(features, folds)
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(40, 20))
    assert (log_probs.argmax(-1) == targets.argmax(-1)).float().mean() > 0.9


def test_labels_of_a_row_do_not_change_its_own_prediction():
    features, mask, targets, folds = make()
    other = targets.clone()
    other[folds == 0] = targets[folds == 0].flip(-1)
    before, after = (fit_step_model(features, mask, y, folds).log_probs(features, folds) for y in (targets, other))
    assert torch.equal(before[folds == 0], after[folds == 0])
    assert not torch.allclose(before[folds == 1], after[folds == 1])


def test_other_steps_and_padding_change_nothing():
    features, mask, targets, folds = make()
    model = fit_step_model(features, mask, targets, folds)
    assert torch.allclose(model.log_probs(features[:, :5], folds), model.log_probs(features, folds)[:, :5], atol=1e-6)
    mask[:, 15:] = False
    garbage = torch.where(mask[..., None], features, 99.0)
    first, second = (fit_step_model(x, mask, targets, folds) for x in (features, garbage))
    assert torch.equal(first.coefficients, second.coefficients)
