"""Tide: cross-fitted networks and a hidden Markov model with time-dependent noise Q(t), fitted by EM and distilled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from labeltide import _validation
from labeltide._clock import Period
from labeltide.chain.data import Chain
from labeltide.estimators.base import ModelChoice, NoisyLabelClassifier, RandomState
from labeltide.estimators.distillation import distill
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.estimators.inferred import Inferred
from labeltide.estimators.rows import TrainingRows, digest_rows, out_of_fold_log_probs
from labeltide.estimators.tide_steps import CROSS_FIT_FOLDS, find_posterior

# Parts of the model in older files, by their key in the header.
REMOVED_PARTS = {"difficulty": "levels of difficulty", "timing": "a model of timing errors"}


class TideClassifier(Inferred, NoisyLabelClassifier):
    r"""Learn from wrong labels with nothing to tune and no clean label.

    1. A hidden Markov model of the recorded labels alone, fitted by EM, gives a first Q(t). Where it finds hardly any
       errors, networks are trained as if a quarter of the labels were wrong: errors in bursts look like the truth.
    2. Cross-fitting: networks are trained with the forward loss (Patrini and others 2017), each without a fifth of the
       sequences, on whose recorded labels it is stopped. With `clusters` in `fit`, each leaves out whole clusters.
    3. Their out-of-fold predictions P enter the hidden Markov model as evidence,
       :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`. Labels alone (k = 0) and the paper's model (equal
       rows of A, k = 1) are special cases; A and k are estimated by EM from the likelihood of the recorded labels.
       Errors come in bursts where that is clearly likelier than networks that fail in runs.
    4. Families of Q(t) are averaged by cross-validated likelihood.
    5. Distillation (Hinton and others 2015): a last ensemble is trained on the posterior of the true labels, half of
       its networks with early stopping on a held-out fifth of the sequences, the others on all for all epochs.

    Prediction uses features only. Several annotators have a Q(t) each, with partial pooling whose strength is chosen
    too. Models of several annotators are compared by leave-one-annotator-out predictive log-likelihood, which errors
    that annotators share mislead less than the likelihood.

    Parameters
    ----------
    ensemble : bool, default True
        Predict with the average of ten networks, or fewer where fewer than five clusters have labels. With False
        the ensemble is distilled into a single network, for small devices and streams.
    period : float, or one for each of several clocks, optional
        The period of the clock, such as 24 for hours of the day: the noise just before midnight is then close to that
        just after. A clock may run on beyond it. Of hours since the start and hours of the day,
        ``clock`` of shape (n, steps, 2), it is ``(None, 24)``; their effects on the noise add up on the logit scale.
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`
        `early_stopping` and `validation_fraction` have no effect here: every network that is trained on recorded labels
        is stopped on its held-out fold.

    Attributes
    ----------
    chain_ : labeltide.chain.data.Chain
        The fitted hidden Markov model: start, transition matrix A, power k of the evidence, and bursts.
    families_ : dict of str to float
        The weight of each family of Q(t), by cross-validated likelihood.
    noise_estimate_ : labeltide.NoiseEstimate
        Q over the clock with pointwise and simultaneous 95 % bands. This, `temporality_` and `diagnostics_` are
        computed when first asked for. With several annotators it is the common one.
    annotator_estimates_ : tuple of labeltide.NoiseEstimate
        The same for each annotator.
    clock_estimates_, clock_temporality_ : tuples, one for each of several clocks
        Q along it with bands, averaged over the others (partial dependence), and whether the noise changes over it.
        They stand in place of `noise_estimate_` and `temporality_`, which are for one clock.
    is_noisy_p_ : float
        p-value of the null hypothesis that labels have no errors, with one clock or several.
    conclusion_ : labeltide.inference.conclusion.Finding
        Whether labels are wrong: "shown", "not shown" or "cannot be told", with the reason. `audit` and
        `corrected_labels` name and correct labels only where it is "shown".
    temporality_ : labeltide.inference.temporality.Temporality
        Whether the noise changes over the clock, whose, by how much, whether there is any, and whether classes differ.
    diagnostics_ : tuple of labeltide.inference.diagnostics.Diagnostic
        Reasons to doubt the above; those that warn are a `labeltide.NoiseWarning`, once.
    fold_model_ : fleet of networks, each trained without one fold; None where every label was trusted
    training_rows_ : labeltide.estimators.rows.TrainingRows
        A digest of each training row and its fold, by which an audit predicts it out of fold.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.predict(data.features).shape, clf.noise_matrices_.shape
    ((20, 10), (10, 2, 2))
    >>> clf.audit(data.features, data.labels).quality.shape  # probability that each label is right
    (20, 10, 1)
    """

    name = "tide"
    members_per_fit: ClassVar[int] = CROSS_FIT_FOLDS
    cross_fits: ClassVar[bool] = True
    several_clocks: ClassVar[bool] = True

    def __init__(
        self,
        *,
        ensemble: bool = True,
        period: Period = None,
        model: ModelChoice = "gru",
        hidden_size: int = 32,
        causal: bool = True,
        epochs: int = 150,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            model=model,
            hidden_size=hidden_size,
            causal=causal,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            device=device,
            checkpoint=checkpoint,
            verbose=verbose,
            random_state=random_state,
        )
        self.ensemble = ensemble
        self.period = period

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        posterior = find_posterior(fleet_fit)
        digests = digest_rows(fleet_fit.data.features.cpu().numpy(), fleet_fit.data.mask.cpu().numpy())
        clusters = None if fleet_fit.clusters is None else torch.from_numpy(fleet_fit.clusters)
        for attributes in posterior.learned:
            attributes["findings_"] = {}
            attributes["training_"] = attributes["training_"]._replace(clusters=clusters)
            attributes["training_rows_"] = TrainingRows(digests, attributes["training_"].folds[0].numpy())
        model, history, networks = distill(fleet_fit, posterior.labels, posterior.folds, self.ensemble)
        return FittedFleet(model, posterior.noise, history, posterior.learned, networks)

    def _evidence(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if self.fold_model_ is None:  # every label was trusted: nothing was cross-fitted
            return super()._evidence(features, mask)
        device = _validation.check_device(self.device)
        return out_of_fold_log_probs(self.fold_model_, self.training_rows_, features, mask, device)

    def save(self, path: str | Path) -> None:
        """Write the fitted method and its conclusion to one file (safetensors with a JSON header), whole or not at all.

        The file does not hold the training data, so what is to be read from it is concluded before.
        """
        check_is_fitted(self, "model_")
        self._may_name_labels()
        self.save_fit(path)

    def save_fit(self, path: str | Path) -> None:
        """Write the fitted method and what was inferred from it so far, for an audit that goes on."""
        super().save(path)

    def _may_name_labels(self) -> bool:
        """Whether the fit shows that labels are wrong; where every label was trusted, they are known."""
        return self.fold_model_ is None or super()._may_name_labels()

    def _persistence(self) -> Chain:
        return self.chain_

    def _learned(self) -> dict[str, Any]:
        start, transition, power, bursts = self.chain_
        chain = {"start": start.tolist(), "transition": transition.tolist(), "power": power, "bursts": bursts}
        return {"chain": chain, "families": self.families_, "findings": self._write_findings()}

    def _take_learned(self, learned: Any) -> None:
        n_classes = len(self.classes_)
        try:
            chain, families, findings = learned["chain"], learned["families"], learned["findings"]
            start, transition = np.asarray(chain["start"], float), np.asarray(chain["transition"], float)
            weights = np.asarray(list(families.values()), float)
            power, bursts = float(chain["power"]), float(chain["bursts"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError("its chain or its families of Q are malformed.") from None
        sound = all(np.all((values >= 0) & (values < np.inf)) for values in (start, transition, weights, power, bursts))
        if start.shape != (n_classes,) or transition.shape != (n_classes, n_classes) or not sound:
            raise ValueError(f"its chain must hold finite numbers for {n_classes} classes.")
        if abs(start.sum() - 1) > 1e-3 or (np.abs(transition.sum(1) - 1) > 1e-3).any():
            raise ValueError("the probabilities of its chain must sum to one.")
        if removed := [words for name, words in REMOVED_PARTS.items() if name in learned]:
            raise ValueError(
                f"it was fitted with {' and '.join(removed)}, which tide no longer has. Fit again with this version of "
                "labeltide."
            )
        self.chain_, self.families_ = Chain(start, transition, power, bursts), dict(families)
        self._read_findings(findings)
