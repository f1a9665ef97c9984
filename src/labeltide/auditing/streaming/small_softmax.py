"""Mean logits of networks, and a softmax over few classes that is fast on long arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGEST_LOGIT = 60.0


def mean_logits(model: Any, features: Tensor, mask: Tensor, count: int, device: str) -> Tensor:
    """Mean logits of the networks of each fold: (folds, n, steps, classes)."""
    shape = (model.members, -1, -1)
    logits = model(features.to(device).expand(*shape, -1), mask.to(device).expand(*shape))
    return logits.unflatten(0, (-1, count)).mean(0).cpu()


def small_softmax(logits: Tensor) -> Tensor:
    """Softmax over few classes: by a product with ones, several times faster than torch's own over a short axis."""
    powers = logits.clamp(-LARGEST_LOGIT, LARGEST_LOGIT).exp_()
    return powers / (powers @ ones_matrix(logits.shape[-1]))


def ones_matrix(n_classes: int) -> Tensor:
    return torch.ones(n_classes, n_classes)
