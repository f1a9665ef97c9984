"""Ratios judged by swapped moments: windows that differ for reasons of their own are no change over the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.chain.families import constant_shape, family
from labeltide.inference.bootstrap import free_family
from labeltide.inference.coarse import coarsen
from labeltide.inference.ratio import change_test, ratio_test, swap, swap_groups
from labeltide.inference.simulated import Differences, Study, fit_studies, record_windows, simulate
from labeltide.noise.shapes import make_noise

PEOPLE, WINDOWS, STEPS = 10, 6, 30
STATIC = make_noise("static", 2, STEPS, 0.2).at(np.linspace(0, 1, STEPS))


@pytest.fixture(scope="module")
def study():
    def make(**differences):
        drawn = simulate(Study(STATIC, PEOPLE * WINDOWS, stay=None, sharpness=3.0), 1, 0)
        data, whose = record_windows(drawn, PEOPLE, 0.2, Differences(**differences), 2)
        ((training, _),) = fit_studies(data, choose=False)
        return coarsen(training._replace(clusters=whose))

    return make


@pytest.fixture(scope="module")
def windows(study):
    return study(windows=1.5)


def families(training):
    return family(2, constant_shape(training.grid), "each"), free_family(2, training.grid, 10.0)


def test_windows_that_differ_are_no_change_over_the_clock(windows):
    assert ratio_test(windows, *families(windows), 39, 0).p_value == 1 / 40  # drawn labels know nothing of windows
    assert change_test(windows, *families(windows), 39, 0).p_value > 0.05


def test_a_change_is_found_although_windows_differ(study):
    training = study(windows=0.5, drift=2.0)
    found = change_test(training, *families(training), 39, 0)
    assert found.p_value == 1 / 40
    assert found == change_test(training, *families(training), 39, 0)


def test_windows_of_one_person_swap_among_themselves(windows):
    groups = swap_groups(windows)
    assert [sorted(group) for group in groups] == np.arange(PEOPLE * WINDOWS).reshape(PEOPLE, WINDOWS).tolist()
    order = swap(PEOPLE * WINDOWS, groups, np.random.default_rng(0))
    assert sorted(order) == list(range(PEOPLE * WINDOWS))
    assert (order // WINDOWS == np.arange(PEOPLE * WINDOWS) // WINDOWS).all()
    assert (order != np.arange(PEOPLE * WINDOWS)).any()


def test_all_rows_swap_where_nobody_is_known_or_everyone_has_one_moment(windows):
    (everyone,) = swap_groups(windows._replace(clusters=None))
    assert len(everyone) == PEOPLE * WINDOWS
    at_one_moment = torch.arange(PEOPLE * WINDOWS) % WINDOWS  # one "person" for each part of the clock
    (everyone,) = swap_groups(windows._replace(clusters=at_one_moment))
    assert len(everyone) == PEOPLE * WINDOWS


def test_rows_swap_with_rows_of_their_own_length(windows):
    mask = windows.data.mask.clone()
    mask[::3, 20:] = False
    groups = swap_groups(windows._replace(data=replace(windows.data, mask=mask)))
    lengths = mask.sum(1).numpy()
    assert len(groups) == 2 * PEOPLE
    assert all(len(set(lengths[group])) == 1 for group in groups)


@pytest.mark.parametrize("rows", [range(2), range(0, PEOPLE * WINDOWS, WINDOWS)], ids=["few", "one moment"])
def test_rows_that_cannot_swap_are_judged_by_drawn_labels(windows, rows):
    chosen = torch.tensor(list(rows))
    few = windows._replace(data=windows.data.take_rows(chosen), clusters=windows.clusters[chosen])
    if len(chosen) > 2:  # the clock of these windows is all there is of it
        points = few.data.points - few.data.points.min()
        few = few._replace(data=replace(few.data, points=points), grid=few.grid[: int(points.max()) + 1])
    assert swap_groups(few) == []


def test_of_several_clocks_only_one_that_rows_run_through_in_parts_is_swapped(windows):
    places = windows.data.places().numpy()
    position, hour = np.arange(STEPS) // 6, places // 4  # the same in every row; another in each window
    cells = np.unique(np.stack([np.broadcast_to(position, places.shape).ravel(), hour.ravel()], 1), axis=0)
    codes = {tuple(cell): number for number, cell in enumerate(cells)}
    points = torch.tensor([[codes[p, h] for p, h in zip(position, row, strict=True)] for row in hour])
    both = windows._replace(data=replace(windows.data, points=points, n_points=len(cells)), grid=cells.astype(float))
    assert swap_groups(both, clock=0) == []
    assert len(swap_groups(both, clock=1)) == PEOPLE
