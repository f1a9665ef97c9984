"""What a fit says about its own noise: computed when first asked for, kept, and saved with the fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labeltide._clock import Cells
from labeltide.chain.data import TrainingEvidence
from labeltide.inference.bands import NoiseEstimate, estimate_annotators
from labeltide.inference.clocks import estimate_clocks, judge_clocks, judge_presence
from labeltide.inference.diagnostics import Diagnostic, NoiseWarning, diagnose
from labeltide.inference.temporality import PartTemporality, Temporality, judge_temporality
from labeltide.inference.written import read_findings, write_findings
from labeltide.noise.base import NoiseFunction


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
        """Q over the clock with 95 % bands, of all annotators together; checks that fail are warned of once."""
        self._check_one_clock("noise_estimate_", "clock_estimates_")
        found: NoiseEstimate = self._find("noise_estimate", lambda: self._estimate()["noise_estimate"])
        self._find("diagnostics", self._diagnose)
        return found

    @property
    def annotator_estimates_(self) -> tuple[NoiseEstimate, ...]:
        """The same for each annotator; with one annotator `noise_estimate_` alone."""
        self._check_one_clock("annotator_estimates_", "noise_at(clock, annotator)")
        if self.noise_.annotators == 1:
            return (self.noise_estimate_,)
        found: tuple[NoiseEstimate, ...] = self._find(
            "annotator_estimates", lambda: self._estimate()["annotator_estimates"]
        )
        return found

    @property
    def temporality_(self) -> Temporality:
        """Whether the noise changes over the clock, whose, whether there is any, and whether classes differ in it."""
        self._check_one_clock("temporality_", "clock_temporality_")
        found: Temporality = self._find("temporality", self._judge)
        return found

    @property
    def clock_estimates_(self) -> tuple[NoiseEstimate, ...]:
        """Q along each clock with 95 % bands, averaged over the other clocks alike at every moment."""
        if self.cells_ is None:
            return (self.noise_estimate_,)
        found: tuple[NoiseEstimate, ...] = self._find("clock_estimates", self._estimate_clocks)
        self._find("diagnostics", self._diagnose)
        return found

    @property
    def clock_temporality_(self) -> tuple[PartTemporality, ...]:
        """Whether the noise changes over each clock, while it may change over the others as it likes."""
        if self.cells_ is None:
            whole = self.temporality_
            return (PartTemporality(whole.statistic, whole.p_value, self.noise_estimate_.change),)
        found: tuple[PartTemporality, ...] = self._find("clock_temporality", self._judge_clocks)
        return found

    @property
    def is_noisy_p_(self) -> float:
        """How often labels without mistakes look as noisy, with one clock or several."""
        if self.cells_ is None:
            return self.temporality_.is_noisy_p
        found: float = self._find("is_noisy_p", self._judge_presence)
        return found

    @property
    def diagnostics_(self) -> tuple[Diagnostic, ...]:
        """Reasons to doubt the estimated noise, and checks that found none."""
        found: tuple[Diagnostic, ...] = self._find("diagnostics", self._diagnose)
        return found

    def _find(self, name: str, compute: Callable[[], Any]) -> Any:
        check_is_fitted(self, "model_")
        if name not in self.findings_:
            if not hasattr(self, "training_"):
                raise AttributeError(
                    f"{name}_ was not computed before this {type(self).__name__} was saved, and a file does not hold "
                    f"the training data. Ask for {name}_ before saving, or fit again."
                )
            self.findings_[name] = compute()
        return self.findings_[name]

    def _estimate(self) -> dict[str, Any]:
        """The common estimate and those of annotators, which come of one bootstrap and are kept together."""
        common, own = estimate_annotators(self.training_, self.families_, seed=self._inference_seed())
        self.findings_["noise_estimate"] = common
        if len(own) > 1:
            self.findings_["annotator_estimates"] = own
        return self.findings_

    def _estimate_clocks(self) -> tuple[NoiseEstimate, ...]:
        return estimate_clocks(self.training_, self.families_, seed=self._inference_seed())

    def _judge_clocks(self) -> tuple[PartTemporality, ...]:
        return judge_clocks(self.training_, self.clock_estimates_, self.families_, seed=self._inference_seed())

    def _judge_presence(self) -> float:
        return judge_presence(self.training_, self.families_, seed=self._inference_seed())

    def _check_one_clock(self, name: str, instead: str) -> None:
        check_is_fitted(self, "model_")
        if self.cells_ is not None:
            raise AttributeError(f"{name} is for one clock, and this was fitted with several. See {instead}.")

    def _judge(self) -> Temporality:
        estimate, own = self.noise_estimate_, self.findings_.get("annotator_estimates", ())
        return judge_temporality(self.training_, estimate, own, self.families_, seed=self._inference_seed())

    def _diagnose(self) -> tuple[Diagnostic, ...]:
        found = diagnose(self.training_, [str(name) for name in self.classes_])
        for one in found:
            if one.is_warning:
                warnings.warn(f"{one.sentence} {one.advice}", NoiseWarning, stacklevel=4)
        return found

    def _inference_seed(self) -> int:
        return int(self.random_state) if isinstance(self.random_state, int | np.integer) else 0

    def _write_findings(self) -> dict[str, Any]:
        return write_findings(self.findings_)

    def _read_findings(self, said: Any) -> None:
        self.findings_ = read_findings(said, len(self.classes_))
