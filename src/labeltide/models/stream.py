"""A causal model that is given one step at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from labeltide.models.base import SequenceModel
from labeltide.models.gru import GRUModel


class ModelStream:
    """What a causal model must remember of the sequences that it follows, on the CPU.

    A GRU remembers its state, and a step costs the same however long the sequences are. Other models are given the
    steps that they reach back to, or all so far where they look at everything.
    """

    def __init__(self, model: SequenceModel, streams: int) -> None:
        self.model, self.streams = model, streams
        self.seen: Tensor | None = None  # (streams, steps, features)
        self.state: Tensor | None = None  # (members, streams, hidden)
        if isinstance(model, GRUModel):
            self.state = torch.zeros(model.members, streams, model.forwards.hidden_size)

    @torch.no_grad()
    def push(self, features: Tensor) -> Tensor:
        """The logits of the next step, (members, streams, classes), from its (streams, features)."""
        model = self.model
        if isinstance(model, GRUModel) and self.state is not None:
            return model.advance(features.expand(model.members, -1, -1), self.state)
        step = features[:, None]
        seen = step if self.seen is None else torch.cat([self.seen, step], 1)
        self.seen = seen[:, -model.reach :] if model.reach else seen
        given = self.seen.expand(model.members, -1, -1, -1)
        return model(given, torch.ones(given.shape[:3], dtype=torch.bool))[:, :, -1]
