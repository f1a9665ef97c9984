"""Windows that a fit has seen are found as by their digests, with few digests computed."""

import numpy as np

from labeltide._validation import steps_mask
from labeltide.auditing import judging
from labeltide.auditing.judging import find_folds, sketch_rows
from labeltide.estimators.cross_fit import TrainingRows, digest_rows


def windows(n=40, steps=12, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, steps + 1, n)
    mask = steps_mask(lengths, steps)
    features = random.normal(size=(n, steps, 3)).astype(np.float32)
    features[3] = features[7]  # two windows with the same features
    features[9, :8] = features[11, :8]  # and two that begin alike
    mask[3], mask[7], mask[9], mask[11] = mask[7], mask[7], True, True
    return features, mask


def test_folds_are_those_of_digests(monkeypatch):
    features, mask = windows()
    rows = TrainingRows(digest_rows(features[:20], mask[:20]), np.arange(20) % 5)
    sketches = sketch_rows(features[:30], mask[:30])
    expected = rows.find_folds(features, mask)
    assert (expected >= 0).sum() == 20
    digested = []

    def digest(rows, real):
        digested.append(len(rows))
        return digest_rows(rows, real)

    monkeypatch.setattr("labeltide.estimators.cross_fit.digest_rows", digest)
    np.testing.assert_array_equal(find_folds(rows, sketches, features, mask), expected)
    assert digested == [30]
    longer = np.pad(features, ((0, 0), (0, 4), (0, 0)), constant_values=9)
    np.testing.assert_array_equal(find_folds(rows, sketches, longer, np.pad(mask, ((0, 0), (0, 4)))), expected)


def test_padding_never_changes_a_sketch(monkeypatch):
    monkeypatch.setattr(judging, "FIRST", 100)
    features, mask = windows()
    padded = np.pad(features, ((0, 0), (0, 5), (0, 0)), constant_values=7)
    np.testing.assert_array_equal(sketch_rows(features, mask), sketch_rows(padded, np.pad(mask, ((0, 0), (0, 5)))))
