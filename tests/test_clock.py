"""Clocks that begin anew, and gaps in time."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide._clock import cells_of, check_gaps, check_period, find_cells, gap_ladder, wrap_clock


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
    indices, lengths = gap_ladder(np.array([[1, 3], [7, 3]]))
    assert lengths == (1, 3, 7)
    np.testing.assert_array_equal(indices, [[0, 1], [2, 1]])
    many = np.arange(1, 1001)
    indices, lengths = gap_ladder(many)
    found = np.array(lengths)[indices]
    assert len(lengths) <= 16
    assert lengths[0] == 1
    assert (found >= many).all()
    assert (found[1:] > 1).all()
    assert (found <= 2 * many).all()


def test_cells_are_the_product_of_moments_and_the_nearest_is_found():
    clock = np.stack([np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4) * 5], -1)
    cells = find_cells(clock, np.ones((3, 4), dtype=bool), (None, 24.0), 144)
    assert [len(axis) for axis in cells.axes] == [12, 12]
    np.testing.assert_array_equal(cells.grid[cells.cell_of(clock)], np.stack([clock[..., 0], clock[..., 1] % 24], -1))
    near = cells.grid[cells.cell_of(np.array([2.2, 23.9]))]
    np.testing.assert_array_equal(near, [2, 0])  # beyond the last moment of a ring lies the first
    again = cells_of(cells.grid, (None, 24.0))
    np.testing.assert_array_equal(again.grid, cells.grid)


def test_many_moments_are_rounded_to_even_ones():
    moments = np.random.default_rng(0).uniform(0, 1000, (50, 20, 2))
    cells = find_cells(moments, np.ones((50, 20), dtype=bool), (None, 24.0), 144)
    assert len(cells.grid) == 144
    np.testing.assert_allclose(cells.axes[1], np.arange(0, 24, 2))
    assert np.abs(cells.grid[cells.cell_of(moments)][..., 0] - moments[..., 0]).max() < 1000 / 11


def test_cells_that_are_no_product_are_refused():
    with pytest.raises(ValueError, match="are the product of their moments"):
        cells_of(np.array([[0.0, 0.0], [1.0, 1.0]]), None)
