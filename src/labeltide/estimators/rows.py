"""Out-of-fold predictions after fitting: training rows are recognised by digest and predicted without their fold."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.estimators.cross_fit import join_directions
from labeltide.estimators.log_probs import model_log_probs
from labeltide.models.base import SequenceModel
from labeltide.training import reversal

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
        met: dict[bytes, int] = defaultdict(int)
        fold_of_row = np.full(len(features), -1)
        for row, digest in enumerate(digest_rows(features, mask)):
            folds = known.get(key := digest.tobytes())
            if folds:
                fold_of_row[row] = folds[met[key] % len(folds)]
                met[key] += 1
        return fold_of_row


def digest_rows(features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A digest of the features of every row without padding: uint8 (rows, DIGEST_SIZE)."""
    digests = [
        hashlib.blake2b(np.ascontiguousarray(row[real]).tobytes(), digest_size=DIGEST_SIZE).digest()
        for row, real in zip(features.astype(np.float32, copy=False), mask, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_SIZE)


def out_of_fold_log_probs(
    model: SequenceModel, rows: TrainingRows, features: np.ndarray, mask: np.ndarray, device: str
) -> np.ndarray:
    """Log-probabilities (n, steps, classes): out of fold for training rows, the average of all folds for others."""
    inputs, real = torch.from_numpy(features), torch.from_numpy(mask)
    model.to(device)
    if model.is_causal:  # the second half of the networks reads rows backwards
        half, order, index = model.members // 2, reversal(real), torch.arange(len(real))[:, None]
        onwards = model_log_probs(model.member(0, half), inputs, real, device)  # (networks, n, steps, classes)
        mirrored = model_log_probs(model.member(half, half), inputs[index, order], real, device)
        every = join_directions(onwards, mirrored[:, index.to(device), order.to(device)])
    else:
        every = model_log_probs(model, inputs, real, device)
    model.cpu()
    count = int(rows.folds.max()) + 1
    every = every.double().cpu().unflatten(0, (-1, count)).mean(0).log_softmax(-1)  # (folds, n, steps, classes)
    folds = torch.from_numpy(rows.find_folds(features, mask))
    held_out: Tensor = every[folds.clamp_min(0), torch.arange(len(folds))]  # (n, steps, classes)
    average = every.logsumexp(0) - np.log(len(every))
    return torch.where((folds >= 0)[:, None, None], held_out, average).numpy()
