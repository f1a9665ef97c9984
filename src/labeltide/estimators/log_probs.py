"""Predictions of the networks of a fleet, in pieces that fit into memory."""

from __future__ import annotations

import torch
from torch import Tensor

from labeltide.models.base import SequenceModel

STEPS_AT_ONCE = 2**20  # steps that are predicted together, over all sequences and members


@torch.no_grad()
def model_log_probs(model: SequenceModel, features: Tensor, mask: Tensor, device: str | torch.device) -> Tensor:
    """Predictions of every member for the same sequences: shape (members, n, steps, classes)."""
    rows = max(1, STEPS_AT_ONCE // (model.members * features.shape[1]))
    pieces = []
    model.eval()
    for start in range(0, len(features), rows):
        chunk, real = features[start : start + rows].to(device), mask[start : start + rows].to(device)
        shared = chunk.expand(model.members, -1, -1, -1)
        pieces.append(model(shared, real.expand(model.members, -1, -1)).log_softmax(-1))
    return torch.cat(pieces, 1)
