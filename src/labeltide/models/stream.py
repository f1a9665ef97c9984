"""Online inference: a causal model that receives one step at a time and carries its state."""

from __future__ import annotations

import torch
from torch import Tensor

from labeltide.models.base import SequenceModel
from labeltide.models.gru import GRUModel


class ModelStream:
    """The state of a causal model on several streams, on the CPU.

    A GRU keeps its hidden state, so a step costs the same however long the sequences are. Other models are run on the
    steps within their receptive field, or on all steps so far where it is unlimited.
    """

    def __init__(self, model: SequenceModel, streams: int) -> None:
        self.model, self.streams = model, streams
        self.seen: Tensor | None = None  # (streams, steps, features)
        self.state: Tensor | None = None  # (members, streams, hidden)
        if isinstance(model, GRUModel):
            self.state = torch.zeros(model.members, streams, model.forwards.hidden_size)

    @torch.no_grad()
    def push(self, features: Tensor) -> Tensor:
        """Logits of the next step, (members, streams, classes), from its features, (streams, features)."""
        model = self.model
        if isinstance(model, GRUModel) and self.state is not None:
            return model.advance(features.expand(model.members, -1, -1), self.state)
        step = features[:, None]
        seen = step if self.seen is None else torch.cat([self.seen, step], 1)
        self.seen = seen[:, -model.reach :] if model.reach else seen
        window = self.seen.expand(model.members, -1, -1, -1)  # (members, streams, steps, features)
        return model(window, torch.ones(window.shape[:3], dtype=torch.bool))[:, :, -1]
