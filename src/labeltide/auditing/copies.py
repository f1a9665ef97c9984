"""Sequences with the same features: the same recording under several ids.

Copies must not lie on both sides of a split, or networks judge labels that they have seen. Windows are compared by
digests of their features.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from labeltide.auditing.training_windows import Learned
from labeltide.estimators.rows import digest_rows
from labeltide.inference.diagnostic import Diagnostic
from labeltide.tables.wording import quoted

# Different steps in a window; shorter or simpler ones may be equal by chance
# (docs/decisions/016-when-nothing-can-be-told.md).
LEAST_DISTINCT = 8  # by hand


def clusters_of_copies(table: Learned) -> np.ndarray:
    """The cluster of each sequence, int64 of shape (sequences,): itself, or the first of those that share a window."""
    mask = np.arange(table.fit_labels.shape[1]) < table.lengths[:, None]
    windows: dict[bytes, list[int]] = defaultdict(list)
    for window, digest in enumerate(digest_rows(table.features, mask)):
        windows[digest.tobytes()].append(window)
    cluster = np.arange(len(table.sequence_names))
    for alike in windows.values():
        sequences = np.unique(table.groups[alike])
        if len(sequences) > 1 and _is_distinct(table.features[alike[0], mask[alike[0]]]):
            joined = np.isin(cluster, cluster[sequences])
            cluster[joined] = cluster[joined].min()
    return cluster


def _is_distinct(steps: np.ndarray) -> bool:
    return len(np.unique(steps, axis=0)) >= LEAST_DISTINCT


def check_copies(table: Learned, clusters: np.ndarray) -> tuple[Diagnostic, ...]:
    """A warning where sequences are copies of others; where all are, labels cannot be judged by other sequences."""
    copies = np.flatnonzero(clusters != np.arange(len(clusters)))
    if not len(copies):
        return ()
    pair = quoted([table.sequence_names[clusters[copies[0]]], table.sequence_names[copies[0]]])
    count = f"{len(copies)} sequences have" if len(copies) > 1 else "1 sequence has"
    sentence = f"{count} the features of another (such as {pair}): copies count as one recording."
    whole = len(np.unique(clusters)) < 2
    if whole:
        sentence = f"All sequences have the same features (such as {pair}): none can be judged by others."
    return (Diagnostic("copies", True, sentence, "Check why a recording is there several times.", denies=whole),)
