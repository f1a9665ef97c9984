"""Windows of one person are noticed, independent rows are not."""

from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt
from labeltide.data.clusters import MAX_ROWS, neighbours_look_alike


def look_alike(features: np.ndarray) -> bool:
    return neighbours_look_alike(features.astype(np.float32), np.ones(features.shape[:2], dtype=bool))


def windows_of_people(people: int, windows: int, features: int, seed: int = 0) -> np.ndarray:
    """Rows with a level of their person in every feature, as large as the deviation of a row's mean."""
    generator = np.random.default_rng(seed)
    level = np.repeat(generator.normal(size=(people, 1, features)), windows, 0)
    return level + 2 * generator.normal(size=(people * windows, 4, features))


@pytest.mark.parametrize(("people", "windows", "features"), [(20, 8, 5), (50, 4, 20), (400, 5, 5), (6, 30, 3)])
def test_windows_of_people_look_alike_until_they_are_shuffled(people, windows, features):
    rows = windows_of_people(people, windows, features)
    assert look_alike(rows)
    assert not look_alike(np.random.default_rng(1).permutation(rows))


def test_a_walk_through_time_looks_alike_and_independent_rows_do_not():
    generator = np.random.default_rng(0)
    assert look_alike(generator.normal(size=(200, 3, 2)).cumsum(0))
    assert not look_alike(generator.normal(size=(200, 3, 2)))


def test_weak_dependence_is_not_spoken_of():
    generator = np.random.default_rng(0)
    drawn = generator.normal(size=(MAX_ROWS, 1, 30))
    assert not look_alike(drawn[1:] + 0.1 * drawn[:-1])


@pytest.mark.parametrize(("n", "features"), [(12, 2), (60, 1), (200, 5), (2 * MAX_ROWS, 3)])
def test_independent_rows_are_called_alike_at_most_once_in_a_thousand(n, features):
    generator = np.random.default_rng(3)
    assert sum(look_alike(generator.standard_t(2, size=(n, 2, features))) for _ in range(300)) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_simulated_sequences_do_not_look_alike(seed):
    study = lt.make_sequences(60, 20, 3, stay=0.9, ragged=True, random_state=seed)
    assert not neighbours_look_alike(study.features, study.mask)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_a_few_rows_never_look_alike(n):
    assert not look_alike(np.arange(n, dtype=float)[:, None, None])


def test_constant_features_and_padding_say_nothing():
    rows = windows_of_people(20, 8, 5)
    assert not look_alike(np.ones((50, 3, 2)))
    assert look_alike(np.concatenate([rows, np.zeros_like(rows)], 2))
    mask = np.arange(8) < 4
    padded = np.concatenate([rows, np.full_like(rows, 1e6)], 1).astype(np.float32)
    assert neighbours_look_alike(padded, np.tile(mask, (len(rows), 1)))
