"""Label audit: flags keep the false discovery rate, quality is calibrated, results have the shape of the input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.passes import Chain
from labeltide.inference.audit import (
    Judge,
    LabelAudit,
    LabelCodes,
    audit_labels,
    find_threshold,
    no_persistence,
)
from labeltide.inference.conclusion import NO_OTHER_LIKELIER
from oracles import choose_issues

Q = lt.FixedNoise(np.array([[0.8, 0.2], [0.3, 0.7]]))


def simulate(seed: int = 0, n: int = 200, steps: int = 40, stay: float = 0.9):
    """Labels drawn from the chain itself, :math:`p(y_t = j | y_{t-1} = i, x) \\propto A_{ij} P_{tj}`, and recorded."""
    rng = np.random.default_rng(seed)
    score = 2 * rng.normal(size=(n, steps))
    evidence = np.stack([np.zeros_like(score), score], -1)
    evidence -= np.logaddexp.reduce(evidence, -1, keepdims=True)
    chain = Chain(np.full(2, 0.5), np.array([[stay, 1 - stay], [1 - stay, stay]]), 1.0)
    clean = np.zeros((n, steps), np.int8)
    for t in range(steps):
        weight = (chain.transition[clean[:, t - 1]] if t else chain.start) * np.exp(evidence[:, t])
        clean[:, t] = rng.random(n) < weight[:, 1] / weight.sum(1)
    recorded = lt.corrupt(clean, Q, random_state=seed)
    clock = np.tile(np.linspace(0, 1, steps), (n, 1))
    return LabelCodes(recorded[..., None], np.ones(clean.shape, bool), clock), evidence, chain, clean


def audit(seed: int = 0, fdr: float = 0.1, **more: float) -> tuple[LabelAudit, np.ndarray]:
    recorded, evidence, chain, clean = simulate(seed, **more)
    return audit_labels(recorded, evidence, chain, Q, np.array(["no", "yes"]), fdr=fdr), clean


def test_the_posterior_of_a_short_chain_is_that_of_all_paths():
    recorded, evidence, chain, _ = simulate(n=3, steps=5)
    paths = np.stack(np.meshgrid(*[[0, 1]] * 5, indexing="ij"), -1).reshape(-1, 5)
    posterior = audit_labels(recorded, evidence, chain, Q, np.array([0, 1])).probabilities
    matrix = Q.at(0.0)
    for row in range(3):
        likelihood = np.ones(len(paths))
        for t in range(5):
            prior = chain.start[None] if t == 0 else chain.transition[paths[:, t - 1]]
            weight = prior * np.exp(evidence[row, t])
            weight = np.broadcast_to(weight / weight.sum(-1, keepdims=True), (len(paths), 2))
            likelihood *= weight[np.arange(len(paths)), paths[:, t]] * matrix[paths[:, t], recorded.labels[row, t, 0]]
        expected = np.stack([[likelihood[paths[:, t] == c].sum() for c in (0, 1)] for t in range(5)])
        np.testing.assert_allclose(posterior[row], expected / likelihood.sum(), atol=1e-5)


@pytest.mark.parametrize("annotators", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_label_gets_the_same_numbers_in_whatever_rows_it_is_judged(annotators, dtype):
    recorded, evidence, chain, clean = simulate(n=20)
    labels = np.stack([lt.corrupt(clean, Q, random_state=seed) for seed in range(annotators)], -1)
    recorded, signal = recorded._replace(labels=labels), torch.from_numpy(np.exp(evidence).astype(dtype))
    judge = Judge.fit(recorded, signal, chain, Q)
    assert judge.several == (annotators > 1)
    whole = judge.score(recorded, signal)
    some = LabelCodes(*(None if values is None else values[3:9] for values in recorded))
    steps = np.arange(10, 200)
    for found, expected in zip(judge.score(some, signal[3:9], steps), whole, strict=True):
        np.testing.assert_array_equal(found, expected[3 * 40 + steps])
    assert whole.posterior.dtype == whole.another.dtype == dtype


@pytest.mark.parametrize("fdr", [0.05, 0.1, 0.3])
def test_false_alarms_stay_within_what_was_asked_where_the_chain_is_right(fdr):
    flagged, false = 0, 0
    for seed in range(5):
        result, clean = audit(seed, fdr)
        assert result.expected_false_alarms <= fdr
        flagged += result.is_issue.sum()
        false += (result.is_issue & (result.labels[..., 0] == clean)).sum()
    assert flagged > 300
    assert false / flagged < fdr + 0.02


def test_quality_is_calibrated_where_the_chain_is_right():
    result, clean = audit(n=1000)
    right = result.labels[..., 0] == clean
    tenth = np.minimum((10 * result.quality).astype(int), 9)
    gaps = [abs(result.quality[tenth == k].mean() - right[tenth == k].mean()) * np.mean(tenth == k) for k in range(10)]
    assert sum(gaps) < 0.01


def test_only_labels_with_a_likelier_one_are_flagged():
    result, _ = audit(fdr=1.0)
    assert (result.is_issue == (result.suggested != result.classes[result.labels[..., 0]])).all()
    assert not audit(fdr=0.0)[0].is_issue.any()


def test_the_allowance_of_false_alarms_can_be_spent():
    usual, clean = audit(n=500, fdr=0.3)
    spent = replace(usual, spend_fdr=True)
    wrong = usual.labels[..., 0] != clean
    more = spent.is_issue & ~usual.is_issue
    assert more.any()
    assert (usual.is_issue <= spent.is_issue).all()
    assert usual.expected_false_alarms < spent.expected_false_alarms <= 0.3
    assert spent.expected_false_alarms == pytest.approx(0.3, abs=0.005)
    assert (spent.is_issue & wrong).sum() > (usual.is_issue & wrong).sum()
    assert (spent.suggested == spent.classes[spent.labels[..., 0]])[more].all()
    assert set(spent.reason[more]) == {NO_OTHER_LIKELIER}
    assert (spent.corrected() == usual.corrected()).all()
    assert not replace(spent, may_name=False).is_issue.any()


def test_pairs_of_classes_that_may_not_be_named_are_not_flagged():
    usual, _ = audit(fdr=0.5)
    first, *_ = np.argwhere(usual.is_issue)
    recorded, suggested = usual.labels[tuple(first)][0], list(usual.classes).index(usual.suggested[tuple(first)])
    may_name = np.ones((2, *2 * (len(usual.classes),)), bool)
    may_name[:, recorded, suggested] = False
    fewer = replace(usual, may_name=may_name)
    pair = (usual.labels[..., 0] == recorded) & (usual.suggested == usual.classes[suggested])
    assert not fewer.is_issue[pair].any()
    assert fewer.is_issue.any()
    assert (fewer.corrected() == np.where(pair, usual.labels[..., 0], fewer.corrected())).all()
    may_name[0], may_name[1] = False, True
    in_runs = replace(usual, may_name=may_name)
    assert set(in_runs.kind[in_runs.is_issue]) == {"run"}
    assert (in_runs.corrected() == usual.labels[..., 0]).all()
    assert (in_runs.corrected(min_confidence=0.6) == usual.labels[..., 0]).all()
    assert (usual.corrected(min_confidence=0.6) != usual.labels[..., 0])[in_runs.is_issue].any()


def test_the_flagged_are_the_worst_and_as_many_as_allowed():
    quality = np.array([0.01, 0.4, 0.05, np.nan, 0.2, 0.9, 0.2])
    differs = np.array([True, True, True, False, True, False, True])
    for fdr, expected in [(0.02, [0]), (0.031, [0, 2]), (0.1, [0, 2]), (0.12, [0, 2, 4, 6]), (0.9, [0, 1, 2, 4, 6])]:
        threshold, counts = find_threshold([quality[differs]], fdr)
        assert np.flatnonzero(differs & (quality < threshold)).tolist() == expected
        assert np.flatnonzero(choose_issues(quality, differs, fdr)).tolist() == expected
        assert counts.sum() == len(expected)


def test_reasons_are_given_for_the_flagged_only_and_name_what_speaks():
    result, _ = audit()
    assert all((reason is None) != flag for reason, flag in zip(result.reason.flat, result.is_issue.flat, strict=True))
    words = " ".join(result.reason[result.is_issue])
    assert "neighbours and the signal" in words
    assert "at this time 25 % of labels are wrong" in words


def test_correcting_helps_and_confidence_limits_it():
    result, clean = audit()
    before = (result.labels[..., 0] != clean).mean()
    all_changes, sure = result.corrected(0.5), result.corrected(0.95)
    assert (all_changes != clean).mean() < 0.6 * before
    changed = sure != result.labels[..., 0]
    assert (sure[changed] == clean[changed]).mean() > 0.93
    assert changed.sum() < (all_changes != result.labels[..., 0]).sum()


def test_gaps_and_padding_are_never_judged():
    recorded, evidence, chain, _ = simulate(n=20)
    labels, mask = recorded.labels.copy(), recorded.mask.copy()
    labels[3, 5:8], mask[4, 30:], labels[4, 30:] = -1, False, -1
    result = audit_labels(LabelCodes(labels, mask, recorded.clock), evidence, chain, Q, np.array([0, 1]))
    gaps = labels[..., 0] < 0
    assert np.isnan(result.quality[gaps]).all()
    assert not result.is_issue[gaps].any()
    assert (result.corrected(0.0)[gaps] == -1).all()
    assert result.to_table().num_rows == (~gaps).sum()
    np.testing.assert_allclose(result.probabilities[mask].sum(-1), 1)


def test_trusted_labels_are_believed():
    recorded, evidence, chain, clean = simulate(n=20)
    result = audit_labels(recorded._replace(trusted=clean), evidence, chain, Q, np.array([0, 1]))
    np.testing.assert_array_equal(result.suggested, clean)
    np.testing.assert_array_equal(result.is_issue, recorded.labels[..., 0] != clean)


def test_a_second_annotator_raises_or_lowers_the_quality_of_the_first():
    recorded, evidence, chain, clean = simulate(n=50)
    second = lt.corrupt(clean, Q, random_state=99)
    both = LabelCodes(np.stack([recorded.labels[..., 0], second], -1), *recorded[1:])
    alone = audit_labels(recorded, evidence, chain, Q, np.array([0, 1]))
    result = audit_labels(both, evidence, chain, Q, np.array([0, 1]), has_annotators=True)
    assert result.quality.shape == (50, 40, 2)
    agree = recorded.labels[..., 0] == second
    assert (
        (result.quality[..., 0] - alone.quality)[agree].mean()
        > 0
        > (result.quality[..., 0] - alone.quality)[~agree].mean()
    )
    assert "other annotator" in " ".join(result.reason[result.is_issue])
    assert result.to_table(annotators=["A", "B"])["annotator"].to_pylist()[:2] == ["A", "B"]


def test_without_persistence_a_step_is_judged_by_bayes_rule():
    recorded, evidence, _, _ = simulate(n=20)
    posterior = audit_labels(recorded, evidence, no_persistence(2), Q, np.array([0, 1])).probabilities
    expected = np.exp(evidence) * Q.at(0.0)[:, recorded.labels[..., 0]].transpose(1, 2, 0)
    np.testing.assert_allclose(posterior, expected / expected.sum(-1, keepdims=True), atol=1e-5)


def test_the_table_carries_the_users_names():
    result, _ = audit(n=4)
    times = np.datetime64("2026-01-01T00:00") + np.arange(160).reshape(4, 40).astype("timedelta64[m]")
    table = result.to_table(ids=["a", "b", "c", "d"], times=times)
    assert table["sequence"].to_pylist()[::40] == ["a", "b", "c", "d"]
    assert table["time"].to_pylist()[41].isoformat() == "2026-01-01T00:41:00"
    assert set(table["recorded"].to_pylist()) == {"no", "yes"}
    np.testing.assert_allclose(table["probability_right"].to_numpy(), result.quality.ravel())
    assert table["is_issue"].to_pylist() == result.is_issue.ravel().tolist()
    mixed = result.to_table(ids=[("a", 1), 2, "c", None])
    assert mixed["sequence"].to_pylist()[::40] == ["('a', 1)", "2", "c", None]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"ids": ["a"]}, "ids must be 4 names"),
        ({"times": np.zeros(4)}, r"times must have shape \(4, 40\)"),
        ({"annotators": ["A", "B"]}, "annotators must be 1 names"),
    ],
)
def test_names_that_do_not_fit_are_refused(more, match):
    with pytest.raises(ValueError, match=match):
        audit(n=4)[0].to_table(**more)


def test_impossible_shares_are_refused():
    with pytest.raises(ValueError, match="fdr must be a number at least 0 and at most 1"):
        audit(fdr=1.5)
    with pytest.raises(ValueError, match="min_confidence must be"):
        audit()[0].corrected(2)
