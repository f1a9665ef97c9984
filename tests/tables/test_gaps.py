"""Gaps in the time column."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa

from labeltide_bench.tables import read_audit_table

START = datetime.datetime(2026, 11, 15, 8)


def table(times, sequences=None):
    n = len(times)
    ids = ["p"] * n if sequences is None else sequences
    return pa.table({"person": ids, "time": times, "label": ["x", "y"] * (n // 2), "v": np.arange(n, dtype=float)})


def test_missing_moments_become_gaps_and_are_said():
    minutes = [0, 5, 10, 15, 45, 50, 52, 58]
    times = [START + datetime.timedelta(minutes=m) for m in minutes]
    read = read_audit_table(table(times))
    assert read.gaps.tolist() == [[1, 1, 1, 1, 6, 1, 1, 1]]
    assert [
        one
        for one in read.messages
        if "In 1 place, the time between two steps is longer" in one and "the usual 5 min" in one
    ]


def test_numbers_are_times_too_and_sequences_do_not_touch():
    read = read_audit_table(table([0, 1, 2, 9, 100, 101, 102, 103], ["p"] * 4 + ["q"] * 4))
    assert read.gaps.tolist() == [[1, 1, 1, 7], [1, 1, 1, 1]]


def test_even_times_and_rows_without_times_have_no_gaps():
    even = table(list(range(0, 16, 2)))
    assert read_audit_table(even).gaps is None
    assert read_audit_table(even.drop_columns("time")).gaps is None


def test_a_gap_falls_into_the_windows_that_span_it():
    n = 40
    times = np.arange(n) + np.where(np.arange(n) >= 15, 100, 0)
    read = read_audit_table(table(times.tolist()), window=12)
    assert (read.gaps[read.index == 15] == 101).all()
    assert (read.gaps[read.index != 15] == 1).all()
