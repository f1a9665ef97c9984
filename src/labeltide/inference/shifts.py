r"""Labels that are late or early, and recordings shifted against their labels.

How well labels fit the signals is measured at every shift by Pillai's trace (1955), the share of the variance of the
features that the classes explain. With whitened features :math:`z_t` and the sums
:math:`M_c(d) = \sum_t z_t [y_{t+d} = c]` of class c, which one fast Fourier transform gives for all shifts, it is

.. math:: R(d) = \sum_c \lVert M_c(d) \rVert^2 / N_c

up to a constant. Nothing is trained, and every shift is a fit of its own. Features are those of single steps and of a
short symmetric context, because a recurrent network would learn to answer late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import stats
from scipy.fft import irfft, next_fast_len, rfft

from labeltide import _validation
from labeltide._display import ShortRepr, p_value, panel, sentence, table
from labeltide.chain.em import label_chain
from labeltide.chain.passes import ChainData, posteriors, same_data
from labeltide.data.clusters import encode_clusters
from labeltide.inference.review import holm
from labeltide.tables.columns import as_frame

CONTEXT = 1  # steps on either side that join a step's features
MAX_FEATURES = 32  # principal components, where there are more features
MAX_SHIFT = 5000
MIN_UNITS = 8  # long recordings are cut into at least as many parts, so that their spread can be seen
MIN_CLUSTERS = 5  # with labels, for a common lag
MIN_BLOCKS, MAX_BLOCKS = 8, 24  # by hand: blocks of a sequence that count as independent
MIN_TRANSITIONS = 5  # of a recording, for a shift of its own
DRAWS = 999
SURE = 0.01  # level at which labels and signals are taken to be related
LEVEL = 0.95
RECORDING_LEVEL = 0.05  # familywise, over recordings
WIDTH = 1.66  # standard errors by which shifts of a 95 % interval may fit worse: half the root of 11 (Bai 1997)
COMPARED = 40  # by hand: shifts on either side of a recording's best one that its interval looks at
REACH = 16  # by hand: steps on either side of the lag in which changes of label are looked for
MIN_RUN = 3  # steps that a label lasts on both sides of a change; shorter runs are mostly wrong labels
MIN_SPREAD = 1.0  # by hand: of delays, in steps, from which single changes are moved
MIN_CHANGES = 20  # of label, below which their spread is not estimated
EM_PASSES = 200
DELAYS = np.arange(-REACH, REACH + 1)
PIECE, MAX_PIECES = 100, 200  # by hand: steps of labels that are smoothed at once; pieces from which that is learned


Rows = Sequence[np.ndarray]
# Of label: the steps around it, its class before and after, and the probability at each step that it has happened.
Change = tuple[slice, int, int, np.ndarray]


def move_labels(labels: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Labels (rows, steps, ...) by so many steps earlier, (rows,) or (rows, sources); missing where none comes from."""
    source = np.moveaxis(shift[..., None] + np.arange(labels.shape[1]), -1, 1)  # (rows, steps) or (..., sources)
    source = source.reshape(*source.shape, *(1,) * (labels.ndim - source.ndim))
    inside = (source >= 0) & (source < labels.shape[1])
    missing: Any = -1 if labels.dtype.kind in "iu" else None if labels.dtype.kind == "O" else np.nan
    return np.where(inside, np.take_along_axis(labels, np.where(inside, source, 0), 1), missing)


