"""The simplest model: every step is judged by its own features alone."""

from __future__ import annotations

from torch import Tensor

from labeltide._fleet import MemberLinear
from labeltide.models.base import SequenceModel


class LinearModel(SequenceModel):
    """One affine map from the features of a step to its logits.

    Parameters
    ----------
    hidden_size : int
        Unused: nothing is hidden here. Accepted because every model is built with the same arguments.
    causal : bool
        Unused: a step that sees only itself is causal whatever was asked.
    """

    name = "linear"
    reach = 1

    def __init__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> None:
        super().__init__()
        self.members, self.is_causal = members, True
        self.head = MemberLinear(members, n_features, n_classes)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.head(features)
