r"""Label errors: posterior probability that each label is right, and flags at a Bayesian false discovery rate.

The posterior comes from the forward-backward pass of the hidden Markov model (`Judge`). A label's
probability :math:`q_i` of being right is the local false discovery rate of flagging it (Efron 2007). The flags are the
largest set :math:`R` of the smallest values with :math:`\sum_{i \in R} q_i / |R| \le \mathrm{fdr}` (Newton and others
2004; the Bayesian false discovery rate of Storey 2003).

By default only labels for which another is likelier are flagged, close to the threshold with the largest expected F1
(Lipton, Elkan and Narayanaswamy 2014). With `spend_fdr` the flags go on until the allowed share of false alarms.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltide import _validation
from labeltide._clock import MAX_GAP, gap_ladder
from labeltide._display import short
from labeltide.chain.annotators import (
    MIN_PROBABILITY,
    count_votes,
    fit_weights,
    left_out_opinions,
    shared_labels,
    stack_opinions,
    vote_shares,
    votes_prior,
)
from labeltide.chain.passes import Chain, ChainData, ChainParameters, posteriors, same_data
from labeltide.data.clusters import spread_labels
from labeltide.inference.conclusion import explain, find_support
from labeltide.inference.display import LabelAuditDisplay, default_names
from labeltide.inference.review import CLOCK_BINS, clock_bins
from labeltide.kernels.library import torch_on_one_thread
from labeltide.noise.functions import NoiseFunction
from labeltide.training import clock_grid

if TYPE_CHECKING:
    import pyarrow as pa


FDR = 0.1  # by hand


@dataclass(frozen=True, repr=False)
class LabelAudit(LabelAuditDisplay):
    r"""The audit of every recorded label: posterior of the truth, given features, neighbouring labels and Q(t).

    Attributes
    ----------
    classes : array of shape (classes,)
    labels : int8 array of shape (n, steps, annotators)
        The recorded labels as codes into `classes`, -1 where nothing was recorded.
    clock : array of shape (n, steps), of several clocks the first
    mask : bool array of shape (n, steps), False on padding
    probabilities : array of shape (n, steps, classes)
        Posterior probability of each true label; zero on padding.
    signal : array of shape (n, steps, classes)
        Probability of each true label from the features alone.
    error_rates : array of shape (n, steps, classes), or (n, steps, annotators, classes) where each has their own Q
        :math:`1 - Q_{ii}(t)`: the error rate of each true label at the step's moment.
    fdr : float
        The bound on the Bayesian false discovery rate of the flags.
    has_annotators : bool
        Whether labels came with an annotator axis; if not, results have none.
    trusted : int8 array of shape (n, steps), optional
        True labels that were known beforehand, -1 elsewhere.
    may_name : bool, or bool array of shape (2, classes, classes)
        False where the fit does not show that labels are wrong (`conclusion.py`); then none is flagged or corrected.
        By recorded and suggested class where that differs, first outside runs, then in runs.
    another : array of shape (n, steps, classes), optional
        Probability of each label that another annotator would record; the posterior stands in where it is left out.
    false_alarms : array, optional
        Expected shares of false alarms, Q and k not taken as known (`false_alarm_curve`).
    spend_fdr : bool
        Whether labels for which no other is likelier are flagged too, until the mean quality of the flags is `fdr`.
    out_of_fold : bool array of shape (n,), optional
        Which rows are training rows of `tide`, judged by networks that have not seen them; None for other methods.
    aligned : int8 array of shape (n, steps, annotators), optional
        The labels moved to the signals, from which the posterior was computed; None where none was moved.
    ahead : int, or int array that broadcasts to the labels
        By how many steps all labels of an annotator seem early, else 0. Signals that lag look the same, so that only
        labels are flagged that do not fit the step so far ahead either, and none is corrected.
    fit : TideClassifier or PredictionFit, optional
        What the labels were judged with. It has `noise_estimate_`, `temporality_`, `conclusion_` and `diagnostics_`.

    Computed from these when first asked for: `quality`, `contested`, `suggested`, `is_issue`, `kind` and others.
    """

    classes: np.ndarray
    labels: np.ndarray
    clock: np.ndarray
    mask: np.ndarray
    probabilities: np.ndarray
    signal: np.ndarray
    error_rates: np.ndarray
    fdr: float = FDR
    has_annotators: bool = False
    trusted: np.ndarray | None = None
    another: np.ndarray | None = None
    may_name: bool | np.ndarray = True
    false_alarms: np.ndarray | None = None
    spend_fdr: bool = False
    out_of_fold: np.ndarray | None = None
    aligned: np.ndarray | None = None
    ahead: int | np.ndarray = 0
    fit: Any = None

    @cached_property
    def quality(self) -> np.ndarray:
        """The probability that each recorded label is right; NaN where nothing was recorded."""
        return self._shaped(self._quality)

    @cached_property
    def contested(self) -> np.ndarray:
        """The probability that another expert would record another label; NaN where there is none.

        From one annotator's labels alone, a habit that the annotator keeps everywhere is not part of it.
        """
        another = self.probabilities if self.another is None else self.another
        return self._shaped(differs_probability(another, self.labels))

    @cached_property
    def suggested(self) -> np.ndarray:
        """The most likely true label of every step: shape (n, steps); meaningless on padding."""
        return self.classes[self._suggested]

    @cached_property
    def suggested_probability(self) -> np.ndarray:
        """The probability of the suggested label: shape (n, steps), zero on padding."""
        return self.probabilities.max(-1)

    @cached_property
    def is_issue(self) -> np.ndarray:
        """Flags: another label is likelier, and the expected share of right labels among the flags is at most `fdr`.

        With `spend_fdr` no other label need be likelier.
        """
        return self._shaped(self._is_issue)

    @cached_property
    def expected_false_alarms(self) -> float:
        """Bayesian false discovery rate of the flags: their mean quality; zero where none is flagged."""
        flagged = self._quality[self._is_issue]
        return averaged_share(self.false_alarms, float(flagged.mean())) if flagged.size else 0.0

    @cached_property
    def share_wrong(self) -> float:
        """The expected share of wrong labels among all recorded ones: the mean of one minus quality."""
        known = self._quality[self.labels >= 0]
        return float(1 - known.mean()) if known.size else float("nan")

    @cached_property
    def noise_rate(self) -> np.ndarray:
        """Error rate at each step's moment, averaged over true classes: shape (n, steps[, annotators])."""
        return self.error_rates @ self.probabilities[self.mask].mean(0)

    @cached_property
    def reason(self) -> np.ndarray:
        """Explanation of each flag in words; None for all other labels."""
        support = find_support(self.labels, self._is_issue, self._suggested, self.signal, self.noise_rate)
        reasons = np.full(self.labels.shape, None, dtype=object)
        reasons[self._is_issue] = explain(support, self.classes.tolist())
        return self._shaped(reasons)

    def corrected(self, min_confidence: float | None = None) -> np.ndarray:
        """The recorded labels as codes, with the suggested label in place of each flagged one that is not in a run.

        In a run, either labels or signals may be at fault (`kind`). Gaps stay gaps. Shape (n, steps) or, with
        annotators, (n, steps, annotators).

        Parameters
        ----------
        min_confidence : float, optional
            Replace the labels whose suggestion has at least this probability, flagged or not, in runs or not. Where
            nothing but runs is flagged, because wrong labels are not shown, none is replaced.
        """
        replaced = self._is_issue & (self._kinds != KINDS.index(RUN))
        if min_confidence is not None:
            _validation.check_number("min_confidence", min_confidence, 0, 1)
            sure = (self.suggested_probability >= min_confidence)[..., None]
            replaced = sure & (self.labels >= 0) & self._may_change(0)
        replaced &= np.asarray(self.ahead) == 0
        return self._shaped(np.where(replaced, self._suggested[..., None], self.labels).astype(np.int8))

    def plan(self, k: int, by: str = "sequence") -> Plan:
        """The k sequences or steps to re-annotate first: a greedy D-optimal design for Q.

        Feed the answers back with `fit(trusted=...)`.

        Parameters
        ----------
        k : int
        by : {"sequence", "step"}
        """
        return plan_review(self.labels, self.mask, self.clock, self.probabilities, k, by, self.trusted)

    def to_table(
        self,
        ids: Sequence[Hashable] | None = None,
        times: ArrayLike | None = None,
        annotators: Sequence[Hashable] | None = None,
    ) -> pa.Table:
        """One table row for every recorded label, under the user's ids, times and annotators.

        Parameters
        ----------
        ids : n names, optional
            The number of each sequence when left out.
        times : array of shape (n, steps), optional
            The number of each step when left out.
        annotators : names along the annotator axis, optional
        """
        import pyarrow as pa  # imported late, because it is slow and often not needed

        n, n_steps, n_annotators = self.labels.shape
        sequences = default_names("ids", ids, n, ", one per sequence")
        if times is not None and np.shape(times) != (n, n_steps):
            raise ValueError(f"times must have shape {(n, n_steps)}, one per step. Got shape {np.shape(times)}.")
        people = default_names("annotators", annotators, n_annotators)
        row, step, annotator = np.nonzero(self.labels >= 0)
        whole = (n, n_steps, n_annotators)
        columns: dict[str, Any] = {
            "sequence": _take(sequences, row),
            "step": step,
            "time": step if times is None else np.asarray(times)[row, step],
        }
        if self.has_annotators:
            columns["annotator"] = _take(people, annotator)
        columns |= {
            "clock": self.clock[row, step],
            "recorded": _take(self.classes.tolist(), self.labels[row, step, annotator]),
            "probability_right": self.quality.reshape(whole)[row, step, annotator],
            "probability_contested": self.contested.reshape(whole)[row, step, annotator],
            "suggested": _take(self.classes.tolist(), self.probabilities.argmax(-1)[row, step]),
            "suggested_probability": self.suggested_probability[row, step],
            "is_issue": self.is_issue.reshape(whole)[row, step, annotator],
            "kind": pa.array(self.kind.reshape(whole)[row, step, annotator], pa.string()),
            "reason": pa.array(self.reason.reshape(whole)[row, step, annotator], pa.string()),
        }
        return pa.table({name: _column(values) for name, values in columns.items()})

    def to_cleanlab(self) -> dict[str, np.ndarray]:
        """The columns of cleanlab's `CleanLearning.find_label_issues`, one value for every recorded label.

        `is_label_issue`, `label_quality` (the probability that the label is right), `given_label` and `predicted_label`
        (the suggestion), in the order of sequences and steps: ``pandas.DataFrame(audit.to_cleanlab())``.
        """
        row, step, annotator = np.nonzero(self.labels >= 0)
        return {
            "is_label_issue": self._is_issue[row, step, annotator],
            "label_quality": self._quality[row, step, annotator],
            "given_label": self.classes[self.labels[row, step, annotator]],
            "predicted_label": self.suggested[row, step],
        }

    @cached_property
    def kind(self) -> np.ndarray:
        """What identifies each flag; None for all other labels.

        "isolated": at most two steps in a row, between labels that agree with the suggestion. "contested": another
        annotator recorded the suggestion. "misaligned": the label fits another step. "run": label and signal disagree
        for several steps, and either may be at fault.
        """
        kinds = np.full(self.labels.shape, None, dtype=object)
        kinds[self._is_issue] = np.array(KINDS, dtype=object)[self._kinds[self._is_issue]]
        return self._shaped(kinds)

    @cached_property
    def _kinds(self) -> np.ndarray:
        n, n_steps, n_annotators = self.labels.shape
        differs = (self.labels >= 0) & (self.labels != self._suggested[..., None])
        sequence = np.repeat(np.arange(n), n_steps)
        runs = run_lengths(differs.reshape(-1, n_annotators), sequence).reshape(self.labels.shape)
        others = (self.labels == self._suggested[..., None]).sum(-1, keepdims=True)
        return find_kinds(runs, np.broadcast_to(others, self.labels.shape), self.is_misaligned)

    @cached_property
    def _quality(self) -> np.ndarray:
        codes = self.labels.clip(0).astype(np.intp)
        return np.where(self.labels >= 0, np.take_along_axis(self.probabilities, codes, -1), np.nan)

    @cached_property
    def _suggested(self) -> np.ndarray:
        return self.probabilities.argmax(-1).astype(np.int8)

    @cached_property
    def _is_issue(self) -> np.ndarray:
        bound = flag_bound(self.false_alarms, self.fdr)
        return self.flags_below(find_threshold([self._quality[self._may_flag]], bound)[0])

    def flags_below(self, threshold: float) -> np.ndarray:
        """The flags of labels with a quality below a threshold: bool of shape (n, steps, annotators)."""
        with np.errstate(invalid="ignore"):
            return self._may_flag & (self._quality < threshold)

    @cached_property
    def _may_flag(self) -> np.ndarray:
        differs = self.labels != self._suggested[..., None]
        may_change = self._may_change((self._kinds == KINDS.index(RUN)).astype(int))
        return (self.labels >= 0) & (self.spend_fdr | differs) & may_change

    def _may_change(self, in_run: int | np.ndarray) -> np.ndarray:
        """Labels that may be named, by the first axis of `may_name`."""
        named = np.asarray(self.may_name)
        if named.ndim:
            named = named[in_run, self.labels, self._suggested[..., None]]
        return np.where(np.asarray(self.ahead) > 0, ~self._fits_ahead & named, self.is_misaligned | named)

    @cached_property
    def _fits_ahead(self) -> np.ndarray:
        """Labels that are the likeliest one at the step so far ahead, or have none there."""
        own = np.arange(self.labels.shape[1])[:, None] + np.broadcast_to(self.ahead, self.labels.shape)
        row, inside = np.arange(len(self.labels))[:, None, None], own < self.mask.sum(1)[:, None, None]
        return ~inside | (self._suggested[row, np.where(inside, own, 0)] == self.labels)

    @cached_property
    def is_misaligned(self) -> np.ndarray:
        """Late labels that differ from the likeliest one, while the label that is moved to their step does not."""
        return is_misaligned(self.labels, self.aligned, self._suggested) & (np.asarray(self.ahead) == 0)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values if self.has_annotators else values[..., 0]


