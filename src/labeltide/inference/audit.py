r"""Label errors: posterior probability that each label is right, and flags at a Bayesian false discovery rate.

The posterior comes from the forward-backward pass of the hidden Markov model (`true_label_posterior`). A label's
probability :math:`q_i` of being right is the local false discovery rate of flagging it (Efron 2007). The flags are the
largest set :math:`R` of the smallest values with :math:`\sum_{i \in R} q_i / |R| \le \mathrm{fdr}` (Newton and others
2004; the Bayesian false discovery rate of Storey 2003).

By default only labels for which another is likelier are flagged. Of calibrated probabilities, the threshold with the
largest expected F1 is half of that F1 (Lipton, Elkan and Narayanaswamy 2014): about one half where errors are found
well. With `spend_fdr` the flags go on until the allowed share of false alarms is reached, for those who must find
nearly all errors.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltide import _validation
from labeltide._display import short
from labeltide.chain.annotators import (
    average_left_out,
    fit_weights,
    left_out_opinions,
    pool,
    shared_labels,
    stack_opinions,
    vote_prior,
    vote_shares,
)
from labeltide.chain.data import Chain, ChainData, ChainParameters, same_data
from labeltide.chain.passes import posteriors
from labeltide.data.clusters import spread_labels
from labeltide.inference.conclusion import explain, find_support
from labeltide.inference.display import LabelAuditDisplay
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
    may_name : bool
        False where the fit does not show that labels are wrong (`conclusion.py`); then none is flagged or corrected.
    another : array of shape (n, steps, classes), optional
        Probability of each label that another annotator would record; the posterior stands in where it is left out.
    false_alarms : array, optional
        Expected shares of false alarms, Q and k not taken as known (`false_alarm_curve`). Audits of tables have it.
    spend_fdr : bool
        Whether labels for which no other is likelier are flagged too, until the mean quality of the flags is `fdr`.
    out_of_fold : bool array of shape (n,), optional
        Which rows are training rows of `tide`, judged by networks that have not seen them; None for other methods.
    aligned : int8 array of shape (n, steps, annotators), optional
        The labels moved to the signals, from which the posterior was computed; None where none was moved.
    fit : TideClassifier or PredictionFit, optional
        What the labels were judged with. It has `noise_estimate_`, `temporality_`, `conclusion_` and `diagnostics_`.

    Computed from these when first asked for: `quality`, `contested`, `suggested`, `is_issue` and others.
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
    may_name: bool = True
    false_alarms: np.ndarray | None = None
    spend_fdr: bool = False
    out_of_fold: np.ndarray | None = None
    aligned: np.ndarray | None = None
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
        """The recorded labels as codes, with the suggested label in place of each flagged one.

        Gaps stay gaps. Shape (n, steps) or, with annotators, (n, steps, annotators).

        Parameters
        ----------
        min_confidence : float, optional
            Replace the labels whose suggestion has at least this probability, flagged or not, in place of flagged ones.
        """
        replaced = self._is_issue
        if min_confidence is not None:
            _validation.check_number("min_confidence", min_confidence, 0, 1)
            sure = (self.suggested_probability >= min_confidence)[..., None]
            replaced = sure & (self.labels >= 0) & (self.may_name | self.is_misaligned)
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
        if ids is not None and len(ids) != n:
            raise ValueError(f"ids must be {n} names, one per sequence. Got {len(ids)}.")
        if times is not None and np.shape(times) != (n, n_steps):
            raise ValueError(f"times must have shape {(n, n_steps)}, one per step. Got shape {np.shape(times)}.")
        if annotators is not None and len(annotators) != n_annotators:
            raise ValueError(f"annotators must be {n_annotators} names. Got {len(annotators)}.")
        row, step, annotator = np.nonzero(self.labels >= 0)
        whole = (n, n_steps, n_annotators)
        columns: dict[str, Any] = {
            "sequence": row if ids is None else _take(ids, row),
            "step": step,
            "time": step if times is None else np.asarray(times)[row, step],
        }
        if self.has_annotators:
            columns["annotator"] = annotator if annotators is None else _take(annotators, annotator)
        columns |= {
            "clock": self.clock[row, step],
            "recorded": _take(self.classes.tolist(), self.labels[row, step, annotator]),
            "probability_right": self.quality.reshape(whole)[row, step, annotator],
            "probability_contested": self.contested.reshape(whole)[row, step, annotator],
            "suggested": _take(self.classes.tolist(), self.probabilities.argmax(-1)[row, step]),
            "suggested_probability": self.suggested_probability[row, step],
            "is_issue": self.is_issue.reshape(whole)[row, step, annotator],
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
    def _quality(self) -> np.ndarray:
        codes = self.labels.clip(0).astype(np.intp)
        return np.where(self.labels >= 0, np.take_along_axis(self.probabilities, codes, -1), np.nan)

    @cached_property
    def _suggested(self) -> np.ndarray:
        return self.probabilities.argmax(-1).astype(np.int8)

    @cached_property
    def _is_issue(self) -> np.ndarray:
        candidates = self.labels >= 0 if self.spend_fdr else self.labels != self._suggested[..., None]
        may_flag = candidates & (self.may_name | self.is_misaligned)
        return choose_issues(self._quality, may_flag, flag_bound(self.false_alarms, self.fdr))

    @cached_property
    def is_misaligned(self) -> np.ndarray:
        """Labels that differ from the likeliest one, while the label that is moved to their step does not."""
        if self.aligned is None:
            return np.zeros(self.labels.shape, bool)
        return (self.labels >= 0) & (self.labels != self.aligned) & (self.aligned == self._suggested[..., None])

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values if self.has_annotators else values[..., 0]


def choose_issues(quality: np.ndarray, may_flag: np.ndarray, fdr: float) -> np.ndarray:
    """Flag as many labels as possible, lowest quality first, while their mean quality stays at most `fdr`.

    The mean quality of the flags is their Bayesian false discovery rate (Newton and others 2004). Ties are flagged
    together or not at all. Quality is NaN where nothing was recorded; `may_flag` has the same shape.
    """
    candidates = np.sort(quality[may_flag & np.isfinite(quality)])
    if not candidates.size:
        return np.zeros(quality.shape, dtype=bool)
    # Running means of sorted values increase, so the last one within the bound ends the set; ties end at their last.
    last = np.searchsorted(candidates, candidates, side="right")
    means = candidates.cumsum()[last - 1] / last
    worst = candidates[means <= fdr]
    return may_flag & (quality <= worst[-1]) if worst.size else np.zeros(quality.shape, dtype=bool)


@torch_on_one_thread()
def audit_labels(
    recorded: Recorded,
    evidence: np.ndarray,
    chain: Chain,
    noise: NoiseFunction,
    classes: np.ndarray,
    *,
    fdr: float = FDR,
    spend_fdr: bool = False,
    has_annotators: bool = False,
    may_name: bool = True,
    false_alarms: np.ndarray | None = None,
    fit: Any = None,
) -> LabelAudit:
    """Audit recorded labels with a fitted chain and out-of-fold log-probabilities, (n, steps, classes)."""
    _validation.check_number("fdr", fdr, 0, 1)
    posterior = true_label_posterior(recorded, evidence, chain, noise)
    moments, index = np.unique(recorded.clock, return_inverse=True)
    wrong = 1 - np.diagonal(noise.at(moments), axis1=-2, axis2=-1)  # ([sources,] moments, classes)
    index = index.reshape(recorded.clock.shape)
    return LabelAudit(
        classes=classes,
        labels=recorded.labels,
        clock=recorded.clock,
        mask=recorded.mask,
        probabilities=posterior,
        signal=np.exp(evidence) * recorded.mask[..., None],
        error_rates=wrong[index] if recorded.sources is None else wrong[recorded.sources[:, None], index[..., None]],
        fdr=fdr,
        spend_fdr=spend_fdr,
        has_annotators=has_annotators,
        trusted=recorded.trusted,
        another=another_label(recorded, evidence, chain, noise, posterior),
        may_name=may_name,
        false_alarms=false_alarms,
        fit=fit,
    )


def no_persistence(n_classes: int) -> Chain:
    """A chain without persistence: uniform transitions, so that steps are independent given the evidence."""
    even = np.full(n_classes, 1 / n_classes)
    return Chain(even, np.tile(even, (n_classes, 1)), 1.0)


# Expected false alarms among flagged labels, averaged over what is not known of the share of wrong labels.
#
# The quality of a label under the fitted chain takes Q and k as known. Where few labels tell them, flags at a bound on
# its mean have more false alarms than the bound. The quality is therefore averaged over the profile likelihood of the
# share S, :math:`\bar q_i = \int q_i(S) L(S) dS / \int L(S) dS`, as in Bayesian model averaging (Hoeting and others
# 1999) with a uniform prior of S. The likelihood is raised to the power that makes its 95 % interval that of clusters
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

    Labels are taken lowest quality first. A mean quality that no label reaches is its own average. `chains` are the
    points of a profile likelihood with their weights, and `centre` is the index of the fitted chain among them.
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


# Contested labels: the probability that another expert would record another label.
#
# With the recorded label j,
#
# .. math:: P(\text{another differs}) = 1 - p_t(j),
#
# where :math:`p_t` is the distribution of the label of an annotator who has not labelled the step.
#
# *Several annotators.* :math:`p_t` is a logarithmic opinion pool (`chain/annotators.py`) of what the chain expects of
# another annotator, of the shares of votes at the step, and of the out-of-fold networks. Its weights are those with
# which each annotator is best predicted from the others. Steps that are hard for all annotators (Whitehill and others
# 2009) are thereby allowed for.
#
# *One annotator.* How far two experts agree beyond what the features say cannot be learned from one. Either the
# annotator sees a truth that the features do not hold, and another expert sees it too (:math:`\pi_t Q(t)`), or another
# expert shares no more than the features (:math:`f_t`, the networks' prediction, calibrated on the annotator's own
# labels out of fold). :math:`p_t = s\, \pi_t Q(t) + (1 - s) f_t` is a linear opinion pool (Stone 1961) with the fixed
# weight s = 1/3 (docs/decisions/011-contested.md). A habit that the annotator keeps everywhere, such as a border
# between two classes that lies elsewhere than for other experts, leaves no trace in the annotator's own labels. It is
# not part of the probability, so real experts differ more often than predicted.

NUMBERS_AT_ONCE = 2**22  # of Q at steps that are held in memory together
SEEN_ALIKE = 1 / 3  # by hand, with one annotator: the weight of what the annotator sees and the features do not hold


def another_label(
    recorded: Recorded, evidence: np.ndarray, chain: Chain, noise: NoiseFunction, posterior: np.ndarray
) -> np.ndarray:
    """Probability of each label of another annotator, given all labels and features: (n, steps, classes).

    `posterior` is that of the true labels, given all recorded ones.
    """
    expected = partial(_expected_label, clock=recorded.clock, noise=noise)
    by_features, by_chain = expected(np.exp(evidence)), expected(posterior)
    labels, mask = torch.from_numpy(recorded.labels), torch.from_numpy(recorded.mask)
    shared = shared_labels(labels, mask)
    if not bool(shared.any()):
        only = labels.amax(-1).long()  # the one label of each step, or -1
        opinion, labelled = stack_opinions(by_features), (only >= 0) & mask
        power = fit_weights(opinion[labelled], only[labelled], torch.ones(1, dtype=torch.float64))
        values = SEEN_ALIKE * by_chain + (1 - SEEN_ALIKE) * pool(power, opinion)
    else:
        without = []  # what the chain expects given the labels of all annotators but one
        for annotator in range(labels.shape[-1]):
            others = recorded.labels.copy()
            others[..., annotator] = -1
            part = recorded._replace(labels=others, trusted=None)
            without.append(expected(true_label_posterior(part, evidence, chain, noise)))
        left_out = torch.stack(without)
        prior = vote_prior(labels, posterior.shape[-1])
        weights = fit_weights(*left_out_opinions(labels, shared, left_out, prior, [by_features]))
        averaged = average_left_out(by_chain, left_out, shared)
        values = pool(weights, stack_opinions(averaged, vote_shares(labels, prior), by_features))
    return values.numpy() * recorded.mask[..., None]


def differs_probability(another: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probability that another annotator records another label than each recorded one; NaN where there is none."""
    codes = labels.clip(0).astype(np.intp)
    return np.where(labels >= 0, 1 - np.take_along_axis(another, codes, -1), np.nan)


