"""Inter-annotator agreement: Cohen's kappa (1960) of every pair and Fleiss' kappa (1971) of all, also over the clock.

Agreement is not accuracy: annotators who make the same errors agree, and a rare class lowers kappa (Feinstein and
Cicchetti 1990).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._display import ShortRepr


@dataclass(frozen=True, repr=False)
class Agreement(ShortRepr):
    """Kappas of all labels and within bins of the clock; NaN where chance agreement is one.

    Attributes
    ----------
    cohen : array of shape (annotators, annotators)
        Cohen's kappa of every pair, from the steps that both labelled; one on the diagonal.
    fleiss : float
        Fleiss' kappa, from the steps that at least two labelled.
    observed : float
        The share of pairs of labels of one step that are the same.
    edges : array of shape (bins + 1,)
        The moments between which the rest is measured.
    cohen_over_clock : array of shape (bins, annotators, annotators)
    fleiss_over_clock : array of shape (bins,)
    observed_over_clock : array of shape (bins,)
    steps_over_clock : array of shape (bins,)
        How many steps at least two annotators labelled.

    Examples
    --------
    >>> import labeltide as lt
    >>> kappas = lt.agreement([[[0, 0], [1, 1], [1, 0], [1, 1]]], bins=2)  # one sequence of two annotators
    >>> kappas.observed, kappas.observed_over_clock.tolist()
    (0.75, [1.0, 0.5])
    """

    cohen: np.ndarray
    fleiss: float
    observed: float
    edges: np.ndarray
    cohen_over_clock: np.ndarray
    fleiss_over_clock: np.ndarray
    observed_over_clock: np.ndarray
    steps_over_clock: np.ndarray


def agreement(
    y: ArrayLike,
    *,
    clock: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    classes: Iterable[Hashable] | None = None,
    bins: int = 10,
) -> Agreement:
    """Measure the agreement of annotators, over all steps and over the clock.

    Parameters
    ----------
    y : array of shape (n, steps, annotators), any label type
        -1 among whole numbers, None or NaN otherwise, where nothing was recorded.
    clock : array of shape (n, steps) or (steps,), optional
        When left out, 0 at the first step and 1 at the last of the longest sequence.
    lengths : whole numbers of shape (n,), optional
    classes : names of all classes, optional
    bins : int
        Equal widths of the clock.

    Examples
    --------
    >>> import labeltide as lt
    >>> y = [[["rest", "rest"], ["walk", "walk"], ["walk", "rest"], ["walk", "walk"]]]
    >>> round(lt.agreement(y).fleiss, 2)
    0.47
    """
    _validation.check_number("bins", bins, 1, whole=True)
    codes, counts, names = check_annotators(y, lengths, classes)
    n_steps = codes.shape[1]
    moments = _validation.check_clock(clock, counts, n_steps)
    real = _validation.steps_mask(counts, n_steps)
    labels, moments = codes[real], moments[real]  # (steps in all, annotators)
    edges = np.linspace(moments.min(), moments.max(), bins + 1)
    place = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, bins - 1)
    parts = [labels[place == bin_number] for bin_number in range(bins)]
    return Agreement(
        cohen=cohen_kappas(labels, len(names)),
        fleiss=fleiss_kappa(count_votes(labels, len(names))),
        observed=observed_agreement(count_votes(labels, len(names))),
        edges=edges,
        cohen_over_clock=np.stack([cohen_kappas(part, len(names)) for part in parts]),
        fleiss_over_clock=np.array([fleiss_kappa(count_votes(part, len(names))) for part in parts]),
        observed_over_clock=np.array([observed_agreement(count_votes(part, len(names))) for part in parts]),
        steps_over_clock=np.array([((part >= 0).sum(1) > 1).sum() for part in parts]),
    )


def check_annotators(
    y: ArrayLike, lengths: ArrayLike | None, classes: Iterable[Hashable] | None
) -> tuple[np.ndarray, np.ndarray, tuple[Hashable, ...]]:
    """Check the labels of two annotators or more: codes of shape (n, steps, annotators), lengths and class names."""
    values = _validation.as_labels(y)
    if values.ndim != 3 or values.shape[2] < 2 or values.size == 0:
        raise ValueError(
            "y must have shape (n, steps, annotators), with two annotators or more. "
            f"Got shape {values.shape}. One sequence alone is y[None]."
        )
    counts = _validation.check_lengths(lengths, *values.shape[:2])
    present = ~_validation.missing_labels(values) & _validation.steps_mask(counts, values.shape[1])[..., None]
    known = _validation.find_classes(values, present) if classes is None else None
    names = known or _validation.check_classes(classes or (), "classes")
    return _validation.encode_labels(values, present, names), counts, names


def cohen_kappas(labels: np.ndarray, n_classes: int) -> np.ndarray:
    r"""Cohen's kappa (1960), :math:`\kappa = (p_o - p_e) / (1 - p_e)`, of every pair of columns; -1 is no label.

    Chance agreement :math:`p_e = \sum_j p_{1j} p_{2j}` is that of independent annotators with the same marginal shares.
    """
    n_annotators = labels.shape[1]
    kappas = np.ones((n_annotators, n_annotators))
    for first in range(n_annotators):
        for second in range(first):
            a, b = labels[:, first], labels[:, second]
            both = (a >= 0) & (b >= 0)
            pairs = np.bincount(a[both].astype(int) * n_classes + b[both], minlength=n_classes**2)
            table = pairs.reshape(n_classes, n_classes) / max(both.sum(), 1)
            by_chance = table.sum(0) @ table.sum(1)
            kappas[first, second] = kappas[second, first] = _beyond_chance(np.trace(table), by_chance, bool(both.any()))
    return kappas


def count_votes(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """How many annotators gave each label: (steps, annotators) → (steps, classes)."""
    return (labels[..., None] == np.arange(n_classes)).sum(1)


def observed_agreement(votes: np.ndarray) -> float:
    """Mean over steps of the share of pairs of labels that are equal, from (steps, classes) votes."""
    raters = votes.sum(1)
    rated = votes[raters > 1]
    raters = raters[raters > 1]
    if not len(rated):
        return float("nan")
    return float(((rated * (rated - 1)).sum(1) / (raters * (raters - 1))).mean())


def fleiss_kappa(votes: np.ndarray) -> float:
    r"""Fleiss' kappa (1971), :math:`(\bar P - \bar P_e) / (1 - \bar P_e)`, from (steps, classes) votes.

    Steps with fewer than two votes are left out, and all others have equal weight. :math:`\bar P` is the observed
    agreement, :math:`\bar P_e = \sum_j \bar p_j^2` with the mean :math:`\bar p_j` over steps of the share of class j.
    """
    rated = votes[votes.sum(1) > 1]
    shares = (rated / rated.sum(1, keepdims=True)).mean(0) if len(rated) else np.zeros(votes.shape[1])
    return _beyond_chance(observed_agreement(votes), float(shares @ shares), len(rated) > 0)


def _beyond_chance(observed: float, by_chance: float, any_seen: bool) -> float:
    if not any_seen or by_chance > 1 - 1e-12:
        return float("nan")
    return float((observed - by_chance) / (1 - by_chance))
