"""Permuted moments: rows of one length swap, people rotate, and causes that last are seen."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide.inference.score_tests import (
    ClockMoments,
    in_order,
    lasting_causes,
    rotate_people,
    rows_by_length,
    shuffle_rows,
)
from labeltide_bench.simulated import autoregression

PEOPLE, WINDOWS, STEPS = 5, 32, 3
ROWS = PEOPLE * WINDOWS
PLACES = np.arange(ROWS)[:, None] % WINDOWS * STEPS + np.arange(STEPS)
OF_PEOPLE = list(np.arange(ROWS).reshape(PEOPLE, WINDOWS))


def test_only_rows_of_the_same_length_swap_their_moments():
    lengths = np.array([3, 2, 3, 3, 2, 1])
    groups = rows_by_length(np.array([0, 1, 2, 4, 5]), lengths)  # row 3 has no labels
    assert [group.tolist() for group in groups] == [[0, 2], [1, 4]]
    for moved in shuffle_rows(PLACES[:6], groups, 20, np.random.default_rng(0)):
        assert sorted(moved[[0, 2], 0]) == sorted(PLACES[[0, 2], 0])
        assert (moved[[3, 5]] == PLACES[[3, 5]]).all()
        assert (np.diff(moved, axis=1) == 1).all()  # windows stay whole


def test_rotations_keep_the_order_of_a_persons_steps():
    mask = np.ones((ROWS, STEPS), dtype=bool)
    mask[::3, 2] = False
    shifts = set()
    for moved in rotate_people(PLACES, mask, OF_PEOPLE, 20, np.random.default_rng(0)):
        for rows in OF_PEOPLE:
            before, after = PLACES[rows][mask[rows]], moved[rows][mask[rows]]
            shift = int(np.flatnonzero(before == after[0])[0])
            assert (np.roll(before, -shift) == after).all()
            shifts.add(shift)
        assert (moved[~mask] == PLACES[~mask]).all()
    assert len(shifts) > 20


@pytest.mark.parametrize(("period", "order"), [(None, [2, 0, 3, 1]), (24.0, [1, 2, 0, 3])])
def test_windows_are_ordered_by_their_mean_moment(period, order):
    """With a period, a window around midnight comes first and not at noon; windows at one moment keep their order."""
    hours = np.array([[8.0, 10.0], [23.0, 2.0 if period else 26.0], [1.0, 2.0], [8.0, 10.0]])
    axis = np.unique(hours)
    moments = ClockMoments(axis, np.searchsorted(axis, hours), np.arange(len(axis)), period)
    assert in_order(np.arange(4), moments, np.ones((4, 2), dtype=bool)).tolist() == order


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 0.6, 1.5), (0.8, 3.0, 200.0), (0.95, 3.0, 1000.0)])
def test_causes_that_last_are_told_from_independent_windows(correlation, low, high):
    generator = np.random.default_rng(0)
    found = []
    for _ in range(20):
        windows = autoregression(generator.standard_normal((PEOPLE, WINDOWS)), correlation).reshape(ROWS, 1, 1)
        found.append(lasting_causes(windows + 0.3 * generator.standard_normal((ROWS, STEPS, 2)), OF_PEOPLE))
    assert low < np.median(found) < high


def test_a_change_that_all_people_share_is_no_cause_that_lasts():
    generator = np.random.default_rng(0)
    windows = generator.standard_normal((ROWS, 1, 1))
    drift = np.tile(np.linspace(-5, 5, WINDOWS), PEOPLE)[:, None, None]
    assert lasting_causes(windows + drift, OF_PEOPLE) < 2
