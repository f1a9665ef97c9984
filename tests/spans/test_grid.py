"""The rules by which spans are laid on a grid, each with its count and its sentence, and the way back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.recordings import recordings as grids
from labeltide.recordings.recordings import Grid, lay_on_grid, say_counts
from labeltide.recordings.spans.table import make_spans
from labeltide_bench.tables import grid_to_spans


def laid(*lines, count=4, length=30.0, start=0.0):
    onset, duration, label = zip(*lines, strict=True)
    return lay_on_grid(make_spans(onset, duration, label)[0], Grid(start, length, count))


def test_spans_on_the_edges_of_epochs_need_no_rule():
    found = laid((0, 60, "W"), (60, 60, "N1"))
    assert found.labels == ["W", "W", "N1", "N1"]
    assert not any(found.counts.values())
    assert say_counts(found.counts, 30.0) == ()


@pytest.mark.parametrize(
    ("lines", "labels", "counts"),
    [
        ([(0, 120, "W"), (30, 40, "A")], ["W", "A", "W", "W"], {"overlaps": 2, "offsets": 1}),
        ([(0, 44, "W"), (60, 60, "N1")], ["W", None, "N1", "N1"], {"gaps": 1, "offsets": 1}),
        ([(0, 45, "W"), (60, 60, "N1")], ["W", "W", "N1", "N1"], {"offsets": 1}),
        ([(-30, 60, "W"), (90, 90, "N1")], ["W", None, None, "N1"], {"clipped": 2, "gaps": 2}),
        ([(-30, 30, "W"), (0, 120, "N1"), (120, 5, "W")], ["N1"] * 4, {"outside": 2}),
        ([(0, 120, "W"), (30, 0, "lights off")], ["W"] * 4, {"events": 1}),
        ([(0, 60, "W"), (60, 60, "Sleep stage ?")], ["W", "W", None, None], {"unscored": 1, "gaps": 2}),
        ([(2, 60, "W"), (62, 58, "N1")], ["W", "W", "N1", "N1"], {"offsets": 2}),
    ],
)
def test_each_rule_is_counted_and_said(lines, labels, counts):
    found = laid(*lines)
    assert found.labels == labels
    assert {name: count for name, count in found.counts.items() if count} == counts
    assert len(say_counts(found.counts, 30.0)) == len(counts)


def test_of_two_that_cover_the_same_the_later_wins():
    assert laid((0, 30, "A"), (0, 30, "B"), (30, 15, "B"), (45, 15, "A"), count=2).labels[1] == "A"


def test_a_grid_may_begin_anywhere():
    assert laid((100.5, 2, "A"), start=100.0, length=1.0, count=3).labels == ["A", "A", "A"]
    assert laid((100.5, 2, "A"), start=100.5, length=1.0, count=3).labels == ["A", "A", None]


def test_no_spans_leave_every_epoch_without_a_label():
    assert lay_on_grid(make_spans([], [], [])[0], Grid(0, 1, 2)).labels == [None, None]


def test_too_many_pieces_are_refused(monkeypatch):
    monkeypatch.setattr(grids, "MAX_PIECES", 10)
    with pytest.raises(ValueError, match=r"The spans cover 12 epochs, .*Choose longer epochs"):
        laid(*[(0, 120, "A")] * 3)


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.sampled_from(["A", "B", None]), min_size=1, max_size=50),
    length=st.sampled_from([0.04, 1 / 3, 1.0, 30.0]),
    start=st.floats(0, 1e4),
)
def test_labels_on_a_grid_come_back_from_spans(labels, length, start):
    grid = Grid(start, length, len(labels))
    found = lay_on_grid(grid_to_spans(labels, grid), grid)
    assert found.labels == labels
    assert {name for name, count in found.counts.items() if count} <= {"gaps"}


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.tuples(st.floats(-50, 150), st.floats(0, 60), st.sampled_from("ABC")), max_size=12),
    length=st.sampled_from([0.7, 5.0, 30.0]),
)
def test_the_label_of_an_epoch_covers_most_of_it(lines, length):
    """A slow count of cover, span by span, agrees."""
    onset, duration, label = zip(*lines, strict=True) if lines else ((), (), ())
    spans = make_spans(onset, duration, label)[0]
    grid = Grid(0.0, length, 20)
    labels = lay_on_grid(spans, grid).labels
    for index, begin in enumerate(grid.onsets):
        cover = dict.fromkeys("ABC", 0.0)
        for first, spent, text in lines:
            cover[text] += max(0.0, min(first + spent, begin + length) - max(first, begin)) / length
        best = max(cover.values())
        if best < 0.5 - 1e-4:
            assert labels[index] is None
        elif best > 0.5 + 1e-4:
            assert cover[labels[index]] > best - 1e-4
