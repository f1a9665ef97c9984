"""Tide: labels that persist, networks that never saw what they judge, and Q(t), weighed by one likelihood."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from labeltide import _validation
from labeltide._clock import Period
from labeltide.chain.data import Chain
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.cross_fit import NETWORKS
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.estimators.inferred import Inferred
from labeltide.estimators.rows import TrainingRows, digest_rows, judge_rows
from labeltide.estimators.taught import learn_posterior
from labeltide.estimators.tide_steps import FOLDS, find_posterior


class TideClassifier(Inferred, NoisyLabelClassifier):
    r"""Learn from wrong labels with nothing to set and no clean label.

    A chain over the recorded labels alone gives a first Q(t). With it, networks are trained by the forward loss, each
    without a fifth of the sequences, on whose recorded labels it is stopped. Their predictions for what they have not
    seen join the chain, :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`, of which the labels alone
    (k = 0) and the paper's model (equal rows of A, k = 1) are special cases; the likelihood of the recorded labels
    weighs the two, and chooses among families of Q(t) by sequences left out. A last ensemble is trained on the
    posterior of the true labels: half of its networks without a fifth of the sequences, on which they are stopped, the
    others with all and to the end. Prediction uses features only.

    Several annotators have a Q(t) each, which leans on the common one where their labels are few; how alike they are is
    chosen too. Chains are then judged by how well the labels of some foretell those of another, which mistakes that
    people share cannot deceive as they deceive the likelihood.

    Parameters
    ----------
    ensemble : bool, default True
        Predict with the average of ten networks, or fewer where fewer than five sequences have labels. With False they
        teach a single one, for small devices and streams.
    period : float, or one for each of several clocks, optional
        The length after which the clock begins anew, such as 24 for hours of the day: the noise just before midnight is
        then close to that just after. A clock may run on beyond it. Of hours since the start and hours of the day,
        ``clock`` of shape (n, steps, 2), it is ``(None, 24)``; their effects on the noise add up on the logit scale.
    **shared : the parameters of every method
        `early_stopping` and `validation_fraction` change nothing here: every network that meets wrong labels is
        stopped on sequences that it does not see.

    Attributes
    ----------
    chain_ : labeltide.chain.data.Chain
        How true labels persist, and how much the network's evidence counts beside that.
    families_ : dict of str to float
        The weight of each family of Q(t), by the likelihood of sequences left out.
    noise_estimate_ : labeltide.NoiseEstimate
        Q over the clock with pointwise and simultaneous 95 % bands. This, `temporality_` and `diagnostics_` are
        computed when first asked for. With several annotators it is the common one.
    annotator_estimates_ : tuple of labeltide.NoiseEstimate
        The same for each annotator.
    clock_estimates_, clock_temporality_ : tuples, one for each of several clocks
        Q along it with bands, averaged over the others alike at every moment, and whether the noise changes over it.
        They stand in place of `noise_estimate_` and `temporality_`, which are for one clock.
    is_noisy_p_ : float
        How often labels without mistakes look as noisy, with one clock or several.
    temporality_ : labeltide.inference.temporality.Temporality
        Whether the noise changes over the clock, whose, by how much, whether there is any, and whether classes differ.
    diagnostics_ : tuple of labeltide.inference.diagnostics.Diagnostic
        Reasons to doubt the above; those that warn are a `labeltide.NoiseWarning`, once.
    fold_model_ : fleet of networks, each trained without one fold; None where every label was trusted
    training_rows_ : labeltide.estimators.rows.TrainingRows
        A digest of each training row and its fold, by which an audit finds the network that did not see it.
    """

    name = "tide"
    members_per_fit: ClassVar[int] = FOLDS * NETWORKS
    keeps_judges: ClassVar[bool] = True
    several_clocks: ClassVar[bool] = True

    def __init__(self, *, ensemble: bool = True, period: Period = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.ensemble = ensemble
        self.period = period

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        posterior = find_posterior(job)
        digests = digest_rows(job.data.features.cpu().numpy(), job.data.mask.cpu().numpy())
        for found in posterior.learned:
            found["findings_"] = {}
            found["training_rows_"] = TrainingRows(digests, found["training_"].folds[0].numpy())
        model, history = learn_posterior(job, posterior.labels, posterior.folds, self.ensemble)
        return FittedFleet(model, posterior.noise, history, posterior.learned)

    def _evidence(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if self.fold_model_ is None:  # every label was trusted: nothing was cross-fitted
            return super()._evidence(features, mask)
        device = _validation.check_device(self.device)
        return judge_rows(self.fold_model_, self.training_rows_, features, mask, device)

    def _persistence(self) -> Chain:
        return self.chain_

    def _learned(self) -> dict[str, Any]:
        start, transition, power, bursts = self.chain_
        chain = {"start": start.tolist(), "transition": transition.tolist(), "power": power, "bursts": bursts}
        return {"chain": chain, "families": self.families_, "findings": self._write_findings()}

    def _take_learned(self, said: Any) -> None:
        n_classes = len(self.classes_)
        try:
            chain, families, findings = said["chain"], said["families"], said["findings"]
            start, transition = np.asarray(chain["start"], float), np.asarray(chain["transition"], float)
            weights = np.asarray(list(families.values()), float)
            power, bursts = float(chain["power"]), float(chain["bursts"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError("its chain or its families of Q are malformed.") from None
        sound = all(np.all((values >= 0) & (values < np.inf)) for values in (start, transition, weights, power, bursts))
        if start.shape != (n_classes,) or transition.shape != (n_classes, n_classes) or not sound:
            raise ValueError(f"its chain must hold finite numbers for {n_classes} classes.")
        self.chain_, self.families_ = Chain(start, transition, power, bursts), dict(families)
        self._read_findings(findings)
