"""Networks taught by what is known of the true labels, for as long as rows that were held out gain by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from labeltide._fleet import put_members
from labeltide.estimators.cross_fit import every_weight, hold_out_folds, of_own_fold, repeat, small_batches, take_jobs
from labeltide.estimators.fleet import FleetJob
from labeltide.models.base import SequenceModel
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData, History

ENSEMBLE = 5
SHORT = 0.3  # of the epochs: the shorter training


def learn_posterior(job: FleetJob, labels: Tensor, folds: Tensor, ensemble: bool) -> tuple[SequenceModel, History]:
    """Train several networks for each job on the probabilities of the true labels; or one, taught by them.

    Parameters
    ----------
    labels : Tensor of shape (jobs, rows, steps, classes)
    folds : int64 Tensor of shape (jobs, rows)
    """
    epochs = choose_epochs(job, labels, folds)
    model, history = _train(job, labels, epochs, ENSEMBLE, "ensemble")
    if ensemble:
        return model, history
    taught = job.log_probs(model).exp().unflatten(0, (job.members, ENSEMBLE)).mean(1)
    return _train(job, taught * job.data.mask[..., None], epochs, 1, "single")


def choose_epochs(job: FleetJob, labels: Tensor, folds: Tensor) -> list[int]:
    """How long to train each job's networks: all epochs, or fewer where rows left out are judged better then.

    Judged are decisions, not probabilities, which overfit long before decisions do: the expected share of wrong ones,
    by what is known of the true labels.
    """
    whole = job.settings.epochs
    short = max(1, round(SHORT * whole))
    if short == whole:
        return [whole] * job.members
    errors = torch.stack([_expected_errors(job, labels, folds, epochs) for epochs in (short, whole)])
    return [whole if longer < shorter else short for shorter, longer in errors.T.tolist()]


def _expected_errors(job: FleetJob, labels: Tensor, folds: Tensor, epochs: int) -> Tensor:
    """The expected share of wrong decisions on rows that were not trained on: (jobs,)."""
    copies = hold_out_folds(job, folds, first_seed=60)
    count = copies.members // job.members
    data = _with_targets(copies.data, labels.repeat_interleave(count, 0))
    copies = replace(copies, data=replace(data, held_out=torch.zeros_like(data.held_out)))  # nothing stops it early
    model = copies.new_model()
    stage = f"try of {epochs} epochs"
    copies.train(model, None, Objective(), stage=stage, epochs=epochs, batch_size=small_batches(job), cosine=True)
    decided = of_own_fold(copies.log_probs(model), folds).argmax(-1, keepdim=True)  # (jobs, rows, steps, 1)
    known = labels.sum(-1) > 0  # padding has no label
    wrong = (1 - labels.gather(-1, decided)[..., 0]) * known
    return wrong.sum((1, 2)) / known.sum((1, 2)).clamp_min(1)


def _train(
    job: FleetJob, labels: Tensor, epochs: list[int], networks: int, stage: str
) -> tuple[SequenceModel, History]:
    """Networks of all jobs in one fleet, each trained for its own number of epochs."""
    whole = repeat(job, networks, first_seed=100) if networks > 1 else job
    model = whole.new_model()
    losses = np.full((max(epochs), job.members), np.nan)
    best, restarts = np.zeros(job.members, dtype=np.int64), np.zeros(job.members, dtype=np.int64)
    for count in sorted(set(epochs)):
        jobs = [number for number, own in enumerate(epochs) if own == count]
        index = torch.tensor(jobs, device=labels.device)
        part = take_jobs(job, index)
        part = repeat(part, networks, first_seed=100) if networks > 1 else replace(part, data=every_weight(part.data))
        part = replace(part, data=_with_targets(part.data, labels[index].repeat_interleave(networks, 0)))
        own = part.new_model()
        batch_size = small_batches(job)
        name = f"{stage} of {count} epochs"
        history = part.train(own, None, Objective(), stage=name, epochs=count, batch_size=batch_size, cosine=True)
        place = (index[:, None] * networks + torch.arange(networks, device=index.device)).flatten()
        put_members(model, place, own, torch.arange(len(place), device=index.device))
        each = (-1, len(jobs), networks)
        losses[:count, jobs] = history.loss.reshape(each).mean(-1)
        best[jobs] = history.best_epoch.reshape(each).max((0, 2))
        restarts[jobs] = history.restarts.reshape(each).sum((0, 2))
    return model, History(losses, np.full_like(losses, np.nan), best, restarts)


def _with_targets(data: FleetData, targets: Tensor) -> FleetData:
    return replace(data, targets=targets, trusted=None)
