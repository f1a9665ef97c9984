"""What is said about hard steps, and when nothing is said."""

from __future__ import annotations

import pytest

from labeltide.auditing.page.difficulty_words import difficulty_words


def levels(rates):
    return [{"level": place + 1, "labels": 100, "wrong": rate} for place, rate in enumerate(rates)]


def test_the_hardest_and_the_clearest_steps_are_compared():
    ((question, answer, detail),) = difficulty_words(levels([0.46, *[0.3] * 6, 0.11]), noisy=True)
    assert question == "Are hard steps labelled worse?"
    assert answer == "46 % wrong against 11 %"
    assert "Steps are cut into 8 equal levels" in detail
    assert "At the hardest level 46 % of the labels are wrong, at the clearest 11 %." in detail


@pytest.mark.parametrize(
    ("rates", "noisy"), [([], True), ([0.4, 0.1], False), ([0.4, None], True), ([float("inf"), 0.1], True)]
)
def test_nothing_is_said_without_levels_or_where_no_label_is_shown_to_be_wrong(rates, noisy):
    assert difficulty_words(levels(rates), noisy) == []