def _expected_label(belief: np.ndarray, clock: np.ndarray, noise: NoiseFunction) -> Tensor:
    """Probability of each recorded label given beliefs in the true ones: (n, steps, classes).

    Q at every step is large with many classes, so some rows are taken at a time.
    """
    rows = max(1, NUMBERS_AT_ONCE // (clock.shape[1] * belief.shape[-1] ** 2))
    parts = []
    for start in range(0, len(clock), rows):
        moments, index = np.unique(clock[start : start + rows], return_inverse=True)
        common = torch.from_numpy(noise.common_at(moments)[index.reshape(-1, clock.shape[1])])  # (rows, steps, ...)
        parts.append(torch.einsum("nti,ntij->ntj", torch.from_numpy(belief[start : start + rows]).double(), common))
    return torch.cat(parts)


# Posterior of the true labels: forward-backward smoothing of a fitted hidden Markov model (Rabiner 1989).
#
# :math:`P(y_t \mid \tilde y_{1:T}, x) \propto \alpha_t \beta_t` with the chain's start, its transition matrix, the
# evidence to the power k, and Q(t) as emission probabilities.


class Recorded(NamedTuple):
    """Labels to audit, as codes; NumPy arrays of what `ChainData` holds as tensors."""

    labels: np.ndarray  # int8 (n, steps, annotators), -1 where nothing was recorded
    mask: np.ndarray  # bool (n, steps), False on padding
    clock: np.ndarray  # (n, steps)
    trusted: np.ndarray | None = None  # int8 (n, steps), true labels where they are known, -1 elsewhere
    sources: np.ndarray | None = None  # int64 (n, annotators), whose Q applies to each column; None for one Q
    gaps: np.ndarray | None = None  # int64 (n, steps), steps of time before each step; None where all are one


def true_label_posterior(recorded: Recorded, evidence: np.ndarray, chain: Chain, noise: NoiseFunction) -> np.ndarray:
    """Posterior of the true labels under a fitted chain: (n, steps, classes), zero on padding.

    `evidence` are out-of-fold log-probabilities of the true label given the features, of the same shape.
    """
    grid, points = clock_grid(recorded.clock, recorded.mask)
    labels = recorded.labels
    if recorded.sources is not None:
        labels = spread_labels(labels, recorded.sources, noise.annotators)
    data = ChainData(
        labels=torch.from_numpy(labels)[None],
        mask=torch.from_numpy(recorded.mask),
        points=None if points is None else torch.from_numpy(points),
        n_points=len(grid),
        n_classes=len(chain.start),
        evidence=torch.from_numpy(evidence).float()[None],
        trusted=None if recorded.trusted is None else torch.from_numpy(recorded.trusted),
    ).with_gaps(recorded.gaps)
    matrices = noise.at(grid)
    numbers = (chain.start, chain.transition, chain.power, matrices if matrices.ndim == 4 else matrices[None])
    bursts = torch.tensor([chain.bursts]) if chain.bursts else None
    start, transition, power, on_grid = (torch.as_tensor(values).float()[None] for values in numbers)
    parameters = ChainParameters(start, transition, power, on_grid, bursts)
    members = same_data(torch.ones(1, len(recorded.labels)))
    posterior: np.ndarray = posteriors(data, members, parameters)[0].double().numpy() * recorded.mask[..., None]
    return posterior / posterior.sum(-1, keepdims=True).clip(1e-300)


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

    A step with a recorded label whose true label becomes known is one observation of one row of Q at one moment. A cell
    is a true label in a bin of the clock. The information on a cell is its number of such steps :math:`N_c`, and a
    D-optimal set maximises :math:`\sum_c \log N_c`. True labels are not known beforehand; expected counts under their
    posterior take their place. The gain is submodular, so the greedy set reaches at least 63 % of the best gain
    (Nemhauser, Wolsey and Fisher 1978).

    Uncertainty sampling is not used: it relies on the model that is to be checked (docs/decisions/020-review.md).
    Arguments are as in `LabelAudit` and `LabelAudit.plan`; trusted labels are not asked for again.
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
