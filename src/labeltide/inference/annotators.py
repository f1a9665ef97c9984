"""Inter-annotator agreement: Cohen's kappa (1960) of every pair and Fleiss' kappa (1971) of all, also over the clock.

Agreement is not accuracy: annotators who make the same errors agree, and a rare class lowers kappa (Feinstein and
Cicchetti 1990).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._clock import check_gaps, check_period, wrap_clock
from labeltide._display import ShortRepr
from labeltide.chain.annotators import Candidate, fit_annotators
from labeltide.chain.data import ChainData
from labeltide.inference.audit import differs_probability
from labeltide.inference.display import ConsensusDisplay
from labeltide.training import clock_grid


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
    index = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, bins - 1)
    parts = [labels[index == bin_number] for bin_number in range(bins)]
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
    _validation.check_not_one_hot(values)
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


# Consensus of annotators: Dawid and Skene (1979) as a hidden Markov model, with a pooled Q(t) for each annotator.
#
# Dawid and Skene estimate true labels and each annotator's confusion matrix by EM. Here true labels follow a Markov
# chain (Rabiner 1989), confusion matrices depend on the clock, and annotators are partially pooled.
#
# Annotators err together on hard steps (item difficulty, Whitehill and others 2009; Raykar and others 2010). The
# posterior is therefore pooled with the shares of votes, with weights chosen by predicting each annotator from the
# others. A majority vote is one of the models compared.
#
# Agreement is not accuracy: errors that annotators share look right, and only trusted labels or evidence from elsewhere
# can show them.

# docs/decisions/009-several-annotators.md
CONSENSUS_FOLDS = 4  # by hand: of the cross-validation that chooses among candidates
CONSENSUS_POINTS = 64  # by hand: of the clock, at which Q is estimated


@dataclass(frozen=True, repr=False)
class Consensus(ConsensusDisplay):
    """The consensus of all annotators, what another would say, and the noise of each annotator.

    Attributes
    ----------
    labels : array of shape (n, steps)
        The consensus at every step, in the values of `y`; -1 or None on padding. It is the likeliest label of another
        annotator, by `another` or by votes alone, whichever predicts left-out annotators more often. Where no step has
        labels of two annotators, and where a label is trusted, it is the likeliest true label.
    probabilities : array of shape (n, steps, classes)
        Belief in each true label: posterior of the chain, pooled with the shares of votes; zero on padding.
    another : array of shape (n, steps, classes)
        Probability of each label that another annotator, who has not labelled the step, would record; zero on padding.
    contested : array of shape (n, steps, annotators)
        Probability that another annotator would record another label than this one; NaN where nothing was recorded.
    weights : tuple of float
        Exponents of the chain and of the votes in the logarithmic opinion pool behind `another`; (1, 0) is the chain
        alone. Equal where no step has labels of two annotators; `probabilities` are then the chain's posterior.
    clock : array of shape (points,)
        The moments of the following.
    noise : array of shape (annotators, points, classes, classes)
        Each annotator's Q: ``noise[a, t, i, j]`` is P(recorded j | true i).
    common : array of shape (points, classes, classes)
        The centre of the partial pooling: Q of an annotator without labels.
    quality : array of shape (annotators, points)
        Probability that a label is right, averaged over the class shares of all the data.
    classes : tuple
    agreement : Agreement
        Kappas of the annotators.
    chosen : Candidate
        Smoothness over the clock, strength of pooling, and whether there are bursts of errors.
    tried : dict of Candidate to log-likelihood of sequences left out

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> truth = lt.make_sequences(n=20, n_steps=10, n_features=1, stay=0.9).clean_labels
    >>> y = np.stack([lt.corrupt(truth, [[0.8, 0.2], [0.2, 0.8]], seed) for seed in range(3)], axis=-1)
    >>> result = lt.consensus(y)
    >>> result.noise.shape, result.contested.shape  # Q(t) of each annotator; each label
    ((3, 10, 2, 2), (20, 10, 3))
    """

    labels: np.ndarray
    probabilities: np.ndarray
    another: np.ndarray
    contested: np.ndarray
    weights: tuple[float, ...]
    clock: np.ndarray
    noise: np.ndarray
    common: np.ndarray
    quality: np.ndarray
    classes: tuple[Hashable, ...]
    agreement: Agreement
    chosen: Candidate
    tried: dict[Candidate, float]


def consensus(
    y: ArrayLike,
    *,
    clock: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    trusted: ArrayLike | None = None,
    classes: Sequence[Hashable] | None = None,
    ids: Sequence[Hashable] | None = None,
    evidence: ArrayLike | None = None,
    candidates: Sequence[Candidate] | None = None,
    period: float | None = None,
    gaps: ArrayLike | None = None,
) -> Consensus:
    """Estimate true labels and each annotator's Q(t) from labels alone, as Dawid and Skene (1979) with a Markov chain.

    The smoothness of Q(t), the strength of pooling, bursts and the weight of a plain vote are chosen by
    leave-one-annotator-out prediction of held-out sequences. The result does not depend on a random state.

    Parameters
    ----------
    y : array of shape (n, steps, annotators), any label type
        -1 among whole numbers, None or NaN otherwise, where nothing was recorded.
    clock : array of shape (n, steps) or (steps,), optional
        When left out, 0 at the first step and 1 at the last of the longest sequence.
    lengths : whole numbers of shape (n,), optional
    trusted : array of shape (n, steps), optional
        True labels where they are known, missing elsewhere.
    classes : names of all classes, optional
    ids : n names, optional
        The recording a sequence was cut from; sequences of one recording are in the same fold.
    evidence : array of shape (n, steps, classes), optional
        Probabilities of the true label from elsewhere, such as a model that did not learn from these labels.
    candidates : what to compare, optional
    period : float, optional
        The length after which the clock begins anew, such as 24 for hours of the day.
    gaps : array of shape (n, steps) or (steps,), optional
        How many steps of time lie between a step and the one before it; 1 where it follows at once.

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> truth = lt.make_sequences(n=20, n_steps=10, n_features=1, stay=0.9).clean_labels
    >>> y = np.stack([lt.corrupt(truth, [[0.8, 0.2], [0.2, 0.8]], seed) for seed in range(3)], axis=-1)
    >>> result = lt.consensus(y)
    >>> bool((result.labels == truth).mean() > (y[..., 0] == truth).mean())
    True
    """
    codes, counts, names = check_annotators(y, lengths, classes)
    n_steps = codes.shape[1]
    mask = _validation.steps_mask(counts, n_steps)
    check_period(period)
    moments = wrap_clock(_validation.check_clock(clock, counts, n_steps), period)
    grid, points = clock_grid(moments, mask)
    if len(grid) > CONSENSUS_POINTS:
        grid = np.linspace(grid[0], grid[-1], CONSENSUS_POINTS)
        points = np.searchsorted((grid[1:] + grid[:-1]) / 2, moments)
    log_evidence = known = None
    if evidence is not None:
        given = np.array(evidence, dtype=np.float64)
        if given.shape != (*mask.shape, len(names)):
            raise ValueError(
                f"evidence must have shape {(*mask.shape, len(names))}, a probability for every step and class. "
                f"Got shape {given.shape}."
            )
        given[~mask] = 1 / len(names)
        if not np.all((given >= 0) & (given <= 1 + 1e-6)) or not np.allclose(given.sum(-1), 1, atol=1e-3):
            raise ValueError("evidence must hold probabilities that sum to one over classes. Are they logits?")
        log_evidence = torch.from_numpy(np.log(given.clip(1e-6))).float()[None]
    if trusted is not None:
        answers = _validation.as_labels(trusted)
        if answers.shape != mask.shape:
            raise ValueError(
                f"trusted must have shape {mask.shape}, one label or gap per step. Got shape {answers.shape}."
            )
        present = ~_validation.missing_labels(answers) & mask
        known = torch.from_numpy(_validation.encode_labels(answers, present, names, "trusted"))
    data = ChainData(
        labels=torch.from_numpy(codes)[None],
        mask=torch.from_numpy(mask),
        points=None if points is None else torch.from_numpy(points),
        n_points=len(grid),
        n_classes=len(names),
        evidence=log_evidence,
        trusted=known,
    ).with_gaps(check_gaps(gaps, counts, n_steps))
    fitted = fit_annotators(data, grid, _folds(codes, ids), candidates=candidates, period=period)
    on_steps = [values.double().numpy() * mask[..., None] for values in (fitted.belief, fitted.another)]
    probabilities, another = (values / values.sum(-1, keepdims=True).clip(1e-300) for values in on_steps)
    shares = probabilities.sum((0, 1)) / probabilities.sum()
    noise = fitted.parameters.matrices[0].double().numpy()
    return Consensus(
        labels=_name(np.where(mask, fitted.labels.numpy(), -1), names),
        probabilities=probabilities,
        another=another,
        contested=differs_probability(another, codes),
        weights=tuple(fitted.weights.tolist()),
        clock=grid,
        noise=noise,
        common=fitted.common.double().numpy(),
        quality=np.einsum("i,atii->at", shares, noise),
        classes=names,
        agreement=agreement(y, clock=moments, lengths=lengths, classes=names),
        chosen=fitted.chosen,
        tried=fitted.tried,
    )


def _folds(codes: np.ndarray, ids: Sequence[Hashable] | None) -> torch.Tensor | None:
    """The fold of each sequence, in a fixed random order; None with fewer than two labelled recordings."""
    if ids is not None and len(ids) != len(codes):
        raise ValueError(f"ids must be {len(codes)} names, one per sequence. Got {len(ids)}.")
    number: dict[Hashable, int] = {}
    names = range(len(codes)) if ids is None else ids
    recording = np.array([number.setdefault(name, len(number)) for name in names])
    labelled = np.zeros(len(number), dtype=bool)
    np.logical_or.at(labelled, recording, (codes >= 0).any((1, 2)))
    count = min(CONSENSUS_FOLDS, int(labelled.sum()))
    if count < 2:
        return None
    generator = np.random.default_rng(0)
    order = np.concatenate([generator.permutation(np.flatnonzero(kind)) for kind in (labelled, ~labelled)])
    fold = np.empty(len(number), dtype=np.int64)
    fold[order] = np.arange(len(order)) % count
    return torch.from_numpy(fold[recording])


def _name(codes: np.ndarray, names: tuple[Hashable, ...]) -> np.ndarray:
    """Class names in place of codes; -1 becomes -1 among whole numbers and None otherwise."""
    if all(isinstance(name, int) and not isinstance(name, bool) for name in names):
        return np.array([*names, -1], dtype=np.int64)[codes]
    values = np.empty(len(names) + 1, dtype=object)
    for code, name in enumerate(names):
        values[code] = name
    return values[codes]