@dataclass(frozen=True, repr=False)
class Shifts(ShortRepr):
    """By how many steps labels are late against the signals.

    Attributes
    ----------
    lag : int or None
        Steps by which all labels are late; negative where they are early. None where it cannot be estimated.
    interval : (int, int) or None
        95 % bootstrap interval of the lag, over clusters.
    p_value : float
        Bootstrap test of "the labels are not shifted", which looks for the best of all shifts; NaN without a lag.
    reason : str or None
        Why the lag cannot be estimated.
    shifts, fit : arrays of shape (shifts,)
        The share of the features' variance that labels explain at each shift (Pillai's trace over classes less one).
    own_shift : array of shape (n,)
        Steps by which the labels of each sequence are late: the common lag, or its own shift where that fits better at
        5 % over all sequences (Holm 1979).
    own_best : array of shape (n,)
        The shift that fits each sequence best, whether or not the difference is significant.
    own_p_value : array of shape (n,)
        Test of "this sequence has the common lag", corrected over shifts and sequences; NaN where the sequence has
        too few transitions.
    own_interval : array of shape (n, 2)
        Bounds of the shift of each sequence at 95 %, around the best one; NaN as above.
    spread : float
        By how many steps the delay differs from one change of label to the next (standard deviation around the lag).
        It includes how much signals and annotators differ anyway; NaN with fewer than 20 clear changes.
    annotators : tuple of Shifts
        The same for each annotator, where there are several.

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> study = lt.make_sequences(n=20, n_steps=200, n_features=3, stay=0.95, random_state=0)
    >>> lt.find_shifts(study.features, np.roll(study.clean_labels, 4, axis=1)).interval
    (4, 4)
    """

    lag: int | None
    interval: tuple[int, int] | None
    p_value: float
    reason: str | None
    shifts: np.ndarray
    fit: np.ndarray
    own_shift: np.ndarray
    own_best: np.ndarray
    own_p_value: np.ndarray
    own_interval: np.ndarray
    spread: float = float("nan")
    annotators: tuple[Shifts, ...] = ()

    @property
    def is_shifted(self) -> bool:
        """Whether all labels are late or early, at 5 %."""
        return bool(self.lag) and self.p_value < 1 - LEVEL

    @property
    def varies(self) -> bool:
        """Whether labels are late or early by so different numbers of steps that none moves them to their time."""
        return self.is_shifted and self.spread > abs(self.lag or 0)

    @property
    def recordings(self) -> Any:
        """A frame with one line per sequence; `lower` and `upper` bound its best shift with 95 % confidence."""
        return self.to_frame()

    def to_frame(self, kind: str = "pandas") -> Any:
        columns = {"sequence": np.arange(len(self.own_shift)), "shift": self.own_shift, "best_shift": self.own_best}
        columns |= {"lower": self.own_interval[:, 0], "upper": self.own_interval[:, 1]}
        columns |= {"p_value": self.own_p_value, "is_shifted": self.own_p_value < RECORDING_LEVEL}
        reason = self.reason or "there are too few changes of label or steps."
        return as_frame(columns | {"reason": np.where(np.isnan(self.own_p_value), reason, np.array(None))}, kind)

    @property
    def assumed(self) -> np.ndarray:
        """The shift of each sequence that a fit or an audit acts on: its own or the common lag, where p < 0.05.

        Where the delay varies by more than its mean, as of an annotator who repeats the last label, labels stay.
        """
        return np.where((self.own_p_value < RECORDING_LEVEL) | (not self.varies), self.own_shift, 0)

    def align(self, y: ArrayLike) -> np.ndarray:
        """The labels moved to the signals, those of each annotator by their own shifts; missing where none reaches.

        Parameters
        ----------
        y : array of shape (n, steps) or (n, steps, annotators)
        """
        labels = _validation.as_labels(y)
        if len(labels) != len(self.own_shift):
            raise ValueError(f"y must have the {len(self.own_shift)} sequences of the search. Got {len(labels)}.")
        each = np.stack([found.own_shift for found in self.annotators or (self,)], axis=1)  # (sequences, annotators)
        return move_labels(labels, each if labels.ndim == 3 else self.own_shift)

    def plot(self, ax: Any = None) -> Any:
        """Draw the fit against the shift."""
        from labeltide.inference.display import new_axes

        ax = new_axes(ax)
        ax.plot(self.shifts, self.fit, color="tab:blue")
        if self.lag is not None and self.interval is not None:
            ax.axvspan(*self.interval, color="tab:orange", alpha=0.25, linewidth=0)
            ax.axvline(self.lag, color="tab:orange", label=f"labels late by {self.lag} steps")
            ax.legend(frameon=False)
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.set(xlabel="shift of the labels (steps; positive: late)", ylabel="explained share of variance")
        return ax

    def __str__(self) -> str:
        if self.lag is None:
            return f"The lag cannot be estimated: {self.reason}"
        low, high = self.interval or (self.lag, self.lag)
        certainty = f"{low} to {high}, p {p_value(self.p_value)}"
        certainty += ", the largest shift tried" if abs(self.lag) == self.shifts[-1] else ""
        text = f"No shift of all labels was found (best {self.lag}, {certainty})."
        if self.is_shifted:
            steps = f"{abs(self.lag)} step{'s' * (abs(self.lag) != 1)}"
            text = f"Labels are {'late' if self.lag >= 0 else 'early'} by {steps} ({certainty})."
            varies = f" Single changes of label differ from that by about {self.spread:.1f} steps, in part by chance."
            text += varies if self.spread >= 0.5 else ""
        own = int((self.own_p_value < RECORDING_LEVEL).sum())
        verb = "has a shift of its own" if own == 1 else "have shifts of their own"
        text += f" {own} of {len(self.own_shift)} sequences {verb}." if own else ""
        return " ".join([text, *(f"Annotator {index}: {each}" for index, each in enumerate(self.annotators))])

    def _repr_html_(self) -> str:
        shifted = np.flatnonzero(self.own_p_value < RECORDING_LEVEL)[:10]
        rows = [(row, self.own_shift[row], p_value(self.own_p_value[row])) for row in shifted]
        return panel("Shifts", sentence(str(self)), table(["sequence", "shift", "p"], rows) if rows else "")


