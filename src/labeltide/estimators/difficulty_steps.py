"""The step of `tide` that looks for noise that depends on the difficulty of a step, after Q(t) was chosen."""

from __future__ import annotations

import numpy as np
import torch

from labeltide._clock import Period, one_period
from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.difficulty import find_difficulty, is_suspected
from labeltide.chain.passes import expect
from labeltide.estimators.difficulty_fit import DifficultyFit
from labeltide.estimators.tide_posterior import Posterior, conclude, take_over


def with_difficulty(
    data: ChainData,
    fits: Members,
    label_chain: ChainParameters,
    concluded: Posterior,
    grid: np.ndarray,
    period: Period,
) -> Posterior:
    """Let Q depend on the difficulty of a step in those fits where this predicts held-out labels better.

    One fit after the other, on the CPU: the level of a step differs between fits.
    """
    if grid.ndim == 2 or concluded.chosen.parameters.matrices.shape[1] > 1:
        return concluded  # several clocks, or a Q for each annotator
    labels, held_out = concluded.labels, concluded.chosen.held_out.clone()
    for fit in is_suspected(data, fits, label_chain).nonzero().flatten().tolist():
        folds, of_fit = concluded.folds[fit : fit + 1].cpu(), data.of_fit(fit)
        first = torch.zeros(1, dtype=torch.int64)
        member = Members(first, first, fits.weights[fit : fit + 1].cpu())
        found = find_difficulty(of_fit, member, folds, concluded.chosen.of_fit(fit), grid, period)
        if found is None:
            continue
        again = conclude(found.data, member, folds, found.chain, found.grid, period, ())
        labels = labels.index_copy(0, torch.tensor([fit], device=labels.device), again.labels.to(labels))
        # What a model of timing errors must surpass; the order of the families stays.
        held_out[fit] += again.chosen.held_out.max().to(held_out) - held_out[fit].max()
        take_over(concluded, again, fit)
        training = again.learned[0]["training_"]
        concluded.learned[fit]["difficulty_fit_"] = _describe_difficulty(training, member, found.thresholds)
    return concluded._replace(labels=labels, chosen=concluded.chosen._replace(held_out=held_out))


def _describe_difficulty(training: TrainingEvidence, member: Members, thresholds: np.ndarray) -> DifficultyFit:
    """Q by moment and level, and how often labels of each level are wrong."""
    counts = expect(training.data, member, training.parameters).counts[0].sum(0).double().numpy()
    counts = counts.reshape(-1, training.data.n_levels, *counts.shape[1:]).sum(0)  # (levels, true, recorded)
    labels = counts.sum((1, 2))
    rates = 1 - np.trace(counts, axis1=1, axis2=2) / labels.clip(1e-12)
    matrices = training.parameters.matrices[0, 0].double().numpy()
    return DifficultyFit(thresholds, training.moments, one_period(training.period), matrices, rates, labels.round())
