"""The rows of one batch as a small table of their own, for kernels that read rows of a table.

A large table is not copied: its rows are gathered batch by batch, also from a file that is mapped into memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labeltide.training.data import Batch, FleetData


class BatchTable:
    """The rows of every member's batch, one member after the other: members * batch rows.

    Attributes
    ----------
    features, mask, points : Tensors of shape (rows, steps, ...), as in `FleetData`
    labels, weights, targets : Tensors of shape (members, rows, ...)
        Each member has its own rows alone; the others are never read.
    """

    def __init__(self, data: FleetData, batch: int) -> None:
        self.data = data
        rows = data.members * batch
        annotators = 1 if data.targets is not None else data.labels.shape[-1] + (data.trusted is not None)
        steps = data.mask.shape[1]
        self.features = data.features.new_zeros(rows, *data.features.shape[1:])
        self.mask = data.mask.new_zeros(rows, steps)
        self.points = None if data.points is None else data.points.new_zeros(rows, steps)
        self.labels = data.labels.new_full((data.members, rows, steps, annotators), -1)
        self.weights = data.weights.new_zeros(data.members, rows)
        classes = () if data.targets is None else (data.targets.shape[-1],)
        self.targets = None if data.targets is None else data.targets.new_zeros(data.members, rows, steps, *classes)
        self._numbers = torch.arange(rows).view(data.members, batch)

    def fill(self, rows: Tensor) -> Tensor:
        """Gather a (members, batch) table of row numbers, -1 for none; returns their numbers here."""
        batch = self.data.batch(rows)
        self.features.copy_(batch.features.flatten(0, 1))
        self.mask.copy_(batch.mask.flatten(0, 1))
        if self.points is not None and batch.points is not None:
            self.points.copy_(batch.points.flatten(0, 1))
        self._own(self.labels).copy_(batch_labels(batch))
        self._own(self.weights).copy_(batch.weights)
        if self.targets is not None and batch.targets is not None:
            self._own(self.targets).copy_(batch.targets)
        return self._numbers.masked_fill(rows < 0, -1)

    def _own(self, values: Tensor) -> Tensor:
        """A view of each member's own rows: (members, batch, ...)."""
        members = len(values)
        return values.unflatten(1, (members, -1)).diagonal(dim1=0, dim2=1).movedim(-1, 0)


def batch_labels(batch: Batch) -> Tensor:
    """Labels of a batch in the layout of the compiled objective; see `compiled._labels`."""
    if batch.targets is not None:
        return (batch.targets.sum(-1, keepdim=True) > 0).to(torch.int8) - 1
    if batch.trusted is None:
        return batch.labels
    return torch.cat([batch.labels, batch.trusted[..., None]], -1)
