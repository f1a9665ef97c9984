import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.training.objective import MAX_GRID_POINTS, FleetData, clock_grid
from oracles import nearest_moment


def steps_mask(lengths, n_steps):
    return np.arange(n_steps) < np.asarray(lengths)[:, None]


def make_data(members=2, n=7, n_steps=4, points=False, trusted=False, **changes):
    """Data in which every number tells its row (and member)."""
    rows = torch.arange(n)
    given = {
        "features": rows[:, None, None].expand(n, n_steps, 2).float(),
        "mask": torch.ones(n, n_steps, dtype=torch.bool),
        "labels": (10 * torch.arange(members)[:, None] + rows).to(torch.int8)[..., None, None].repeat(1, 1, n_steps, 1),
        "grid": torch.linspace(0, 1, n_steps),
        "points": rows[:, None].repeat(1, n_steps) if points else None,
        "weights": torch.ones(members, n),
        "held_out": torch.zeros(members, n, dtype=torch.bool),
        "trusted": rows[:, None].repeat(1, n_steps).to(torch.int8) if trusted else None,
    }
    return FleetData(**(given | changes))


# The clock's grid


def test_rows_that_share_one_clock_need_no_places():
    clock = np.tile([0.0, 0.1, 0.7, 1.0], (3, 1))
    grid, points = clock_grid(clock, steps_mask([4, 4, 4], 4))
    np.testing.assert_array_equal(grid, clock[0])
    assert points is None


def test_ragged_rows_share_one_clock_whatever_stands_on_padding():
    clock = np.tile([0.0, 0.1, 0.7, 1.0], (3, 1))
    mask = steps_mask([2, 4, 1], 4)
    clock[~mask] = [-5.0, 99.0, np.nan, 0.0, 0.3]
    grid, points = clock_grid(clock, mask)
    np.testing.assert_array_equal(grid, [0.0, 0.1, 0.7, 1.0])
    assert points is None


def test_steps_that_are_padding_in_every_row_are_no_moments():
    clock = np.tile(np.arange(5.0), (2, 1))
    grid, points = clock_grid(clock, steps_mask([3, 2], 5))
    np.testing.assert_array_equal(grid, [0, 1, 2])
    np.testing.assert_array_equal(points[0, :3], [0, 1, 2])


def test_a_shared_clock_is_never_rounded():
    clock = np.tile(np.arange(3.0 * MAX_GRID_POINTS), (2, 1))
    grid, points = clock_grid(clock, np.ones_like(clock, dtype=bool))
    assert len(grid) == 3 * MAX_GRID_POINTS
    assert points is None


def test_a_lone_step_is_a_grid():
    grid, points = clock_grid(np.full((3, 1), 0.5), np.ones((3, 1), dtype=bool))
    np.testing.assert_array_equal(grid, [0.5])
    assert points is None
    grid, points = clock_grid(np.full((3, 2), 0.5), np.ones((3, 2), dtype=bool))
    np.testing.assert_array_equal(grid, [0.5])
    np.testing.assert_array_equal(points, np.zeros((3, 2)))


@pytest.mark.parametrize("shared", [[0.0, 0.5, 0.5, 1.0], [1.0, 0.5, 0.2, 0.0]], ids=["repeated moments", "falling"])
def test_a_shared_clock_that_does_not_rise_gets_places(shared):
    clock = np.tile(shared, (3, 1))
    grid, points = clock_grid(clock, np.ones_like(clock, dtype=bool))
    np.testing.assert_array_equal(grid, np.unique(shared))
    np.testing.assert_array_equal(grid[points], clock)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_places_on_an_irregular_clock_give_every_real_moment_back(seed, n, n_steps):
    rng = np.random.default_rng(seed)
    clock = np.sort(rng.integers(0, 12, (n, n_steps)) / 4, axis=1)
    mask = steps_mask(rng.integers(1, n_steps + 1, n), n_steps)
    clock[~mask] = rng.choice([-100.0, 100.0])
    grid, points = clock_grid(clock, mask)
    np.testing.assert_array_equal(grid, np.unique(clock[mask]))
    if points is None:
        assert all(np.array_equal(row[real], grid[: real.sum()]) for row, real in zip(clock, mask, strict=True))
    else:
        np.testing.assert_array_equal(grid[points][mask], clock[mask])
        assert points.min() >= 0
        assert points.max() < len(grid)


