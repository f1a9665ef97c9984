"""Networks taught by what is known of the true labels, each for as long as the sequences it does not see gain by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from labeltide.estimators.cross_fit import NETWORKS, hold_out_folds, small_batches
from labeltide.estimators.fleet import FleetJob
from labeltide.models.base import SequenceModel
from labeltide.objectives.objective import Objective
from labeltide.training import History

PATIENCE = 30  # epochs without a better judgement of the rows held out after which a network stops


def learn_posterior(job: FleetJob, labels: Tensor, folds: Tensor, ensemble: bool) -> tuple[SequenceModel, History]:
    """Train several networks for each job on the probabilities of the true labels; or one, taught by them.

    Each network leaves out one fold and is stopped on it. How long to train differs between networks as much as between
    data sets, so a length that is right for one is not for another; and folds left out by one are seen by the others.

    Parameters
    ----------
    labels : Tensor of shape (jobs, rows, steps, classes)
    folds : int64 Tensor of shape (jobs, rows)
    """
    model, history = _teach(job, hold_out_folds(job, folds, 100, NETWORKS), labels, "ensemble")
    if ensemble:
        return model, history
    taught = job.log_probs(model).exp().unflatten(0, (job.members, -1)).mean(1) * job.data.mask[..., None]
    held_out = folds == 0
    single = replace(job, data=replace(job.data, held_out=held_out, weights=(~held_out).float()))
    return _teach(job, single, taught, "single")


def _teach(job: FleetJob, networks: FleetJob, targets: Tensor, stage: str) -> tuple[SequenceModel, History]:
    """Train some networks for each job; what happened is told for each job, on average over its networks."""
    count = networks.members // job.members
    networks = replace(networks, data=replace(networks.data, targets=targets.repeat_interleave(count, 0), trusted=None))
    model = networks.new_model()
    history = networks.train(model, None, Objective(), stage=stage, batch_size=small_batches(job), patience=PATIENCE)
    return model, _of_jobs(history, job.members)


def _of_jobs(history: History, jobs: int) -> History:
    losses, held_out, best, restarts = (
        np.ma.masked_invalid(values.reshape(*values.shape[:-1], jobs, -1))
        for values in (history.loss, history.held_out, history.best_epoch, history.restarts)
    )
    return History(
        losses.mean(-1).filled(np.nan),
        held_out.mean(-1).filled(np.nan),
        best.max(-1).filled(0),
        restarts.sum(-1).filled(0),
    )
