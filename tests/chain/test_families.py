"""Shapes in time."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide.chain.families import spline_shape


@pytest.mark.parametrize("points", [5, 7, 24, 96])
def test_splines_with_a_period_close_to_a_ring(points):
    hours = np.linspace(0, 24, points, endpoint=False)
    shape = spline_shape(hours, 10.0, 24.0)
    np.testing.assert_allclose(shape.basis.sum(1), 1)  # a constant is among them
    np.testing.assert_allclose(shape.penalty @ np.ones(len(shape.penalty)), 0, atol=1e-9)  # and costs nothing
    ends = spline_shape(np.array([*hours, 24 - 1e-9]), 10.0, 24.0).basis
    np.testing.assert_allclose(ends[0], ends[-1], atol=1e-6)


def test_the_beginning_of_a_ring_does_not_matter():
    """Curves through the same hours, counted from midnight or from noon, are equally smooth."""
    hours = np.arange(24.0)
    height = np.cos(2 * np.pi * hours / 24) + 0.5 * np.sin(4 * np.pi * hours / 24)
    costs = []
    for turned in (height, np.roll(height, 12)):
        shape = spline_shape(hours, 1.0, 24.0)
        found = np.linalg.solve(shape.basis.T @ shape.basis + shape.penalty, shape.basis.T @ turned)
        costs.append(found @ shape.penalty @ found)
    assert costs[0] == pytest.approx(costs[1], rel=0.01)
