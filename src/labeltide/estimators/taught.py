"""Networks taught by what is known of the true labels: some stopped early, as many trained to the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltide._fleet import stack
from labeltide.estimators.cross_fit import every_weight, hold_out_folds, repeat, small_batches
from labeltide.estimators.fleet import FleetJob
from labeltide.models.base import SequenceModel
from labeltide.objectives.objective import Objective
from labeltide.training import History

PATIENCE = 30  # epochs without a better judgement of the rows held out after which a network stops


def learn_posterior(job: FleetJob, labels: Tensor, folds: Tensor, ensemble: bool) -> tuple[SequenceModel, History]:
    """Train several networks for each job on the probabilities of the true labels; or one, taught by them.

    One network for each fold leaves it out and is stopped on it; as many learn from all rows to the end. Probabilities
    overfit long before decisions do, and how long decisions gain differs between data sets. The two kinds err in
    different places: on eleven data sets their average was ahead of both, or between them.

    Parameters
    ----------
    labels : Tensor of shape (jobs, rows, steps, classes)
    folds : int64 Tensor of shape (jobs, rows)
    """
    count = int(folds.max()) + 1
    stopped = _teach(hold_out_folds(job, folds, first_seed=60), labels, "stopped", patience=PATIENCE)
    whole = _teach(repeat(job, count, first_seed=100), labels, "whole", cosine=True)
    model, history = _side_by_side([stopped, whole], job.members)
    if ensemble:
        return model, history
    taught = job.log_probs(model).exp().unflatten(0, (job.members, -1)).mean(1)
    return _teach(replace(job, data=every_weight(job.data)), taught * job.data.mask[..., None], "single", cosine=True)


def _teach(networks: FleetJob, targets: Tensor, stage: str, **schedule: Any) -> tuple[SequenceModel, History]:
    """Train networks, as many for each job, on its own targets."""
    count = networks.members // len(targets)
    data = replace(networks.data, targets=targets.repeat_interleave(count, 0), trusted=None)
    given = () if networks.data.trusted is None else (networks.data.trusted,)
    networks = replace(networks, data=data, given=given)
    model = networks.new_model()
    history = networks.train(model, None, Objective(), stage=stage, batch_size=small_batches(networks), **schedule)
    return model, history


def _side_by_side(fleets: list[tuple[SequenceModel, History]], jobs: int) -> tuple[SequenceModel, History]:
    """Fleets with as many networks for each job as one, the networks of a job next to each other."""
    joined, histories = stack([model for model, _ in fleets]), [history for _, history in fleets]
    order = torch.arange(joined.members).reshape(len(fleets), jobs, -1).transpose(0, 1).flatten()
    longest = max(len(history.loss) for history in histories)

    def networks(name: str) -> np.ma.MaskedArray:
        """A value for each epoch, job and network; none where a network has stopped."""
        values = [getattr(history, name).astype(float) for history in histories]
        if values[0].ndim == 2:  # of each epoch
            values = [np.pad(v, ((0, longest - len(v)), (0, 0)), constant_values=np.nan) for v in values]
        every = np.concatenate(values, -1)[..., order.numpy()]
        return np.ma.masked_invalid(every.reshape(*every.shape[:-1], jobs, -1))

    history = History(
        networks("loss").mean(-1).filled(np.nan),
        networks("held_out").mean(-1).filled(np.nan),
        networks("best_epoch").max(-1).filled(0).astype(np.int64),
        networks("restarts").sum(-1).filled(0).astype(np.int64),
    )
    return joined.take(order), history
