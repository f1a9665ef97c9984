r"""Greedy D-optimal design: the sequences or steps whose re-annotation adds most information on Q (Fedorov 1972)."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from labeltide import _validation
from labeltide._display import short

CLOCK_BINS = 10  # by hand: of the clock, within each of which Q is taken as constant
PRIOR_LABELS = 1.0  # by hand: pseudo-observations of every row of Q in every bin


class Plan(NamedTuple):
    """What to re-annotate, the most useful first."""

    rows: np.ndarray  # (k,), numbers of sequences
    steps: np.ndarray | None  # (k,), or None where whole sequences were asked for
    gain: np.ndarray  # (k,), increase of the log-determinant of the information on Q, given those before it

    def __repr__(self) -> str:
        return f"Plan(rows={short(self.rows)}, steps={short(self.steps)}, gain={short(self.gain)})"


def plan_review(
    labels: np.ndarray,
    mask: np.ndarray,
    clock: np.ndarray,
    probabilities: np.ndarray,
    k: int,
    by: str = "sequence",
    trusted: np.ndarray | None = None,
) -> Plan:
    r"""Choose what to re-annotate by greedy D-optimal design for Q, over true labels and bins of the clock.

    A step with a recorded label whose true label becomes known is one observation of one row of Q at one moment. A cell
    is a true label in a bin of the clock. The information on a cell is its number of such steps :math:`N_c`, and a
    D-optimal set maximises :math:`\sum_c \log N_c`. True labels are not known beforehand; expected counts under their
    posterior take their place. The gain is submodular, so the greedy set reaches at least 63 % of the best gain
    (Nemhauser, Wolsey and Fisher 1978).

    Uncertainty sampling is not used: it relies on the model that is to be checked (docs/decisions/020-review.md).

    Parameters
    ----------
    labels : int8 array of shape (n, steps, annotators)
    mask : bool array of shape (n, steps)
    clock : array of shape (n, steps)
    probabilities : array of shape (n, steps, classes), posterior of the true label
    k : int
    by : {"sequence", "step"}
    trusted : int8 array of shape (n, steps), optional
        True labels that are known already, -1 elsewhere; they are not asked for again.
    """
    _validation.check_choice("by", by, ("sequence", "step"))
    n, _, n_classes = probabilities.shape
    recorded = (labels >= 0).any(-1) & mask
    done = np.zeros_like(mask) if trusted is None else (trusted >= 0) & recorded
    cell = _clock_bin(clock, mask)  # (n, steps)
    known = np.full((CLOCK_BINS, n_classes), PRIOR_LABELS)
    np.add.at(known, cell[done], probabilities[done])
    open_steps = recorded & ~done
    if by == "sequence":
        candidates = np.flatnonzero(open_steps.any(1))
        _check_k(k, len(candidates), "sequences")
        gains = np.zeros((n, CLOCK_BINS, n_classes))
        np.add.at(gains, (np.arange(n)[:, None], cell), probabilities * open_steps[..., None])
        everywhere = np.zeros(len(candidates), np.intp)
        chosen, gain = _greedy(gains[candidates].reshape(len(candidates), -1), everywhere, known.reshape(1, -1), k)
        return Plan(candidates[chosen], None, gain)
    row, step = np.nonzero(open_steps)
    _check_k(k, len(row), "steps")
    chosen, gain = _greedy(probabilities[row, step], cell[row, step], known, k)
    return Plan(row[chosen], step[chosen], gain)


def _check_k(k: int, most: int, what: str) -> None:
    if most == 0:
        raise ValueError(f"There are no {what} left to re-annotate: every recorded label is trusted.")
    _validation.check_number("k", k, 1, most, whole=True)


def _clock_bin(clock: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The bin of the clock of every step; bins are quantiles, with about the same number of steps."""
    edges = np.quantile(clock[mask], np.linspace(0, 1, CLOCK_BINS + 1)[1:-1])
    return np.searchsorted(edges, clock, side="right")


def _greedy(gains: np.ndarray, cell: np.ndarray, information: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates with the largest gain, one after the other: lazy greedy (Minoux 1978), as gains only shrink.

    Parameters
    ----------
    gains : array of shape (candidates, rows of Q)
    cell : the row of `information` to which each candidate adds
    information : array of shape (cells, rows of Q)
    """
    information = information.copy()
    first = np.log1p(gains / information[cell]).sum(1)
    heap = [(-value, i) for i, value in enumerate(first.tolist())]
    heapq.heapify(heap)
    chosen: list[int] = []
    added: list[float] = []
    while len(chosen) < k:
        _, i = heapq.heappop(heap)
        now = float(np.log1p(gains[i] / information[cell[i]]).sum())
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, i))
            continue
        chosen.append(i)
        added.append(now)
        information[cell[i]] += gains[i]
    return np.array(chosen), np.array(added)
