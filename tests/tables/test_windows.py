"""Windows overlap, every step belongs to one of them, and what was cut comes together again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.tables.windows import choose_window, cut_windows

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(counts=lengths, window=st.none() | st.integers(1, 70))
def test_every_step_belongs_to_one_window(counts, window):
    cut = cut_windows(np.array(counts), window)
    steps = cut.index[cut.belongs]
    assert (np.sort(steps) == np.arange(sum(counts))).all()
    assert cut.lengths.max() <= cut.window <= max(counts)


@settings(max_examples=200, deadline=None)
@given(counts=lengths, window=st.integers(1, 70))
def test_a_step_belongs_where_it_lies_farthest_from_the_start(counts, window):
    cut = cut_windows(np.array(counts), window)
    deepest = {}
    for row in cut.index:
        for number, step in enumerate(row[row >= 0]):
            deepest[step] = max(deepest.get(step, 0), number)
    for row, belongs in zip(cut.index, cut.belongs, strict=True):
        for number in np.flatnonzero(belongs):
            assert deepest[row[number]] == number


@settings(max_examples=200, deadline=None)
@given(counts=lengths, window=st.integers(1, 70))
def test_windows_never_leave_their_sequence(counts, window):
    cut = cut_windows(np.array(counts), window)
    owner = np.repeat(np.arange(len(counts)), counts)
    assert all((owner[row[row >= 0]] == group).all() for row, group in zip(cut.index, cut.groups, strict=True))
    long = np.array(counts)[cut.groups] >= cut.window
    assert (cut.lengths[long] == cut.window).all()


def test_a_long_sequence_is_cut_with_a_quarter_of_overlap():
    cut = cut_windows(np.array([10, 3]), 4)
    assert cut.index.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [10, 11, 12, -1]]
    assert cut.warm_up.tolist() == [0, 1, 1, 0]
    assert cut_windows(np.array([5]), 4).index.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.parametrize(("counts", "window"), [([50, 200], 200), ([201, 150], 100), ([1], 1)])
def test_the_window_follows_the_data(counts, window):
    assert choose_window(np.array(counts)) == window


def test_a_few_long_sequences_among_many_short_ones_do_not_fill_memory_with_padding():
    counts = np.array([1] * 10_000 + [200])
    assert cut_windows(counts).index.size <= 16 * 10_100


@pytest.mark.parametrize("window", [0, -1, 2.5, "ten", True])
def test_impossible_windows_are_refused(window):
    with pytest.raises(ValueError, match="window must be a whole number"):
        cut_windows(np.array([5]), window)
