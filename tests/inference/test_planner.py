"""What to re-annotate first: every part of Q is seen, and Q gets closer to the truth than by chance."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.em import label_chain
from labeltide.chain.passes import ChainData, Members, expect
from labeltide.inference.audit import PRIOR_LABELS, plan_review

STEPS = 30
GRID = np.linspace(0, 1, STEPS)


def rare_class(seed: int, n: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A class that lives in a fifth of the sequences, recorded through noise that grows."""
    rng = np.random.default_rng(seed)
    clean = lt.make_sequences(n, STEPS, 1, stay=0.9, random_state=seed).clean_labels
    clean[rng.random(n) > 0.2] = 0
    noise = lt.make_noise("growth", 2, STEPS, rate=0.3)
    return clean, lt.corrupt(clean, noise, random_state=seed), np.asarray(noise)


def learn(recorded: np.ndarray, trusted: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Q(t) and the posterior from labels alone."""
    data = ChainData(
        labels=torch.from_numpy(recorded.astype(np.int8))[None, ..., None],
        mask=torch.ones(recorded.shape, dtype=torch.bool),
        points=None,
        n_points=STEPS,
        n_classes=2,
        trusted=None if trusted is None else torch.from_numpy(trusted.astype(np.int8)),
    )
    members = Members(*(torch.zeros(1, dtype=torch.int64),) * 2, torch.ones(1, len(recorded)))
    chain = label_chain(data, members, GRID)
    posterior = expect(data, members, chain, posterior=True).posterior
    return chain.matrices[0, 0].numpy(), posterior[0].double().numpy()


def plan(recorded: np.ndarray, posterior: np.ndarray, k: int, by: str):
    mask, clock = np.ones(recorded.shape, bool), np.tile(GRID, (len(recorded), 1))
    return plan_review(recorded[..., None], mask, clock, posterior, k, by)


def trust(clean: np.ndarray, rows: np.ndarray, steps: np.ndarray | None) -> np.ndarray:
    trusted = np.full(clean.shape, -1)
    where = (rows,) if steps is None else (rows, steps)
    trusted[where] = clean[where]
    return trusted


def information(trusted: np.ndarray) -> float:
    """The logarithm of how often each true label became known in each tenth of the clock, summed."""
    counts = [(trusted[:, 3 * tenth : 3 * tenth + 3] == label).sum() for tenth in range(10) for label in (0, 1)]
    return float(np.log(np.array(counts) + PRIOR_LABELS).sum())


def test_planned_answers_tell_more_of_the_least_known_part_of_q_than_random_ones():
    """What that does to the error of Q is in benchmarks/plan.py and its records: too slow for a test."""
    planned, random = {"sequence": [], "step": []}, {"sequence": [], "step": []}
    for seed in range(5):
        clean, recorded, _ = rare_class(seed)
        _, posterior = learn(recorded)
        rng = np.random.default_rng(seed)
        chance = {
            "sequence": (rng.permutation(len(clean))[:10], None),
            "step": np.unravel_index(rng.permutation(clean.size)[:150], clean.shape),
        }
        for by, k in (("sequence", 10), ("step", 150)):
            planned[by].append(information(trust(clean, *plan(recorded, posterior, k, by)[:2])))
            random[by].append(information(trust(clean, *chance[by])))
    for by in planned:
        assert np.mean(planned[by]) > np.mean(random[by]) + 1
        assert min(planned[by]) > np.mean(random[by])


def test_a_rare_class_is_asked_for_more_often_than_it_is_met():
    clean, recorded, _ = rare_class(0)
    _, posterior = learn(recorded)
    for by, k in (("sequence", 10), ("step", 150)):
        trusted = trust(clean, *plan(recorded, posterior, k, by)[:2])
        assert (trusted == 1).sum() / (trusted >= 0).sum() > 2 * clean.mean()


def test_the_greedy_plan_is_close_to_the_best_one():
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet([0.3, 0.3], size=(9, 10))
    labels, mask, clock = np.zeros((9, 10, 1), np.int8), np.ones((9, 10), bool), np.tile(np.arange(10.0), (9, 1))
    plan = plan_review(labels, mask, clock, posterior, 3)

    def worth(rows: tuple[int, ...]) -> float:
        return np.log1p(posterior[list(rows)].sum(0) / PRIOR_LABELS).sum()  # every step of ten is a tenth of the clock

    best = max(worth(rows) for rows in combinations(range(9), 3))
    assert worth(tuple(plan.rows)) == pytest.approx(plan.gain.sum())
    assert plan.gain.sum() > 0.95 * best
    assert (np.diff(plan.gain) <= 0).all()


def test_gaps_padding_and_trusted_steps_are_not_asked_for():
    labels = np.zeros((3, 10, 1), np.int8)
    labels[0, :5], mask = -1, np.ones((3, 10), bool)
    mask[1, 5:] = False
    trusted = np.full((3, 10), -1, np.int8)
    trusted[2] = 0
    posterior, clock = np.full((3, 10, 2), 0.5), np.tile(np.arange(10.0), (3, 1))
    plan = plan_review(labels, mask, clock, posterior, 10, "step", trusted)
    assert sorted(zip(plan.rows.tolist(), plan.steps.tolist(), strict=True)) == [
        *((0, step) for step in range(5, 10)),
        *((1, step) for step in range(5)),
    ]
    assert sorted(plan_review(labels, mask, clock, posterior, 2, trusted=trusted).rows) == [0, 1]
    with pytest.raises(ValueError, match="k must be a whole number at least 1 and at most 2"):
        plan_review(labels, mask, clock, posterior, 3, trusted=trusted)
    with pytest.raises(ValueError, match="no steps left to re-annotate"):
        plan_review(labels, mask, clock, posterior, 1, "step", np.zeros((3, 10), np.int8))
    with pytest.raises(ValueError, match="Unknown by 'person'"):
        plan_review(labels, mask, clock, posterior, 1, "person")


@pytest.mark.parametrize("by", ["step", "sequence"])
def test_what_is_trusted_makes_more_of_the_same_worth_less(by):
    """Trusted labels of one class in the first half of the clock: the plan turns to the other class and half."""
    labels, mask = np.zeros((40, 10, 1), np.int8), np.ones((40, 10), bool)
    clock = np.tile(np.arange(10.0), (40, 1))
    posterior = np.tile(np.eye(2)[(np.arange(40) % 2)[:, None]], (1, 10, 1))  # rows of one class and of the other
    trusted = np.full((40, 10), -1, np.int8)
    trusted[:20:2, :5] = 0  # and each of these rows has five steps left to ask for
    before = plan_review(labels, mask, clock, posterior, 20, by)
    after = plan_review(labels, mask, clock, posterior, 20, by, trusted)
    assert after.gain[:20].sum() < before.gain[:20].sum()
    assert (after.rows % 2 == 1).mean() > (before.rows % 2 == 1).mean()
    if by == "step":
        assert (trusted[after.rows, after.steps] < 0).all()
        of_same = (after.rows % 2 == 0) & (after.steps < 5)
        assert of_same.sum() < 3
    else:
        assert after.rows[0] % 2 == 1


def test_a_plan_goes_back_into_fit_as_trusted_labels():
    study = lt.make_sequences(20, 10, 2, stay=0.9, random_state=0)
    recorded = lt.corrupt(study.clean_labels, np.array([[0.7, 0.3], [0.3, 0.7]]))
    method = lt.TideClassifier(epochs=2, hidden_size=4, random_state=0, device="cpu").fit(study.features, recorded)
    plan = method.audit(study.features, recorded).plan(5, by="step")
    trusted = trust(study.clean_labels, plan.rows, plan.steps)
    method.fit(study.features, recorded, trusted=trusted)
    again = method.audit(study.features, recorded, trusted=trusted)
    np.testing.assert_array_equal(again.suggested[trusted >= 0], trusted[trusted >= 0])
    assert not set(zip(*again.plan(20, by="step")[:2], strict=True)) & set(zip(*plan[:2], strict=True))
