"""What to have re-annotated first: the sequences or steps whose true labels would make Q surest."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from labeltide import _validation

TENTHS = 10  # parts of the clock within which Q is taken for one
PRIOR = 1.0  # labels' worth of knowledge with which every part of Q begins


class Plan(NamedTuple):
    """What to re-annotate, the most useful first."""

    rows: np.ndarray  # (k,), numbers of sequences
    steps: np.ndarray | None  # (k,), or None where whole sequences were asked for
    gain: np.ndarray  # (k,), by how much each adds to the log-information on Q, given those before it


def plan_review(
    labels: np.ndarray,
    mask: np.ndarray,
    clock: np.ndarray,
    probabilities: np.ndarray,
    matrices: np.ndarray,
    k: int,
    by: str = "sequence",
) -> Plan:
    r"""Choose greedily by the information that is missing (Louis, 1982).

    A recorded label j of a step whose true label i is known bears on row i of Q with a score
    :math:`s_i = e_j - Q_i`. Not knowing i costs the variance of that score, :math:`\gamma_i (1 - \gamma_i) |s_i|^2`,
    and re-annotation gives it back. Q is taken in cells, a true label in a tenth of the clock; the best set has
    the largest :math:`\sum_c \log I_c`, in which cells that know much already gain little. Each choice adds to a
    concave sum, so the greedy set is at least 63 % as good as the best one (Nemhauser and others, 1978).

    Parameters
    ----------
    labels : int8 array of shape (n, steps, annotators)
    mask : bool array of shape (n, steps)
    clock : array of shape (n, steps)
    probabilities : array of shape (n, steps, classes), of the true label given everything
    matrices : array of shape (n, steps, classes, classes), Q at every step
    k : int
    by : {"sequence", "step"}
    """
    _validation.check_choice("by", by, ("sequence", "step"))
    n, _, n_classes = probabilities.shape
    sequences = by == "sequence"
    _validation.check_number("k", k, 1, n if sequences else int(mask.sum()), whole=True)
    known, missing = step_information(labels, probabilities, matrices)  # (n, steps, classes) each
    cell = _tenth(clock, mask)  # (n, steps)
    of_cells = np.stack([known[mask & (cell == c)].sum(0) for c in range(TENTHS)]) + PRIOR  # (tenths, classes)
    if sequences:
        gains = np.zeros((n, TENTHS, n_classes))
        np.add.at(gains, (np.arange(n)[:, None], cell), missing * mask[..., None])
        chosen, gain = _greedy(gains.reshape(n, -1), np.zeros(n, np.intp), of_cells.reshape(1, -1), k)
        return Plan(chosen, None, gain)
    row, step = np.nonzero(mask)
    chosen, gain = _greedy(missing[row, step], cell[row, step], of_cells, k)
    return Plan(row[chosen], step[chosen], gain)


def step_information(
    labels: np.ndarray, probabilities: np.ndarray, matrices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What every step's labels say of each row of Q now, and what they would say more were the true label known."""
    codes = labels.clip(0).astype(np.intp)[..., None]  # (n, steps, annotators, 1)
    columns = np.moveaxis(matrices, -1, -2)[:, :, None]  # (n, steps, 1, recorded, true)
    right = np.take_along_axis(columns, codes[..., None], -2)[..., 0, :]  # (n, steps, annotators, true)
    squared = (matrices**2).sum(-1)[:, :, None]  # (n, steps, 1, true)
    score = 1 - 2 * right + squared  # |e_j - Q_i|^2
    score = np.where(labels[..., None] >= 0, score, 0).sum(2)  # (n, steps, true)
    return probabilities**2 * score, probabilities * (1 - probabilities) * score


def _tenth(clock: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The part of the clock of every step, in parts with about the same number of steps."""
    edges = np.quantile(clock[mask], np.linspace(0, 1, TENTHS + 1)[1:-1])
    return np.searchsorted(edges, clock, side="right")


def _greedy(gains: np.ndarray, cell: np.ndarray, information: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates that add most, one after the other; gains only shrink, so stale ones are bounds (lazy greedy).

    Parameters
    ----------
    gains : array of shape (candidates, rows of Q)
    cell : the row of `information` to which each candidate adds
    information : array of shape (cells, rows of Q)
    """
    information = information.copy()

    def worth(i: int) -> float:
        return float(np.log1p(gains[i] / information[cell[i]]).sum())

    first = np.log1p(gains / information[cell]).sum(1)
    heap = [(-value, i) for i, value in enumerate(first.tolist())]
    heapq.heapify(heap)
    chosen: list[int] = []
    added: list[float] = []
    while len(chosen) < k:
        _, i = heapq.heappop(heap)
        now = worth(i)
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, i))
            continue
        chosen.append(i)
        added.append(now)
        information[cell[i]] += gains[i]
    return np.array(chosen), np.array(added)
