"""Label leakage: columns that give the labels away."""

from __future__ import annotations

import numpy as np

FEW_TO_JUDGE = 50  # with fewer labels, a measurement can match them by chance


def gives_labels_away(values: np.ndarray, labels: np.ndarray) -> bool:
    """Whether a column and the labels of some annotator match one to one."""
    for codes in labels.T:
        marked = np.flatnonzero(codes >= 0)
        n_classes = len(np.unique(codes[marked]))
        sample = values[marked[:1000]]
        if len(marked) < FEW_TO_JUDGE or n_classes < 2 or len(np.unique(sample)) > n_classes:
            continue
        distinct, level = np.unique(values[marked], return_inverse=True)
        pairs = np.unique(level.reshape(-1).astype(np.int64) * 128 + codes[marked])
        if len(distinct) == len(pairs) == n_classes:
            return True
    return False