BINS = 1 << 16  # of quality, in whose steps the threshold of flags is found


def in_fixed_point(probabilities: np.ndarray) -> np.ndarray:
    """Probabilities as multiples of 2^-24, whose sums are exact: the same in whatever parts labels are summed."""
    return np.asarray(np.rint(probabilities * 2.0**24) / 2.0**24)


def find_threshold(qualities: Iterable[np.ndarray], fdr: float) -> tuple[float, np.ndarray]:
    """The quality below which labels are flagged, 0 where none is, and how many are in each bin of quality up to it.

    As many bins of lowest quality as possible are flagged while the mean quality of their labels stays at most `fdr`.
    `qualities` are those of the labels that may be flagged, in parts of any size.
    """
    counts, sums = np.zeros(BINS, dtype=np.int64), np.zeros(BINS)
    for quality in qualities:
        values = quality.astype(np.float64)
        bin_of = np.minimum((values * BINS).astype(np.int64), BINS - 1)
        counts += np.bincount(bin_of, minlength=BINS)
        sums += np.bincount(bin_of, in_fixed_point(values), minlength=BINS)
    total = np.cumsum(counts)
    within = np.flatnonzero((total > 0) & (np.cumsum(sums) <= fdr * total))
    last = int(within[-1]) + 1 if len(within) else 0
    # A label that is surely right lies at the upper end of the last bin.
    return last / BINS if last < BINS else 2.0, counts[:last]


