"""Shapes over the clock, and the families made of them."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide.chain.families import (
    constant_shape,
    family,
    pieces_shape,
    pooled,
    spline_shape,
    sum_shape,
    wave_shape,
)


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


def test_a_family_holds_the_numbers_it_was_made_from():
    grid = np.linspace(0, 1, 20)
    spline = pooled(family(3, spline_shape(grid, 100.0), "each", "by class"), 0.1)
    assert (spline.shape.kind, spline.shape.smoothness) == ("spline", 100.0)
    assert (spline.level, spline.movement) == ("each", "by class")
    assert spline.pooling == 0.1
    assert family(2, wave_shape(grid, 0.5), "alike").name == "wave 0.5, level alike, movement alike"
    assert family(2, pieces_shape(np.repeat([0, 1, 2, 2], 5)), "alike").name.startswith("3 pieces")
    assert family(2, constant_shape(grid), "alike").shape.kind == "static"


def test_splines_over_several_clocks_have_one_smoothness_only_if_they_share_it():
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0)), -1).reshape(-1, 2)
    assert spline_shape(grid, 10.0).smoothness == 10.0
    assert sum_shape(grid, [10.0, None], None).smoothness is None
