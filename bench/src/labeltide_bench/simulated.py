"""Simulated studies with known truth, as inputs of the hidden Markov model: recorded labels and calibrated evidence.

The evidence is drawn directly instead of being learned by networks. A study then takes a fraction of a second, so that
the coverage of confidence bands and the error rates of tests can be measured over thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import norm

from labeltide.chain.em import choose_noise, join_evidence, label_chain
from labeltide.chain.passes import ChainData, Members, TrainingEvidence
from labeltide.noise.simulate import corrupt

FOLDS = 5


class SimulatedStudy(NamedTuple):
    """Settings of a simulation: n sequences of persistent labels, Gaussian features and label noise."""

    matrices: np.ndarray  # ([annotators,] steps, classes, classes)
    n: int = 150
    stay: float | None = 0.95  # None: every label is drawn anew
    sharpness: float = 1.0  # distance of two classes in features of unit variance
    bursts: float = 0.0


class SimulatedData(NamedTuple):
    """Several studies drawn with the same settings."""

    data: ChainData
    clean: np.ndarray  # (studies, n, steps)


def simulate(
    study: SimulatedStudy,
    studies: int,
    seed: int,
    shares: np.ndarray | None = None,
    sharpness_at: Callable[[np.ndarray], np.ndarray] | None = None,
) -> SimulatedData:
    """Draw true labels, recorded labels and calibrated log-probabilities (the evidence).

    Parameters
    ----------
    shares : array of shape (steps, classes), optional
        Class probabilities over the clock, uniform by default; a label that does not persist is drawn from them.
    sharpness_at : function, optional
        Factor on the class separation at each moment of the clock. The evidence ignores it and is miscalibrated.
    """
    generator = np.random.default_rng(seed)
    n_steps, n_classes = study.matrices.shape[-3:-1]
    clock = np.linspace(0, 1, n_steps)
    clean = _labels(
        study, studies, generator, np.full((n_steps, n_classes), 1 / n_classes) if shares is None else shares
    )
    factor = np.ones(n_steps) if sharpness_at is None else sharpness_at(clock)
    features = generator.standard_normal((*clean.shape, n_classes))
    features += study.sharpness * factor[:, None] * np.eye(n_classes)[clean]
    evidence = torch.from_numpy(study.sharpness * features).log_softmax(-1).float()
    flat = clean.reshape(-1, n_steps).astype(np.int8)
    matrices = study.matrices.reshape(-1, n_steps, n_classes, n_classes)
    recorded = np.stack(
        [
            corrupt(flat, annotator_noise, generator, bursts=study.bursts).reshape(clean.shape)
            for annotator_noise in matrices
        ],
        -1,
    )
    mask = torch.ones(study.n, n_steps, dtype=torch.bool)
    return SimulatedData(ChainData(torch.from_numpy(recorded), mask, None, n_steps, n_classes, evidence), clean)


class Differences(NamedTuple):
    """Random effects on the error rate and its drift, on the logit scale."""

    windows: float = 0.0  # standard deviation between the windows of a person
    people: float = 0.0  # standard deviation between people
    drift: float | tuple[float, ...] = 0.0  # from the first moment of the clock to the last; or of each annotator
    correlation: float = 0.0  # of the effects of neighbouring windows of a person (first-order autoregression)


def record_windows(
    studies: SimulatedData, people: int, rate: float, differences: Differences, seed: int
) -> tuple[ChainData, torch.Tensor]:
    """Draw the recorded labels of two classes again, in consecutive windows of people, with random effects.

    The effects of a window are shared by all annotators, whose errors are otherwise independent.

    Returns
    -------
    the data, and the person of each window
    """
    generator = np.random.default_rng(seed)
    count, rows, steps = studies.clean.shape
    each = rows // people
    index = np.arange(rows)[:, None] % each * steps + np.arange(steps)  # (rows, steps)
    clean, n_annotators = studies.clean[..., None], studies.data.labels.shape[-1]
    logit = np.log(rate / (1 - rate)) + np.multiply.outer(index / (each * steps) - 0.5, differences.drift)
    logit = logit.reshape(1, rows, steps, -1)  # (studies, rows, steps, annotators or 1)
    fresh = generator.standard_normal((count, people, each))
    logit = logit + differences.windows * autoregression(fresh, differences.correlation).reshape(count, rows, 1, 1)
    logit += differences.people * generator.standard_normal((count, people, 1, 1)).repeat(each, 1)
    wrong = generator.random((*studies.clean.shape, n_annotators)) < 1 / (1 + np.exp(-logit))
    labels = torch.from_numpy(np.where(wrong, 1 - clean, clean).astype(np.int8))
    data = replace(studies.data, labels=labels, points=torch.from_numpy(index), n_points=each * steps)
    return data, torch.arange(rows) // each


def autoregression(fresh: np.ndarray, correlation: float) -> np.ndarray:
    """Series along the last axis with variance one, each value correlated with the one before."""
    series = fresh.copy()
    for index in range(1, series.shape[-1]):
        series[..., index] *= np.sqrt(1 - correlation**2)
        series[..., index] += correlation * series[..., index - 1]
    return series


class SharedDifficulty(NamedTuple):
    """Settings of a simulation in which steps near the border of two classes are hard for all annotators.

    True classes are intervals of a scale on which steps wander. Annotators see each step with an error of their own.
    """

    n: int = 120
    steps: int = 40
    annotators: int = 5
    persistence: float = 0.95  # correlation of neighbouring steps on the scale, whose standard deviation is one
    perception: float = 0.4  # standard deviation of an annotator's error, which lasts
    perception_persistence: float = 0.5
    habit: float = 0.3  # standard deviation of an annotator's borders around the common ones
    slips: float = 0.02  # share of labels drawn at random
    blur: float = 0.4  # standard deviation of the error of the features
    borders: tuple[float, ...] = (-0.7, 0.7)


class DifficultData(NamedTuple):
    """One study drawn from `SharedDifficulty`."""

    labels: np.ndarray  # (n, steps, annotators)
    clean: np.ndarray  # (n, steps)
    evidence: np.ndarray  # (annotators, n, steps, classes), log-probability of each one's labels given the features


def simulate_difficulty(study: SharedDifficulty, seed: int) -> DifficultData:
    """Draw labels of annotators who err together, and the evidence that a network learns from each one's labels.

    The evidence is calibrated for the annotator, whose habit it therefore holds.
    """
    generator = np.random.default_rng(seed)
    shape, borders = (study.n, study.steps), np.array(study.borders)
    scale = autoregression(generator.standard_normal(shape), study.persistence)
    features = scale + study.blur * generator.standard_normal(shape)
    labels, evidence = [], []
    for _ in range(study.annotators):
        own = borders + study.habit * generator.standard_normal()
        seen = scale + study.perception * autoregression(generator.standard_normal(shape), study.perception_persistence)
        drawn = generator.integers(0, len(borders) + 1, shape)
        labels.append(np.where(generator.random(shape) < study.slips, drawn, (seen[..., None] > own).sum(-1)))
        evidence.append(_log_shares(study, features, own))
    return DifficultData(np.stack(labels, -1), (scale[..., None] > borders).sum(-1), np.stack(evidence))


def _log_shares(study: SharedDifficulty, features: np.ndarray, borders: np.ndarray) -> np.ndarray:
    """Log-probability of each label given the features of the step: (n, steps, classes)."""
    shrink = 1 / (1 + study.blur**2)  # mean of the scale given a feature; its variance is one less this
    spread = np.sqrt(1 - shrink + study.perception**2)
    below = norm.cdf((borders - shrink * features[..., None]) / spread)
    shares = np.diff(below, axis=-1, prepend=0, append=1)
    return np.log((1 - study.slips) * shares + study.slips / (len(borders) + 1))


def fit_studies(
    data: ChainData, seed: int = 0, choose: bool = True, grid: np.ndarray | None = None
) -> list[tuple[TrainingEvidence, dict[str, float]]]:
    """Fit the hidden Markov model of every study as `tide` does, all studies at once.

    Returns for each study what a fit keeps and the weights of the families of Q. Without `choose` the selection of
    families, which takes most of the time, is left out and Q is one spline. The grid of the clock, or of several, is
    evenly spaced from 0 to 1 unless it is given.
    """
    studies, n = data.labels.shape[:2]
    generator = np.random.default_rng([seed, 8])
    grid = np.linspace(0, 1, data.n_points) if grid is None else grid
    each = torch.arange(studies)
    fits = Members(each, each, torch.ones(studies, n))
    folds = torch.from_numpy(np.stack([generator.permutation(n) % FOLDS for _ in range(studies)]))
    chain = join_evidence(data, fits, label_chain(data, fits, grid, groups=data.labels.shape[-1]), grid)
    if not choose:
        return [
            (TrainingEvidence(data.of_fit(i), chain.take(each[i : i + 1]), folds[i : i + 1], grid), {})
            for i in range(studies)
        ]
    chosen = choose_noise(data, fits, chain, folds, grid)
    return [
        (
            TrainingEvidence(
                data.of_fit(i),
                chosen.parameters.take(each[i : i + 1]),
                folds[i : i + 1],
                grid,
                families=chosen.weighted(i),
            ),
            {tried.name: tried.weight for tried in chosen.weighted(i)},
        )
        for i in range(studies)
    ]


def _labels(study: SimulatedStudy, studies: int, generator: np.random.Generator, shares: np.ndarray) -> np.ndarray:
    """True labels (studies, n, steps)."""
    n_steps, n_classes = shares.shape
    chance = generator.random((studies, study.n, n_steps))
    fresh = (chance[..., None] >= shares.cumsum(-1)[:, :-1]).sum(-1)
    if study.stay is None:
        return fresh
    # A label that is drawn again may repeat itself, so fewer are kept than `stay` says.
    keep = (study.stay - 1 / n_classes) / (1 - 1 / n_classes)
    kept = generator.random(fresh.shape) < keep
    kept[..., 0] = False
    last = np.maximum.accumulate(np.where(kept, 0, np.arange(n_steps)), axis=-1)
    return np.take_along_axis(fresh, last, axis=-1)
