from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import labeltide as lt
from labeltide.inference.audit import LabelAudit
from labeltide.inference.review import remaining_rate


def study(seed=0, shape=(40, 100), rate=0.1):
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(shape) < rate, rng.uniform(0.2, 1, shape), rng.uniform(0, 0.02, shape))
    return p, rng.random(shape) < p


def small_audit(n_annotators=1, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (20, 30, n_annotators)).astype(np.int8)
    labels[0, :4] = -1
    probabilities = rng.dirichlet([0.3] * 3, (20, 30))
    clock = np.tile(np.linspace(0, 24, 30), (20, 1))
    return LabelAudit(
        classes=np.array(["N", "R", "W"]),
        labels=labels,
        clock=clock,
        mask=np.ones((20, 30), bool),
        probabilities=probabilities,
        signal=probabilities,
        error_rates=np.full((20, 30, 3), 0.1),
        has_annotators=n_annotators > 1,
    )


def check(p, wrong, n=200, seed=0, **options):
    sample = lt.review_sample(p, n, random_state=seed)
    return lt.checked_rate(p, sample, wrong[sample.index], **options)


def test_reviewing_everything_gives_the_rate_itself():
    p, wrong = study(shape=(5, 40))
    overall = check(p, wrong, n=200).overall
    assert overall.rate == pytest.approx(wrong.mean())
    assert overall.n_reviewed == overall.n_labels == 200
    assert overall.lower == overall.rate == overall.upper
    assert overall.anytime_lower == overall.rate == overall.anytime_upper
    people = check(p, wrong, n=200, clusters=np.arange(5)).overall
    assert people.rate == pytest.approx(wrong.mean(), abs=0.01)
    assert people.upper - people.lower > 0.01  # other people are not known


def test_equal_probabilities_without_a_model_are_a_simple_random_sample():
    _, wrong = study()
    p = np.full(wrong.shape, 0.2)
    result = check(p, wrong).overall
    assert result.model_weight == 0
    assert result.rate == pytest.approx(result.n_wrong / 200)
    exact = stats.binomtest(result.n_wrong, 200).proportion_ci(0.95)
    assert (result.lower, result.upper) == pytest.approx(tuple(exact), rel=0.04)


@pytest.mark.parametrize("kind", ["right", "constant", "reversed", "blind"])
def test_intervals_cover_whatever_the_model_says(kind):
    covered = []
    for seed in range(200):
        p, wrong = study(seed)
        if kind == "constant":
            p = np.full(p.shape, 0.3)
        elif kind == "reversed":
            p = 1 - p
        elif kind == "blind":
            wrong = wrong | (np.random.default_rng(seed + 1000).random(p.shape) < 0.05)
        result = check(p, wrong, seed=seed).overall
        covered.append(result.lower <= wrong.mean() <= result.upper)
    assert np.mean(covered) >= 0.92  # 200 studies: 95 % less two standard errors


def test_a_model_that_is_right_makes_intervals_narrower_and_one_that_is_wrong_hardly_wider():
    widths = {"right": [], "reversed": [], "none": []}
    for seed in range(30):
        p, wrong = study(seed)
        for kind, values in (("right", p), ("reversed", 1 - p), ("none", np.full(p.shape, 0.1))):
            result = check(values, wrong, seed=seed).overall
            widths[kind].append(result.upper - result.lower)
    mean = {kind: np.mean(values) for kind, values in widths.items()}
    assert mean["right"] < 0.75 * mean["none"]
    assert mean["reversed"] < 1.05 * mean["none"]


def test_an_interval_never_collapses_where_nothing_or_everything_is_wrong():
    p, _ = study()
    for value in (False, True):
        result = check(p, np.full(p.shape, value), n=50).overall
        assert result.upper - result.lower > 0.05
        assert result.lower <= value <= result.upper


def test_two_draws_say_more_than_one():
    p, wrong = study()
    first = lt.review_sample(p, 200)
    both = lt.review_sample(p, 600, earlier=first, random_state=1)
    one, two = (lt.checked_rate(p, sample, wrong[sample.index]).overall for sample in (first, both))
    assert two.upper - two.lower < 0.65 * (one.upper - one.lower)
    assert two.lower <= wrong.mean() <= two.upper