def test_more_than_1024_moments_are_rounded_to_the_nearest_of_even_cells():
    rng = np.random.default_rng(0)
    clock = np.sort(rng.gamma(2, 10, (60, 50)), axis=1)
    mask = steps_mask(rng.integers(20, 51, 60), 50)
    grid, points = clock_grid(clock, mask)
    assert len(grid) == MAX_GRID_POINTS
    assert grid[0] == clock[mask].min()
    assert grid[-1] == clock[mask].max()
    np.testing.assert_allclose(np.diff(grid), np.diff(grid)[0])
    width = grid[1] - grid[0]
    assert np.abs(grid[points] - clock)[mask].max() <= width / 2 * (1 + 1e-9)
    for moment, index in list(zip(clock[mask], points[mask], strict=True))[::50]:
        assert index == nearest_moment(moment, grid)


# Batches


def test_every_member_gets_its_own_rows():
    data = make_data(points=True, trusted=True)
    batch = data.batch(torch.tensor([[3, 0, 5], [6, 6, 1]]))
    rows = torch.tensor([[3, 0, 5], [6, 6, 1]])
    assert torch.equal(batch.features[..., 0, 0].long(), rows)
    assert torch.equal(batch.labels[..., 0, 0].long(), rows + torch.tensor([[0], [10]]))
    assert torch.equal(batch.trusted[..., 0].long(), rows)
    assert torch.equal(batch.points[..., 0], rows)
    assert batch.features.shape == (2, 3, 4, 2)
    assert batch.mask.shape == (2, 3, 4)
    assert batch.labels.shape == (2, 3, 4, 1)


def test_rows_that_fill_up_have_no_weight():
    weights = torch.rand(2, 7, generator=torch.Generator().manual_seed(0)) + 0.1
    batch = make_data(weights=weights).batch(torch.tensor([[3, -1], [-1, 0]]))
    assert torch.equal(batch.weights, torch.tensor([[weights[0, 3], 0], [0, weights[1, 0]]]))
    assert batch.points is None
    assert batch.trusted is None


def in_order(table, member):
    rows = table[:, member].flatten().tolist()
    kept = [row for row in rows if row >= 0]
    assert rows[: len(kept)] == kept  # what fills up comes last
    return kept


@pytest.mark.parametrize("batch_size", [1, 3, 7, 64])
def test_an_epoch_visits_every_row_of_positive_weight_once(batch_size):
    weights = torch.ones(2, 7)
    weights[0, [1, 4]] = 0
    weights[1, 2] = 0.25
    table = make_data(weights=weights).epoch_rows([5, 6], 0, batch_size)
    assert table.shape[2] <= batch_size
    assert sorted(in_order(table, 0)) == [0, 2, 3, 5, 6]
    assert sorted(in_order(table, 1)) == list(range(7))


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_only():
    data = make_data(members=3)
    orders = {
        (seed, epoch): in_order(data.epoch_rows([1, seed, 2], epoch, 3), 1) for seed in (4, 5) for epoch in (0, 1)
    }
    assert len({tuple(order) for order in orders.values()}) == 4
    alone = make_data(members=1)
    for (seed, epoch), order in orders.items():
        assert in_order(alone.epoch_rows([seed], epoch, 3), 0) == order
        assert in_order(data.epoch_rows([seed, 9, 9], epoch, 64), 0) == order
        np.random.seed(0)
        torch.manual_seed(0)
        assert in_order(data.epoch_rows([1, seed, 2], epoch, 3), 1) == order


def test_held_out_rows_come_in_order_and_each_once():
    held_out = torch.zeros(2, 7, dtype=torch.bool)
    held_out[0, [1, 5, 6]] = True
    held_out[1, 2] = True
    table = make_data(held_out=held_out).held_out_rows(2)
    assert table.shape == (2, 2, 2)
    assert in_order(table, 0) == [1, 5, 6]
    assert in_order(table, 1) == [2]


def test_data_moves_as_a_whole():
    data = make_data(points=True)
    moved = data.to("meta")
    assert moved.members == data.members
    for name, value in vars(moved).items():
        before = getattr(data, name)
        assert (value is None) == (before is None)
        if not isinstance(value, torch.Tensor):
            assert value == before
            continue
        assert value.device.type == "meta"
        assert value.shape == before.shape
