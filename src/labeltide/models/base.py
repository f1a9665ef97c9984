"""What every model of the true label is."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from labeltide._fleet import FleetModule


class SequenceModel(FleetModule):
    """Reads sequences and gives, at every step, one logit for each possible true label.

    Attributes
    ----------
    is_causal : bool
        Whether the output at a step depends on that step and earlier ones only.
    reach : int or None
        How many steps, itself the last, the output of a causal model at a step depends on; None for all so far.
    is_recordable : bool
        Whether a CUDA graph may replay it: no random draws, no look at values from the host.
    is_fused : bool
        Whether its heavy part is a compiled kernel with threads of its own.
    """

    name: ClassVar[str]
    is_causal: bool
    reach: int | None = None
    is_recordable: bool = True
    is_fused: bool = False

    @abstractmethod
    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Logits of the true label.

        Parameters
        ----------
        features : Tensor of shape (members, batch, steps, features)
        mask : bool Tensor of shape (members, batch, steps)
            False on padding, which only ever stands at the end. Causal models need not look at it.

        Returns
        -------
        Tensor of shape (members, batch, steps, classes)
        """
