"""Training and test splits: masks of shape (n,), True for the test part, or the fold of each sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np


def at_random(n: int, share: float, seed: int) -> np.ndarray:
    """A random share of the sequences. Windows of one recording may lie in both parts."""
    chosen = np.random.default_rng(seed).permutation(n)[: _count(n, share)]
    return np.isin(np.arange(n), chosen)


def by_time(ids: Sequence[Hashable], share: float) -> np.ndarray:
    """The last share of the windows of every recording, for windows that stand in order."""
    counts, seen = Counter(ids), Counter[Hashable]()
    test = np.zeros(len(ids), dtype=bool)
    for row, name in enumerate(ids):
        seen[name] += 1
        test[row] = seen[name] > counts[name] - _count(counts[name], share)
    return test


def by_group(groups: Sequence[Hashable], share: float, seed: int) -> np.ndarray:
    """Grouped split: random groups until they hold the share; at least one group remains for training.

    Parameters
    ----------
    groups : n names that can be sorted, one for each sequence
    """
    sizes = Counter(groups)
    names = sorted(sizes)  # type: ignore[type-var]
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    reached = np.cumsum([sizes[name] for name in order])
    n_groups = 1 + int(np.searchsorted(reached, _count(len(groups), share)))
    chosen = set(order[: min(n_groups, len(names) - 1)])
    return np.array([name in chosen for name in groups], dtype=bool)


def fold_of(groups: Sequence[Hashable], folds: int, seed: int) -> np.ndarray:
    """Grouped cross-validation: the fold (n,) in which each sequence is tested."""
    names = sorted(set(groups))  # type: ignore[type-var]
    order = np.random.default_rng(seed).permutation(len(names))
    home = {names[index]: number % folds for number, index in enumerate(order)}
    return np.array([home[name] for name in groups], dtype=np.intp)


def _count(n: int, share: float) -> int:
    """A share of n: at least one, and never all."""
    return min(max(1, round(share * n)), n - 1)
