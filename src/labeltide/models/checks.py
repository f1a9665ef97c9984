"""What a network of a user's own must give."""

from __future__ import annotations

from collections.abc import Sequence


def check_logits(shape: Sequence[int], expected: Sequence[int]) -> None:
    """The shape of a model's logits must be the expected one."""
    if tuple(shape) != tuple(expected):
        raise ValueError(
            f"The model must give logits of shape (batch, steps, classes) = {tuple(expected)[-3:]}, "
            f"one per step and class. Got {tuple(shape)[-3:]}."
        )
