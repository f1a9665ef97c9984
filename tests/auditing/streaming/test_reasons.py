"""Reasons that are written once for many labels are those that each label would get."""

import numpy as np
import pytest

from labeltide.auditing import judging
from labeltide.auditing.judging import Reasons, pack_support, unpack_support
from labeltide.inference.conclusion import Support, explain

CLASSES = ("rest", "walk", "run")


def supports(n=3000, seed=0):
    random = np.random.default_rng(seed)
    neighbours = random.integers(0, 8, n)
    return Support(
        recorded=random.integers(0, 3, n),
        suggested=random.integers(0, 3, n),
        agreeing=random.integers(0, neighbours + 1),
        neighbours=neighbours,
        signal=random.integers(0, 3, n),
        signal_probability=random.random(n).astype(np.float32),
        others=random.integers(0, 3, n),
        wrong=random.random(n).astype(np.float32),
    )


@pytest.mark.parametrize("most", [200_000, 10])
def test_every_flagged_label_has_its_own_sentence(monkeypatch, most):
    monkeypatch.setattr(judging, "MAX_SENTENCES", most)
    writer = Reasons(CLASSES)
    for seed in range(3):
        packed = pack_support(supports(seed=seed))
        flagged = np.random.default_rng(seed).random(len(packed)) < 0.7
        written = writer.write(packed, flagged)
        expected = explain(unpack_support(packed), CLASSES)
        assert written.to_pylist() == [text if flag else None for text, flag in zip(expected, flagged, strict=True)]
        assert len(written.dictionary.unique()) == len(written.dictionary)
