"""Why a label is flagged, in words that a person can check against the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NEAR = 5  # recorded steps on either side that are called neighbours


class Grounds(NamedTuple):
    """What speaks for another label, for every flagged label: arrays of shape (flagged,)."""

    recorded: np.ndarray  # codes
    suggested: np.ndarray  # codes
    agreeing: np.ndarray  # neighbours recorded with the suggested label
    neighbours: np.ndarray  # neighbours there are
    signal: np.ndarray  # codes: what the features alone say
    signal_probability: np.ndarray
    others: np.ndarray  # other annotators who recorded the suggested label at this step
    wrong: np.ndarray  # the share of labels that are wrong at this moment


def find_grounds(
    labels: np.ndarray, flagged: np.ndarray, suggested: np.ndarray, signal: np.ndarray, wrong: np.ndarray
) -> Grounds:
    """Count neighbours and look up what the features say, for flagged labels only.

    Parameters
    ----------
    labels : int8 array of shape (n, steps, annotators)
    flagged : bool array of shape (n, steps, annotators)
    suggested : codes of shape (n, steps)
    signal : array of shape (n, steps, classes)
        Probabilities from the features alone.
    wrong : array of shape (n, steps), or (n, steps, annotators) where each has an own Q
        The share of labels that are wrong at each moment.
    """
    row, step, annotator = np.nonzero(flagged)
    other = suggested[row, step]
    agreeing, neighbours = _count_neighbours(labels, row, step, other)
    own = signal[row, step]  # (flagged, classes)
    same_step = (labels[row, step] == other[:, None]).sum(1)  # the flagged label itself says something else
    return Grounds(
        labels[row, step, annotator],
        other,
        agreeing,
        neighbours,
        own.argmax(1),
        own.max(1),
        same_step,
        wrong[row, step] if wrong.ndim == 2 else wrong[row, step, annotator],
    )


def say_reasons(grounds: Grounds, classes: Sequence[Any]) -> list[str]:
    """One sentence for every flagged label."""
    names = [str(name) for name in classes]
    return [_say(names, *values) for values in zip(*(own.tolist() for own in grounds), strict=True)]


def _say(
    names: Sequence[str],
    recorded: int,
    suggested: int,
    agreeing: int,
    neighbours: int,
    signal: int,
    signal_probability: float,
    others: int,
    wrong: float,
) -> str:
    was, other = names[recorded], names[suggested]
    voices = []
    if 2 * agreeing > neighbours:
        voices.append(f"{agreeing} of {neighbours} neighbours")
    if others:
        voices.append(f"{others} other annotator{'s' if others > 1 else ''}")
    if signal == suggested:
        voices.append(f"the signal ({_percent(signal_probability)})")
    share = f"at this time {_percent(wrong)} of labels are wrong"
    if not voices:
        return f"recorded {was}, but {other} is more likely from all around it; {share}"
    says = "says" if len(voices) == 1 and not voices[0][0].isdigit() else "say"
    return f"recorded {was}, but {_join(voices)} {says} {other}; {share}"


def _count_neighbours(
    labels: np.ndarray, row: np.ndarray, step: np.ndarray, code: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many labels within a few steps are the given one, and how many there are."""
    near = np.array([shift for shift in range(-NEAR, NEAR + 1) if shift])
    place = step[:, None] + near  # (flagged, shifts)
    inside = (place >= 0) & (place < labels.shape[1])
    seen = labels[row[:, None], place.clip(0, labels.shape[1] - 1)]  # (flagged, shifts, annotators)
    seen = np.where(inside[..., None], seen, -1)
    return (seen == code[:, None, None]).sum((1, 2)), (seen >= 0).sum((1, 2))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _join(voices: Sequence[str]) -> str:
    return voices[0] if len(voices) == 1 else f"{', '.join(voices[:-1])} and {voices[-1]}"