def find_shifts(
    X: ArrayLike,
    y: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    max_shift: int | None = None,
    random_state: int = 0,
) -> Shifts:
    """Find labels that are late or early against the signals, for all sequences and for each.

    Parameters
    ----------
    X : array of shape (n, steps, features)
    y : array of shape (n, steps) or (n, steps, annotators), any label type
    lengths : whole numbers of shape (n,), optional
    clusters : n names, optional
        Who each sequence belongs to. Intervals and tests take clusters as independent; by default, sequences.
    max_shift : int, optional
        The largest shift that is tried. By default half of the longest sequence, at most 5,000 steps.
    random_state : int

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> study = lt.make_sequences(n=20, n_steps=200, n_features=3, stay=0.95, random_state=0)
    >>> found = lt.find_shifts(study.features, np.roll(study.clean_labels, 4, axis=1))
    >>> found.lag, found.interval
    (4, (4, 4))
    """
    features, counts = _validation.check_features(X, lengths)
    n, n_steps = features.shape[:2]
    values = _validation.check_labels(y, n, n_steps)
    present = ~_validation.missing_labels(values) & _validation.steps_mask(counts, n_steps)[..., None]
    codes = _validation.encode_labels(values, present, _validation.find_classes(values, present, least=1))
    if max_shift is not None:
        _validation.check_number("max_shift", max_shift, 1, n_steps - 1, whole=True)
    owners = None if clusters is None else encode_clusters(clusters, n)
    return search_shifts(_ragged(features, counts), _ragged(codes, counts), owners, max_shift, random_state)


