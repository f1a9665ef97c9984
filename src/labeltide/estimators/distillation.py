"""Distillation (Hinton and others 2015): the last ensemble is trained on the posterior of the true labels.

Half of its networks use early stopping on their held-out fold, half are trained on all rows for all epochs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltide._fleet import stack
from labeltide.estimators.cross_fit import every_weight, hold_out_folds, repeat, small_batches
from labeltide.estimators.fleet import FleetFit
from labeltide.models.base import SequenceModel
from labeltide.objectives.objective import Objective
from labeltide.training import History

DISTILLATION_PATIENCE = 30  # epochs without a better held-out loss, after which a network stops (early stopping)


def distill(fleet_fit: FleetFit, labels: Tensor, folds: Tensor, ensemble: bool) -> tuple[SequenceModel, History]:
    """Train an ensemble for each fit on the posterior as soft targets; or distil the ensemble into a single network.

    One network for each fold leaves it out and is stopped on it; as many are trained on all rows to the end.
    Probabilities overfit long before decisions do, and how long decisions improve differs between data sets. The two
    kinds make different errors: on eleven data sets their average was better than both or between them.

    Parameters
    ----------
    labels : Tensor of shape (fits, rows, steps, classes)
    folds : int64 Tensor of shape (fits, rows)
    """
    count = int(folds.max()) + 1
    stopped = _train_on(
        hold_out_folds(fleet_fit, folds, first_seed=60), labels, "stopped", patience=DISTILLATION_PATIENCE
    )
    whole = _train_on(repeat(fleet_fit, count, first_seed=100), labels, "whole", cosine=True)
    model, history = _side_by_side([stopped, whole], fleet_fit.members)
    if ensemble:
        return model, history
    ensemble_probs = fleet_fit.log_probs(model).exp().unflatten(0, (fleet_fit.members, -1)).mean(1)
    return _train_on(
        replace(fleet_fit, data=every_weight(fleet_fit.data)),
        ensemble_probs * fleet_fit.data.mask[..., None],
        "single",
        cosine=True,
    )


def _train_on(networks: FleetFit, targets: Tensor, stage: str, **schedule: Any) -> tuple[SequenceModel, History]:
    """Train the networks of each fit on its soft targets."""
    trusted = () if networks.data.trusted is None else (networks.data.trusted,)
    networks = replace(networks, data=networks.data.with_targets(targets), extra_inputs=trusted)
    model = networks.new_model()
    history = networks.train(model, None, Objective(), stage=stage, batch_size=small_batches(networks), **schedule)
    return model, history


def _side_by_side(fleets: list[tuple[SequenceModel, History]], fits: int) -> tuple[SequenceModel, History]:
    """Join fleets with as many networks for each fit, the networks of a fit next to each other."""
    joined, histories = stack([model for model, _ in fleets]), [history for _, history in fleets]
    order = torch.arange(joined.members).reshape(len(fleets), fits, -1).transpose(0, 1).flatten()
    longest = max(len(history.loss) for history in histories)

    def networks(name: str) -> np.ma.MaskedArray:
        """A value for each epoch, fit and network, masked where a network has stopped."""
        values = [getattr(history, name).astype(float) for history in histories]
        if values[0].ndim == 2:  # of each epoch
            values = [np.pad(v, ((0, longest - len(v)), (0, 0)), constant_values=np.nan) for v in values]
        every = np.concatenate(values, -1)[..., order.numpy()]
        return np.ma.masked_invalid(every.reshape(*every.shape[:-1], fits, -1))

    history = History(
        networks("loss").mean(-1).filled(np.nan),
        networks("held_out").mean(-1).filled(np.nan),
        networks("best_epoch").max(-1).filled(0).astype(np.int64),
        networks("restarts").sum(-1).filled(0).astype(np.int64),
        networks("linear").mean(-1).filled(np.nan),
        networks("quadratic").mean(-1).filled(np.nan),
    )
    return joined.take(order), history
