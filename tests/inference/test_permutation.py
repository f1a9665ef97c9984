"""Exchangeability: which rows or people are permuted, and when a permutation test would have no power."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide._clock import Cells
from labeltide.chain.data import ChainData, ChainParameters, TrainingEvidence
from labeltide.inference.permutation import exchangeable_units, permute_moments

PEOPLE, WINDOWS, STEPS = 10, 6, 30
ROWS = PEOPLE * WINDOWS


def evidence(places, grid, clusters=None, lengths=None, period=None):
    """Training evidence of which only moments, lengths and people matter."""
    places = np.asarray(places)
    mask = np.arange(places.shape[1]) < (np.full(len(places), places.shape[1]) if lengths is None else lengths)[:, None]
    labels = torch.zeros((1, *places.shape, 1), dtype=torch.int8)
    data = ChainData(labels, torch.from_numpy(mask), torch.from_numpy(places), len(grid), 2)
    chain = ChainParameters(
        torch.ones(1, 2) / 2, torch.eye(2)[None], torch.ones(1), torch.eye(2).expand(1, 1, len(grid), 2, 2)
    )
    whose = None if clusters is None else torch.as_tensor(clusters)
    return TrainingEvidence(
        data, chain, torch.zeros(1, len(places)), np.asarray(grid, dtype=float), whose, period=period
    )


def windows(**more):
    """Windows of people, one after the other along the clock."""
    places = np.arange(ROWS)[:, None] % WINDOWS * STEPS + np.arange(STEPS)
    return evidence(places, np.arange(WINDOWS * STEPS), **{"clusters": np.arange(ROWS) // WINDOWS, **more})


def test_windows_of_one_person_are_exchangeable():
    study = windows()
    groups = exchangeable_units(study)
    assert [group.tolist() for group in groups] == np.arange(ROWS).reshape(PEOPLE, WINDOWS, 1).tolist()
    moved = permute_moments(study, groups, np.random.default_rng(0)).reshape(PEOPLE, WINDOWS, STEPS)
    before = study.data.places().reshape(PEOPLE, WINDOWS, STEPS)
    assert not torch.equal(moved, before)
    assert torch.equal(moved[:, :, 0].sort(1).values, before[:, :, 0])
    assert torch.equal(moved - moved[..., :1], before - before[..., :1])  # windows stay whole


def test_all_rows_are_exchangeable_without_people():
    (everyone,) = exchangeable_units(windows(clusters=None))
    assert everyone.shape == (ROWS, 1)


def test_people_at_different_moments_are_permuted_as_a_whole():
    places = np.arange(ROWS)[:, None] // WINDOWS * STEPS + np.arange(STEPS)  # each person on a day of their own
    study = evidence(places, np.arange(PEOPLE * STEPS), np.arange(ROWS) // WINDOWS)
    (people,) = exchangeable_units(study)
    assert people.tolist() == np.arange(ROWS).reshape(PEOPLE, WINDOWS).tolist()
    moved = permute_moments(study, [people], np.random.default_rng(0)).reshape(PEOPLE, WINDOWS, STEPS)
    assert (moved == moved[:, :1]).all()


def test_rows_are_exchangeable_with_rows_of_the_same_length():
    lengths = np.where(np.arange(ROWS) % 3, STEPS, 20)
    groups = exchangeable_units(windows(lengths=lengths))
    assert len(groups) == 2 * PEOPLE
    assert all(len(set(lengths[group.ravel()])) == 1 for group in groups)


@pytest.mark.parametrize("long", [False, True])
def test_rows_that_reach_over_the_whole_clock_are_not_permuted(long):
    """Positions in rows of different lengths, or at the same few moments: permutations would move none."""
    lengths = 8 + np.arange(ROWS) % 9
    position = np.arange(16) / (lengths[:, None] - 1)
    grid, places = np.unique(position.clip(0, 1).round(4), return_inverse=True)
    if long:
        grid, places = np.arange(200), np.tile(np.arange(16), (ROWS, 1))
    assert exchangeable_units(evidence(places.reshape(ROWS, 16), grid, lengths=lengths)) == []


def test_few_permutations_or_rows_without_labels_are_not_enough():
    two_each = windows().data.take_rows(torch.tensor([i for i in range(ROWS) if i % WINDOWS in (0, 5)][:10]))
    study = windows()
    few = study._replace(data=two_each, clusters=torch.arange(10) // 2)
    assert exchangeable_units(few) == []  # 32 orders, of which two tell the most
    unlabelled = study.data.labels.clone()
    unlabelled[:, 3:] = -1
    assert exchangeable_units(study._replace(data=replace(study.data, labels=unlabelled))) == []
    assert exchangeable_units(study._replace(data=replace(study.data, labels=torch.full_like(unlabelled, -1)))) == []


def test_moments_on_both_sides_of_midnight_are_near():
    places = (np.arange(ROWS)[:, None] % 2 * 12 + np.array([22, 23, 24, 25])) % 24  # around midnight, or around noon
    assert exchangeable_units(evidence(places, np.arange(24), period=24.0))
    all_day = np.tile(np.arange(0, 24, 6), (ROWS, 1)) + np.arange(ROWS)[:, None] % 6
    assert exchangeable_units(evidence(all_day, np.arange(24), period=24.0)) == []


def test_of_several_clocks_only_the_one_asked_about_is_permuted():
    cells = Cells((np.arange(5.0), np.arange(12.0)), (None, None))
    position, hour = np.arange(STEPS) // 6, np.arange(ROWS) % 12  # the same in every row; another in each
    places = position[None] * 12 + hour[:, None]
    study = evidence(places, cells.grid, period=(None, None))
    assert exchangeable_units(study, clock=0) == []
    (everyone,) = exchangeable_units(study, clock=1)
    moved = permute_moments(study, [everyone], np.random.default_rng(0), clock=1).numpy()
    assert (moved // 12 == position).all()
    assert (moved % 12 == moved[:, :1] % 12).all()
    assert (moved % 12 != hour[:, None]).any()
