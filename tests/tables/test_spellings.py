"""Spellings of one class: capitals, blanks, and the names of sleep stages."""

from __future__ import annotations

from collections import Counter

import pytest

from labeltide.tables.tidy import choose_spellings

EDF = ["Sleep stage W", "Sleep stage N1", "Sleep stage N2", "Sleep stage N3", "Sleep stage R"]


@pytest.mark.parametrize("other", [["Wake", "N1", "N2", "N3", "REM"], ["W", "n1", "n2", "n3", "R"]])
def test_stages_of_two_scorers_with_names_of_their_own_are_the_same_classes(other):
    spelled, said = choose_spellings(
        Counter(dict.fromkeys(EDF, 10) | {name: 5 + 5 * k for k, name in enumerate(other)})
    )
    assert spelled == dict(zip(other, EDF, strict=True))
    assert said[0].startswith(f"I took {other[0]!r} for 'Sleep stage W' (5 labels): they name one sleep stage.")


def test_stages_of_one_scorer_keep_their_names():
    assert choose_spellings(Counter(EDF)) == ({}, [])


def test_letters_that_are_no_stages_stay_apart():
    assert choose_spellings(Counter(["W", "wake", "R", "rem", "N"])) == ({}, [])


def test_stages_by_older_rules_are_not_joined_with_newer_ones():
    spelled, _ = choose_spellings(Counter([*EDF, "Sleep stage 3", "Sleep stage 4"]))
    assert spelled == {}
