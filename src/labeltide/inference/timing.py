"""How early or late recorded transitions are, with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.pooled import families_of
from labeltide.chain.timing import fit_timing
from labeltide.chain.timing_expect import expect_timing
from labeltide.chain.timing_select import TimingTraining
from labeltide.chain.timing_states import class_pairs
from labeltide.inference.cluster_bootstrap import draw_rows
from labeltide.inference.warm_start import same_data

REPLICATES, REPLICATE_ITERATIONS = 30, 6  # of the bootstrap, and of EM in each from the fitted chain
MOST_STEPS = 10_000  # of the rows that are drawn from; with more, the interval is scaled to all
NORMAL = 1.96  # quantile of a 95 % interval


@dataclass(frozen=True)
class TransitionTiming:
    """The offset of recorded transitions between two classes: positive is late, negative is early.

    Attributes
    ----------
    source, target : the classes before and after the transition
    annotator : the place of the annotator, None where there is one
    mean, lower, upper : the mean offset in steps, and its 95 % interval
    spread : the standard deviation of offsets in steps
    transitions : the expected number of transitions
    """

    source: Any
    target: Any
    annotator: int | None
    mean: float
    lower: float
    upper: float
    spread: float
    transitions: float


def estimate_timing(training: TimingTraining, clusters: Tensor | None, seed: int) -> tuple[TransitionTiming, ...]:
    """The mean offset of every pair of classes and annotator, with classes as codes.

    Bootstrap samples of people, or of rows where none are known, are refitted by EM from the fitted chain, all as one
    fleet. The interval is normal, with the standard deviation of the replicates.
    """
    fitted = training.parameters.offsets[0].double()  # (annotators, pairs, 2 * reach + 1)
    mean, spread = _moments(fitted)
    error = _standard_errors(training, clusters, seed)
    members = same_data(1, torch.ones(1, len(training.data.mask)))
    counts = expect_timing(training.data, members, training.parameters).offsets[0].sum(-1)  # (annotators, pairs)
    entries = []
    for annotator in range(len(fitted)):
        for place, (source, target) in enumerate(class_pairs(training.data.n_classes)):
            middle, half = float(mean[annotator, place]), NORMAL * float(error[annotator, place])
            numbers = (middle, middle - half, middle + half, float(spread[annotator, place]))
            who = annotator if len(fitted) > 1 else None
            entries.append(TransitionTiming(source, target, who, *numbers, float(counts[annotator, place])))
    return tuple(entries)


def _standard_errors(training: TimingTraining, clusters: Tensor | None, seed: int) -> Tensor:
    """Standard deviation of the mean offsets of bootstrap replicates: (annotators, pairs)."""
    rows = len(training.data.mask)
    count = min(rows, max(2, MOST_STEPS // training.data.mask.shape[1]))
    chosen = torch.from_numpy(np.sort(np.random.default_rng([seed, 11]).permutation(rows)[:count]))
    drawn = draw_rows(count, None if clusters is None else clusters[chosen], REPLICATES, seed)
    data, members = training.data.take_rows(chosen), same_data(REPLICATES, torch.from_numpy(drawn).float())
    start = training.parameters.take(torch.zeros(REPLICATES, dtype=torch.int64))
    kinds = families_of([training.family] * REPLICATES)
    replicates = fit_timing(data, members, kinds, start, iterations=REPLICATE_ITERATIONS)
    return _moments(replicates.offsets.double())[0].std(0) * (count / rows) ** 0.5


def _moments(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of (..., 2 * reach + 1) probabilities."""
    reach = offsets.shape[-1] // 2
    places = torch.arange(-reach, reach + 1, dtype=offsets.dtype)
    mean = (offsets * places).sum(-1)
    return mean, ((offsets * places.square()).sum(-1) - mean.square()).clamp_min(0.0).sqrt()
