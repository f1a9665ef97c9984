"""Several annotators: their agreement (kappas, bouts), their consensus with the Q(t) of each, and alarms of drift.

Agreement is not accuracy: annotators who make the same errors agree, and a rare class lowers kappa (Feinstein and
Cicchetti 1990). Only trusted labels or evidence from elsewhere can show errors that all share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, logit
from scipy.stats import t as student

from labeltide import _validation
from labeltide._clock import check_gaps, check_period, wrap_clock
from labeltide._display import ShortRepr
from labeltide.chain.annotators import Candidate, Crowd, fit_annotators, list_labels
from labeltide.inference.audit import differs_probability
from labeltide.inference.display import ConsensusDisplay, default_names
from labeltide.recordings.spans.formats import read_spans
from labeltide.recordings.spans.table import by_recording, lines_of


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

    def measure(part: np.ndarray) -> tuple[np.ndarray, float, float]:
        votes = count_votes(part, len(names))
        return cohen_kappas(part, len(names)), fleiss_kappa(votes), observed_agreement(votes)

    parts = [labels[index == bin_number] for bin_number in range(bins)]
    cohen, fleiss, observed = (np.array(values) for values in zip(*map(measure, parts), strict=True))
    steps = np.array([((part >= 0).sum(1) > 1).sum() for part in parts])
    return Agreement(*measure(labels), edges, cohen, fleiss, observed, steps)


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
    given = None if classes is None else _validation.check_classes(classes, "classes")
    names = given or _validation.find_classes(values, present)
    return _validation.encode_labels(values, present, names), counts, names


MANY = 50  # by hand: annotators from which on most label few steps
AT_ONCE = 2**20  # steps; their counts are exact in single precision


def cohen_kappas(labels: np.ndarray, n_classes: int) -> np.ndarray:
    r"""Cohen's kappa (1960), :math:`\kappa = (p_o - p_e) / (1 - p_e)`, of every pair of columns; -1 is no label.

    Chance agreement :math:`p_e = \sum_j p_{1j} p_{2j}` is that of independent annotators with the same marginal shares.
    """
    n_annotators = labels.shape[1]
    matrix = np.array if n_annotators < MANY else sparse.csr_array
    both, same = np.zeros((2, n_annotators, n_annotators))  # steps that a pair labelled, and labelled alike
    first = np.zeros((n_classes, n_annotators, n_annotators))  # labels of one where the other labelled, too
    for begin in range(0, len(labels), AT_ONCE):
        part = labels[begin : begin + AT_ONCE]
        there = matrix(part >= 0, dtype=np.float32)
        both += there.T @ there
        for code in range(n_classes):
            of_class = matrix(part == code, dtype=np.float32)
            same += of_class.T @ of_class
            first[code] += of_class.T @ there
    by_chance = np.einsum("kij,kji->ij", first, first)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed, by_chance = same / both, by_chance / np.square(both)
        kappas = np.where(by_chance <= 1 - 1e-12, (observed - by_chance) / (1 - by_chance), np.nan)
    np.fill_diagonal(kappas, 1.0)
    return kappas


def count_votes(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """How many annotators gave each label: (steps, annotators) → (steps, classes)."""
    return (labels[..., None] == np.arange(n_classes)).sum(1)


def observed_agreement(votes: np.ndarray) -> float:
    """Mean over steps of the share of pairs of labels that are equal, from (steps, classes) votes."""
    rated = votes[votes.sum(1) > 1]
    raters = rated.sum(1)
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
    return _beyond_chance(observed_agreement(votes), float(shares @ shares))


def _beyond_chance(observed: float, by_chance: float) -> float:
    return float((observed - by_chance) / (1 - by_chance)) if by_chance <= 1 - 1e-12 else float("nan")


BLOCKS = 10  # by hand: of a recording, the units of intervals where there are few recordings
MIN_RECORDINGS = 5  # by hand: from which on recordings are the units


def event_agreement(first: Any, second: Any, *, overlap: float = 0.5) -> pa.Table:
    """Compare two annotators by bouts (F1) and by time (Cohen's kappa), with no grid of steps.

    Two bouts of a label match if their intersection over union reaches `overlap`; each matches one bout at most, by the
    assignment problem (Kuhn 1955). Kappa is that of the labels at every moment between the first onset and the last
    end of a recording, in which no bout is one more label; windows play no part. The 95 % intervals are from the
    delete-one jackknife over recordings, or over ten stretches of each where there are fewer than five; in simulations
    they held the truth in 95 % of 20 recordings, and that of kappa in 84 % of single ones with 40 bouts.

    Parameters
    ----------
    first, second : paths of files of spans, or tables with columns onset, duration, label and recording
        Recordings are matched by name, unless there is one on each side; those of one side alone do not count, nor do
        events without duration.
    overlap : float, default 0.5

    Returns
    -------
    pyarrow.Table
        A line for all labels (label is None) and one for each: first and second, the numbers of bouts; matched; f1 and
        kappa with lower and upper bounds. With a label of its own, kappa is that of this label against all others.

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.event_agreement("night.csv", "night.csv")["kappa"].to_pylist()
    [1.0, 1.0, 1.0]
    """
    _validation.check_number("overlap", overlap, 0, 1, above=True)
    sides = [by_recording(read_spans(one).spans if isinstance(one, str | Path) else one) for one in (first, second)]
    if [len(side) for side in sides] == [1, 1]:
        sides = [dict(zip([None], side.values(), strict=True)) for side in sides]
    shared = [name for name in sides[0] if name in sides[1]]
    if not shared:
        raise ValueError("first and second must have recordings of the same name. They share none.")
    pairs = [[[line for line in lines_of(side[name]) if line[1] > 0] for side in sides] for name in shared]
    names = sorted({label for pair in pairs for lines in pair for _, _, label in lines})
    blocks = 1 if len(pairs) >= MIN_RECORDINGS else BLOCKS
    parts = [_count_bouts(pair, names, blocks, overlap) for pair in pairs if all(pair)]
    if not parts:
        raise ValueError(
            "first and second must have spans in the same recordings. Every shared one lacks those of one."
        )
    bouts, times = (np.concatenate(values) for values in zip(*parts, strict=True))

    def measure(bouts: np.ndarray, times: np.ndarray) -> np.ndarray:
        """F1 and kappa of all labels and of each, from sums over units: (2, labels + 1)."""
        of, matched = bouts[:2].sum(0), bouts[2]
        f1 = 2 * np.append(matched.sum(), matched) / np.append(of.sum(), of).clip(1)
        share = times / times.sum()
        rows, columns, same = share.sum(1), share.sum(0), share.diagonal()
        kappas = [_beyond_chance(same.sum(), float(rows @ columns))]
        for one, other, both in zip(rows[:-1], columns[:-1], same[:-1], strict=True):
            chance = one * other + (1 - one) * (1 - other)
            kappas.append(_beyond_chance(1 - one - other + 2 * both, float(chance)))
        return np.stack([f1, kappas])

    total = bouts.sum(0), times.sum(0)
    f1, kappa = measure(*total)
    without = np.stack([measure(total[0] - some, total[1] - time) for some, time in zip(bouts, times, strict=True)])
    units = len(without)
    error = np.sqrt((units - 1) / units * np.square(without - without.mean(0)).sum(0))
    half = student.ppf((1 + CONFIDENCE) / 2, units - 1) * error
    counts = np.concatenate([total[0].sum(1, keepdims=True), total[0]], axis=1).astype(int)
    columns = {"label": [None, *names]} | dict(zip(("first", "second", "matched"), counts, strict=True))
    for name, value, width, least in (("f1", f1, half[0], 0), ("kappa", kappa, half[1], -1)):
        columns |= {
            name: value,
            f"{name}_lower": (value - width).clip(least),
            f"{name}_upper": (value + width).clip(max=1),
        }
    return pa.table(columns)


def _count_bouts(
    lines: list[list[tuple[float, float, str]]], names: list[str], blocks: int, overlap: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bouts of both annotators and matched ones, (blocks, 3, labels), and the time of each pair of labels."""
    onsets, durations = ([np.array([line[k] for line in side]) for side in lines] for k in (0, 1))
    labels = [np.searchsorted(names, [label for _, _, label in side]) for side in lines]
    sides = [(onset, onset + duration) for onset, duration in zip(onsets, durations, strict=True)]
    edges = np.linspace(min(onset.min() for onset, _ in sides), max(end.max() for _, end in sides), blocks + 1)
    cuts = np.unique(np.concatenate([edges, *sides[0], *sides[1]]))
    bouts, times = np.zeros((blocks, 3, len(names))), np.zeros((blocks, len(names) + 1, len(names) + 1))
    codes = np.full((2, len(cuts) - 1), len(names))
    blocks_of = [np.clip(np.searchsorted(edges, onset, "right") - 1, 0, blocks - 1) for onset, _ in sides]
    for number, ((onset, end), label) in enumerate(zip(sides, labels, strict=True)):
        np.add.at(bouts[:, number], (blocks_of[number], label), 1)
        for begin, stop, code in zip(np.searchsorted(cuts, onset), np.searchsorted(cuts, end), label, strict=True):
            codes[number, begin:stop] = code
    block = np.clip(np.searchsorted(edges, cuts[:-1], "right") - 1, 0, blocks - 1)
    np.add.at(times, (block, *codes), np.diff(cuts))
    for code in range(len(names)):
        mine, theirs = (np.flatnonzero(label == code) for label in labels)
        (onset, end), (other_onset, other_end) = (
            (onset[at], end[at]) for (onset, end), at in zip(sides, (mine, theirs), strict=True)
        )
        both = np.minimum.outer(end, other_end) - np.maximum.outer(onset, other_onset)
        union = np.add.outer(end - onset, other_end - other_onset) - both
        quality = np.where(both >= overlap * union, both / union, 0.0)
        rows, columns = linear_sum_assignment(-quality)
        np.add.at(bouts[:, 2, code], blocks_of[0][mine[rows[quality[rows, columns] > 0]]], 1)
    return bouts, times


# Consensus of annotators: `chain/annotators.py` fits the model, this part checks the input and describes the result.

CONSENSUS_POINTS = 32  # by hand: of the clock, at which Q is estimated
CONFIDENCE = 0.95
MIN_EXPECTED = 1.0  # by hand: expected labels of a true class below which no rate is given
MIN_UNITS = 5  # by hand: recordings below which neither a drift nor a difference of annotators is tested
PARTS, MIN_IN_PART = 8, 20  # by hand: of the clock, and labels in one, for rates of their own
EM_STEPS, SCORING_STEPS, MAX_STEP, TOLERANCE = 30, 20, 0.5, 1e-10  # by hand
MIN_ERROR = 0.01  # by hand: at zero, no change of an error rate can be seen
JUMP = 0.01  # of the simple jumper, as published


@dataclass(frozen=True, repr=False)
class Consensus(ConsensusDisplay):
    """The likeliest true labels, what another annotator would record, and how each annotator departs from the truth.

    Three questions have three answers. What is true: `labels` and `probabilities`. What would one more person record:
    `another` and `contested`. Who differs how: `rates`, with intervals (`annotator_frame`). `noise` is the model's own
    Q(t), pooled towards the other annotators; use it for pictures and simulations.

    Attributes
    ----------
    labels : array of shape (n, steps)
        The likeliest true label at every step, in the values of `y`; -1 or None on padding.
    probabilities : array of shape (n, steps, classes)
        Probability of each true label: the posterior of the hidden Markov model in a linear pool with the shares of
        votes, because annotators err together on hard steps; zero on padding.
    another : array of shape (n, steps, classes)
        Probability of each label that another annotator, who has not labelled the step, would record; zero on padding.
    contested : array of shape (n, steps, annotators)
        Probability that another annotator would record another label than this one; NaN where nothing was recorded.
    rates, lower, upper : arrays of shape (annotators, classes, classes)
        How often an annotator recorded class j at steps whose true class is i, judged by the *other* annotators' labels
        alone, with 95 % intervals in which recordings are the unit. NaN where no other annotator labelled.
    differs : array of shape (annotators, 3)
        How often an annotator recorded another label than the true one, judged by the others' labels alone, with its
        95 % interval.
    against_others : array of shape (annotators, 4)
        `differs` less that of the other annotators of the same recordings, its 95 % interval and the p-value of no
        difference; NaN with fewer than three annotators, who differ equally from each other.
    differs_over_clock : array of shape (parts, annotators, 3)
        `differs` within equal parts of the clock, whose middles are `parts`.
    drift : array of shape (annotators, 4)
        Change of the annotator's error rate from the first to the last moment of the clock, given what the others
        recorded; its 95 % interval; and the p-value of no change (recordings are clusters).
    weights : tuple of float
        Exponents of the chain, the votes and the evidence in the logarithmic opinion pool behind `another`.
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
        Whether labels depend on the step before, the bandwidth of Q(t), and the exponent of the evidence.
    tried : dict of Candidate to mean log-probability of a label given those of the other annotators

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
    rates: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    differs: np.ndarray
    against_others: np.ndarray
    parts: np.ndarray
    differs_over_clock: np.ndarray
    drift: np.ndarray
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
    verbose: bool = False,
) -> Consensus:
    """Estimate true labels and each annotator's Q(t) from labels alone.

    A hidden Markov model in which a recorded label depends on the true label and on the annotator's own last label
    (Simpson and Gurevych 2019), with annotators partially pooled and Q that may change over the clock. Without
    dependence on the last step it is the model of Dawid and Skene (1979). The form is chosen by
    leave-one-annotator-out prediction. The result does not depend on a random state.

    Parameters
    ----------
    y : array of shape (n, steps, annotators), any label type
        -1 among whole numbers, None or NaN otherwise, where nothing was recorded.
    clock : array of shape (n, steps), (steps,) or (n, steps, annotators), optional
        When left out, 0 at the first step and 1 at the last of the longest sequence. With an axis of annotators each
        has a clock of its own, such as the hours that this person has worked; NaN where nothing was recorded.
    lengths : whole numbers of shape (n,), optional
    trusted : array of shape (n, steps), optional
        True labels where they are known, missing elsewhere.
    classes : names of all classes, optional
    ids : n names, optional
        The recording a sequence was cut from; recordings are the unit of intervals and tests.
    evidence : array of shape (n, steps, classes), optional
        Probabilities of the true label from elsewhere, such as a model that did not learn from these labels.
    candidates : what to compare, optional
    period : float, optional
        The length after which the clock begins anew, such as 24 for hours of the day.
    gaps : array of shape (n, steps) or (steps,), optional
        How many steps of time lie between a step and the one before it; 1 where it follows at once.
    verbose : bool, default False
        Whether to say on standard error which form of the model is fitted, and about how long the rest takes.

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
    recordings = default_names("ids", ids, len(codes), ", one per sequence")
    if clock is not None and np.shape(clock) == codes.shape:
        given_clock = np.asarray(clock, dtype=np.float64)
        if not np.isfinite(given_clock[(codes >= 0) & mask[..., None]]).all():
            raise ValueError("clock must be finite wherever an annotator recorded a label.")
        moments = wrap_clock(np.where(np.isfinite(given_clock), given_clock, np.nanmin(given_clock)), period)
        common_clock = None
    else:
        common_clock = wrap_clock(_validation.check_clock(clock, counts, n_steps), period)
        moments = common_clock[..., None]
    grid = np.unique(moments[np.broadcast_to(mask[..., None], moments.shape)])
    if len(grid) > CONSENSUS_POINTS:
        grid = np.linspace(grid[0], grid[-1], CONSENSUS_POINTS)
    points = np.searchsorted((grid[1:] + grid[:-1]) / 2, moments)
    crowd = list_labels(codes, mask, points, len(names), grid, check_gaps(gaps, counts, n_steps))
    log_evidence = known = None
    if evidence is not None:
        given = np.array(evidence, dtype=np.float64)
        if given.shape != (*mask.shape, len(names)):
            raise ValueError(
                f"evidence must have shape {(*mask.shape, len(names))}, a probability for every step and class. "
                f"Got shape {given.shape}."
            )
        log_evidence = np.log(_validation.check_probabilities("evidence", given, mask).clip(1e-6))
    if trusted is not None:
        known = _validation.encode_trusted(trusted, mask, names)
    crowd = replace(crowd, period=period, evidence=log_evidence, trusted=known)
    started = time.perf_counter()

    def report(done: int, total: int, form: Candidate) -> None:
        spent = time.perf_counter() - started
        left = f", about {spent / done * (total - done):.0f} s left" if done else ""
        memory = "with" if form.sequential else "without"
        change = "constant Q" if form.bandwidth is None else f"Q smoothed over {form.bandwidth:.0%} of the clock"
        if verbose:
            text = f"consensus, {spent:.0f} s: form {done + 1} of {total} ({memory} memory, {change}){left}"
            print(text, file=sys.stderr, flush=True)

    fitted = fit_annotators(crowd, candidates, report)
    probabilities, another = (values.astype(np.float64) for values in (fitted.belief, fitted.another))
    for values in (probabilities, another):
        values *= mask[..., None] / values.sum(-1, keepdims=True).clip(1e-300)
    shares = probabilities.sum((0, 1)) / probabilities.sum()
    number: dict[Hashable, int] = {}
    recording = np.array([number.setdefault(name, len(number)) for name in recordings])
    found = _differences(crowd, fitted.left_out, recording, np.broadcast_to(moments, codes.shape))
    return Consensus(
        labels=_name(np.where(mask, probabilities.argmax(-1), -1), names),
        probabilities=probabilities,
        another=another,
        contested=differs_probability(another, codes),
        **found,
        weights=fitted.weights,
        clock=grid,
        noise=fitted.noise,
        common=fitted.common,
        quality=np.einsum("i,atii->at", shares, fitted.noise),
        classes=names,
        agreement=agreement(y, clock=common_clock, lengths=lengths, classes=names),
        chosen=fitted.chosen,
        tried=fitted.tried,
    )


def _differences(
    crowd: Crowd, left_out: np.ndarray, recording: np.ndarray, moments: np.ndarray
) -> dict[str, np.ndarray]:
    """How annotators depart from what the others make believe: fields of `Consensus`.

    Recordings are clusters (Liang and Zeger 1986).
    """
    n_classes, n_annotators = crowd.n_classes, crowd.n_annotators
    shared, unit = crowd.shared(), recording[crowd.row]
    wrong = 1 - left_out[np.arange(len(crowd.label)), crowd.label].astype(np.float64)
    moment = moments[crowd.row, crowd.step, crowd.annotator]
    edges = np.linspace(moment.min(), moment.max(), PARTS + 1)
    part = np.clip(np.searchsorted(edges, moment, side="right") - 1, 0, PARTS - 1)
    outcome = np.stack([wrong, 1 - wrong], 1)
    size = recording.max() + 1, n_annotators
    cell = np.ravel_multi_index((unit, crowd.annotator), size)[shared]
    wrongs, totals = (
        np.bincount(cell, weights, np.prod(size)).reshape(size) for weights in (wrong[shared], np.ones(len(cell)))
    )
    rates = np.full((3, n_annotators, n_classes, n_classes), np.nan)
    differs, against = np.full((n_annotators, 3), np.nan), np.full((n_annotators, 4), np.nan)
    over_clock, drift = np.full((PARTS, n_annotators, 3), np.nan), np.full((n_annotators, 4), np.nan)
    for annotator in range(n_annotators):
        mine = np.flatnonzero(shared & (crowd.annotator == annotator))
        if not len(mine):
            continue
        belief, label = left_out[mine].astype(np.float64), crowd.label[mine]
        units = np.unique(unit[mine], return_inverse=True)[1]
        n_units = units.max() + 1
        ones, at = np.ones(len(mine)), (units * n_classes + label, np.arange(len(mine)))
        sums = sparse.csr_matrix((ones, at), (n_units * n_classes, len(mine)))
        cells = (sums @ belief).reshape(n_units, n_classes, n_classes)  # (recordings, recorded, true)
        for true in range(n_classes):
            rates[:, annotator, true] = _rates(cells[..., true])
        differs[annotator] = _rates(_sums(outcome[mine], units))[:, 0]
        for number in range(PARTS):
            inside = part[mine] == number
            if inside.sum() >= MIN_IN_PART:
                over_clock[number, annotator] = _rates(_sums(outcome[mine[inside]], units[inside]))[:, 0]
        others = totals.sum(1) - totals[:, annotator]
        both = (others > 0) & (totals[:, annotator] > 0)
        if n_annotators > 2 and both.sum() >= MIN_UNITS:
            of_others = (wrongs.sum(1) - wrongs[:, annotator])[both] / others[both]
            against[annotator] = _mean_test(wrongs[both, annotator], of_others, totals[both, annotator])
        whole = np.ptp(moment[mine])
        if n_units >= MIN_UNITS and whole:
            drift[annotator] = _trend(belief, label, (moment[mine] - moment[mine].mean()) / whole, units)
    middles = (edges[1:] + edges[:-1]) / 2
    fields = {"rates": rates[0], "lower": rates[1], "upper": rates[2], "differs": differs, "against_others": against}
    return {**fields, "parts": middles, "differs_over_clock": over_clock, "drift": drift}


def _sums(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Sums over the entries of each unit: (units, columns)."""
    return np.stack([np.bincount(unit, column) for column in values.T], 1)


def _rates(cells: np.ndarray) -> np.ndarray:
    """Shares of outcomes with 95 % intervals, (3, outcomes), from their sums in each recording.

    Wilson's interval (1927) with the effective sample size.
    """
    total = cells.sum()
    if total < MIN_EXPECTED:
        return np.full((3, cells.shape[1]), np.nan)
    n_units = int((cells.sum(1) > 0).sum())
    quantile = student.ppf((1 + CONFIDENCE) / 2, max(n_units - 1, 1))
    rate = cells.sum(0) / total
    spread = np.square(cells - rate * cells.sum(1, keepdims=True)).sum(0) / total**2 * n_units / max(n_units - 1, 1)
    size = np.maximum(np.minimum(rate * (1 - rate) / spread.clip(1e-12), total), 1.0)
    centre, width = rate + quantile**2 / (2 * size), quantile**2 / (4 * size)
    half = quantile * np.sqrt((rate * (1 - rate) + width) / size)
    return np.stack([rate, *((centre + sign * half) / (1 + quantile**2 / size) for sign in (-1, 1))])


def _mean_test(wrong: np.ndarray, of_others: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """The share of wrong labels less that of others, its 95 % interval and p-value; one entry for each recording."""
    departures, n_units = wrong - labels * of_others, len(labels)
    mean = departures.sum() / labels.sum()
    error = np.sqrt(np.square(departures - mean * labels).sum() * n_units / (n_units - 1)) / labels.sum()
    half = student.ppf((1 + CONFIDENCE) / 2, n_units - 1) * error
    return mean, mean - half, mean + half, float(2 * student.sf(abs(mean) / max(error, 1e-12), n_units - 1))


def _trend(belief: np.ndarray, label: np.ndarray, x: np.ndarray, unit: np.ndarray) -> tuple[float, ...]:
    """Change of an annotator's error rate from the first to the last x, its 95 % interval and the p-value of no change.

    The others' belief is the prior of the true label. Maximum likelihood by EM for Q without a change, then by Fisher
    scoring for a change of the log odds that all classes share, with cluster-robust errors (Liang and Zeger 1986).
    """
    n_classes, number = belief.shape[1], np.arange(len(label))
    noise = np.full((n_classes, n_classes), 0.2 / n_classes) + 0.8 * np.eye(n_classes)
    by_label = sparse.csr_matrix((np.ones(len(label)), (label, number)), (n_classes, len(label)))
    for _ in range(EM_STEPS):
        joint = belief * noise.T[label]  # (labels, true)
        joint /= joint.sum(1, keepdims=True)
        noise = (by_label @ joint).T + 0.5 / n_classes
        noise /= noise.sum(1, keepdims=True)
    errors = (1 - noise.diagonal()).clip(MIN_ERROR, 1 - MIN_ERROR)
    towards = noise / errors[:, None]  # where errors go
    towards[np.diag_indices(n_classes)] = 0.0
    joint, of_label = belief * towards.T[label], belief[number, label]
    joint[number, label] = -of_label
    design, change = np.stack([np.ones(len(x)), x], 1), np.zeros(2)  # level and slope on the scale of log odds
    for _ in range(SCORING_STEPS):
        rate = expit(logit(errors) + (design @ change)[:, None])  # (labels, true)
        change_of_chance = np.einsum("nj,nj,nj->n", joint, rate, 1 - rate)
        scores = design * (change_of_chance / (of_label + np.einsum("nj,nj->n", joint, rate)))[:, None]
        inverse = np.linalg.pinv(scores.T @ scores)
        step = (inverse @ scores.sum(0)).clip(-MAX_STEP, MAX_STEP)
        if np.abs(step).max() < TOLERANCE:
            break
        change = change + step
    ends = np.array([[1.0, x.min()], [1.0, x.max()]])
    at_ends = expit(logit(errors) + (ends @ change)[:, None])  # (ends, true)
    shares = belief.mean(0)
    effect = float(np.diff(at_ends @ shares)[0])
    gradient = np.diff(ends * (at_ends * (1 - at_ends) @ shares)[:, None], axis=0)[0]
    clustered = _sums(scores, unit) @ inverse
    n_units, freedom = len(clustered), len(clustered) - 2
    error, slope_error = (
        float(np.sqrt(np.square(clustered @ each).sum() * n_units / freedom))
        for each in (gradient, np.array([0.0, 1.0]))
    )
    half = student.ppf((1 + CONFIDENCE) / 2, freedom) * error
    p_value = 2 * student.sf(abs(change[1]) / max(slope_error, 1e-12), freedom)
    return effect, effect - half, effect + half, float(p_value)


def drift_alarm(errors: ArrayLike, *, random_state: int | None = 0) -> np.ndarray:
    """Watch one annotator while sessions come in: an e-process against "sessions are exchangeable".

    Each session's error rate is ranked among those so far (conformal p-value), and a wealth of one is bet on ranks that
    become higher or lower (the simple jumper; Vovk and others 2021). Without drift the wealth ever reaches 20 with
    probability at most 5 % (Ville 1939), however often one looks.

    Parameters
    ----------
    errors : numbers of shape (sessions,)
        Share of labels of each session that differ from the consensus of the others, or from trusted labels.
    random_state : int, optional
        Of the draws that break ties.

    Returns
    -------
    array of shape (sessions,)
        The wealth after each session; raise an alarm where it reaches 20.

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> steady = np.random.default_rng(0).binomial(100, 0.1, 100) / 100
    >>> worse = np.random.default_rng(1).binomial(100, 0.3, 100) / 100
    >>> bool(lt.drift_alarm(steady).max() < 20), bool(lt.drift_alarm(np.append(steady, worse)).max() > 20)
    (True, True)
    """
    values = np.asarray(errors, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"errors must be finite numbers, one per session. Got shape {values.shape}.")
    generator = np.random.default_rng(random_state)
    bets, wealth = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.full(5, 0.2)
    result = np.empty(len(values))
    for session, value in enumerate(values):
        seen = values[: session + 1]
        chance = ((seen > value).sum() + generator.random() * (seen == value).sum()) / (session + 1)
        wealth = (1 - JUMP) * wealth + JUMP * wealth.mean()
        wealth = wealth * (1 + bets * (chance - 0.5)).clip(0)
        result[session] = wealth.sum()
    return result


def _name(codes: np.ndarray, names: tuple[Hashable, ...]) -> np.ndarray:
    """Class names in place of codes; -1 becomes -1 among whole numbers and None otherwise."""
    if all(isinstance(name, int) and not isinstance(name, bool) for name in names):
        return np.array([*names, -1], dtype=np.int64)[codes]
    return np.fromiter((*names, None), dtype=object, count=len(names) + 1)[codes]
