"""The interface of sequence classifiers: from features to the logits of the true label at every step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
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
    kept_per_unit : int
        Numbers that training keeps for each step and hidden unit, by which the memory of a fleet is estimated.
    has_onnx : bool
        Whether `write_onnx` is implemented.
    is_small : bool
        Whether its operations on a CPU are small, or compiled kernels with threads of their own. In training torch then
        keeps to one thread, because its threads wait for each other on a busy machine.

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.IgnoreClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> isinstance(clf.model_, lt.SequenceModel), clf.model_.is_causal
    (True, True)
    """

    name: ClassVar[str]
    is_causal: bool
    reach: int | None = None
    is_recordable: bool = True
    is_small: bool = True
    kept_per_unit: ClassVar[int] = 128
    has_onnx: ClassVar[bool] = False

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

    def start(self, streams: int) -> Tensor:
        """The state of a causal model before the first step of sequences that are followed side by side, on the CPU.

        Here the steps so far, within the receptive field: (streams, steps, features). Models with a state of constant
        size, such as a GRU, override this and `advance`.
        """
        return torch.zeros(streams, 0, 0)

    @torch.no_grad()
    def advance(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the next step, (members, streams, classes), and the state after it.

        Parameters
        ----------
        features : Tensor of shape (streams, features)
        state : what `start` or the last `advance` gave
        """
        step = features[:, None]
        seen = torch.cat([state, step], 1) if state.shape[1] else step
        seen = seen[:, -self.reach :] if self.reach else seen
        window = seen.expand(self.members, -1, -1, -1)  # (members, streams, steps, features)
        return self(window, torch.ones(window.shape[:3], dtype=torch.bool))[:, :, -1], seen

    def fused_parameters(self) -> tuple[Tensor, ...] | None:
        """The parameters in the order of the compiled GRU where that computes this model, for `CompiledStep`."""
        return None

    @property
    def onnx_state(self) -> tuple[int | str, ...] | None:
        """The shape of the state of one step in ONNX, "streams" standing for a free size; None where there is no graph.

        Every stream begins with zeros.
        """
        return None

    def write_onnx(self, graph: Any, features: str, lengths: str | None, state: str | None) -> tuple[str, str | None]:
        """Add the network to an ONNX graph (`exporting/onnx.py`).

        Parameters
        ----------
        graph : labeltide.exporting.onnx.Graph
        features : (batch, steps, features); one step where there is a `state`
        lengths : (batch,), where the model is not causal
        state : of the shape `onnx_state`, for one step

        Returns
        -------
        Logits (members, batch, steps, classes), and the next state where one was given.
        """
        raise NotImplementedError


def check_logits(shape: Sequence[int], expected: Sequence[int]) -> None:
    """The shape of a model's logits must be the expected one."""
    if tuple(shape) != tuple(expected):
        raise ValueError(
            f"The model must give logits of shape (batch, steps, classes) = {tuple(expected)[-3:]}, "
            f"one per step and class. Got {tuple(shape)[-3:]}."
        )


class LinearModel(SequenceModel):
    """Multinomial logistic regression of every step on its own; `hidden_size` and `causal` have no effect."""

    name = "linear"
    reach = 1
    has_onnx = True

    def __init__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> None:
        super().__init__()
        self.members, self.is_causal = members, True
        self.head = MemberLinear(members, n_features, n_classes)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.head(features)

    def write_onnx(self, graph: Any, features: str, lengths: str | None, state: str | None) -> tuple[str, str | None]:
        return graph.linear(graph.add("Unsqueeze", features, graph.whole(0)), self.head), None
