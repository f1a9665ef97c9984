"""Flags at a false discovery rate from a histogram of the probabilities that labels are right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from labeltide.auditing.streaming.judging import SUPPORT

BINS = 1 << 16
QUALITY = "probability_right"


@dataclass(frozen=True)
class Flags:
    """Which labels are flagged: those with a quality below the threshold for which another is likelier, or all such.

    Attributes
    ----------
    threshold : the upper end of the last bin that is flagged; 0 where none is
    counts : int64 array, the number of flagged labels in each bin up to the threshold
    spend_fdr : whether labels for which no other is likelier are flagged too
    """

    threshold: float
    counts: np.ndarray
    spend_fdr: bool = False

    @property
    def n_issues(self) -> int:
        return int(self.counts.sum())

    def of(self, part: pa.Table) -> np.ndarray:
        """The flags of the lines of a part: bool of shape (lines,)."""
        quality = part[QUALITY].to_numpy()
        with np.errstate(invalid="ignore"):
            return may_flag(part, self.spend_fdr) & (quality < self.threshold)

    def buckets(self, size: int) -> np.ndarray:
        """Rising borders of quality, between which lie about `size` flagged labels each."""
        total = np.cumsum(self.counts)
        wanted = np.arange(size, self.n_issues, size)
        return (np.unique(np.searchsorted(total, wanted)) + 1) / BINS


def may_flag(part: pa.Table, spend_fdr: bool) -> np.ndarray:
    """The lines of a part for which another label is likelier; with `spend_fdr` all lines with a label."""
    return np.asarray(part[QUALITY].is_valid().to_numpy() if spend_fdr else part[SUPPORT].to_numpy() > 0)


def find_flags(parts: Iterable[pa.Table], fdr: float, spend_fdr: bool = False) -> Flags:
    """The largest number of bins of lowest quality whose mean quality is at most `fdr`.

    This is the rule of `choose_issues` (Newton and others 2004) in steps of 1/65,536: it flags at most the labels of
    one bin fewer.
    """
    counts, sums = np.zeros(BINS, dtype=np.int64), np.zeros(BINS)
    for part in parts:
        quality = part[QUALITY].to_numpy()[may_flag(part, spend_fdr)].astype(np.float64)
        place = np.minimum((quality * BINS).astype(np.int64), BINS - 1)
        counts += np.bincount(place, minlength=BINS)
        sums += np.bincount(place, quality, minlength=BINS)
    total = np.cumsum(counts)
    within = np.flatnonzero((total > 0) & (np.cumsum(sums) <= fdr * total))
    last = int(within[-1]) + 1 if len(within) else 0
    # A label that is surely right lies at the upper end of the last bin.
    return Flags(last / BINS if last < BINS else 2.0, counts[:last], spend_fdr)
