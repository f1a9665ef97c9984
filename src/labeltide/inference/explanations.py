"""Explanations of flagged labels: neighbours, other annotators and features that support another label, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NO_OTHER_LIKELIER = "no other label is likelier than the recorded one, but it is worth a look"
NEIGHBOUR_STEPS = 5  # steps on either side of a label whose labels are its neighbours


class Support(NamedTuple):
    """Support for the suggested label, for every flagged label: arrays of shape (flagged,)."""

    recorded: np.ndarray  # codes
    suggested: np.ndarray  # codes
    agreeing: np.ndarray  # neighbours recorded with the suggested label
    neighbours: np.ndarray  # all neighbours
    signal: np.ndarray  # codes: the most likely label from the features alone
    signal_probability: np.ndarray
    others: np.ndarray  # other annotators who recorded the suggested label at this step
    wrong: np.ndarray  # error rate at this moment


def find_support(
    labels: np.ndarray, flagged: np.ndarray, suggested: np.ndarray, signal: np.ndarray, wrong: np.ndarray
) -> Support:
    """Count neighbours and other annotators, and look up the features' label, for flagged labels only.

    Parameters
    ----------
    labels : int8 array of shape (n, steps, annotators)
    flagged : bool array of shape (n, steps, annotators)
    suggested : codes of shape (n, steps)
    signal : array of shape (n, steps, classes)
        Probabilities from the features alone.
    wrong : array of shape (n, steps), or (n, steps, annotators) where each has their own Q
        Error rate at each moment.
    """
    row, step, annotator = np.nonzero(flagged)
    other = suggested[row, step]
    agreeing, neighbours = _count_neighbours(labels, row, step, other)
    probabilities = signal[row, step]  # (flagged, classes)
    same_step = (labels[row, step] == other[:, None]).sum(1)  # without the flagged label, which differs
    return Support(
        recorded=labels[row, step, annotator],
        suggested=other,
        agreeing=agreeing,
        neighbours=neighbours,
        signal=probabilities.argmax(1),
        signal_probability=probabilities.max(1),
        others=same_step,
        wrong=wrong[row, step] if wrong.ndim == 2 else wrong[row, step, annotator],
    )


def explain(support: Support, classes: Sequence[Any]) -> list[str]:
    """One sentence for every flagged label."""
    names = [str(name) for name in classes]
    return [_sentence(names, *values) for values in zip(*(column.tolist() for column in support), strict=True)]


def _sentence(
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
    if recorded == suggested:
        return NO_OTHER_LIKELIER
    was, other = names[recorded], names[suggested]
    supporters = []
    if 2 * agreeing > neighbours:
        supporters.append(f"{agreeing} of {neighbours} neighbours")
    if others:
        supporters.append(f"{others} other annotator{'s' if others > 1 else ''}")
    if signal == suggested:
        supporters.append(f"the signal ({_percent(signal_probability)})")
    share = f"at this time {_percent(wrong)} of labels are wrong"
    if not supporters:
        return f"recorded {was}, but {other} is more likely from all around it; {share}"
    says = "says" if len(supporters) == 1 and not supporters[0][0].isdigit() else "say"
    return f"recorded {was}, but {_join(supporters)} {says} {other}; {share}"


def _count_neighbours(
    labels: np.ndarray, row: np.ndarray, step: np.ndarray, code: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many labels within `NEIGHBOUR_STEPS` equal `code`, and how many there are."""
    near = np.array([shift for shift in range(-NEIGHBOUR_STEPS, NEIGHBOUR_STEPS + 1) if shift])
    place = step[:, None] + near  # (flagged, shifts)
    inside = (place >= 0) & (place < labels.shape[1])
    seen = labels[row[:, None], place.clip(0, labels.shape[1] - 1)]  # (flagged, shifts, annotators)
    seen = np.where(inside[..., None], seen, -1)
    return (seen == code[:, None, None]).sum((1, 2)), (seen >= 0).sum((1, 2))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _join(supporters: Sequence[str]) -> str:
    return supporters[0] if len(supporters) == 1 else f"{', '.join(supporters[:-1])} and {supporters[-1]}"
