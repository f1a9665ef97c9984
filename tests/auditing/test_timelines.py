"""Timelines hold signals as a drawing needs them."""

import numpy as np
import pytest

from labeltide.auditing.timelines import rounded


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.2e-8, 4.0, 2.0000001], [0.0, 4.0, 2.0]),  # what scaling there and back left of 0, 4 and 2
        ([101325.125, 101325.25, np.nan], [101325.125, 101325.25, None]),
        ([1234567.0, 7654321.0], [1234600.0, 7654300.0]),
        ([0.000123456, 0.000123456], [0.00012346, 0.00012346]),
        ([-1e-9, 5.0], [0.0, 5.0]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([np.nan, np.inf], [None, None]),
    ],
)
def test_signals_are_rounded_to_a_small_part_of_their_range(values, expected):
    found = rounded(np.array(values))
    assert found == expected
    assert "-0.0" not in map(str, found)
