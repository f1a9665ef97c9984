"""Distillation (Hinton and others 2015): the last ensemble is trained on the posterior of the true labels."""

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

DISTILLATION_PATIENCE = 30  # by hand: epochs without a better held-out loss, after which a network stops
KINDS = ("stopped", "whole")  # of networks: with early stopping on a held-out fold, and on all rows for all epochs


def distill(
    fleet_fit: FleetFit, labels: Tensor, folds: Tensor, ensemble: bool
) -> tuple[SequenceModel, History, list[int]]:
    """Train an ensemble for each fit on the posterior as soft targets; or distil the ensemble into a single network.

    One network for each fold leaves it out and is stopped on it; as many are trained on all rows to the end. How long
    decisions improve differs between data sets, and the two kinds make different errors
    (docs/decisions/004-distillation.md).

    Parameters
    ----------
    labels : Tensor of shape (fits, rows, steps, classes)
    folds : int64 Tensor of shape (fits, rows)

    Returns
    -------
    The networks of all fits, those of a fit next to each other; their history; their number in each fit.
    """
    count = int(folds.max()) + 1
    fleets = []
    if "stopped" in KINDS:
        stopped = _with_targets(hold_out_folds(fleet_fit, folds, first_seed=60), labels)
        fleets.append(_train(stopped, "stopped", patience=DISTILLATION_PATIENCE))
    if "whole" in KINDS:
        whole = _with_targets(repeat(fleet_fit, count, first_seed=100), labels)
        fleets.append(_train(whole, "whole", cosine=True))
    model, history = _side_by_side(fleets, fleet_fit.members)
    counts = [len(fleets) * count] * fleet_fit.members
    if ensemble:
        return model, history, counts
    members = fleet_fit.log_probs(model).exp().split(counts)
    ensemble_probs = torch.stack([networks.mean(0) for networks in members]) * fleet_fit.data.mask[..., None]
    single = _with_targets(replace(fleet_fit, data=every_weight(fleet_fit.data)), ensemble_probs)
    return *_train(single, "single", cosine=True), [1] * fleet_fit.members


def _with_targets(networks: FleetFit, targets: Tensor) -> FleetFit:
    """The same with the soft targets of each fit for its networks."""
    trusted = () if networks.data.trusted is None else (networks.data.trusted,)
    return replace(networks, data=networks.data.with_targets(targets), extra_inputs=trusted)


def _train(networks: FleetFit, stage: str, **schedule: Any) -> tuple[SequenceModel, History]:
    model = networks.new_model()
    history = networks.train(model, None, Objective(), stage=stage, batch_size=small_batches(networks), **schedule)
    return model, history


def _side_by_side(fleets: list[tuple[SequenceModel, History]], fits: int) -> tuple[SequenceModel, History]:
    """Join the networks of several fleets, those of a fit next to each other, and average their histories."""
    histories = [history for _, history in fleets]
    longest = max(len(history.loss) for history in histories)

    def networks(name: str) -> np.ma.MaskedArray:
        """A value for each epoch, fit and network, masked where it has stopped."""
        values = [getattr(history, name).astype(float) for history in histories]
        if values[0].ndim == 2:  # of each epoch
            values = [np.pad(v, ((0, longest - len(v)), (0, 0)), constant_values=np.nan) for v in values]
        return np.ma.masked_invalid(np.concatenate([v.reshape(*v.shape[:-1], fits, -1) for v in values], -1))

    history = History(
        networks("loss").mean(-1).filled(np.nan),
        networks("held_out").mean(-1).filled(np.nan),
        networks("best_epoch").max(-1).filled(0).astype(np.int64),
        networks("restarts").sum(-1).filled(0).astype(np.int64),
        networks("linear").mean(-1).filled(np.nan),
        networks("quadratic").mean(-1).filled(np.nan),
    )
    order = torch.arange(len(fleets) * len(histories[0].best_epoch)).reshape(len(fleets), fits, -1)
    return stack([model for model, _ in fleets]).take(order.movedim(1, 0).flatten()), history
