"""Clocks that begin anew."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide._clock import check_period, wrap_clock


def test_moments_come_within_one_period_whatever_rounding_does():
    clock = np.array([0.0, 24.0, 25.5, -1.0, -1e-20])
    np.testing.assert_allclose(wrap_clock(clock, 24.0), [0, 0, 1.5, 23, 0])
    assert wrap_clock(clock, None) is clock


@pytest.mark.parametrize("period", [0, -1.0, np.inf, "day"])
def test_a_period_is_a_length(period):
    with pytest.raises(ValueError, match="period must be a number above 0"):
        check_period(period)
