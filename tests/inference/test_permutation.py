"""Permuted moments: rows of one length swap."""

from __future__ import annotations

import numpy as np

from labeltide.inference.score_tests import rows_by_length, shuffle_rows

PEOPLE, WINDOWS, STEPS = 5, 32, 3
ROWS = PEOPLE * WINDOWS
PLACES = np.arange(ROWS)[:, None] % WINDOWS * STEPS + np.arange(STEPS)


def test_only_rows_of_the_same_length_swap_their_moments():
    lengths = np.array([3, 2, 3, 3, 2, 1])
    groups = rows_by_length(np.array([0, 1, 2, 4, 5]), lengths)  # row 3 has no labels
    assert [group.tolist() for group in groups] == [[0, 2], [1, 4]]
    for moved in shuffle_rows(PLACES[:6], groups, 20, np.random.default_rng(0)):
        assert sorted(moved[[0, 2], 0]) == sorted(PLACES[[0, 2], 0])
        assert (moved[[3, 5]] == PLACES[[3, 5]]).all()
        assert (np.diff(moved, axis=1) == 1).all()  # windows stay whole