def search_shifts(
    rows: Rows, codes: Rows, owners: np.ndarray | None = None, limit: int | None = None, seed: int = 0
) -> Shifts:
    """The same for features (steps, features) and codes of labels (steps, annotators) of ragged sequences."""
    owners = np.arange(len(rows)) if owners is None else owners
    limit = int(limit) if limit else max(1, min(max(map(len, rows)) // 2, MAX_SHIFT))
    signals, n_annotators = _whiten(rows), codes[0].shape[1]
    labels = [codes, *([row[:, [a]] for row in codes] for a in range(n_annotators) if n_annotators > 1)]
    found, *each = (_search(signals, some, owners, limit, seed) for some in labels)
    return replace(found, annotators=tuple(each))


def find_own_shifts(features: np.ndarray, mask: np.ndarray, codes: np.ndarray, owners: np.ndarray | None) -> np.ndarray:
    """The shift that is assumed for each row and annotator, (rows, annotators), of codes (rows, steps, annotators)."""
    found = search_shifts(_ragged(features, mask.sum(1)), _ragged(codes, mask.sum(1)), owners)
    return np.stack([each.assumed for each in found.annotators or (found,)], axis=1)


def _ragged(values: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    return [row[:count] for row, count in zip(values, counts, strict=True)]


def _whiten(rows: Rows) -> list[np.ndarray]:
    """Features of each step with their context and squares, centred by sequence and made uncorrelated."""
    every = np.concatenate(rows).astype(np.float64)
    centre, spread = np.median(every, 0), np.maximum(every.std(0), 1e-12)
    rows = [np.clip((row - centre) / spread, -6, 6) for row in rows]
    if every.shape[1] > MAX_FEATURES:
        components = np.linalg.eigh(np.cov(np.concatenate(rows).T))[1][:, -MAX_FEATURES:]
        rows = [row @ components for row in rows]
    for index, row in enumerate(rows):
        padded = np.pad(row, ((CONTEXT, CONTEXT), (0, 0)), mode="edge")
        around = sum(padded[start : start + len(row)] for start in range(2 * CONTEXT + 1)) / (2 * CONTEXT + 1)
        expanded = np.hstack([row, around, row**2, around**2])
        rows[index] = expanded - expanded.mean(0)
    total = sum(row.T @ row for row in rows) / len(every)
    sizes, directions = np.linalg.eigh(total)
    kept = sizes > 1e-4 * sizes[-1]
    whitening = directions[:, kept] / np.sqrt(sizes[kept])
    return [row @ whitening for row in rows]


class _Unit(NamedTuple):
    """Labels of one annotator in one stretch of a sequence, and the signals that a shift can bring to them."""

    row: int
    labels: np.ndarray  # (steps,), -1 where no label of this unit lies
    signals: np.ndarray  # (steps, dimensions)


def _cut(signals: list[np.ndarray], codes: Rows, limit: int) -> list[_Unit]:
    """One unit for each sequence and annotator; where there are few sequences, they are cut into parts."""
    parts = -(-MIN_UNITS // len(signals))
    units = []
    for row, signal in enumerate(signals):
        edges = np.linspace(0, len(signal), parts + 1).astype(int)
        for annotator in range(codes[row].shape[1]):
            for start, end in pairwise(edges.tolist()):
                first, last = max(0, start - limit), min(len(signal), end + limit)
                labels = codes[row][first:last, annotator].astype(np.int64)
                labels[: start - first] = labels[end - first :] = -1
                if (labels >= 0).any():
                    units.append(_Unit(row, labels, signal[first:last]))
    return units


def _sums(unit: _Unit, values: np.ndarray, n_classes: int, limit: int) -> np.ndarray:
    """Sums of `values` (steps, columns) over the labels of each class at each shift, (classes, columns, shifts).

    A label at step i meets the value at step i - d, so that positive shifts are late labels.
    """
    size = next_fast_len(len(values) + limit, real=True)
    spectrum = np.conj(rfft(values.T.astype(np.float32), size))  # (columns, frequencies), half the time of float64
    found = np.zeros((n_classes, values.shape[1], 2 * limit + 1), np.float32)
    for label in np.unique(unit.labels[unit.labels >= 0]).tolist():
        products = irfft(spectrum * rfft((unit.labels == label).astype(np.float32), size), size)
        found[label, :, :limit], found[label, :, limit:] = products[:, -limit:], products[:, : limit + 1]
    return found


def _centred_sums(unit: _Unit, n_classes: int, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the signals as deviations from their mean over the steps that meet a label at that shift.

    Second the labels of each class that meet a signal, (classes, shifts), at least half of all: a large shift at which
    few are left does not win by chance, and one at which most are left does not lose for those that are not.
    """
    both = _sums(unit, np.pad(unit.signals, ((0, 0), (0, 1)), constant_values=1), n_classes, limit)
    sums, met = both[:, :-1], both[:, -1:].round()
    kept = np.maximum(met[:, 0], met[:, 0, limit : limit + 1] / 2)
    return sums - met * sums.sum(0) / np.maximum(met.sum(0), 1), kept


def _search(signals: list[np.ndarray], codes: Rows, owners: np.ndarray, limit: int, seed: int) -> Shifts:
    n, n_classes = len(codes), max(int(row.max(initial=-1)) for row in codes) + 1
    limit = min(limit, max(map(len, signals)) - 1)
    shifts = np.arange(-limit, limit + 1)
    fit = np.zeros(len(shifts))

    def unknown(reason: str) -> Shifts:
        none = np.zeros(n, int)
        return Shifts(None, None, np.nan, reason, shifts, fit, none, none, np.full(n, np.nan), np.full((n, 2), np.nan))

    if n_classes < 2 or limit < 1:
        why = "sequences have one step." if limit < 1 else "all labels are the same." if n_classes else "no labels."
        return unknown(why)
    units = _cut(signals, codes, limit)
    independent = np.arange(len(units)) if len(np.unique(owners)) < MIN_UNITS else owners[[unit.row for unit in units]]
    owners = np.unique(independent, return_inverse=True)[1]
    counts = np.array([np.bincount(unit.labels[unit.labels >= 0], minlength=n_classes) for unit in units])
    sums, met = np.zeros((n_classes, signals[0].shape[1], len(shifts))), np.zeros((n_classes, len(shifts)))
    for unit in units:
        part, kept = _centred_sums(unit, n_classes, limit)
        sums, met = sums + part, met + kept
    per_class, scale = np.maximum(met, 1), met.sum(0) * (n_classes - 1)
    trace = (sums**2).sum(1) / per_class  # (classes, shifts)
    fit = trace.sum(0) / scale
    best = int(fit.argmax())

    # How each cluster moves the fit at each shift (its influence function), and its own sums at zero and at the best.
    n_clusters = owners.max() + 1
    influence = np.zeros((n_clusters, len(shifts)))
    own_sums = np.zeros((n_clusters, *sums.shape[:2], 2))
    cluster_counts = np.stack([counts[owners == cluster].sum(0) for cluster in range(n_clusters)])[..., None]
    for unit, owner in zip(units, owners, strict=True):
        part, kept = _centred_sums(unit, n_classes, limit)
        influence[owner] += ((2 * (part * sums).sum(1) - trace * kept) / per_class).sum(0)
        influence[owner] -= fit * kept.sum(0) * (n_classes - 1)
        own_sums[owner] += part[..., [limit, best]]
    interval, p = _infer_lag(fit, influence / scale, seed)
    # Class means of all other clusters at the shift that is shown: where classes follow each other in a fixed order,
    # another shift fits as well with the classes exchanged.
    is_shown = int(p < 1 - LEVEL)
    settled = best if is_shown else limit
    means = (sums[..., settled] - own_sums[..., is_shown]) / np.maximum(counts.sum(0)[:, None] - cluster_counts, 1)

    # The fit of each sequence at each shift, and of each cluster at the one shown, to the class means of the others.
    evidence, gains = [], np.zeros(n_clusters)
    profiles, transitions = np.zeros((n, len(shifts))), np.zeros(n, int)
    for unit, owner in zip(units, owners, strict=True):
        ratios = unit.signals @ means[owner].T - (means[owner] ** 2).sum(1) / 2  # (steps, classes)
        ratios -= ratios.mean(0)
        evidence.append(ratios)
        profiles[unit.row] += _sums(unit, ratios, n_classes, limit)[range(n_classes), range(n_classes)].sum(0)
        gains[owner] += _scores(unit, ratios, shifts[[settled]]).sum()
        transitions[unit.row] += np.count_nonzero(np.diff(unit.labels[unit.labels >= 0]))

    # Whether signals and labels are related at all; about one shift per run of labels differs from the others.
    if transitions.sum() < MIN_TRANSITIONS:
        return unknown(f"there are too few changes of label ({transitions.sum()}) to align.")
    if _better(gains, max(1.0, len(shifts) * transitions.sum() / counts.sum())) > SURE:
        return unknown("the signals do not predict these labels.")
    assumed = int(shifts[settled])
    own_best = shifts[profiles.argmax(1)]
    own_p_value, own_interval = np.full(n, np.nan), np.full((n, 2), np.nan)
    offsets = np.unique(np.geomspace(1, 2 * limit, COMPARED).astype(int))
    for row in np.flatnonzero(transitions >= MIN_TRANSITIONS):
        mine = [index for index, unit in enumerate(units) if unit.row == row]
        labelled = counts[mine].sum()
        run = max(1, round(labelled / (transitions[row] + 1)))
        tried = np.r_[np.clip(own_best[row] + np.r_[0, offsets, -offsets], -limit, limit), assumed]
        losses = []  # against the best shift, in blocks of steps that are taken as independent
        for i in mine:
            scores = _scores(units[i], evidence[i], tried)
            blocks = np.arange(0, len(scores), max(run, labelled // MAX_BLOCKS))
            losses.append(np.add.reduceat(scores[:, [0]] - scores, blocks))
        every = np.concatenate(losses)
        if len(every) >= MIN_BLOCKS:
            own_p_value[row] = _better(every[:, -1], max(1.0, len(shifts) / run))
            inside = tried[every.mean(0) <= WIDTH * every.std(0, ddof=1) / np.sqrt(len(every))]
            own_interval[row] = inside.min(), inside.max()
    own_p_value = holm(own_p_value)
    own_shift = np.where(own_p_value < RECORDING_LEVEL, own_best, assumed)
    moved = [move_labels(unit.labels[None], own_shift[[unit.row]])[0] for unit in units]
    _, _, spread = _find_delays(moved, evidence)
    return Shifts(
        int(shifts[best]), interval, p, None, shifts, fit, own_shift, own_best, own_p_value, own_interval, spread
    )


def _find_delays(labels: Rows, ratios: Rows) -> tuple[np.ndarray, np.ndarray, float]:
    r"""Clear changes of label, (changes, 3): where the run before begins, the new one begins, and the new one ends.

    Also the probability of each delay, (changes, delays), and the standard deviation of all delays.
    A change from class a to b that is recorded at step s and happened at s - d has the log-likelihood
    :math:`\tau \sum_{t < s - d} (r_{ta} - r_{tb})` with ratios r of single steps. These depend on each other, so the
    power tau of each pair of classes is twice their mean over their long-run variance, as of a calibrated Gaussian
    log-likelihood ratio. EM gives the distribution of d (nonparametric maximum likelihood; Laird 1978).
    """
    codes, logs = np.concatenate(labels), np.pad(np.concatenate(ratios), ((REACH, REACH), (0, 0)))
    bounds = np.cumsum([0, *map(len, labels)])
    edges = np.union1d(bounds, np.flatnonzero(np.diff(codes)) + 1)
    first, step, last = edges[:-2], edges[1:-1], edges[2:]
    is_clear = (np.minimum(step - first, last - step) >= MIN_RUN) & (np.minimum(codes[step - 1], codes[step]) >= 0)
    kept = is_clear & ~np.isin(step, bounds)
    if kept.sum() < MIN_CHANGES:
        return np.zeros((0, 3), int), np.zeros((0, len(DELAYS))), float("nan")
    first, step, last = first[kept, None], step[kept, None], last[kept, None]
    before, after = codes[step - 1], codes[step]
    near = step + np.arange(2 * REACH)
    gains = logs[near, before] - logs[near, after]  # (changes, steps around them)
    scores = np.pad(gains.cumsum(1), ((0, 0), (1, 0)))[:, ::-1]
    scores[(step - first <= DELAYS) | (step - last >= DELAYS)] = -np.inf  # runs of labels would vanish
    ahead = np.arange(REACH) < last - step
    sums, sizes = -(gains[:, REACH:] * ahead).sum(1), ahead.sum(1)
    pairs = (before * logs.shape[1] + after)[:, 0]
    for pair in np.unique(pairs):
        index = np.flatnonzero(pairs == pair)
        mean = sums[index].sum() / sizes[index].sum()
        variance = np.mean((sums[index] - mean * sizes[index]) ** 2 / sizes[index])
        scores[index] *= 2 * mean / variance if mean > 0 and variance > 0 else 1e-9
    likelihoods = np.exp(scores - scores.max(1, keepdims=True))
    shares = np.full(len(DELAYS), 1 / len(DELAYS))
    for _ in range(EM_PASSES):
        posterior = likelihoods * shares
        posterior /= posterior.sum(1, keepdims=True)
        shares = posterior.mean(0)
    spread = np.sqrt(shares @ (DELAYS - shares @ DELAYS) ** 2)
    return np.hstack([first, step, last]), posterior, float(spread)


def settle_changes(rows: Rows, codes: Rows, lags: np.ndarray) -> tuple[np.ndarray, list[list[Change]]]:
    """Codes (all steps, annotators), moved by lags (annotators,), with each change of label at its likeliest time.

    A hidden Markov model of the labels alone tells changes from other wrong labels, which stay. The delay of each
    change is latent. Labels between its recorded time and the posterior median, at which the fewest steps are
    expected to be wrong, change sides. Labels stay where no lag was found or delays vary by less than a step. The
    changes of each annotator come second.
    """
    settled, n_classes = np.concatenate(codes), max(int(row.max(initial=0)) for row in codes) + 1
    signals = _whiten(rows) if lags.any() else []
    changes: list[list[Change]] = [[] for _ in lags]
    for annotator in np.flatnonzero(lags):
        smoothed = _smooth([row[:, annotator] for row in codes], n_classes)
        every, there = np.concatenate(signals), np.concatenate(smoothed)
        means = np.stack([every[there == label].sum(0) / max(1, (there == label).sum()) for label in range(n_classes)])
        ratios = [signal @ means.T - (means**2).sum(1) / 2 for signal in signals]
        runs, delays, spread = _find_delays(smoothed, ratios)
        for (first, step, last), chances in zip(runs, delays, strict=True) if spread >= MIN_SPREAD else ():
            old, new = there[[step - 1, step]]
            around = slice(max(first, step - REACH), min(last, step + REACH))
            # A change that is recorded at s with delay d has happened by step t if d >= s - t.
            happened = chances[::-1].cumsum()[REACH - step + around.start : REACH - step + around.stop]
            part, is_new = settled[around, annotator], happened >= 0.5
            part[is_new & (part == old) & (there[around] == old)] = new
            part[~is_new & (part == new) & (there[around] == new)] = old
            changes[annotator].append((around, old, new, happened))
    return settled, changes


def soften_changes(posterior: torch.Tensor, mask: torch.Tensor, changes: list[Change]) -> None:
    """Let the posterior, (rows, steps, classes), pass from class to class as far as the time of a change is known."""
    steps = posterior[mask].cpu().numpy()
    for around, old, new, happened in changes:
        both = steps[around, old] + steps[around, new]
        steps[around, old], steps[around, new] = both * (1 - happened), both * happened
    posterior[mask] = torch.from_numpy(steps).to(posterior)


def _smooth(labels: Rows, n_classes: int) -> list[np.ndarray]:
    """The likeliest class of each step that has a label, by a hidden Markov model of the labels alone; -1 elsewhere."""
    pieces = [piece for row in labels for piece in np.split(row, range(PIECE, len(row), PIECE))]
    codes, mask = np.full((len(pieces), PIECE, 1), -1, np.int8), np.zeros((len(pieces), PIECE), bool)
    for index, piece in enumerate(pieces):
        codes[index, : len(piece), 0], mask[index, : len(piece)] = piece, True
    data = ChainData(torch.from_numpy(codes)[None], torch.from_numpy(mask), None, PIECE, n_classes)
    some = data.take_rows(torch.linspace(0, len(mask) - 1, min(len(mask), MAX_PIECES)).round().long())
    chain = label_chain(some, same_data(torch.ones(1, len(some.mask))), np.linspace(0, 1, PIECE))
    likeliest = posteriors(data, same_data(torch.ones(1, len(mask))), chain)[0].argmax(-1).numpy()[mask]
    parts = np.split(likeliest, np.cumsum([len(row) for row in labels])[:-1])
    return [np.where(row >= 0, part, -1) for row, part in zip(labels, parts, strict=True)]


def _scores(unit: _Unit, ratios: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """The log-likelihood ratio of each label at each shift, (labels, shifts); zero outside the sequence."""
    steps = np.flatnonzero(unit.labels >= 0)[:, None]
    source = steps - shifts
    inside = (source >= 0) & (source < len(ratios))
    return np.where(inside, ratios[np.where(inside, source, 0), unit.labels[steps]], 0.0)


def _better(gains: np.ndarray, tried: float) -> float:
    """One-sided z test that gains are positive, corrected for the shifts among which the best was picked (Šidák)."""
    spread = gains.std(ddof=1) if len(gains) > 1 else 0.0
    if spread == 0:
        return 1.0
    p = float(stats.norm.sf(gains.mean() / (spread / np.sqrt(len(gains)))))
    return float(-np.expm1(tried * np.log1p(-p)))


def _infer_lag(fit: np.ndarray, influence: np.ndarray, seed: int) -> tuple[tuple[int, int], float]:
    """Percentile bootstrap interval of the best shift, and the p-value of "it is zero"; both of the linearised fit.

    Each draw looks for the best of all shifts, so that nothing is corrected for their number. A max-t test of all
    shifts against none has less power (decision 032). Few clusters agree by chance, and claim nothing.
    """
    n = len(influence)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), DRAWS) - 1.0
    drawn = np.sort((fit + weights @ influence).argmax(1)) - len(fit) // 2
    low, high = (int(drawn[round(share * (DRAWS - 1))]) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    other_side = int(min((drawn <= 0).sum(), (drawn >= 0).sum()))
    return (low, high), min(1.0, (1 + 2 * other_side) / (DRAWS + 1)) if n >= MIN_CLUSTERS else 1.0
