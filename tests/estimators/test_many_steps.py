"""Labels and features of many steps are not copied for each network; numbers are the same bits."""

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide import _validation
from labeltide.chain import em, passes
from labeltide.estimators import cross_fit
from labeltide.training import objective as training_data

N, STEPS = 40, 12


def make_study():
    """Rows of two annotators with different lengths, own clocks and gaps."""
    true = lt.make_sequences(n=N, n_steps=STEPS, n_features=3, stay=0.9, random_state=1)
    generator = np.random.default_rng(0)
    noise = lt.make_noise("growth", n_steps=STEPS, rate=0.3)
    labels = np.stack([lt.corrupt(true.labels[..., 0], noise, random_state=seed) for seed in (0, 1)], -1)
    labels[generator.random(labels.shape) < 0.3] = -1
    lengths = generator.integers(STEPS // 2, STEPS + 1, N)
    features = true.features.astype(np.float32)
    features[np.arange(STEPS) >= lengths[:, None]] = 0
    clock = np.sort(generator.random((N, STEPS)), axis=1).round(1)
    gaps = 1 + (generator.random((N, STEPS)) < 0.1)
    return features, labels, {"clock": clock, "lengths": lengths, "gaps": gaps}


def fit(features, labels, more):
    return lt.TideClassifier(epochs=3, random_state=0, device="cpu", standardize=False).fit(features, labels, **more)


def numbers(fitted):
    parts = [*fitted.model_.parameters(), *fitted.fold_model_.parameters(), fitted.training_.data.evidence]
    return [part.detach().numpy() for part in parts] + [fitted.noise_matrices_, fitted.training_rows_.digests]


@pytest.fixture(scope="module")
def in_memory():
    return numbers(fit(*make_study()))


@pytest.fixture
def many_steps(monkeypatch):
    """Every fit has many steps, and the chain is computed in blocks of few rows."""
    monkeypatch.setattr(training_data, "MANY_STEPS", 0)
    monkeypatch.setattr(passes, "POSTERIORS_AT_ONCE", 16 * STEPS * 2 * passes.MEMBERS_AT_ONCE)
    monkeypatch.setattr(em, "STEPS_AT_ONCE", 16 * STEPS)
    monkeypatch.setattr(cross_fit, "STEPS_AT_ONCE", 10 * 16 * STEPS)


def test_a_fit_whose_batches_are_gathered_has_the_same_bits(in_memory, many_steps):
    for one, other in zip(in_memory, numbers(fit(*make_study())), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_mapped_file_is_checked_like_any_array(tmp_path):
    features = np.zeros((3, 4, 2), np.float32)
    features[1, 2, 1] = np.nan
    np.save(tmp_path / "features.npy", features)
    with pytest.raises(ValueError, match="sequence 1, step 2, feature 1"):
        _validation.check_features(np.load(tmp_path / "features.npy", mmap_mode="c"))


def test_a_map_that_would_be_written_to_is_copied(tmp_path):
    np.save(tmp_path / "features.npy", np.ones((3, 4, 2), np.float32))
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r+")
    checked, _ = _validation.check_features(mapped, np.array([2, 4, 4]))
    assert checked[0, 3, 0] == 0
    assert mapped[0, 3, 0] == 1


def test_copies_of_a_member_share_its_labels_where_there_are_many(many_steps):
    data = training_data.FleetData(
        features=torch.zeros(5, 4, 2),
        mask=torch.ones(5, 4, dtype=torch.bool),
        labels=torch.arange(2, dtype=torch.int8)[:, None, None, None].repeat(1, 5, 4, 1),
        grid=torch.linspace(0, 1, 4),
        points=None,
        weights=torch.ones(2, 5),
        held_out=torch.zeros(2, 5, dtype=torch.bool),
    )
    copies = data.repeat_members(3)
    assert copies.labels is data.labels
    assert copies.members == 6
    assert copies.batch(torch.zeros(6, 1, dtype=torch.int64)).labels[:, 0, 0, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert copies.members_in(torch.tensor([1, 4])).batch(torch.zeros(2, 1, dtype=torch.int64)).labels[
        :, 0, 0, 0
    ].tolist() == [0, 1]
