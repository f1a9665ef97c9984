"""Clocks that begin anew, and gaps in time."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide._clock import check_gaps, check_period, gap_ladder, wrap_clock


def test_moments_come_within_one_period_whatever_rounding_does():
    clock = np.array([0.0, 24.0, 25.5, -1.0, -1e-20])
    np.testing.assert_allclose(wrap_clock(clock, 24.0), [0, 0, 1.5, 23, 0])
    assert wrap_clock(clock, None) is clock


@pytest.mark.parametrize("period", [0, -1.0, np.inf, "day"])
def test_a_period_is_a_length(period):
    with pytest.raises(ValueError, match="period must be a number above 0"):
        check_period(period)


def test_gaps_that_never_count_are_ones():
    gaps = [[np.nan, 1, 5000, 3], [0, 2, -7, -7]]
    np.testing.assert_array_equal(check_gaps(gaps, np.array([4, 2]), 4), [[1, 1, 1000, 3], [1, 2, 1, 1]])
    assert check_gaps(np.ones(4), np.array([4, 4]), 4) is None
    assert check_gaps(None, np.array([4, 4]), 4) is None


@pytest.mark.parametrize(
    ("gaps", "sentence"),
    [
        (np.ones((2, 3)), r"must have shape \(2, 4\), one per step, or \(4,\)"),
        (np.zeros((2, 4)), "at least 1, .* Got 0.0 in sequence 0, step 1"),
        (np.full((2, 4), 1.5), "must be whole numbers"),
        (np.full((2, 4), np.nan), "Got nan"),
        (np.full((2, 4), "long"), "must be whole numbers"),
    ],
)
def test_gaps_are_whole_numbers(gaps, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_gaps(gaps, np.array([4, 4]), 4)


def test_a_few_gaps_are_kept_and_many_are_rounded_up():
    places, lengths = gap_ladder(np.array([[1, 3], [7, 3]]))
    assert lengths == (1, 3, 7)
    np.testing.assert_array_equal(places, [[0, 1], [2, 1]])
    many = np.arange(1, 1001)
    places, lengths = gap_ladder(many)
    found = np.array(lengths)[places]
    assert len(lengths) <= 16
    assert lengths[0] == 1
    assert (found >= many).all()
    assert (found[1:] > 1).all()
    assert (found <= 2 * many).all()
