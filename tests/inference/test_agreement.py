"""Agreement: kappas against scikit-learn, a textbook, and algebraic properties."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import labeltide as lt
from labeltide.inference.annotators import agreement, cohen_kappas, fleiss_kappa
from labeltide.recordings.spans.table import make_spans


def some_labels(n_classes: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    truth = rng.integers(n_classes, size=(6, 40, 1))
    return np.where(rng.random((6, 40, 4)) < 0.6, truth, rng.integers(n_classes, size=(6, 40, 4)))


def test_cohens_kappa_is_that_of_scikit_learn_for_every_pair_and_bin():
    y = some_labels()
    result = agreement(y, bins=4)
    for a in range(4):
        for b in range(4):
            assert result.cohen[a, b] == pytest.approx(cohen_kappa_score(y[..., a].ravel(), y[..., b].ravel()))
            third = cohen_kappa_score(y[:, 20:30, a].ravel(), y[:, 20:30, b].ravel())
            assert result.cohen_over_clock[2, a, b] == pytest.approx(third)


def test_fleiss_kappa_gives_the_textbook_example():
    """Fourteen raters, ten subjects, five categories: kappa 0.210 (Fleiss 1971 as told in Wikipedia)."""
    votes = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]]
    votes += [[7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]
    assert fleiss_kappa(np.array(votes)) == pytest.approx(0.210, abs=5e-4)


def test_gaps_and_padding_never_count():
    y = some_labels()
    padded = np.concatenate([y, np.full((6, 5, 4), 2)], axis=1)
    clock = np.arange(45.0)
    longer = agreement(padded, clock=clock, lengths=[40] * 6)
    plain = agreement(y, clock=clock[:40])
    assert longer.fleiss == plain.fleiss
    assert np.array_equal(longer.cohen_over_clock, plain.cohen_over_clock)
    y[:, ::2, 1] = -1
    both = y[:, 1::2]
    kappa = cohen_kappa_score(both[..., 0].ravel(), both[..., 1].ravel())
    assert agreement(y).cohen[0, 1] == pytest.approx(kappa)


def test_one_in_full_agreement_none_without_a_common_step_and_none_where_one_class_stands_alone():
    same = np.repeat(some_labels()[..., :1], 3, axis=2)
    assert agreement(same).fleiss == pytest.approx(1)
    assert np.allclose(agreement(same).cohen, 1)
    assert agreement(same).observed == 1
    apart = np.array([[0, -1], [-1, 1]])
    assert np.isnan(cohen_kappas(apart, 2)[0, 1])
    assert np.isnan(agreement(apart[None], bins=1).fleiss)
    assert np.isnan(cohen_kappas(np.zeros((5, 2), int), 2)[0, 1])


def test_agreement_that_fades_is_seen_over_the_clock():
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=(200, 50, 1))
    wrong = rng.random((200, 50, 3)) < np.linspace(0.02, 0.4, 50)[:, None]
    result = agreement(truth ^ wrong, bins=5)
    assert np.all(np.diff(result.fleiss_over_clock) < 0)
    assert result.steps_over_clock.sum() == 200 * 50


def test_labels_may_be_texts_with_gaps():
    y = np.array([[["a", "a"], ["b", None], ["b", "b"]]], dtype=object)
    assert agreement(y, bins=1).cohen[0, 1] == pytest.approx(1)


def test_one_annotator_alone_cannot_agree():
    with pytest.raises(ValueError, match="two annotators or more"):
        agreement(np.zeros((3, 4), int))


def spans(onset, end, label, recording="night"):
    return make_spans(onset, np.subtract(end, onset), label, None, recording)[0]


def test_bouts_match_by_their_overlap_and_each_only_once():
    first = spans([0, 10, 20], [10, 20, 30], ["a", "b", "a"])
    second = spans([0, 5, 12, 29], [5, 10, 20, 30], ["a", "a", "b", "a"], "another name")
    found = {line["label"]: line for line in lt.event_agreement(first, second).to_pylist()}
    assert [found[label]["matched"] for label in (None, "a", "b")] == [2, 1, 1]
    assert [found[label]["f1"] for label in (None, "a", "b")] == pytest.approx([4 / 7, 2 / 5, 1])
    strict = lt.event_agreement(first, second, overlap=0.9).to_pylist()
    assert [line["matched"] for line in strict] == [0, 0, 0]


def test_kappa_of_events_is_that_of_ever_finer_steps_and_of_pieces():
    rng = np.random.default_rng(0)
    cuts = [np.append(0, np.sort(rng.choice(np.arange(1, 2000), 80, replace=False))) for _ in range(2)]
    labels = [rng.choice(["a", "b"], 81, p=[0.8, 0.2]) for _ in range(2)]
    tables = [spans(cut, np.append(cut[1:], 2000), label) for cut, label in zip(cuts, labels, strict=True)]
    steps = np.stack(
        [label[np.searchsorted(cut, np.arange(2000), "right") - 1] for cut, label in zip(cuts, labels, strict=True)], -1
    )
    kappa = lt.event_agreement(*tables)["kappa"][0].as_py()
    assert kappa == pytest.approx(lt.agreement(steps[None]).cohen[0, 1])
    pieces = spans(np.arange(2000), np.arange(1, 2001), steps[:, 1])
    assert lt.event_agreement(tables[0], pieces)["kappa"][0].as_py() == pytest.approx(kappa)


def test_time_without_a_bout_is_a_label_and_only_shared_recordings_count():
    first = spans([0, 10, 0], [5, 15, 5], ["a"] * 3, ["x", "x", "y"])
    second = spans([0, 10, 0], [5, 20, 5], ["a"] * 3, ["x", "x", "z"])
    whole, label = lt.event_agreement(first, second).to_pylist()
    assert (whole["first"], whole["second"], whole["matched"]) == (2, 2, 2)
    agreed, chance = 15 / 20, 0.5 * 0.75 + 0.5 * 0.25
    assert whole["kappa"] == label["kappa"] == pytest.approx((agreed - chance) / (1 - chance))
    with pytest.raises(ValueError, match="They share none"):
        lt.event_agreement(first, spans([0, 0], [1, 1], ["a", "a"], ["v", "w"]))


def test_the_jackknife_holds_the_truth_about_as_often_as_it_says():
    rng, hits, draws = np.random.default_rng(0), 0, 100
    for _ in range(draws):
        tables = [[], [], []], [[], [], []]
        for recording in range(8):
            state = rng.integers(0, 2, 20)
            other = np.where(rng.random(20) < 0.1 + 0.2 * (recording % 2), 1 - state, state)
            for (onset, label, name), codes in zip(tables, (state, other), strict=True):
                onset += range(20)
                label += [str(code) for code in codes]
                name += [f"r{recording}"] * 20
        first, second = (spans(onset, np.add(onset, 1), label, name) for onset, label, name in tables)
        line = lt.event_agreement(first, second).to_pylist()[0]
        hits += line["kappa_lower"] <= 0.6 <= line["kappa_upper"]  # 20 % differ, and half are by chance the same
    assert 0.88 <= hits / draws <= 1.0


def test_kappas_of_many_annotators_are_those_of_pairs():
    rng = np.random.default_rng(0)
    y = rng.integers(-1, 3, (4, 25, 60))
    kappas = lt.agreement(y, classes=range(3)).cohen
    for first, second in ((3, 7), (58, 12)):
        pair = lt.agreement(y[..., [first, second]], classes=range(3)).cohen[0, 1]
        np.testing.assert_allclose(kappas[[first, second], [second, first]], pair)
