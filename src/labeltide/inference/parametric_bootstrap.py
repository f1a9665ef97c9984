r"""Parametric bootstrap: recorded labels simulated from a fitted hidden Markov model (Efron and Tibshirani 1993).

True labels follow :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`, conditioned on trusted labels by
backward messages. Recorded labels are drawn through Q(t), in bursts where the chain has them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters


def simulate_labels(data: ChainData, parameters: ChainParameters, draws: int, seed: int) -> Tensor:
    """Recorded labels (draws, rows, steps, annotators) of one chain; gaps, padding and trusted labels stay."""
    generator = np.random.default_rng([seed, 7])
    start, moves = _transition_probabilities(data, parameters)  # (rows, classes), (rows, steps - 1, from, to)
    rows, steps = data.mask.shape
    row = np.arange(rows)
    true = np.empty((draws, rows, steps), dtype=np.int64)
    true[..., 0] = _inverse_cdf(start.cumsum(-1)[None], generator.random((draws, rows)))
    cumulative = moves.cumsum(-1)
    for t in range(1, steps):
        true[..., t] = _inverse_cdf(cumulative[row, t - 1, true[..., t - 1]], generator.random((draws, rows)))
    recorded = np.stack([_record(data, parameters, true, a, generator) for a in range(data.labels.shape[-1])], -1)
    kept = (data.labels[0] >= 0) & data.mask[..., None]
    return torch.where(kept, torch.from_numpy(recorded), torch.tensor(-1, dtype=torch.int8))


def _record(
    data: ChainData, parameters: ChainParameters, true: np.ndarray, annotator: int, generator: np.random.Generator
) -> np.ndarray:
    r"""One annotator's labels (draws, rows, steps).

    In a burst the uniform number behind the last label is kept. With error rates :math:`e` before and :math:`e'` now,
    a kept error errs again with probability :math:`\min(1, e'/e)`, a kept correct label errs with
    :math:`\max(0, e' - e) / (1 - e)`. An error that goes on is recorded as the same label, unless that is now true.
    """
    matrices = parameters.matrices[0, annotator if parameters.matrices.shape[1] > 1 else 0].double().numpy()
    bursts = 0.0 if parameters.bursts is None else float(parameters.bursts[0])
    error = 1 - np.diagonal(matrices, axis1=1, axis2=2)  # (points, classes)
    others = (matrices * (1 - np.eye(len(matrices[0])))).cumsum(-1)
    others /= others[..., -1:].clip(1e-300)
    there = ((data.labels[0, ..., annotator] >= 0) & data.mask).numpy()
    places = data.places().numpy()
    adjacent = np.ones_like(there) if data.jumps is None else (data.jumps == 0).numpy()  # no gap in time before
    recorded = np.empty(true.shape, dtype=np.int8)
    before = was_wrong = np.zeros(true.shape[:2])
    for t in range(true.shape[2]):
        rate = error[places[:, t], true[..., t]]
        chance, goes_on = rate, np.zeros(rate.shape, dtype=bool)
        if bursts and t:
            again = np.where(was_wrong, rate / before.clip(1e-6), (rate - before) / (1 - before).clip(1e-6)).clip(0, 1)
            linked = (there[:, t] & there[:, t - 1] & adjacent[:, t]) & (generator.random(rate.shape) < bursts)
            chance = np.where(linked, again, rate)
            goes_on = linked & (was_wrong > 0) & (recorded[..., t - 1] != true[..., t])
        was_wrong, before = generator.random(rate.shape) < chance, rate
        other = _inverse_cdf(others[places[:, t], true[..., t]], generator.random(rate.shape))
        other = np.where(goes_on, recorded[..., t - 1], other)
        recorded[..., t] = np.where(was_wrong, other, true[..., t])
    return recorded


def _inverse_cdf(cumulative: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Inverse transform sampling: the class at which the cumulative probabilities pass each uniform number."""
    return (uniform[..., None] >= cumulative[..., :-1]).sum(-1)


def _transition_probabilities(data: ChainData, parameters: ChainParameters) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the first label and of each transition, given the evidence and all trusted labels."""
    rows, steps = data.mask.shape
    start, power = (np.asarray(tensor[0].double()) for tensor in (parameters.start, parameters.power))
    transitions = data.transitions(parameters.transition.double())[0].numpy()  # (gaps, classes, classes)
    gap = np.zeros((rows, steps), dtype=np.int64) if data.jumps is None else data.jumps.long().numpy()
    evidence = np.zeros((rows, steps, data.n_classes))
    if data.evidence is not None:
        evidence = float(power) * data.evidence[0].double().numpy()
    weight = np.exp(evidence - evidence.max(-1, keepdims=True))
    prior = transitions[gap[:, 1:]] * weight[:, 1:, None, :]
    first, prior = _normalise(start * weight[:, 0]), _normalise(prior)
    if data.trusted is None:
        return first, prior
    known = np.eye(data.n_classes)[data.trusted.long().clamp_min(0).numpy()]
    allowed = np.where(((data.trusted >= 0) & data.mask).numpy()[..., None], known, 1.0)  # (rows, steps, classes)
    backward = np.ones((rows, data.n_classes))  # likelihood of later trusted labels, up to a factor
    for t in range(steps - 1, 0, -1):
        prior[:, t - 1] *= (allowed[:, t] * backward)[:, None]
        backward = prior[:, t - 1].sum(-1)
        backward /= backward.max(-1, keepdims=True).clip(1e-300)
    return _normalise(first * allowed[:, 0] * backward), _normalise(prior)


def _normalise(values: np.ndarray) -> np.ndarray:
    return (values + 1e-300) / (values + 1e-300).sum(-1, keepdims=True)
