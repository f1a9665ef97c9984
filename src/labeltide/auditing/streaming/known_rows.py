"""Which windows a fit has seen: a sketch of numbers rules out nearly all others, digests decide the rest.

A digest of each window is computed in Python, one after another, whatever the number of threads. Of an audit whose
networks run on a GPU it was a third of the time in which other threads waited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labeltide.auditing.streaming.draw import mix
from labeltide.estimators.rows import TrainingRows, digest_rows

FIRST = 8  # steps of a row that are looked at


class KnownRows(NamedTuple):
    """The training rows of a fit.

    Attributes
    ----------
    sketches : of the training rows, uint64, in order; None where they are not known, and every row gets a digest
    """

    rows: TrainingRows
    sketches: np.ndarray | None

    def find_folds(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """As `TrainingRows.find_folds`."""
        if self.sketches is None:
            return self.rows.find_folds(features, mask)
        maybe = np.flatnonzero(np.isin(sketch_rows(features, mask), self.sketches))
        folds = np.full(len(features), -1)
        folds[maybe] = self.rows.find_folds(features[maybe], mask[maybe])
        return folds


def find_known_rows(rows: TrainingRows, features: np.ndarray, mask: np.ndarray) -> KnownRows:
    """The rows that a fit has seen, from windows among which all of them should be."""
    digests = {digest.tobytes() for digest in digest_rows(features, mask)}
    if not all(digest.tobytes() in digests for digest in rows.digests):
        return KnownRows(rows, None)
    return KnownRows(rows, np.unique(sketch_rows(features, mask)))


def sketch_rows(features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One number for the first features of every row, the same for equal rows: uint64 of shape (rows,).

    It is a sum of their bits as whole numbers, weighted by fixed odd numbers (universal hashing, Dietzfelbinger 1996).
    """
    bits = np.ascontiguousarray(features[:, :FIRST], dtype=np.float32).view(np.uint32)
    bits = np.where(mask[:, :FIRST, None], bits, 0).reshape(len(features), -1).astype(np.uint64)
    weights = mix(np.zeros(1, dtype=np.uint64), np.arange(bits.shape[1])) | np.uint64(1)
    return bits @ weights
