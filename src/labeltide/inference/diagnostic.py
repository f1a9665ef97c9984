"""What a check of the estimated noise says."""

from __future__ import annotations

from dataclasses import dataclass


class NoiseWarning(UserWarning):
    """A diagnostic of the estimated noise failed."""


@dataclass(frozen=True)
class Diagnostic:
    """The result of one check.

    Attributes
    ----------
    name : str
    is_warning : bool
    sentence, advice : str
    denies : bool
        Whether the warning means that the share of wrong labels cannot be told at all.
    """

    name: str
    is_warning: bool
    sentence: str
    advice: str
    denies: bool = False
