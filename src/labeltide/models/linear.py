"""Multinomial logistic regression: the logits of a step are an affine function of its features."""

from __future__ import annotations

from torch import Tensor

from labeltide._fleet import MemberLinear
from labeltide.models.base import SequenceModel


class LinearModel(SequenceModel):
    """Multinomial logistic regression, applied to every step on its own.

    Parameters
    ----------
    hidden_size : int
        Unused: there is no hidden layer. Accepted because every model is built with the same arguments.
    causal : bool
        Unused: the model is always causal, as a step depends on its own features only.
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
