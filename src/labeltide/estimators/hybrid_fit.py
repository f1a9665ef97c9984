"""A fitted hybrid hidden Markov model: what it holds, how it judges labels, and its form in a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import Chain, ChainData, ChainParameters
from labeltide.chain.margins import find_log_odds, find_margins
from labeltide.chain.timing_expect import TimedChains, expect_timing
from labeltide.estimators.step_evidence import StepModel
from labeltide.inference.posterior import Recorded, chain_inputs, normalise_posterior
from labeltide.noise.fixed import FixedNoise


class HybridFit(NamedTuple):
    """The hybrid hidden Markov model of one fit, with timing errors or with errors near boundaries."""

    steps: StepModel
    shares: np.ndarray  # (classes,), of the true labels, by which the evidence is divided
    chain: Chain
    noise: FixedNoise  # Q given the annotator's label; with thresholds, groups of levels stand in place of annotators
    offsets: np.ndarray  # (annotators or 1, pairs, 2 * reach + 1), probabilities of offsets in steps
    thresholds: np.ndarray | None = None  # levels between groups of steps; None without errors near boundaries
    by_network: bool = False  # whether levels are the log-odds of networks, not margins

    def posterior(
        self, recorded: Recorded, features: np.ndarray, evidence: np.ndarray, folds: np.ndarray
    ) -> np.ndarray:
        """Posterior of the true labels: (n, steps, classes), zero on padding.

        Parameters
        ----------
        features : array of shape (n, steps, features)
        evidence : array of shape (n, steps, classes)
            Log-probabilities of networks.
        folds : the fold of each row that was trained on, -1 for others
        """
        log_probs = self.steps.log_probs(torch.from_numpy(features), torch.from_numpy(folds)).double().numpy()
        data, members, chain = chain_inputs(recorded, log_probs - np.log(self.shares), self.chain, self.noise)
        if self.thresholds is not None:
            data, chain = self._by_level(data, chain, torch.from_numpy(evidence).float())
        offsets = torch.from_numpy(self.offsets).float()[None]
        expected = expect_timing(data, members, TimedChains(chain, offsets))
        return normalise_posterior(expected.posterior[0], recorded.mask)

    def _by_level(self, data: ChainData, chain: ChainParameters, network: Tensor) -> tuple[ChainData, ChainParameters]:
        """Every combination of a group of levels and a moment in place of the moments, with one Q for each."""
        assert data.evidence is not None
        assert self.thresholds is not None
        levels = (find_log_odds(network) if self.by_network else find_margins(data.evidence[0])).contiguous()
        group = torch.bucketize(levels, torch.from_numpy(self.thresholds).to(levels))
        n_points = data.n_points * (len(self.thresholds) + 1)
        in_groups = replace(data, points=group * data.n_points + data.places(), n_points=n_points)
        return in_groups, chain._replace(matrices=chain.matrices.flatten(1, 2)[:, None])

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
            "thresholds": None if self.thresholds is None else self.thresholds.tolist(),
            "by_network": self.by_network,
        }

    @classmethod
    def from_json(cls, written: Any, n_classes: int, n_features: int) -> HybridFit:
        """The inverse of `to_json`; a ValueError where the input is malformed."""
        try:
            names = ("centre", "scale", "coefficients", "shares", "start", "transition", "matrices", "clock", "offsets")
            arrays = {name: np.asarray(written[name], dtype=np.float64) for name in names}
            power = float(written["power"])
            period = None if written["period"] is None else float(written["period"])
            by_network = bool(written["by_network"])
            limits = None if written["thresholds"] is None else np.asarray(written["thresholds"], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise ValueError("its hybrid hidden Markov model is malformed.") from None
        _check(arrays, power, limits, n_classes, n_features)
        steps = StepModel(*(torch.from_numpy(arrays[name]).float() for name in ("centre", "scale", "coefficients")))
        noise = FixedNoise(arrays["matrices"][None], arrays["clock"], period=period)
        chain = Chain(arrays["start"], arrays["transition"], power)
        return cls(steps, arrays["shares"], chain, noise, arrays["offsets"], limits, by_network)


def _check(
    arrays: dict[str, np.ndarray], power: float, limits: np.ndarray | None, n_classes: int, n_features: int
) -> None:
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
        and len(offsets) == (len(matrices) if matrices.ndim == 4 and limits is None else 1)
        and (limits is None or (limits.ndim == 1 and matrices.ndim == 4 and len(matrices) == len(limits) + 1))
        and (limits is None or bool(np.isfinite(limits).all()))
        and all((arrays[name] >= 0).all() for name in ("start", "transition", "offsets"))
        and all((arrays[name] > 0).all() for name in ("shares", "scale"))
    )
    if not sound:
        raise ValueError(
            f"its hybrid model must hold finite numbers for {n_classes} classes and {n_features} features."
        )