def test_the_interval_that_may_be_watched_is_nested_and_covers_at_every_look():
    misses = 0
    for seed in range(60):
        p, wrong = study(seed)
        sample = lt.review_sample(p, 120, random_state=seed)
        looks = [lt.checked_rate(p, sample.first(n), wrong[sample.index][:n]).overall for n in (10, 40, 80, 120)]
        lower, upper = ([getattr(look, f"anytime_{end}") for look in looks] for end in ("lower", "upper"))
        assert np.all(np.diff(lower) >= 0)
        assert np.all(np.diff(upper) <= 0)
        misses += not lower[-1] <= wrong.mean() <= upper[-1]
        assert upper[-1] - lower[-1] < 3 * (looks[-1].upper - looks[-1].lower)
    assert misses <= 6  # of 60, where 3 are allowed on average


def test_a_gambler_who_knows_nothing_wins_nothing_at_the_true_share():
    """Every model, also one that is always wrong: over all orders of a tiny population the truth is rarely refuted."""
    wrong = np.array([True, False, False, False, True, False])
    for p in (np.full(6, 0.3), np.where(wrong, 0.01, 0.9)):
        missed = 0
        for seed in range(400):
            sample = lt.review_sample(p, 5, random_state=seed)
            found = lt.checked_rate(p, sample, wrong[sample.items], level=0.8).overall
            missed += not found.anytime_lower <= 2 / 6 <= found.anytime_upper
        assert missed <= 0.2 * 400 + 3 * (400 * 0.16) ** 0.5


