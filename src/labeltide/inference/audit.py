r"""Label errors: posterior probability that each label is right, and flags at a Bayesian false discovery rate.

The posterior comes from the forward-backward pass of the hidden Markov model (`posterior.py`). A label's probability
:math:`q_i` of being right is the local false discovery rate of flagging it (Efron 2007). The flags are the largest set
:math:`R` of the smallest values with :math:`\sum_{i \in R} q_i / |R| \le \mathrm{fdr}` (Newton and others 2004; the
Bayesian false discovery rate of Storey 2003).

By default only labels for which another is likelier are flagged. Of calibrated probabilities, the threshold with the
largest expected F1 is half of that F1 (Lipton, Elkan and Narayanaswamy 2014): about one half where errors are found
well. With `spend_fdr` the flags go on until the allowed share of false alarms is reached, for those who must find
nearly all errors.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.chain.data import Chain
from labeltide.inference.averaged_quality import averaged_share, flag_bound
from labeltide.inference.contested import another_label, differs_probability
from labeltide.inference.displays import LabelAuditDisplay
from labeltide.inference.explanations import explain, find_support
from labeltide.inference.label_table import label_table
from labeltide.inference.planner import Plan, plan_review
from labeltide.inference.posterior import Recorded, true_label_posterior
from labeltide.kernels.threads import torch_on_one_thread
from labeltide.noise.base import NoiseFunction

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
        Expected shares of false alarms, Q and k not taken as known (`averaged_quality.py`). Audits of tables have it.
    spend_fdr : bool
        Whether labels for which no other is likelier are flagged too, until the mean quality of the flags is `fdr`.

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

    @cached_property
    def quality(self) -> np.ndarray:
        """The probability that each recorded label is right; NaN where nothing was recorded."""
        return self._shaped(self._quality)

    @cached_property
    def contested(self) -> np.ndarray:
        """The probability that another expert would record another label; NaN where there is none.

        From one annotator's labels alone, a habit that the annotator keeps everywhere is not part of it
        (`contested.py`).
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
            replaced = sure & (self.labels >= 0) & self.may_name
        return self._shaped(np.where(replaced, self._suggested[..., None], self.labels).astype(np.int8))

    def plan(self, k: int, by: str = "sequence") -> Plan:
        """The k sequences or steps to re-annotate first: a greedy D-optimal design for Q (`planner.py`).

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
        return label_table(self, ids, times, annotators)

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
        return choose_issues(self._quality, candidates & self.may_name, flag_bound(self.false_alarms, self.fdr))

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values if self.has_annotators else values[..., 0]


def choose_issues(quality: np.ndarray, may_flag: np.ndarray, fdr: float) -> np.ndarray:
    """Flag as many labels as possible, lowest quality first, while their mean quality stays at most `fdr`.

    The mean quality of the flags is their Bayesian false discovery rate (Newton and others 2004). Ties are flagged
    together or not at all.

    Parameters
    ----------
    quality : array of any shape, NaN where nothing was recorded
    may_flag : bool array of the same shape, such as the labels for which another is likelier
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
) -> LabelAudit:
    """Audit recorded labels with a fitted chain.

    Parameters
    ----------
    evidence : array of shape (n, steps, classes)
        Out-of-fold log-probabilities of the true label given the features.
    """
    _validation.check_number("fdr", fdr, 0, 1)
    posterior = true_label_posterior(recorded, evidence, chain, noise)
    return LabelAudit(
        classes=classes,
        labels=recorded.labels,
        clock=recorded.clock,
        mask=recorded.mask,
        probabilities=posterior,
        signal=np.exp(evidence) * recorded.mask[..., None],
        error_rates=_error_rates(noise, recorded),
        fdr=fdr,
        spend_fdr=spend_fdr,
        has_annotators=has_annotators,
        trusted=recorded.trusted,
        another=another_label(recorded, evidence, chain, noise, posterior),
        may_name=may_name,
    )


def _error_rates(noise: NoiseFunction, recorded: Recorded) -> np.ndarray:
    """Error rate of each true label at every step: (n, steps, [annotators,] classes)."""
    moments, place = np.unique(recorded.clock, return_inverse=True)
    wrong = 1 - np.diagonal(noise.at(moments), axis1=-2, axis2=-1)  # ([sources,] moments, classes)
    place = place.reshape(recorded.clock.shape)
    return wrong[place] if recorded.sources is None else wrong[recorded.sources[:, None], place[..., None]]


def no_persistence(n_classes: int) -> Chain:
    """A chain without persistence: uniform transitions, so that steps are independent given the evidence."""
    even = np.full(n_classes, 1 / n_classes)
    return Chain(even, np.tile(even, (n_classes, 1)), 1.0)
