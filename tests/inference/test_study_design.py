"""The reference distribution follows from the number of people, their windows and their moments alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide._clock import Cells
from labeltide.chain.passes import ChainData, ChainParameters, TrainingEvidence
from labeltide.inference.score_tests import clock_moments, study_design

STEPS = 10


def evidence(indices, grid, clusters=None, lengths=None, period=None):
    """Training evidence of which only moments, lengths and people matter."""
    indices = np.asarray(indices)
    mask = (
        np.arange(indices.shape[1]) < (np.full(len(indices), indices.shape[1]) if lengths is None else lengths)[:, None]
    )
    labels = torch.zeros((1, *indices.shape, 1), dtype=torch.int8)
    data = ChainData(labels, torch.from_numpy(mask), torch.from_numpy(indices), len(grid), 2)
    chain = ChainParameters(
        torch.ones(1, 2) / 2, torch.eye(2)[None], torch.ones(1), torch.eye(2).expand(1, 1, len(grid), 2, 2)
    )
    whose = None if clusters is None else torch.as_tensor(clusters)
    return TrainingEvidence(
        data, chain, torch.zeros(1, len(indices)), np.asarray(grid, dtype=float), whose, period=period
    )


def design_of(study, clock=0, labelled=None):
    everywhere = study.data.mask.numpy()
    return study_design(study, clock_moments(study, clock), everywhere if labelled is None else labelled)


def windows(people, each, **more):
    """Windows of people, one after the other along the clock."""
    rows = people * each
    indices = np.arange(rows)[:, None] % each * STEPS + np.arange(STEPS)
    return evidence(indices, np.arange(each * STEPS), **{"clusters": np.arange(rows) // each, **more})


@pytest.mark.parametrize(
    ("people", "each", "method"),
    [
        (20, 8, "people"),
        (8, 2, "people"),
        (7, 24, "none"),
        (3, 100, "none"),
        (5, 23, "none"),
    ],
)
def test_many_people_are_flipped_and_few_are_not_tested(people, each, method):
    design = design_of(windows(people, each))
    assert design.method == method
    assert design.n_units == people
    assert [rows.tolist() for rows in design.units] == np.arange(people * each).reshape(people, each).tolist()


def test_rows_without_known_people_are_exchangeable():
    design = design_of(windows(10, 6, clusters=None))
    assert (design.method, design.n_units) == ("permutations", 60)
    assert [group.tolist() for group in design.units] == [list(range(60))]


def test_rows_are_exchangeable_with_rows_of_the_same_length():
    lengths = np.where(np.arange(60) % 3, STEPS, 6)
    groups = design_of(windows(10, 6, clusters=None, lengths=lengths)).units
    assert len(groups) == 2
    assert all(len(set(lengths[group])) == 1 for group in groups)


@pytest.mark.parametrize("clusters", [None, np.arange(60) // 12])
def test_rows_that_reach_over_the_whole_clock_are_tested_by_bootstrap(clusters):
    lengths = 8 + np.arange(60) % 9
    position = np.arange(16) / (lengths[:, None] - 1)
    grid, indices = np.unique(position.clip(0, 1).round(4), return_inverse=True)
    study = evidence(indices.reshape(60, 16), grid, clusters, lengths)
    assert design_of(study).method == "bootstrap"
    many = study._replace(clusters=torch.arange(60) // 6)
    assert design_of(many).method == "people"  # they need no assumption about rows


def test_few_people_each_at_moments_of_their_own_cannot_be_told():
    indices = np.arange(150)[:, None] // 30 * STEPS + np.arange(STEPS)
    study = evidence(indices, np.arange(5 * STEPS), np.arange(150) // 30)
    assert design_of(study).method == "none"


def test_people_and_rows_without_labels_do_not_count():
    labelled = np.zeros((60, STEPS), dtype=bool)
    labelled[:12] = True
    assert design_of(windows(10, 6), labelled=labelled)[:2] == ("none", 2)
    assert design_of(windows(10, 6, clusters=None), labelled=labelled)[:2] == ("permutations", 12)
    labelled[:] = False
    assert design_of(windows(10, 6), labelled=labelled)[:2] == ("none", 0)
    labelled[:6] = True  # 6! = 720 permutations
    assert design_of(windows(10, 6, clusters=None), labelled=labelled).method == "bootstrap"


def test_moments_on_both_sides_of_midnight_are_near():
    indices = (np.arange(60)[:, None] % 2 * 12 + np.array([22, 23, 24, 25])) % 24  # around midnight, or around noon
    assert design_of(evidence(indices, np.arange(24), period=24.0)).method == "permutations"
    all_day = np.tile(np.arange(0, 24, 6), (60, 1)) + np.arange(60)[:, None] % 6
    assert design_of(evidence(all_day, np.arange(24), period=24.0)).method == "bootstrap"


def test_of_several_clocks_each_has_its_own_design():
    cells = Cells((np.arange(5.0), np.arange(12.0)), (None, None))
    position, hour = np.arange(30) // 6, np.arange(60) % 12  # the same in every row; another in each
    study = evidence(position[None] * 12 + hour[:, None], cells.grid, period=(None, None))
    assert design_of(study, clock=0).method == "bootstrap"
    assert design_of(study, clock=1).method == "permutations"
