r"""Intervals that exclude zero if and only if the test of the same quantity rejects zero at 5 %.

The interval of a change over the clock comes from a bootstrap of clusters, its test from sign flips, permutations or a
parametric bootstrap. The two can differ, so the lower end follows the test. Where the test does not reject, the
interval is widened to zero. Where it does and the bootstrap's interval still holds zero, the lower end is the
test-based limit :math:`v (1 - z_{.975} / z_p)` of the estimate v, in which :math:`z_p` is the two-sided normal quantile
of the p-value (Miettinen 1976). The share of wrong labels is shown where two tests reject that it is zero; otherwise
its interval begins at zero. Where annotators differ on a step no test is needed: all but one of their labels at most
are right, whatever the truth is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.stats import norm

from labeltide.chain.data import TrainingEvidence
from labeltide.inference.noise_estimate import Change, NoiseEstimate
from labeltide.inference.rate_interval import EffectiveCount, clopper_pearson

LEVEL = 0.05


def both_p(first: float, second: float) -> float:
    """The p-value of "both null hypotheses are false": the larger of the two (Berger 1982); NaN counts as not made."""
    return max((p for p in (first, second) if not math.isnan(p)), default=math.nan)


def presence_p(first: float, second: float, training: TrainingEvidence) -> float:
    """The p-value of the null that no label is wrong: of two tests, or zero where annotators contradict each other."""
    return 0.0 if fewest_wrong(training)[0] else both_p(first, second)


def fewest_wrong(training: TrainingEvidence) -> tuple[int, int]:
    """How many labels are wrong at least, if every step has one true label, and the number of labels."""
    labels = training.data.labels[0].numpy()[training.data.mask.numpy()]  # (steps, annotators)
    recorded = int((labels >= 0).sum())
    if labels.shape[1] == 1:
        return 0, recorded
    votes = np.stack([(labels == code).sum(1) for code in range(training.data.n_classes)], 1)
    return recorded - int(votes.max(1).sum()), recorded


def agree_change(change: Change, p_value: float) -> Change:
    """The same change with a lower end that agrees with its test; an unknown p-value rejects nothing."""
    if math.isnan(p_value) or p_value >= LEVEL:
        return change._replace(lower=0.0)
    if change.lower > 0:
        return change
    limit = 1 - norm.isf(LEVEL / 2) / norm.isf(p_value / 2)
    return change._replace(lower=max(change.value, 0.0) * float(limit))


def agree_share(estimate: NoiseEstimate, p_value: float, training: TrainingEvidence) -> NoiseEstimate:
    """The same estimate; its interval of the total share begins at zero where the test does not reject that.

    Where annotators differ it begins no lower than the limit of Clopper and Pearson (1934) for the fewest wrong labels,
    which takes labels as independent: with few people it is close to the share of these labels themselves.
    """
    least, _ = clopper_pearson(EffectiveCount(*fewest_wrong(training)), 1 - LEVEL)
    lower = max(estimate.total_lower if p_value < LEVEL else 0.0, least)
    return replace(estimate, total_lower=min(lower, estimate.total))
