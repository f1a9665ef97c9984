"""Permuted moments: rows of one group swap."""

from __future__ import annotations

import numpy as np

from labeltide.inference.score_tests import shuffle_rows

PEOPLE, WINDOWS, STEPS = 5, 32, 3
ROWS = PEOPLE * WINDOWS
PLACES = np.arange(ROWS)[:, None] % WINDOWS * STEPS + np.arange(STEPS)


def test_only_rows_of_one_group_swap_their_moments():
    groups = [np.array([0, 2]), np.array([1, 4])]
    for moved in shuffle_rows(PLACES[:6], groups, 20, np.random.default_rng(0)):
        assert sorted(moved[[0, 2], 0]) == sorted(PLACES[[0, 2], 0])
        assert (moved[[3, 5]] == PLACES[[3, 5]]).all()
        assert (np.diff(moved, axis=1) == 1).all()  # windows stay whole
