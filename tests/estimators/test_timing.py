"""`tide` finds labels that are late, and leaves all other fits as they were."""

from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt
from chains import annotator_path
from labeltide.estimators import tide_steps, timing_steps
from labeltide.estimators.timing_steps import impute


def simulate(late=0.0, wrong=0.0, seed=0, rows=60, steps=50):
    """Persistent labels with Gaussian features: recorded late, or wrong anywhere."""
    generator = np.random.default_rng(seed)
    truth = ((generator.random((rows, steps)) < 0.06).cumsum(1) + generator.integers(0, 2, (rows, 1))) % 2
    features = generator.standard_normal((rows, steps, 3)).astype(np.float32)
    features[..., 0] += 3 * truth
    offsets = np.rint(generator.normal(late, 1.0 if late else 0.0, (rows, steps))).astype(int).clip(-8, 8)
    seen = np.array([annotator_path(row.tolist(), own) for row, own in zip(truth, offsets, strict=True)])
    flips = generator.random(truth.shape) < wrong
    return features, np.where(flips, 1 - seen, seen), truth


@pytest.fixture(scope="module")
def late():
    features, labels, truth = simulate(late=3.0)
    return lt.TideClassifier(epochs=15, random_state=0).fit(features, labels), features, labels, truth


def test_late_labels_are_found_with_an_interval(late):
    model, _, labels, truth = late
    assert [(entry.source, entry.target) for entry in model.timing_] == [(0, 1), (1, 0)]
    for entry in model.timing_:
        assert abs(entry.mean - 3) < 0.6
        assert entry.lower < entry.mean < entry.upper
        assert entry.upper - entry.lower < 2
        assert 0.5 < entry.spread < 2
    share = (labels != truth).mean()
    assert abs(1 - model.noise_matrices_.diagonal(axis1=-2, axis2=-1).mean() - share) < 0.05


def test_an_audit_of_late_labels_suggests_the_truth(late):
    model, features, labels, truth = late
    assert (model.audit(features, labels).suggested != truth).mean() < (labels != truth).mean() / 3
    assert (model.predict(features) != truth).mean() < (labels != truth).mean() / 2


def test_a_saved_model_keeps_its_timing_errors(late, tmp_path):
    model, features, labels, _ = late
    assert model.timing_
    model.save(tmp_path / "model.safetensors")
    again = lt.load(tmp_path / "model.safetensors")
    assert again.timing_ == model.timing_
    probabilities = [fitted.audit(features, labels).probabilities for fitted in (model, again)]
    assert np.array_equal(*probabilities)


def test_other_labels_are_fitted_as_before(monkeypatch):
    features, labels, _ = simulate(wrong=0.2)
    model = lt.TideClassifier(epochs=5, random_state=0).fit(features, labels)
    assert model.timing_fit_ is None
    assert model.timing_ == ()
    assert "timing" not in model._learned()
    monkeypatch.setattr(tide_steps, "_with_timing", lambda fleet_fit, data, fits, concluded, grid: concluded)
    before = lt.TideClassifier(epochs=5, random_state=0).fit(features, labels)
    assert np.array_equal(model.predict_proba(features), before.predict_proba(features))
    assert np.array_equal(model.noise_matrices_, before.noise_matrices_)


def test_imputed_labels_follow_the_posterior_and_keep_trusted_ones():
    import torch

    posterior = torch.tensor([0.2, 0.5, 0.3]).expand(4000, 3, 3)
    mask = torch.tensor([True, True, False]).expand(4000, -1)
    drawn = impute(posterior, mask, None, 0)
    assert torch.allclose(torch.bincount(drawn[:, 0].long()) / 4000, torch.tensor([0.2, 0.5, 0.3]), atol=0.03)
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    assert (drawn[:, 2] == -1).all()
    trusted = torch.full((4000, 3), -1, dtype=torch.int8)
    trusted[:, 1] = 2
    assert (impute(posterior, mask, trusted, 0)[:, 1] == 2).all()


@pytest.mark.parametrize("how", [{"late": 3.0}, {"wrong": 0.2}])
def test_of_many_steps_some_rows_decide_and_all_are_judged(monkeypatch, how):
    monkeypatch.setattr(timing_steps, "MOST_STEPS", 45 * 50)
    monkeypatch.setattr(timing_steps, "STEPS_AT_ONCE", 7 * 50)
    found, looked_at = timing_steps._step_evidence, []

    def count(directed, labels):
        looked_at.append(len(directed.data.mask))
        return found(directed, labels)

    monkeypatch.setattr(timing_steps, "_step_evidence", count)
    features, labels, truth = simulate(**how)
    model = lt.TideClassifier(epochs=5, random_state=0, device="cpu").fit(features, labels)
    assert looked_at == [45]
    assert (model.timing_fit_ is not None) == ("late" in how)
    assert (model.audit(features, labels).suggested != truth).mean() < (labels != truth).mean() / 2