def test_the_interval_for_more_people_is_never_narrower_than_that_of_these_labels():
    for seed in range(30):
        p, wrong = study(seed)
        these, more = (check(p, wrong, 60, seed, clusters=each).overall for each in (None, np.arange(40) // 10))
        assert more.lower <= these.lower
        assert more.upper >= these.upper


def test_labels_that_were_not_recorded_change_nothing():
    p, wrong = study()
    sample = lt.review_sample(p, 100)
    padded = np.concatenate([p, np.full((3, 100), np.nan)])
    longer = replace(sample, shape=padded.shape)
    assert lt.checked_rate(padded, longer, wrong[sample.index]) == lt.checked_rate(p, sample, wrong[sample.index])


def test_groups_know_their_labels_and_cover():
    p, wrong = study()
    result = check(p, wrong, n=400, by={"hour": np.tile(np.arange(100) // 50, (40, 1)), "person": np.arange(40) // 20})
    for name, truth in (("hour", [wrong[:, :50].mean(), wrong[:, 50:].mean()]), ("person", [wrong[:20].mean()] * 2)):
        assert [group.group for group in result.groups[name]] == [0, 1]
        assert sum(group.n_reviewed for group in result.groups[name]) == 400
        assert sum(group.n_wrong for group in result.groups[name]) == result.overall.n_wrong
        assert all(group.n_labels == 2000 for group in result.groups[name])
        assert result.groups[name][0].lower <= truth[0] <= result.groups[name][0].upper


def test_a_group_that_nobody_reviewed_may_be_anything():
    p, wrong = study()
    sample = lt.review_sample(p, 10)
    lonely = np.zeros(p.shape, int)
    lonely[np.setdiff1d(np.arange(40), sample.rows)[0]] = 1
    group = lt.checked_rate(p, sample, wrong[sample.index], by={"lonely": lonely}).groups["lonely"][1]
    assert (group.lower, group.upper, group.n_reviewed) == (0, 1, 0)
    assert np.isnan(group.rate)


@pytest.mark.parametrize("n_annotators", [1, 2])
def test_an_audit_brings_its_own_groups(n_annotators):
    audit = small_audit(n_annotators)
    sample = lt.review_sample(audit, 100)
    result = lt.checked_rate(audit, sample, np.zeros(100, bool), by=("class", "clock", "annotator"))
    assert [group.group for group in result.groups["class"]] == ["N", "R", "W"]
    assert len(result.groups["clock"]) == 10
    assert len(result.groups["annotator"]) == n_annotators
    assert all(sum(g.n_labels for g in groups) == (596 * n_annotators) for groups in result.groups.values())
    assert result.overall.model_rate == pytest.approx(1 - np.nanmean(audit.quality))
    assert result.overall.disagrees


def test_people_who_differ_widen_the_interval():
    rng = np.random.default_rng(0)
    people = np.arange(40) // 4
    wrong = rng.random((40, 100)) < rng.beta(1, 4, 10)[people][:, None]
    p = np.full(wrong.shape, 0.2)
    sample = lt.review_sample(p, 400)
    alone = lt.checked_rate(p, sample, wrong[sample.index]).overall
    clustered = lt.checked_rate(p, sample, wrong[sample.index], clusters=people).overall
    assert clustered.rate == pytest.approx(alone.rate)
    assert clustered.upper - clustered.lower > 1.5 * (alone.upper - alone.lower)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrong": np.zeros(3, bool)}, r"wrong must be 20 times True or False, one for each label of the sample"),
        ({"wrong": np.full(20, np.nan)}, r"For a review that ended early pass sample.first\(n\)."),
        ({"wrong": np.full(20, 2)}, r"wrong must be 20 times True or False"),
        ({"level": 1.0}, r"level must be a number at least 0.5"),
        ({"clusters": np.zeros(40)}, r"clusters must hold at least two with labels. Got one: leave clusters out."),
        ({"by": ["class"]}, r"Grouping by 'class' needs an audit. Pass by=\{'class': values\} with probabilities."),
        ({"by": "site"}, r"Unknown grouping 'site'. Choose one of: class, clock, annotator."),
        ({"by": {"hour": np.zeros(3)}}, r"The groups 'hour' must have the shape \(40, 100\) of the labels"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_a_sentence(options, message):
    p, _ = study()
    sample = lt.review_sample(p, 20)
    with pytest.raises(ValueError, match=message):
        lt.checked_rate(p, sample, **{"wrong": np.zeros(20, bool), **options})


def test_a_sample_must_be_of_labels_that_are_there():
    p, _ = study()
    sample = lt.review_sample(p, 20)
    with pytest.raises(ValueError, match=r"The sample must be of these labels, of shape \(40, 50\)."):
        lt.checked_rate(p[:, :50], sample, np.zeros(20, bool))
    p[sample.rows[0], sample.steps[0]] = np.nan
    with pytest.raises(ValueError, match=r"Every label of the sample must have a probability"):
        lt.checked_rate(p, sample, np.zeros(20, bool))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(40))
def test_every_sample_has_a_finite_interval_around_its_rate(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 8, rng.integers(1, 4)))
    p = rng.choice([0.0, 0.5, 1.0], shape) if seed % 2 else rng.random(shape) ** 5
    n = int(rng.integers(1, p.size + 1))
    sample = lt.review_sample(p, n, random_state=seed, floor=float(rng.uniform(0.05, 1)))
    if n < p.size:
        sample = lt.review_sample(p, int(rng.integers(1, p.size - n + 1)), earlier=sample)
    sample = sample.first(int(rng.integers(1, len(sample) + 1)))
    wrong = rng.random(len(sample)) < rng.choice([0.0, 0.3, 1.0])
    clusters = np.arange(shape[0]) % 3 if shape[0] > 2 else None
    result = lt.checked_rate(p, sample, wrong, by={"any": rng.integers(0, 3, shape)}, clusters=clusters)
    for rate in (result.overall, *result.groups["any"]):
        assert 0 <= rate.lower <= rate.upper <= 1
        assert rate.n_reviewed == 0 or rate.lower - 1e-9 <= rate.rate <= rate.upper + 1e-9
    remaining = remaining_rate(p, sample, wrong)
    assert 0 <= remaining.bound <= 1
    assert np.all(np.diff(remaining.curve()[1]) <= 1e-9)
