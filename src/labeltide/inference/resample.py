"""Draw recorded labels from a fitted chain, given the evidence: studies as they would be if the chain were true."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters


def resample_labels(data: ChainData, parameters: ChainParameters, draws: int, seed: int) -> Tensor:
    """Recorded labels (draws, rows, steps, annotators) of one chain; gaps, padding and trusted labels stay."""
    generator = np.random.default_rng([seed, 7])
    start, moves = _moves(data, parameters)  # (rows, classes), (rows, steps - 1, from, to)
    rows, steps = data.mask.shape
    row = np.arange(rows)
    true = np.empty((draws, rows, steps), dtype=np.int64)
    true[..., 0] = _choose(start.cumsum(-1)[None], generator.random((draws, rows)))
    sums = moves.cumsum(-1)
    for t in range(1, steps):
        true[..., t] = _choose(sums[row, t - 1, true[..., t - 1]], generator.random((draws, rows)))
    recorded = np.stack([_record(data, parameters, true, a, generator) for a in range(data.labels.shape[-1])], -1)
    kept = (data.labels[0] >= 0) & data.mask[..., None]
    return torch.where(kept, torch.from_numpy(recorded), torch.tensor(-1, dtype=torch.int8))


def _record(
    data: ChainData, parameters: ChainParameters, true: np.ndarray, annotator: int, generator: np.random.Generator
) -> np.ndarray:
    """One annotator's labels (draws, rows, steps); a draw that is kept errs again as far as both rates allow."""
    matrices = parameters.matrices[0, annotator if parameters.matrices.shape[1] > 1 else 0].double().numpy()
    bursts = 0.0 if parameters.bursts is None else float(parameters.bursts[0])
    error = 1 - np.diagonal(matrices, axis1=1, axis2=2)  # (points, classes)
    others = (matrices * (1 - np.eye(len(matrices[0])))).cumsum(-1)
    others /= others[..., -1:].clip(1e-300)
    there = ((data.labels[0, ..., annotator] >= 0) & data.mask).numpy()
    places = data.places().numpy()
    at_once = np.ones_like(there) if data.jumps is None else (data.jumps == 0).numpy()  # no gap in time before
    recorded = np.empty(true.shape, dtype=np.int8)
    before = was_wrong = np.zeros(true.shape[:2])
    for t in range(true.shape[2]):
        own = error[places[:, t], true[..., t]]
        chance = own
        if bursts and t:
            again = np.where(was_wrong, own / before.clip(1e-6), (own - before) / (1 - before).clip(1e-6)).clip(0, 1)
            linked = (there[:, t] & there[:, t - 1] & at_once[:, t]) & (generator.random(own.shape) < bursts)
            chance = np.where(linked, again, own)
        was_wrong, before = generator.random(own.shape) < chance, own
        other = _choose(others[places[:, t], true[..., t]], generator.random(own.shape))
        recorded[..., t] = np.where(was_wrong, other, true[..., t])
    return recorded


def _choose(sums: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """How many cumulated probabilities but the last each random number reaches."""
    return (chance[..., None] >= sums[..., :-1]).sum(-1)


def _moves(data: ChainData, parameters: ChainParameters) -> tuple[np.ndarray, np.ndarray]:
    """How likely each first label and each move is, given the evidence and all trusted labels."""
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
    ahead = np.ones((rows, data.n_classes))  # how likely later trusted labels are, up to a factor
    for t in range(steps - 1, 0, -1):
        prior[:, t - 1] *= (allowed[:, t] * ahead)[:, None]
        ahead = prior[:, t - 1].sum(-1)
        ahead /= ahead.max(-1, keepdims=True).clip(1e-300)
    return _normalise(first * allowed[:, 0] * ahead), _normalise(prior)


def _normalise(values: np.ndarray) -> np.ndarray:
    return (values + 1e-300) / (values + 1e-300).sum(-1, keepdims=True)
