"""A fitted model of timing errors: what it holds, how it judges labels, and its form in a file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from labeltide.chain.data import Chain
from labeltide.chain.timing_expect import TimedChains, expect_timing
from labeltide.estimators.step_evidence import StepModel
from labeltide.inference.posterior import Recorded, chain_inputs, normalise_posterior
from labeltide.noise.fixed import FixedNoise


class TimingFit(NamedTuple):
    """The hybrid hidden Markov model with timing errors of one fit."""

    steps: StepModel
    shares: np.ndarray  # (classes,), of the true labels, by which the evidence is divided
    chain: Chain
    noise: FixedNoise  # Q of the recorded label given the annotator's label
    offsets: np.ndarray  # (annotators or 1, pairs, 2 * reach + 1), probabilities of offsets in steps

    def posterior(self, recorded: Recorded, features: np.ndarray, folds: np.ndarray) -> np.ndarray:
        """Posterior of the true labels: (n, steps, classes), zero on padding.

        Parameters
        ----------
        features : array of shape (n, steps, features)
        folds : the fold of each row that was trained on, -1 for others
        """
        log_probs = self.steps.log_probs(torch.from_numpy(features), torch.from_numpy(folds)).double().numpy()
        data, members, chain = chain_inputs(recorded, log_probs - np.log(self.shares), self.chain, self.noise)
        offsets = torch.from_numpy(self.offsets).float()[None]
        expected = expect_timing(data, members, TimedChains(chain, offsets))
        return normalise_posterior(expected.posterior[0], recorded.mask)

    def to_json(self) -> dict[str, Any]:
        """Lists and numbers."""
        start, transition, power, _ = self.chain
        return {
            "centre": self.steps.centre.tolist(),
            "scale": self.steps.scale.tolist(),
            "coefficients": self.steps.coefficients.tolist(),
            "shares": self.shares.tolist(),
            "start": start.tolist(),
            "transition": transition.tolist(),
            "power": power,
            "matrices": self.noise.matrices[0].double().tolist(),
            "clock": self.noise.clock[0].double().tolist(),
            "period": self.noise.period,
            "offsets": self.offsets.tolist(),
        }

    @classmethod
    def from_json(cls, written: Any, n_classes: int, n_features: int) -> TimingFit:
        """The inverse of `to_json`; a ValueError where the input is malformed."""
        try:
            names = ("centre", "scale", "coefficients", "shares", "start", "transition", "matrices", "clock", "offsets")
            arrays = {name: np.asarray(written[name], dtype=np.float64) for name in names}
            power = float(written["power"])
            period = None if written["period"] is None else float(written["period"])
        except (KeyError, TypeError, ValueError):
            raise ValueError("its timing errors are malformed.") from None
        _check(arrays, power, n_classes, n_features)
        steps = StepModel(*(torch.from_numpy(arrays[name]).float() for name in ("centre", "scale", "coefficients")))
        noise = FixedNoise(arrays["matrices"][None], arrays["clock"], period=period)
        chain = Chain(arrays["start"], arrays["transition"], power)
        return cls(steps, arrays["shares"], chain, noise, arrays["offsets"])


def _check(arrays: dict[str, np.ndarray], power: float, n_classes: int, n_features: int) -> None:
    shapes = {
        "centre": (n_features,),
        "scale": (n_features,),
        "coefficients": (len(arrays["coefficients"]), 1 + 2 * n_features, n_classes),
        "shares": (n_classes,),
        "start": (n_classes,),
        "transition": (n_classes, n_classes),
    }
    offsets, matrices = arrays["offsets"], arrays["matrices"]
    sound = (
        all(arrays[name].shape == shape for name, shape in shapes.items())
        and np.isfinite(power)
        and all(np.isfinite(values).all() for values in arrays.values())
        and offsets.ndim == 3
        and offsets.shape[1] == n_classes * (n_classes - 1)
        and offsets.shape[2] % 2 == 1
        and len(offsets) == (len(matrices) if matrices.ndim == 4 else 1)
        and all((arrays[name] >= 0).all() for name in ("start", "transition", "offsets"))
        and all((arrays[name] > 0).all() for name in ("shares", "scale"))
    )
    if not sound:
        raise ValueError(f"its timing errors must be finite numbers for {n_classes} classes and {n_features} features.")
