"""The interface of sequence classifiers: from features to the logits of the true label at every step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from labeltide._fleet import FleetModule, MemberLinear


class SequenceModel(FleetModule):
    """Sequence classifier: maps features to one logit per class at every step.

    Attributes
    ----------
    is_causal : bool
        Whether the output at a step depends on that step and earlier ones only.
    reach : int or None
        Receptive field of a causal model in steps, including the current one; None for all steps so far.
    is_recordable : bool
        Whether it may run inside a CUDA graph: no random draws, no synchronisation with the host.
    is_small : bool
        Whether its operations on a CPU are small, or compiled kernels with threads of their own. In training torch then
        keeps to one thread, because its threads wait for each other on a busy machine.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.IgnoreClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> isinstance(clf.model_, lt.SequenceModel), clf.model_.is_causal
    (True, True)
    """

    name: ClassVar[str]
    is_causal: bool
    reach: int | None = None
    is_recordable: bool = True
    is_small: bool = True

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


# ----------------------------------------------------------------------------------------------------
# What a network of a user's own must give.
# ----------------------------------------------------------------------------------------------------


def check_logits(shape: Sequence[int], expected: Sequence[int]) -> None:
    """The shape of a model's logits must be the expected one."""
    if tuple(shape) != tuple(expected):
        raise ValueError(
            f"The model must give logits of shape (batch, steps, classes) = {tuple(expected)[-3:]}, "
            f"one per step and class. Got {tuple(shape)[-3:]}."
        )


# ----------------------------------------------------------------------------------------------------
# Multinomial logistic regression: the logits of a step are an affine function of its features.
# ----------------------------------------------------------------------------------------------------


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
