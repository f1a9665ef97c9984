"""Studies whose truth is known, as a chain sees them: recorded labels and the word of networks that are calibrated.

They stand in for whole fits where thousands are needed: to measure how often bands cover and tests are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import ChainData, Members, TrainingEvidence
from labeltide.chain.select import choose_noise
from labeltide.chain.start import join_evidence, label_chain
from labeltide.noise.corrupt import corrupt

FOLDS = 5


class Study(NamedTuple):
    """What is drawn: n sequences of labels that persist, features that separate classes, and noise."""

    matrices: np.ndarray  # ([annotators,] steps, classes, classes)
    n: int = 150
    stay: float | None = 0.95  # None: every label is drawn anew
    sharpness: float = 1.0  # distance of two classes in features of unit variance
    bursts: float = 0.0


class Simulated(NamedTuple):
    """Several studies of one kind."""

    data: ChainData
    clean: np.ndarray  # (studies, n, steps)


def simulate(
    study: Study,
    studies: int,
    seed: int,
    shares: np.ndarray | None = None,
    sharpness_at: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Simulated:
    """Draw true labels, recorded ones and calibrated log-probabilities.

    Parameters
    ----------
    shares : array of shape (steps, classes), optional
        The shares of the classes over the clock, alike when left out; a label that does not stay is drawn from them.
    sharpness_at : function, optional
        A factor on the sharpness of features at each moment of the clock, which networks do not know of.
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
    each = study.matrices.reshape(-1, n_steps, n_classes, n_classes)
    recorded = np.stack([corrupt(flat, own, generator, bursts=study.bursts).reshape(clean.shape) for own in each], -1)
    mask = torch.ones(study.n, n_steps, dtype=torch.bool)
    return Simulated(ChainData(torch.from_numpy(recorded), mask, None, n_steps, n_classes, evidence), clean)


class Differences(NamedTuple):
    """How error rates differ, on the logit scale."""

    windows: float = 0.0  # standard deviations, between the windows of one person
    people: float = 0.0  # and between people
    drift: float = 0.0  # from the first moment of the clock to the last


def record_windows(
    studies: Simulated, people: int, rate: float, differences: Differences, seed: int
) -> tuple[ChainData, torch.Tensor]:
    """Record labels of two classes anew in windows of people, whose first windows lie at the beginning of the clock.

    Returns
    -------
    the labels, and whose each window is
    """
    generator = np.random.default_rng(seed)
    count, rows, steps = studies.clean.shape
    each = rows // people
    place = np.arange(rows)[:, None] % each * steps + np.arange(steps)  # (rows, steps)
    logit = np.log(rate / (1 - rate)) + differences.drift * (place / (each * steps) - 0.5)
    logit = logit + differences.windows * generator.standard_normal((count, rows, 1))
    logit += differences.people * generator.standard_normal((count, people, 1)).repeat(each, 1)
    wrong = generator.random(studies.clean.shape) < 1 / (1 + np.exp(-logit))
    labels = torch.from_numpy(np.where(wrong, 1 - studies.clean, studies.clean).astype(np.int8))
    points = torch.from_numpy(place)
    data = replace(studies.data, labels=labels[..., None], points=points, n_points=each * steps)
    return data, torch.arange(rows) // each


def fit_studies(data: ChainData, seed: int = 0, choose: bool = True) -> list[tuple[TrainingEvidence, dict[str, float]]]:
    """Learn the chain and Q(t) of every study as tide does, all at once: what a fit keeps, and its families.

    Without choosing, which takes the most time, Q is that of one spline; tests start from it as well.
    """
    studies, n = data.labels.shape[:2]
    generator = np.random.default_rng([seed, 8])
    grid = np.linspace(0, 1, data.n_points)
    each = torch.arange(studies)
    jobs = Members(each, each, torch.ones(studies, n))
    folds = torch.from_numpy(np.stack([generator.permutation(n) % FOLDS for _ in range(studies)]))
    chain = join_evidence(data, jobs, label_chain(data, jobs, grid, groups=data.labels.shape[-1]), grid).parameters
    if not choose:
        return [
            (TrainingEvidence(data.job(i), chain.take(each[i : i + 1]), folds[i : i + 1], grid), {})
            for i in range(studies)
        ]
    chosen = choose_noise(data, jobs, chain, folds, grid)
    return [
        (
            TrainingEvidence(data.job(i), chosen.parameters.take(each[i : i + 1]), folds[i : i + 1], grid),
            dict(zip(chosen.names[i], chosen.weights[i].tolist(), strict=True)),
        )
        for i in range(studies)
    ]


def _labels(study: Study, studies: int, generator: np.random.Generator, shares: np.ndarray) -> np.ndarray:
    """True labels (studies, n, steps)."""
    n_steps, n_classes = shares.shape
    chance = generator.random((studies, study.n, n_steps))
    fresh = (chance[..., None] >= shares.cumsum(-1)[:, :-1]).sum(-1)
    if study.stay is None:
        return fresh
    # Drawn anew, a label may be the same again: of those that are kept, so many fewer.
    keep = (study.stay - 1 / n_classes) / (1 - 1 / n_classes)
    kept = generator.random(fresh.shape) < keep
    kept[..., 0] = False
    last = np.maximum.accumulate(np.where(kept, 0, np.arange(n_steps)), axis=-1)
    return np.take_along_axis(fresh, last, axis=-1)
