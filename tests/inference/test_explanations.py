"""Explanations of flags: counts of neighbours and annotators, and the probability from the features."""

from __future__ import annotations

import numpy as np

from labeltide.inference.conclusion import explain, find_support

NAMES = ["sitting", "walking"]


def reasons(labels: list, flagged: tuple, signal: list[float], suggested: int = 0) -> str:
    """The sentence for one flagged label of one sequence whose steps have that probability of walking."""
    codes = np.array(labels, np.int8)
    codes = (codes[:, None] if codes.ndim == 1 else codes)[None]
    flags = np.zeros(codes.shape, bool)
    flags[(0, *flagged)] = True
    steps = codes.shape[:2]
    says = np.stack([1 - np.array(signal), np.array(signal)], -1)[None]
    support = find_support(codes, flags, np.full(steps, suggested), says, np.full(steps, 0.31))
    (sentence,) = explain(support, NAMES)
    return sentence


def test_neighbours_signal_and_the_moment_are_named():
    sentence = reasons([0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0], (5, 0), [0.03] * 11)
    assert sentence == (
        "recorded walking, but 9 of 10 neighbours and the signal (97 %) say sitting; "
        "at this time 31 % of labels are wrong"
    )


def test_what_does_not_speak_for_the_suggestion_is_left_out():
    assert reasons([1, 1, 1, 1, 1], (2, 0), [0.2] * 5) == (
        "recorded walking, but the signal (80 %) says sitting; at this time 31 % of labels are wrong"
    )
    assert reasons([0, 0, 1, 0, 0], (2, 0), [0.9] * 5) == (
        "recorded walking, but 4 of 4 neighbours say sitting; at this time 31 % of labels are wrong"
    )
    assert reasons([1, 1, 1, 1, 1], (2, 0), [0.9] * 5) == (
        "recorded walking, but sitting is more likely given everything around it; at this time 31 % of labels are wrong"
    )


def test_neighbours_stop_at_gaps_and_at_the_ends():
    assert "1 of 1 neighbours" in reasons([1, 0, -1, -1, -1, -1], (0, 0), [0.1] * 6)
    assert "neighbours" not in reasons([1, -1, -1, -1, -1, -1, 0], (0, 0), [0.1] * 7)


def test_other_annotators_of_the_same_step_are_counted_by_themselves():
    labels = [[1, 1, 1], [1, 0, 0], [1, 1, 1]]
    assert "2 other annotators and the signal" in reasons(labels, (1, 0), [0.1] * 3)
    assert "1 other annotator says sitting" in reasons([[1, 1], [1, 0], [1, 1]], (1, 0), [0.9] * 3)
    assert "2 other annotators say sitting" in reasons(labels, (1, 0), [0.9] * 3)


def test_only_what_is_flagged_is_explained():
    codes = np.zeros((2, 4, 1), np.int8)
    support = find_support(
        codes, np.zeros(codes.shape, bool), np.ones((2, 4), int), np.ones((2, 4, 2)), np.ones((2, 4))
    )
    assert explain(support, NAMES) == []
