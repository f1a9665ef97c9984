"""Spellings of one class: capitals, blanks, and the names of sleep stages."""

from __future__ import annotations

from collections import Counter

import pytest

from labeltide.tables.tidy import choose_missing, choose_spellings

EDF = ["Sleep stage W", "Sleep stage N1", "Sleep stage N2", "Sleep stage N3", "Sleep stage R"]


@pytest.mark.parametrize("other", [["Wake", "N1", "N2", "N3", "REM"], ["W", "n1", "n2", "n3", "R"]])
def test_stages_of_two_scorers_with_names_of_their_own_are_the_same_classes(other):
    spelled, messages = choose_spellings(
        Counter(dict.fromkeys(EDF, 10) | {name: 5 + 5 * k for k, name in enumerate(other)})
    )
    assert spelled == dict(zip(other, EDF, strict=True))
    assert messages[0].startswith(f"Read as 'Sleep stage W': {other[0]!r} (5 labels): they name the same sleep stage.")


def test_stages_of_one_scorer_keep_their_names():
    assert choose_spellings(Counter(EDF)) == ({}, [])


def test_letters_that_are_no_stages_stay_apart():
    assert choose_spellings(Counter(["W", "wake", "R", "rem", "N"])) == ({}, [])


def test_stages_by_older_rules_are_not_joined_with_newer_ones():
    spelled, _ = choose_spellings(Counter([*EDF, "Sleep stage 3", "Sleep stage 4"]))
    assert spelled == {}


@pytest.mark.parametrize(
    ("frequent", "rare"),
    [
        ("Liegen", "Leigen"),
        ("Gehen", "Ghen"),
        ("Wühlen", "Wuehlen"),
        ("Walking", "walkng"),
        ("walking upstairs", "wakling upstars"),
    ],
)
def test_rare_misspellings_of_a_frequent_class_are_merged_and_stated(frequent, rare):
    spelled, messages = choose_spellings(Counter({frequent: 1000, rare: 3, "Rennen": 500}))
    assert spelled == {rare: frequent}
    assert "Read as a misspelling" in messages[0]
    assert "(1,000)" in messages[0]
    assert "--classes" in messages[0]


@pytest.mark.parametrize(
    "counts",
    [
        {"N1": 3, "N2": 1000},
        {"stage 1": 3, "stage 2": 1000},
        {"Sleep stage R": 3, "Sleep stage W": 1000},
        {"up": 3, "us": 1000},
        {"Ghen": 30, "Gehen": 1000},
        {"sitten": 3, "sitting": 1000},
        {"cast": 3, "cost": 1000, "past": 1000},
        {"sit": 3, "walk": 1000},
        {"a1x": 3, "a2x": 1000},
    ],
)
def test_names_that_may_be_classes_of_their_own_are_never_merged(counts):
    assert choose_spellings(Counter(counts))[0] == {}


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            {"walk uphil": 26, "walk uphill": 1000, "sit": 900},
            "'walk uphil' (26) and 'walk uphill' (1,000)",
        ),
        ({"Marche": 500, "Marches": 500, "Repas": 400}, "'Marche' (500) and 'Marches' (500)"),
        (
            {"cast": 3, "cost": 1000, "past": 1000},
            "'cast' (3) and 'cost' (1,000) and 'past' (1,000)",
        ),
    ],
)
def test_similar_names_that_stay_apart_are_asked_about_once(counts, said):
    (sentence,) = choose_spellings(Counter(counts))[1]
    assert f"{said} labels. If one is a misspelling" in sentence


def test_capitals_and_blanks_are_joined_before_misspellings():
    spelled, _ = choose_spellings(Counter({"Walking": 1000, "walking ": 20, "Wlking": 2, "wlking": 3}))
    assert spelled == {"walking ": "Walking", "Wlking": "Walking", "wlking": "Walking"}


def test_unknown_is_a_missing_label_in_other_languages():
    for word in ("unbekannt", "Inconnu", "desconocido", "k. A.", "unklar", "Indéterminé", "not scored", "-"):
        assert choose_missing(Counter({"a": 10, "b": 10, word: 3}))[0] == {word}


def test_a_minus_beside_a_plus_is_a_class():
    assert choose_missing(Counter({"+": 10, "-": 10, "0": 3}))[0] == frozenset()
