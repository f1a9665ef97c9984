"""Lazy inference of a fitted method: bootstrap bands, tests and diagnostics, computed on first use and saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labeltide._clock import Cells
from labeltide.chain.data import TrainingEvidence
from labeltide.inference.bands import NoiseEstimate, estimate_annotators
from labeltide.inference.clocks import estimate_clocks, judge_clocks
from labeltide.inference.conclusion import SHOWN, Finding, conclude_noise
from labeltide.inference.diagnostic import Diagnostic, NoiseWarning
from labeltide.inference.diagnostics import diagnose
from labeltide.inference.profile_likelihood import ShareInterval, share_test
from labeltide.inference.reconcile import agree_share, presence_p
from labeltide.inference.serialization import read_findings, write_findings
from labeltide.inference.temporality import PartTemporality, Temporality, judge_presence, judge_temporality
from labeltide.kernels.threads import torch_on_one_thread
from labeltide.noise.base import NoiseFunction

SHARE, WARNED = "share", "warned"  # what files do not hold: the estimates have what is needed of the first


class Inferred:
    """Bands, tests and checks of a method that keeps the evidence from which it learned Q."""

    classes_: np.ndarray
    families_: dict[str, float]
    noise_: NoiseFunction
    cells_: Cells | None
    training_: TrainingEvidence
    findings_: dict[str, Any]
    random_state: Any

    @property
    def noise_estimate_(self) -> NoiseEstimate:
        """The common Q over the clock with 95 % bootstrap bands; diagnostics that fail warn once.

        Once `is_noisy_p_` is computed, the interval of the total share begins at zero where that test does not reject.
        """
        self._check_one_clock("noise_estimate_", "clock_estimates_")
        estimate: NoiseEstimate = self._find("noise_estimate", lambda: self._estimate()["noise_estimate"])
        self._warn()
        return self._agree(estimate, "noise_estimate")

    @property
    def annotator_estimates_(self) -> tuple[NoiseEstimate, ...]:
        """The same for each annotator; with one annotator `noise_estimate_` alone."""
        self._check_one_clock("annotator_estimates_", "noise_at(clock, annotator)")
        if self.noise_.annotators == 1:
            return (self.noise_estimate_,)
        estimates: tuple[NoiseEstimate, ...] = self._find(
            "annotator_estimates", lambda: self._estimate()["annotator_estimates"]
        )
        return estimates

    @property
    def temporality_(self) -> Temporality:
        """Whether the noise changes over the clock, whose, whether there is any, and whether classes differ in it."""
        self._check_one_clock("temporality_", "clock_temporality_")
        temporality: Temporality = self._find("temporality", self._judge)
        return temporality

    @property
    def clock_estimates_(self) -> tuple[NoiseEstimate, ...]:
        """Q along each clock with 95 % bands, averaged over the other clocks (partial dependence)."""
        if self.cells_ is None:
            return (self.noise_estimate_,)
        estimates: tuple[NoiseEstimate, ...] = self._find("clock_estimates", self._estimate_clocks)
        self._warn()
        return self._agree(estimates, "clock_estimates")

    @property
    def clock_temporality_(self) -> tuple[PartTemporality, ...]:
        """Tests of a change of the noise over each clock, with free change over the others."""
        if self.cells_ is None:
            whole = self.temporality_
            test = (whole.statistic, whole.p_value, self.noise_estimate_.change, whole.method, whole.n_units)
            return (PartTemporality(*test),)
        tests: tuple[PartTemporality, ...] = self._find("clock_temporality", self._judge_clocks)
        return tests

    @property
    def is_noisy_p_(self) -> float:
        """p-value of the null hypothesis that labels have no errors, with one clock or several."""
        p_value: float = self._find("is_noisy_p", self._judge_presence)
        return p_value

    @property
    def conclusion_(self) -> Finding:
        """Whether labels are wrong: "shown", "not shown" or "cannot be told", with the reason."""
        denied = [check.sentence for check in self._checks if check.is_warning and check.denies]
        return conclude_noise(self.is_noisy_p_, denied)

    def _may_name_labels(self) -> bool:
        """Whether the fit shows that labels are wrong, so that an audit may name them.

        Files of earlier versions may lack the test. Their labels are named, as they were.
        """
        check_is_fitted(self, "model_")
        if not hasattr(self, "training_") and not {"is_noisy_p", "diagnostics"} <= set(self.findings_):
            return True
        return self.conclusion_.answer == SHOWN

    @property
    def diagnostics_(self) -> tuple[Diagnostic, ...]:
        """Model checks of the estimated noise, passed or not."""
        self._warn()
        return self._checks

    def _agree(self, found: Any, name: str) -> Any:
        """Estimates whose interval of the share agrees with the test of "no label is wrong", once that is made."""
        if "is_noisy_p" in self.findings_ and hasattr(self, "training_"):
            p_value, several = self.findings_["is_noisy_p"], isinstance(found, tuple)
            agreed = tuple(agree_share(each, p_value, self.training_) for each in (found if several else (found,)))
            self.findings_[name] = agreed if several else agreed[0]
        return self.findings_[name]

    def _find(self, name: str, compute: Callable[[], Any]) -> Any:
        check_is_fitted(self, "model_")
        if name not in self.findings_:
            if not hasattr(self, "training_"):
                raise AttributeError(
                    f"{name}_ was not computed before this {type(self).__name__} was saved, and a file does not hold "
                    f"the training data. Ask for {name}_ before saving, or fit again."
                )
            with torch_on_one_thread():
                self.findings_[name] = compute()
        return self.findings_[name]

    def _estimate(self) -> dict[str, Any]:
        """The common estimate and those of annotators, from one bootstrap."""
        common, annotators = estimate_annotators(self.training_, self._share, seed=self._inference_seed())
        self.findings_["noise_estimate"] = common
        if len(annotators) > 1:
            self.findings_["annotator_estimates"] = annotators
        return self.findings_

    def _estimate_clocks(self) -> tuple[NoiseEstimate, ...]:
        return estimate_clocks(self.training_, self._share, seed=self._inference_seed())

    def _judge_clocks(self) -> tuple[PartTemporality, ...]:
        return judge_clocks(self.training_, self.clock_estimates_, seed=self._inference_seed())

    def _judge_presence(self) -> float:
        if "temporality" in self.findings_:  # of a file of an earlier version
            return float(self.findings_["temporality"].is_noisy_p)
        tested = judge_presence(self.training_, seed=self._inference_seed())
        estimates = (self.findings_.get("noise_estimate"), *self.findings_.get("clock_estimates", ())[:1])
        of_share = next((each.total_p for each in estimates if each is not None), None)
        return presence_p(tested, self._share.p_value if of_share is None else of_share, self.training_)

    @property
    def _share(self) -> ShareInterval:
        """Interval and test of the share of wrong labels, computed once for bands and the conclusion."""
        share: ShareInterval = self._find(SHARE, lambda: share_test(self.training_))
        return share

    def _check_one_clock(self, name: str, instead: str) -> None:
        check_is_fitted(self, "model_")
        if self.cells_ is not None:
            raise AttributeError(f"{name} is for one clock, and this was fitted with several. See {instead}.")

    def _judge(self) -> Temporality:
        estimate, annotators = self.noise_estimate_, self.findings_.get("annotator_estimates", ())
        tested, seed = self.is_noisy_p_, self._inference_seed()
        return judge_temporality(self.training_, estimate, annotators, is_noisy_p=tested, seed=seed)

    @property
    def _checks(self) -> tuple[Diagnostic, ...]:
        names = [str(name) for name in self.classes_]
        checks: tuple[Diagnostic, ...] = self._find("diagnostics", lambda: diagnose(self.training_, names))
        return checks

    def _warn(self) -> None:
        """Warn of checks that fail, once, when the estimates that they doubt are first asked for."""
        for check in self._checks if hasattr(self, "training_") and WARNED not in self.findings_ else ():
            if check.is_warning:
                warnings.warn(f"{check.sentence} {check.advice}", NoiseWarning, stacklevel=3)
        self.findings_[WARNED] = True

    def _inference_seed(self) -> int:
        return int(self.random_state) if isinstance(self.random_state, int | np.integer) else 0

    def _write_findings(self) -> dict[str, Any]:
        if "is_noisy_p" in self.findings_:
            for name in {"noise_estimate", "clock_estimates"} & set(self.findings_):
                self._agree(self.findings_[name], name)
        return write_findings({name: found for name, found in self.findings_.items() if name not in (SHARE, WARNED)})

    def _read_findings(self, written: Any) -> None:
        self.findings_ = read_findings(written, len(self.classes_))
