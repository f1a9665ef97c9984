"""Copies of recordings, columns that copy the labels, and classes with few labels, before anything is fitted."""

import numpy as np
import pyarrow as pa
import pytest

from labeltide.auditing.checks import (
    check_copies,
    check_leaks,
    check_shared_classes,
    clusters_of_copies,
    leave_out_rare_classes,
)
from labeltide_bench.tables import read_audit_table


def persistent(people, steps, seed=0):
    random = np.random.default_rng(seed)
    true = (np.cumsum(random.random((people, steps)) < 0.15, axis=1) + random.integers(2, size=(people, 1))) % 2
    return random, true


def read(recorded, signal, names="abc"):
    people, steps = recorded.shape
    columns = {"person": np.repeat([f"p{number}" for number in range(people)], steps)}
    columns |= {"minute": np.tile(np.arange(steps), people)}
    columns |= {f"x{number}": signal[..., number].ravel() for number in range(signal.shape[-1])}
    return read_audit_table(pa.table(columns | {"label": np.array(list(names))[recorded.ravel()]}))


def test_copies_of_a_recording_are_one_cluster():
    random, true = persistent(6, 30)
    signal = random.normal(size=(6, 30, 2))
    signal[4] = signal[1]
    table = read(true, signal)
    clusters = clusters_of_copies(table)
    assert clusters.tolist() == [0, 1, 2, 3, 1, 5]
    (check,) = check_copies(table, clusters)
    assert check.is_warning
    assert not check.denies
    assert check.sentence.startswith("1 sequence has the features of another (such as 'p1' and 'p4')")


def test_copies_that_were_scaled_shifted_and_rounded_are_one_cluster():
    random, true = persistent(6, 30)
    signal = random.normal(size=(6, 30, 2))
    signal[4] = np.round(1.1 * signal[1] + 0.3, 1)
    assert clusters_of_copies(read(true, signal)).tolist() == [0, 1, 2, 3, 1, 5]


def test_where_all_sequences_are_copies_nothing_can_be_told():
    random, true = persistent(5, 30)
    table = read(true, np.tile(random.normal(size=(1, 30, 2)), (5, 1, 1)))
    (check,) = check_copies(table, clusters_of_copies(table))
    assert check.denies


def test_sequences_of_their_own_are_no_copies():
    random, true = persistent(6, 30)
    table = read(true, random.normal(size=(6, 30, 2)))
    assert check_copies(table, clusters_of_copies(table)) == ()


def test_simple_features_that_are_equal_by_chance_are_no_copies():
    _, true = persistent(6, 30)
    signal = np.zeros((6, 30, 2))
    signal[0, 3] = 1.0
    table = read(true, signal)
    assert clusters_of_copies(table).tolist() == list(range(6))


@pytest.mark.parametrize("shift", [0, 1, -1])
def test_a_column_that_copies_the_labels_is_named(shift):
    random, true = persistent(20, 30)
    recorded = true ^ (random.random(true.shape) < 0.25)
    leak = np.roll(recorded, shift, axis=1) + 0.05 * random.normal(size=true.shape)
    table = read(recorded, np.stack([1.5 * true + random.normal(size=true.shape), leak], axis=-1))
    (check,) = check_leaks(table)
    assert check.denies
    assert check.sentence.startswith("'x1' alone predicts")


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_a_good_sensor_is_no_leak(rate):
    random, true = persistent(20, 30)
    signal = np.stack([6.0 * true, 3.0 * true], axis=-1) + random.normal(size=(*true.shape, 2))
    assert check_leaks(read(true ^ (random.random(true.shape) < rate), signal)) == ()


def test_a_class_with_few_labels_is_left_out_and_others_keep_their_names():
    random, true = persistent(20, 30)
    recorded = 2 * true  # classes a and c
    recorded.ravel()[[3, 100, 401]] = 1
    table = read(recorded, random.normal(size=(20, 30, 2)))
    kept = leave_out_rare_classes(table)
    assert kept.class_names == ("a", "c")
    assert kept.n_labels == table.n_labels - 3
    np.testing.assert_array_equal(kept.labels[table.labels == 2], 1)
    np.testing.assert_array_equal(kept.labels[table.labels == 1], -1)
    assert kept.messages[-1].startswith("The class 'b' had too few labels to learn from (3 of 20")


def test_small_tables_keep_their_classes():
    random, true = persistent(4, 10)
    recorded = true.copy()
    recorded[0, 0] = 2
    table = read(recorded, random.normal(size=(4, 10, 2)))
    assert leave_out_rare_classes(table) is table


def read_two(first, second, signal):
    """A table with a column of labels for each of two annotators."""
    people, steps = first.shape
    columns = {"person": np.repeat([f"p{number}" for number in range(people)], steps)}
    columns |= {"minute": np.tile(np.arange(steps), people), "x": signal.ravel()}
    columns |= {"ann": pa.array(first.ravel()), "bob": pa.array(second.ravel())}
    return read_audit_table(pa.table(columns), label=["ann", "bob"])


def test_annotators_with_names_of_their_own_are_refused():
    random, true = persistent(6, 30)
    signal = random.normal(size=true.shape)
    table = read_two(np.array(["rest", "walk"])[true], np.array(["Ruhe", "gehen"])[true], signal)
    with pytest.raises(ValueError, match=r"'ann' has 'rest' and 'walk', 'bob' has 'Ruhe' and 'gehen', and on 180"):
        check_shared_classes(table)


def test_annotators_who_share_a_class_or_no_step_are_not_refused():
    random, true = persistent(6, 30)
    signal = random.normal(size=true.shape)
    english, german = np.array(["rest", "walk"], dtype=object)[true], np.array(["Ruhe", "gehen"], dtype=object)[true]
    shared = np.array(["rest", "gehen"], dtype=object)[true]
    check_shared_classes(read_two(english, shared, signal))
    early = np.arange(30) < 15
    check_shared_classes(read_two(np.where(early, english, None), np.where(early, None, german), signal))
