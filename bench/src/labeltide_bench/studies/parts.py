"""Parts of `tide` that a study can switch off: constants and functions of the library, replaced during a fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import Tensor

from labeltide._clock import Period
from labeltide.chain.em import SHARING_SMOOTHNESS, NoiseMixture, try_families
from labeltide.chain.families import family, spline_shape
from labeltide.chain.passes import ChainData, ChainParameters, Members
from labeltide.estimators import cross_fit as cross_fitting
from labeltide.estimators.fleet import FleetFit, train_all
from labeltide.models.base import SequenceModel
from labeltide.noise.functions import FixedNoise


def _one_direction(
    fleet_fit: FleetFit, folds: Tensor, noise: FixedNoise, stage: str = "cross-fit"
) -> tuple[Tensor, None, tuple[SequenceModel, ...]]:
    """Cross-fitting with networks that read every row forwards only."""
    first = cross_fitting.prepare_training(fleet_fit, folds, noise, stage)
    train_all([first])
    return cross_fitting.predict_out_of_fold(first.fleet_fit, first.model, folds)[0], None, (first.model,)


def _one_spline(
    data: ChainData,
    fits: Members,
    parameters: ChainParameters,
    folds: Tensor,
    grid: np.ndarray,
    period: Period = None,
) -> NoiseMixture:
    """One penalised spline in place of the average over families."""
    spline = family(data.n_classes, spline_shape(grid, SHARING_SMOOTHNESS, period), "each", "by class")
    kinds = [[[spline] * (int(folds.max()) + 2)]] * len(fits.labels)
    return try_families(data, fits, parameters, folds, kinds).average()


PARTS: dict[str, tuple[str, Any]] = {
    "bursts": ("chain.em.BURSTS_WORTH", np.inf),
    "both directions of time": ("estimators.tide.cross_fit", _one_direction),
    "wary training": ("estimators.tide.CLEAN_ERROR_RATE", 0.0),
    "averaging over families": ("estimators.tide.choose_noise", _one_spline),
    "long training": ("estimators.tide.KINDS", ("stopped",)),
    "early stopping": ("estimators.tide.KINDS", ("whole",)),
    "prior of k": ("chain.em.POWER_SCALE", 1e6),
}


@contextmanager
def without(parts: Sequence[str]) -> Iterator[None]:
    """Switch off the named parts of `tide`."""
    with ExitStack() as stack:
        for name in parts:
            target, value = PARTS[name]
            stack.enter_context(patch(f"labeltide.{target}", value))
        yield
