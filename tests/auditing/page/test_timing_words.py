"""Offsets are said in the units of the table, with their interval."""

from __future__ import annotations

import pytest

from labeltide.auditing.page.timing_words import timing_words


def entry(**changes):
    usual = {"annotator": None, "from": "still", "to": "walking", "mean": 2.8, "lower": 1.8, "upper": 4.0}
    return usual | {"spread": 1.6, "transitions": 90.0, "step": 0.5, "unit": "s"} | changes


def plain(text):
    return text.replace("\u2068", "").replace("\u2069", "")


def test_a_late_start_is_said_with_its_interval():
    ((_, answer, detail),) = timing_words([entry()])
    assert answer == "By up to 1.4 s"
    expected = "“walking” after “still” starts 1.4 s late (95 % interval 0.9 to 2.0); single starts differ by 0.8 s."
    assert plain(detail) == expected


def test_an_early_start_has_an_interval_of_positive_lengths():
    ((_, _, detail),) = timing_words([entry(mean=-2.8, lower=-4.0, upper=-1.8)])
    assert "starts 1.4 s early (95 % interval 0.9 to 2.0)" in detail


def test_an_offset_that_may_be_zero_is_no_offset():
    ((_, answer, detail),) = timing_words([entry(mean=0.2, lower=-0.4, upper=0.8)])
    assert answer == "Early and late alike"
    assert "starts in time on average (95 % interval -0.2 to 0.4)" in detail


@pytest.mark.parametrize(
    ("changes", "words"), [({"step": None}, "2.8 steps late"), ({"unit": ""}, "1.4 in the unit of time late")]
)
def test_without_a_unit_steps_or_the_unit_of_the_column_are_named(changes, words):
    assert words in timing_words([entry(**changes)])[0][2]


def test_annotators_are_named_and_the_furthest_come_first():
    entries = [entry(), entry(annotator="ann", mean=4.0, lower=3.0, upper=5.0)]
    assert plain(timing_words(entries)[0][2]).startswith("“walking” after “still” by “ann” starts 2.0 s late")


@pytest.mark.parametrize("entries", [[], [entry(transitions=2.0)], [entry(mean=None)]])
def test_nothing_is_said_where_nothing_is_known(entries):
    assert timing_words(entries) == []
