"""Cross-fitting (Chernozhukov and others 2018): out-of-fold predictions of networks trained without one fold each.

All networks of a fit and direction stop at one epoch, that of their smallest mean loss of held-out recorded labels.
If each stopped by the fold that it then judges, its predictions would lean towards the recorded labels of that fold
(docs/decisions/006-cross-fitting.md).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.estimators.fleet import STEPS_AT_ONCE, FleetFit, Training, model_log_probs, train_all
from labeltide.models.base import SequenceModel
from labeltide.noise.functions import FixedNoise
from labeltide.training import FleetData, reversal

CROSS_FIT_PATIENCE = 10  # by hand: epochs without a better held-out likelihood after which a network stops
MIN_BATCHES = 8  # by hand: optimiser steps of an epoch at least, where there are rows enough
TILE_ROWS = 8  # rows that the compiled GRU takes together


def cross_fit(
    fleet_fit: FleetFit, folds: Tensor, noise: FixedNoise, stage: str = "cross-fit"
) -> tuple[Tensor, Tensor | None, tuple[SequenceModel, ...]]:
    """Out-of-fold log-probabilities (fits, rows, steps, classes), and the networks that gave them.

    Causal networks are combined with as many that read every row backwards, because the future of a step is as
    informative about its label as the past. The predictions of the latter alone come second; None without them.
    Networks without memory, which judge every step by itself, would learn the same twice.
    """
    first = prepare_training(fleet_fit, folds, noise, stage)
    if not first.model.is_causal or not _has_memory(first.model, fleet_fit.data):
        train_all([first])
        return *predict_out_of_fold(first.fleet_fit, first.model, folds), (first.model,)
    reversed_fit = replace(fleet_fit, data=_reverse(fleet_fit.data))
    second = prepare_training(reversed_fit, folds, noise, f"{stage}, backwards")
    train_all([first, second])
    backwards = (second.fleet_fit, second.model)
    return *predict_out_of_fold(first.fleet_fit, first.model, folds, backwards), (first.model, second.model)


@torch.no_grad()
def _has_memory(model: SequenceModel, data: FleetData) -> bool:
    """Whether a prediction depends on other steps: a row that is read backwards then gives other predictions."""
    if model.reach is not None:
        return model.reach > 1
    lengths = data.mask.sum(1)
    longest = int(lengths.argmax())
    rows = data.features[longest, : int(lengths[longest])].expand(model.members, 1, -1, -1)
    mask = torch.ones(rows.shape[:3], dtype=torch.bool, device=rows.device)
    model.eval()
    onwards, backwards = (model(each, mask) for each in (rows, rows.flip(2)))
    model.train()
    return not torch.allclose(onwards, backwards.flip(2), rtol=1e-5, atol=1e-6)


def hold_out_folds(fleet_fit: FleetFit, folds: Tensor, first_seed: int) -> FleetFit:
    """Copies of each fit for each fold, which hold that fold out of training."""
    count = int(folds.max()) + 1
    copies = repeat(fleet_fit, count, first_seed)
    fold = torch.arange(count, device=folds.device).repeat(fleet_fit.members)
    held_out = folds.repeat_interleave(count, 0) == fold[:, None]
    return replace(copies, data=replace(copies.data, held_out=held_out, weights=(~held_out).float()))


def prepare_training(fleet_fit: FleetFit, folds: Tensor, noise: FixedNoise, stage: str) -> Training:
    copies = hold_out_folds(fleet_fit, folds, first_seed=10)
    each_fit = copies.members // fleet_fit.members
    matrices = noise.matrices.repeat_interleave(each_fit, 0)
    moments = noise.clock[0].cpu().numpy()
    each = FixedNoise(matrices.double().cpu().numpy(), moments, period=noise.period).to(folds.device)
    how = {"batch_size": small_batches(fleet_fit), "patience": CROSS_FIT_PATIENCE, "stop_together": each_fit}
    return Training(copies, copies.new_model(), each, stage, how)


def predict_out_of_fold(
    copies: FleetFit, model: SequenceModel, folds: Tensor, backwards: tuple[FleetFit, SequenceModel] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Out-of-fold log-probabilities of the networks of `hold_out_folds`: (fits, rows, steps, classes).

    First of both directions, then of the networks that read backwards. Some rows at a time: the predictions of all
    networks would take most of the memory of a fit.
    """
    mask, count = copies.data.mask, int(folds.max()) + 1
    rows = max(1, STEPS_AT_ONCE // (model.members * mask.shape[1]))
    predicted = torch.empty(*folds.shape, mask.shape[1], copies.n_classes, device=folds.device)
    future = None if backwards is None else torch.empty_like(predicted)

    def predict(fleet_fit: FleetFit, model: SequenceModel, part: slice) -> Tensor:
        """Of some rows, in the order in which the networks read them."""
        log_probs = model_log_probs(model, fleet_fit.data.take_features(part), mask[part], folds.device)
        every = log_probs.unflatten(0, (len(folds), count))  # (fits, folds, rows, ...)
        index = folds[:, None, part, None, None].expand(-1, 1, -1, *every.shape[3:])
        return every.gather(1, index)[:, 0]

    for start in range(0, len(mask), rows):
        part = slice(start, start + rows)
        onwards = predict(copies, model, part)
        if backwards is not None and future is not None:
            order = reversal(mask[part])
            index = torch.arange(len(order), device=order.device)[:, None]
            future[:, part] = predict(*backwards, part)[:, index, order]
            onwards = ((onwards + future[:, part]) / 2).log_softmax(-1)  # geometric mean: a logarithmic opinion pool
        predicted[:, part] = onwards
    return predicted, future


def _reverse(data: FleetData) -> FleetData:
    """The same rows in reversed order; every step keeps its moment of the clock.

    The features of many steps stay as they are, and are reversed batch by batch.
    """
    order = reversal(data.mask)
    rows = torch.arange(len(order), device=order.device)[:, None]
    points = torch.arange(order.shape[1], device=order.device).expand_as(order) if data.points is None else data.points
    return replace(
        data,
        features=data.features if data.has_many_steps else data.features[rows, order],
        backwards=data.has_many_steps,
        labels=data.labels[:, rows, order],
        points=points[rows, order],
        trusted=None if data.trusted is None else data.trusted[rows, order],
        gaps=None,  # networks do not read them
    )


def repeat(fleet_fit: FleetFit, copies: int, first_seed: int) -> FleetFit:
    """Several copies of each fit with different seeds, each with all rows."""
    seeds = tuple(
        int(np.random.SeedSequence([seed, first_seed + copy]).generate_state(1)[0])
        for seed in fleet_fit.seeds
        for copy in range(copies)
    )
    return replace(replace(fleet_fit, data=every_weight(fleet_fit.data)).repeat(copies), seeds=seeds)


def every_weight(data: FleetData) -> FleetData:
    """The same data with all rows in training and none held out."""
    return replace(data, weights=torch.ones_like(data.weights), held_out=torch.zeros_like(data.held_out))


def small_batches(fleet_fit: FleetFit) -> int:
    """The batch size of the settings, or less, so that an epoch has at least `MIN_BATCHES` steps."""
    share = -(-len(fleet_fit.data.features) // (MIN_BATCHES * TILE_ROWS)) * TILE_ROWS
    return min(fleet_fit.settings.batch_size, share)


DIGEST_SIZE = 16  # bytes; two different rows share a digest once in 2^64 rows


class TrainingRows(NamedTuple):
    """A digest of the features of each training row, and its fold in cross-fitting."""

    digests: np.ndarray  # uint8 (rows, DIGEST_SIZE)
    folds: np.ndarray  # int64 (rows,)

    def find_folds(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The fold of each row, -1 for rows outside the training set: shape (n,).

        Rows with the same features are matched in order.
        """
        known: dict[bytes, list[int]] = defaultdict(list)
        for digest, fold in zip(self.digests, self.folds.tolist(), strict=True):
            known[digest.tobytes()].append(fold)
        in_turn = {digest: cycle(folds) for digest, folds in known.items()}
        digests = (digest.tobytes() for digest in digest_rows(features, mask))
        return np.array([next(in_turn[digest]) if digest in in_turn else -1 for digest in digests], dtype=np.int64)


def digest_rows(features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A digest of the features of every row without padding: uint8 (rows, DIGEST_SIZE)."""
    digests = [
        hashlib.blake2b(np.ascontiguousarray(row[real]).tobytes(), digest_size=DIGEST_SIZE).digest()
        for row, real in zip(features.astype(np.float32, copy=False), mask, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_SIZE)


class TrainingRowsWarning(UserWarning):
    """Warns of audited rows that are not recognised as training rows, and so are not predicted out of fold."""
