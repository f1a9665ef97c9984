"""Contested labels: laws of the probability, and its calibration in simulations."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide.chain.passes import Chain
from labeltide.inference.audit import LabelCodes, audit_labels, differs_probability
from labeltide.noise.functions import FixedNoise

STEPS, N = 30, 60
CLOCK = np.tile(np.linspace(0, 1, STEPS), (N, 1))


def noise_of(*rates):
    """Q of two classes with an error rate for each annotator."""
    matrices = np.stack([np.tile([[1 - rate, rate], [rate, 1 - rate]], (STEPS, 1, 1)) for rate in rates])
    matrices = matrices if len(rates) > 1 else matrices[0]
    return FixedNoise(matrices[None], CLOCK[0], None if len(rates) == 1 else matrices.mean(0)[None])


def study(rates, seed=0, sharpness=2.0):
    """True labels that persist, labels with independent errors, and calibrated evidence."""
    generator = np.random.default_rng(seed)
    truth = np.repeat(generator.integers(0, 2, (N, STEPS // 5)), 5, 1)
    wrong = generator.random((N, STEPS, len(rates))) < rates
    labels = np.where(wrong, 1 - truth[..., None], truth[..., None]).astype(np.int8)
    logit = sharpness * (generator.standard_normal((N, STEPS)) + sharpness * (truth - 0.5))
    evidence = -np.logaddexp(0, np.stack([logit, -logit], -1))
    sources = np.tile(np.arange(len(rates)), (N, 1)) if len(rates) > 1 else None
    return LabelCodes(labels, np.ones((N, STEPS), dtype=bool), CLOCK, sources=sources), evidence, truth


CHAIN = Chain(np.full(2, 0.5), np.array([[0.9, 0.1], [0.1, 0.9]]), 1.0)


def judge(recorded, evidence, noise):
    return audit_labels(recorded, evidence, CHAIN, noise, np.array([0, 1]), has_annotators=True)


def test_another_differs_is_one_less_the_probability_of_the_label():
    another = np.array([[[0.7, 0.3]]])
    differs = differs_probability(another, np.array([[[0, 1, -1]]]))[0, 0]
    np.testing.assert_allclose(differs[:2], [0.3, 0.7])
    assert np.isnan(differs[2])


def test_labels_of_another_annotator_sum_to_one_and_are_zero_on_padding():
    for rates in ((0.2,), (0.1, 0.2, 0.3)):
        recorded, evidence, _ = study(rates)
        recorded.mask[:, -3:] = False
        recorded.labels[:, -3:] = -1
        another = judge(recorded, evidence, noise_of(*rates)).another
        np.testing.assert_allclose(another[:, :-3].sum(-1), 1)
        assert not another[:, -3:].any()


def calibration(differs, happened):
    """Expected calibration error in ten bins of the prediction."""
    cell = np.minimum((10 * differs).astype(int), 9)
    return sum(abs((differs - happened)[cell == index].sum()) for index in range(10)) / differs.size


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_with_several_annotators_disagreement_of_another_is_calibrated(sharpness):
    rates = (0.1, 0.2, 0.3, 0.2)
    everyone, evidence, _ = study(rates, sharpness=sharpness)
    seen = everyone._replace(labels=everyone.labels[..., :3], sources=everyone.sources[:, :3])
    audit = audit_labels(seen, evidence, CHAIN, noise_of(*rates[:3]), np.array([0, 1]), has_annotators=True)
    assert calibration(audit.contested, seen.labels != everyone.labels[..., 3:]) < 0.06


def test_annotators_who_err_together_are_contested_more_than_the_chain_expects():
    generator = np.random.default_rng(4)
    recorded, evidence, truth = study((0.1, 0.1, 0.1, 0.1), seed=4, sharpness=0.3)
    hard = generator.random((N, STEPS, 1)) < 0.25
    labels = np.where(hard, generator.integers(0, 2, (N, STEPS, 4)), truth[..., None]).astype(np.int8)
    noise = noise_of(0.125, 0.125, 0.125)
    seen = recorded._replace(labels=labels[..., :3], sources=recorded.sources[:, :3])
    audit = judge(seen, evidence, noise)
    left_out = labels[..., 3:].astype(np.intp)

    def loss(probabilities):
        return -np.log(np.take_along_axis(probabilities, left_out, -1)).mean()

    assert loss(audit.another) < loss(audit.probabilities @ noise.common_at(0.5)) - 0.02


def test_annotators_who_share_no_step_are_treated_as_one():
    recorded, evidence, _ = study((0.2, 0.2))
    recorded.labels[: N // 2, :, 0] = -1
    recorded.labels[N // 2 :, :, 1] = -1
    alone = recorded._replace(labels=recorded.labels.max(-1, keepdims=True), sources=None)
    one = judge(alone, evidence, noise_of(0.2)).another
    two = judge(recorded, evidence, noise_of(0.2, 0.2)).another
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_an_ambiguous_step_is_contested_even_where_the_annotator_is_consistent():
    recorded, evidence, truth = study((0.0,), sharpness=3.0)
    evidence[:, ::5] = np.log(0.5)
    recorded.labels[..., 0] = truth
    audit = audit_labels(recorded, evidence, CHAIN, noise_of(0.01), np.array([0, 1]))
    ambiguous = np.arange(STEPS) % 5 == 0
    assert audit.contested[:, ambiguous].mean() > 0.2
    assert audit.contested[:, ~ambiguous].mean() < 0.15