# Kinds of flagged labels: what identifies them as wrong (docs/decisions/029-labels-and-signals.md).
ISOLATED, RUN, CONTESTED, MISALIGNED = KINDS = ("isolated", "run", "contested", "misaligned")
MAX_ISOLATED = 2  # by hand: steps in a row that differ from the likeliest label, up to which labels persist around them


def run_lengths(differs: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Length of the run of true values (steps, annotators), within a `sequence` (steps,), that each is in, or 0."""
    begins = differs.copy()
    begins[1:] &= ~differs[:-1] | (sequence[1:] != sequence[:-1])[:, None]
    lengths = np.zeros(differs.shape, dtype=np.int64)
    for annotator in range(differs.shape[1]):
        inside, run = differs[:, annotator], np.cumsum(begins[:, annotator])
        lengths[inside, annotator] = np.bincount(run[inside])[run[inside]]
    return lengths


def find_kinds(run: np.ndarray, others: np.ndarray, misaligned: np.ndarray) -> np.ndarray:
    """The kind of each label as an index into `KINDS`, from lengths of runs, other annotators who agree, and shifts."""
    kinds = np.where(run > MAX_ISOLATED, KINDS.index(RUN), KINDS.index(ISOLATED))
    kinds = np.where(others > 0, KINDS.index(CONTESTED), kinds)
    return np.where(misaligned, KINDS.index(MISALIGNED), kinds)


def is_misaligned(labels: np.ndarray, aligned: np.ndarray | None, suggested: np.ndarray) -> np.ndarray:
    """Labels (..., annotators) that differ from the likeliest one (...), while the one moved to their step does not."""
    if aligned is None:
        return np.zeros(labels.shape, bool)
    return (labels >= 0) & (labels != suggested[..., None]) & (aligned == suggested[..., None])


@torch_on_one_thread()
def audit_labels(
    recorded: LabelCodes, evidence: np.ndarray, chain: Chain, noise: NoiseFunction, classes: np.ndarray, **settings: Any
) -> LabelAudit:
    """Audit recorded labels with a fitted chain and out-of-fold log-probabilities, (n, steps, classes).

    `settings` are attributes of the `LabelAudit` that do not follow from these, such as `fdr` and `may_name`.
    """
    _validation.check_number("fdr", settings.get("fdr", FDR), 0, 1)
    signal = torch.from_numpy(np.exp(evidence) * recorded.mask[..., None]).double()
    judge = Judge.fit(recorded, signal, chain, noise)
    scores = judge.score(recorded, signal)
    shape = (*recorded.mask.shape, len(chain.start))
    wrong, index = judge.error_rates, scores.point.reshape(recorded.mask.shape)
    return LabelAudit(
        classes=classes,
        labels=recorded.labels,
        clock=recorded.clock,
        mask=recorded.mask,
        probabilities=scores.posterior.reshape(shape),
        signal=signal.numpy(),
        error_rates=wrong[0, index] if recorded.sources is None else wrong[recorded.sources[:, None], index[..., None]],
        trusted=recorded.trusted,
        another=scores.another.reshape(shape) * recorded.mask[..., None],
        **settings,
    )


def no_persistence(n_classes: int) -> Chain:
    """A chain without persistence: uniform transitions, so that steps are independent given the evidence."""
    even = np.full(n_classes, 1 / n_classes)
    return Chain(even, np.tile(even, (n_classes, 1)), 1.0)


# Expected false alarms among flagged labels. The quality of a label under the fitted chain takes Q and k as known.
# It is averaged over the profile likelihood of the share S, :math:`\bar q_i = \int q_i(S) L(S) dS / \int L(S) dS`
# (Bayesian model averaging, Hoeting and others 1999), raised to the power that makes its 95 % interval that of clusters
# (docs/decisions/013-false-alarms.md).

# Mean qualities of flags under the fitted chain at which the averaged mean is computed.
QUALITY_GRID = np.array([0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5])
MIN_WEIGHT = 1e-3  # of a point of the profile, below which it is left out


def profile_weights(shares: np.ndarray, roots: np.ndarray, critical: float, quantile: float) -> np.ndarray:
    """Weights of the points: likelihood from signed roots, tempered so that `critical` becomes `quantile`."""
    weights = np.exp(-0.5 * (roots * quantile / critical) ** 2) * np.gradient(shares)
    weights[len(weights) // 2] += 1e-12  # all of the weight where every point has the same share
    return np.asarray(weights / weights.sum())


def false_alarm_curve(data: ChainData, chains: ChainParameters, weights: np.ndarray, centre: int) -> np.ndarray:
    """Averaged quality of the labels whose mean quality under the fitted chain is at most each of `QUALITY_GRID`.

    `chains` are the points of a profile likelihood with their weights, and `centre` is the index of the fitted one.
    """
    fitted = _quality(data, chains, centre)
    averaged = np.zeros_like(fitted)
    weights = np.where(weights >= MIN_WEIGHT, weights, 0.0)
    for index in np.flatnonzero(weights):
        averaged += weights[index] / weights.sum() * _quality(data, chains, int(index))
    order = np.argsort(fitted, kind="stable")
    count = np.arange(1, len(order) + 1)
    fitted_means, means = fitted[order].cumsum() / count, averaged[order].cumsum() / count
    last = np.searchsorted(fitted_means, QUALITY_GRID, side="right") - 1
    return np.asarray(np.maximum.accumulate(np.where(last >= 0, means[last.clip(0)], QUALITY_GRID)))


def flag_bound(curve: np.ndarray | None, fdr: float) -> float:
    """The bound on the mean quality of flags at which their averaged quality is at most `fdr`; never above it."""
    if curve is None or np.interp(fdr, QUALITY_GRID, curve) <= fdr:
        return fdr
    fine = np.linspace(0, fdr, 201)
    return float(fine[np.flatnonzero(np.interp(fine, QUALITY_GRID, curve) <= fdr)].max(initial=0.0))


def averaged_share(curve: np.ndarray | None, mean_quality: float) -> float:
    """The expected share of false alarms among flags of this mean quality under the fitted chain."""
    return mean_quality if curve is None else max(mean_quality, float(np.interp(mean_quality, QUALITY_GRID, curve)))


def _quality(data: ChainData, parameters: ChainParameters, index: int) -> np.ndarray:
    """The probability that each recorded label is right under one of the chains: (labels,)."""
    single = same_data(torch.ones(1, data.labels.shape[1]))
    posterior = posteriors(data, single, parameters.take(torch.tensor([index])))
    labels, values = data.labels[0].numpy(), posterior[0].double().numpy()
    row, step, annotator = np.nonzero((labels >= 0) & data.mask.numpy()[..., None])
    of_step = values[row, step]  # (labels, classes)
    return np.asarray(of_step[np.arange(len(row)), labels[row, step, annotator]] / of_step.sum(1).clip(1e-300))


# Contested labels: the probability :math:`1 - p_t(j)` that another expert would record another label than j.
#
# With several annotators :math:`p_t` is a logarithmic opinion pool (`chain/annotators.py`) of what the chain expects of
# another annotator, of the shares of votes at the step, and of the out-of-fold networks, with the weights by which each
# annotator is best predicted from the others. With one annotator it is a linear opinion pool (Stone 1961),
# :math:`p_t = s\, \pi_t Q(t) + (1 - s) f_t`: another expert sees what the annotator sees, or shares no more than the
# features, whose prediction :math:`f_t` is calibrated out of fold (docs/decisions/011-contested.md).

NUMBERS_AT_ONCE = 2**22  # of Q at steps that are held in memory together
SEEN_ALIKE = 1 / 3  # by hand, with one annotator: the weight of what the annotator sees and the features do not hold
MAX_LOGIT = 60.0


def differs_probability(another: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probability that another annotator records another label than each recorded one; NaN where there is none."""
    codes = labels.clip(0).astype(np.intp)
    return np.where(labels >= 0, 1 - np.take_along_axis(another, codes, -1), np.nan)


def small_softmax(logits: Tensor) -> Tensor:
    """Softmax over few classes: by a product with ones, several times faster than torch's own over a short axis."""
    powers = logits.clamp(-MAX_LOGIT, MAX_LOGIT).exp_()
    return powers / (powers @ _ones_matrix(powers))


def _ones_matrix(values: Tensor) -> Tensor:
    return torch.ones(values.shape[-1], values.shape[-1], dtype=values.dtype, device=values.device)


class LabelCodes(NamedTuple):
    """Labels to audit, as codes; NumPy arrays of what `ChainData` holds as tensors."""

    labels: np.ndarray  # int8 (n, steps, annotators), -1 where nothing was recorded
    mask: np.ndarray  # bool (n, steps), False on padding
    clock: np.ndarray  # (n, steps)
    trusted: np.ndarray | None = None  # int8 (n, steps), true labels where they are known, -1 elsewhere
    sources: np.ndarray | None = None  # int64 (n, annotators), whose Q applies to each; None: the annotator's, or one
    gaps: np.ndarray | None = None  # int64 (n, steps), steps of time before each step; None where all are one


class Scores(NamedTuple):
    """Probabilities at some steps, arrays of shape (steps, classes), and the index of their moments: int64 (steps,)."""

    posterior: np.ndarray  # of the true label, given all labels and features
    another: np.ndarray  # of the label of another annotator
    signal: np.ndarray  # of the true label, given the features alone
    point: np.ndarray  # on the grid of the judge


@dataclass
class Judge:
    r"""A fitted hidden Markov model with all that is fixed beforehand: a label gets the same numbers in whatever rows.

    The posterior is that of forward-backward smoothing (Rabiner 1989), :math:`P(y_t \mid \tilde y_{1:T}, x) \propto
    \alpha_t \beta_t`, with the probabilities from the features to the power k and Q(t) as emission probabilities.
    """

    chain: Chain
    grid: np.ndarray  # moments of the clock, rising
    noise: Tensor  # (sources or 1, points, classes, classes)
    common: Tensor  # (points, classes, classes)
    gap_lengths: tuple[int, ...]
    several: bool  # whether any step has labels of two annotators
    weights: Tensor  # of the opinions of chain, votes and features where steps have several labels, else of features
    prior: Tensor  # votes that are added to those of a step

    @classmethod
    def fit(cls, recorded: LabelCodes, signal: Tensor, chain: Chain, noise: NoiseFunction) -> Judge:
        """Fix grid, lengths of gaps and weights of the opinion pool from labels and probabilities from the features."""
        labels, mask = torch.from_numpy(recorded.labels), torch.from_numpy(recorded.mask)
        shared = shared_labels(labels, mask)
        grid = clock_grid(recorded.clock, recorded.mask)[0]
        matrices = torch.from_numpy(np.asarray(noise.at(grid))).float()
        matrices = matrices if matrices.ndim == 4 else matrices[None]
        common = torch.from_numpy(np.asarray(noise.common_at(grid))).to(signal.dtype)
        lengths = (1,) if recorded.gaps is None else gap_ladder(_inner_gaps(recorded))[1]
        none = torch.ones(matrices.shape[-1], dtype=signal.dtype)
        judge = cls(chain, grid, matrices, common, lengths, bool(shared.any()), none[:1], none)
        point = judge._points(recorded).flatten()

        def expected(belief: Tensor) -> Tensor:
            return judge._expected(point, belief.double().flatten(0, 1))[0].reshape(belief.shape)

        by_features = expected(signal)
        if judge.several:
            left_out = torch.stack([expected(without) for without in judge._without_each(recorded, signal)])
            prior = votes_prior(count_votes(labels, len(none)).flatten(0, -2), len(none))
            weights = fit_weights(*left_out_opinions(labels, shared, left_out, prior, [by_features]))
            judge.prior = prior.to(signal.dtype)
        else:
            only = labels.amax(-1).long()  # the one label of each step, or -1
            labelled = (only >= 0) & mask
            start = torch.ones(1, dtype=torch.float64)
            weights = fit_weights(stack_opinions(by_features)[labelled], only[labelled], start)
        judge.weights = weights.to(signal.dtype)
        return judge

    @property
    def error_rates(self) -> np.ndarray:
        """1 less the diagonal of Q: shape (sources or 1, points, classes)."""
        return 1 - torch.diagonal(self.noise, dim1=-2, dim2=-1).numpy()

    def score(self, recorded: LabelCodes, signal: Tensor, steps: np.ndarray | None = None) -> Scores:
        """Judge rows by their labels and the probabilities from their features, (n, steps, classes).

        `steps` are indices into an array of (n, steps) read as one row; None for all.
        """
        index = torch.arange(recorded.mask.size) if steps is None else torch.from_numpy(steps)
        of_rows = self.posterior(recorded, signal)
        posterior, features = (values.flatten(0, 1)[index] for values in (of_rows, signal))
        point = self._points(recorded).flatten()[index]
        by_features, by_chain = self._expected(point, features, posterior)
        opinions = [by_features]
        if self.several:
            mean, counts = self._average_without_each(recorded, signal)
            counts = counts.flatten()[index][:, None]
            left_out = self._expected(point, mean.flatten(0, 1)[index])[0]
            labels = torch.from_numpy(recorded.labels).flatten(0, 1)[index]
            votes = vote_shares(labels, self.prior.double()).to(signal.dtype)
            opinions = [torch.where(counts > 0, left_out, by_chain), votes, by_features]
        logs = [opinion.clamp_min(MIN_PROBABILITY).log() for opinion in opinions]
        another = small_softmax(sum(weight * log for weight, log in zip(self.weights, logs, strict=True)))
        if not self.several:
            another = SEEN_ALIKE * by_chain + (1 - SEEN_ALIKE) * another
        return Scores(*(values.numpy() for values in (posterior, another, features, point)))

    def posterior(self, recorded: LabelCodes, signal: Tensor) -> Tensor:
        """Posterior of the true labels: (n, steps, classes), zero on padding."""
        jumps = None
        if recorded.gaps is not None:
            index = np.searchsorted(np.array(self.gap_lengths), _inner_gaps(recorded))
            jumps = torch.from_numpy(np.minimum(index, len(self.gap_lengths) - 1).astype(np.int8))
        labels = recorded.labels
        if recorded.sources is not None:
            labels = spread_labels(labels, recorded.sources, len(self.noise))
        mask = torch.from_numpy(recorded.mask)
        data = ChainData(
            labels=torch.from_numpy(labels)[None],
            mask=mask,
            points=self._points(recorded),
            n_points=len(self.grid),
            n_classes=self.noise.shape[-1],
            evidence=signal.clamp_min(1e-30).log().float()[None],
            trusted=None if recorded.trusted is None else torch.from_numpy(recorded.trusted),
            jumps=jumps,
            gaps=(1,) if jumps is None else self.gap_lengths,
        )
        numbers = (self.chain.start, self.chain.transition, self.chain.power)
        start, transition, power = (torch.as_tensor(values).float()[None] for values in numbers)
        bursts = torch.tensor([self.chain.bursts]) if self.chain.bursts else None
        parameters = ChainParameters(start, transition, power, self.noise[None], bursts)
        posterior = posteriors(data, same_data(torch.ones(1, len(mask))), parameters)[0].to(signal.dtype)
        posterior = posterior * mask[..., None]
        return posterior / (posterior @ _ones_matrix(posterior)).clamp_min(1e-30)

    def _points(self, recorded: LabelCodes) -> Tensor:
        return torch.from_numpy(np.searchsorted((self.grid[1:] + self.grid[:-1]) / 2, recorded.clock))

    def _expected(self, point: Tensor, *beliefs: Tensor) -> list[Tensor]:
        """Probability of each recorded label given beliefs in the true ones, (steps, classes); some steps at a time."""
        size = max(1, NUMBERS_AT_ONCE // self.common.shape[-1] ** 2)
        results = [torch.empty_like(belief) for belief in beliefs]
        for start in range(0, len(point), size):
            some = slice(start, start + size)
            common = self.common[point[some]].to(beliefs[0].dtype)
            for belief, result in zip(beliefs, results, strict=True):
                result[some] = torch.bmm(belief[some, None], common)[:, 0]
        return results

    def _without_each(self, recorded: LabelCodes, signal: Tensor) -> Iterator[Tensor]:
        """The posterior given the labels of all annotators but one, for each of them."""
        for annotator in range(recorded.labels.shape[-1]):
            others = recorded.labels.copy()
            others[..., annotator] = -1
            yield self.posterior(recorded._replace(labels=others, trusted=None), signal)

    def _average_without_each(self, recorded: LabelCodes, signal: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of these over the annotators of a step that has several, and their number: (n, steps)."""
        shared = shared_labels(torch.from_numpy(recorded.labels), torch.from_numpy(recorded.mask))
        sums, counts = torch.zeros_like(signal), shared.sum(-1)
        rows = np.flatnonzero(shared.any(-1).any(-1).numpy())
        some = LabelCodes(*(None if values is None else values[rows] for values in recorded))  # type: ignore[arg-type]
        for annotator, without in enumerate(self._without_each(some, signal[rows]) if len(rows) else ()):
            sums[rows] += without * shared[rows, :, annotator, None]
        return sums / counts.clamp_min(1)[..., None], counts


def _inner_gaps(recorded: LabelCodes) -> np.ndarray:
    """The gaps within rows, at most `MAX_GAP` steps of time."""
    assert recorded.gaps is not None
    gaps = np.where(recorded.mask, np.minimum(recorded.gaps, MAX_GAP), 1)
    gaps[:, 0] = 1
    return gaps


def _take(names: Sequence[Any], index: np.ndarray) -> list[Any]:
    return [names[i] for i in index.tolist()]


def _column(values: Any) -> Any:
    """An Arrow array of the values; text where Arrow has no type for them, as for mixed tuples."""
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")  # Arrow knows no minutes or days with a time
    try:
        return pa.array(values) if not isinstance(values, pa.Array) else values
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


# Greedy D-optimal design: the sequences or steps whose re-annotation adds most information on Q (Fedorov 1972).

PRIOR_LABELS = 1.0  # by hand: pseudo-observations of every row of Q in every bin


class Plan(NamedTuple):
    """What to re-annotate, the most useful first."""

    rows: np.ndarray  # (k,), numbers of sequences
    steps: np.ndarray | None  # (k,), or None where whole sequences were asked for
    gain: np.ndarray  # (k,), increase of the log-determinant of the information on Q, given those before it

    def __repr__(self) -> str:
        return f"Plan(rows={short(self.rows)}, steps={short(self.steps)}, gain={short(self.gain)})"


def plan_review(
    labels: np.ndarray,
    mask: np.ndarray,
    clock: np.ndarray,
    probabilities: np.ndarray,
    k: int,
    by: str = "sequence",
    trusted: np.ndarray | None = None,
) -> Plan:
    r"""Choose what to re-annotate by greedy D-optimal design for Q, over true labels and bins of the clock.

    A cell is a true label in a bin of the clock. The information on it is the number :math:`N_c` of its steps with a
    known true label, expected under the posterior, and a D-optimal set maximises :math:`\sum_c \log N_c`. The gain is
    submodular, so the greedy set reaches at least 63 % of the best gain (Nemhauser, Wolsey and Fisher 1978). Arguments
    are as in `LabelAudit` and `LabelAudit.plan`; trusted labels are not asked for again.
    """
    _validation.check_choice("by", by, ("sequence", "step"))
    n, _, n_classes = probabilities.shape
    recorded = (labels >= 0).any(-1) & mask
    done = np.zeros_like(mask) if trusted is None else (trusted >= 0) & recorded
    cell = clock_bins(clock, mask)  # (n, steps)
    known = np.full((CLOCK_BINS, n_classes), PRIOR_LABELS)
    np.add.at(known, cell[done], probabilities[done])
    open_steps = recorded & ~done
    n_open = int(open_steps.any(1).sum() if by == "sequence" else open_steps.sum())
    if n_open == 0:
        raise ValueError(f"There are no {by}s left to re-annotate: every recorded label is trusted.")
    _validation.check_number("k", k, 1, n_open, whole=True)
    if by == "sequence":
        candidates = np.flatnonzero(open_steps.any(1))
        gains = np.zeros((n, CLOCK_BINS, n_classes))
        np.add.at(gains, (np.arange(n)[:, None], cell), probabilities * open_steps[..., None])
        everywhere = np.zeros(len(candidates), np.intp)
        chosen, gain = _greedy(gains[candidates].reshape(len(candidates), -1), everywhere, known.reshape(1, -1), k)
        return Plan(candidates[chosen], None, gain)
    row, step = np.nonzero(open_steps)
    chosen, gain = _greedy(probabilities[row, step], cell[row, step], known, k)
    return Plan(row[chosen], step[chosen], gain)


def _greedy(gains: np.ndarray, cell: np.ndarray, information: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates with the largest gain, one after the other: lazy greedy (Minoux 1978), as gains only shrink.

    Each of `gains` (candidates, rows of Q) adds to the row `cell` of `information` (cells, rows of Q).
    """
    information = information.copy()
    first = np.log1p(gains / information[cell]).sum(1)
    heap = [(-value, i) for i, value in enumerate(first.tolist())]
    heapq.heapify(heap)
    chosen: list[int] = []
    added: list[float] = []
    while len(chosen) < k:
        _, i = heapq.heappop(heap)
        now = float(np.log1p(gains[i] / information[cell[i]]).sum())
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, i))
            continue
        chosen.append(i)
        added.append(now)
        information[cell[i]] += gains[i]
    return np.array(chosen), np.array(added)
