"""Validation and encoding: from the arguments of `fit` to the tensors that the training loop takes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._clock import Cells, Period, check_clocks, check_gaps, find_cells, one_period, wrap_clock
from labeltide.data.clusters import ClusterWarning, count_clusters, draw_units, encode_clusters, splitting_units
from labeltide.data.serial_dependence import neighbours_look_alike
from labeltide.tables.sources import Sources, find_sources, spread_labels
from labeltide.training import FleetData, clock_grid

# Of several clocks, up to `FEW_CLASSES` classes and beyond (docs/decisions/007-families-of-q.md).
MAX_CELLS, MAX_CELLS_MANY_CLASSES = 576, 144  # by hand
FEW_CLASSES = 3
# Share of the labelled rows that one cluster may hold without a warning (docs/decisions/019-people-are-the-unit.md).
MOST_OF_ONE = 0.6  # by hand


class Prepared(NamedTuple):
    """Checked and encoded arguments of `fit`."""

    data: FleetData
    classes: tuple[Any, ...]
    sources: Sources
    cells: Cells | None  # of several clocks
    clusters: np.ndarray | None  # int64 (rows,)


def prepare(
    X: ArrayLike,
    labels: Sequence[ArrayLike],
    seeds: Sequence[int],
    *,
    clock: ArrayLike | None,
    lengths: ArrayLike | None,
    trusted: ArrayLike | None,
    groups: ArrayLike | None,
    gaps: ArrayLike | None,
    clusters: ArrayLike | None,
    held_out: float,
    splits: bool,
    period: Period,
) -> Prepared:
    """Check all inputs, encode labels by the classes of all members, and hold out a share of each member's rows.

    Where the method splits rows, it warns of rows that depend on each other and are told apart by no clusters.
    """
    features, counts = _validation.check_features(X, lengths)
    n, n_steps = features.shape[:2]
    mask = _validation.steps_mask(counts, n_steps)
    moments = check_clocks(clock, counts, n_steps)
    between = check_gaps(gaps, counts, n_steps)
    codes, classes = _encode(labels, mask)
    sources = find_sources(codes.shape[-1], groups, n)
    codes = spread_labels(codes, sources.places(groups, n), len(sources.names))
    grid, points, cells = _find_grid(moments, mask, period, len(classes))
    labelled = np.asarray((codes >= 0).any((2, 3)))  # (members, rows)
    people = None if clusters is None else encode_clusters(clusters, n)
    held = np.zeros((len(labels), n), dtype=bool)
    if held_out:
        held = np.stack([hold_out(seed, rows, held_out, people) for seed, rows in zip(seeds, labelled, strict=True)])
    if splits:
        _warn_of_splits(features, mask, labelled, people)
    data = FleetData(
        features=torch.from_numpy(features),
        mask=torch.from_numpy(mask),
        labels=torch.from_numpy(codes),
        grid=torch.from_numpy(grid),
        points=None if points is None else torch.from_numpy(points),
        weights=torch.from_numpy(~held).float(),
        held_out=torch.from_numpy(held),
        trusted=None if trusted is None else torch.from_numpy(_encode_trusted(trusted, mask, classes)),
        gaps=None if between is None else torch.from_numpy(between),
    )
    return Prepared(data, classes, sources, cells, people)


def _find_grid(
    moments: np.ndarray, mask: np.ndarray, period: Period, n_classes: int
) -> tuple[np.ndarray, np.ndarray | None, Cells | None]:
    """The distinct moments of the clock and the place of each step among them; with several clocks, their cells."""
    if moments.ndim == 3:
        cells = find_cells(moments, mask, period, MAX_CELLS if n_classes <= FEW_CLASSES else MAX_CELLS_MANY_CLASSES)
        return np.arange(len(cells.grid), dtype=np.float64), cells.places(moments), cells
    return *clock_grid(wrap_clock(moments, one_period(period)), mask), None


def _encode(labels: Sequence[ArrayLike], mask: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Codes of shape (members, rows, steps, annotators) and the classes that any member has."""
    arrays = [_validation.check_labels(y, *mask.shape) for y in labels]
    if len({y.shape for y in arrays}) > 1:
        raise ValueError("The label arrays of one fleet must have one shape. Pad annotators who are missing with -1.")
    together = np.stack(arrays)
    present = mask[..., None] & ~_validation.missing_labels(together)
    classes = _validation.find_classes(together, present)
    for y, recorded in zip(arrays, present, strict=True):
        _validation.find_classes(y, recorded)  # each member needs two classes
    return _validation.encode_labels(together, present, classes), classes


def _encode_trusted(trusted: ArrayLike, mask: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    labels = _validation.check_labels(trusted, *mask.shape)
    if labels.shape[2] != 1:
        raise ValueError(f"trusted must hold one label per step. Got shape {labels.shape}.")
    present = mask[..., None] & ~_validation.missing_labels(labels)
    return _validation.encode_labels(labels, present, classes, "trusted")[..., 0]


def hold_out(seed: int, labelled: np.ndarray, fraction: float, clusters: np.ndarray | None = None) -> np.ndarray:
    """Draw a validation share of the rows that hold a label, in whole clusters: only those can decide when to stop."""
    n = int(labelled.sum())
    if n < 2:
        raise ValueError(f"early_stopping needs at least two sequences with labels, one to hold out. Got {n}.")
    target = min(max(1, round(fraction * n)), n - 1)
    return draw_units(splitting_units(clusters, labelled), labelled, target, np.random.default_rng([seed, 2]))


def _warn_of_splits(features: np.ndarray, mask: np.ndarray, labelled: np.ndarray, clusters: np.ndarray | None) -> None:
    """Warn where rows that look dependent are split one by one, or where a cluster leaves too little beside itself."""
    said = None
    if clusters is None:
        if neighbours_look_alike(features, mask):
            said = (
                "Adjacent rows look alike, as windows of one person do, so rows that are held out say less than they "
                "seem to. Pass clusters=, naming the person, night or recording of each row."
            )
    elif min(count_clusters(clusters, rows) for rows in labelled) < 2:
        said = (
            "clusters must name at least two clusters with labels, to hold out one of them. Got fewer, so rows are "
            "split as if they were independent. Give more people or recordings."
        )
    elif (share := max(np.bincount(clusters[rows]).max() / rows.sum() for rows in labelled)) > MOST_OF_ONE:
        said = (
            f"One of the clusters holds {100 * share:.0f} % of the rows with labels, so the networks that judge it "
            "learn from few rows. Name shorter recordings in clusters, such as days, or give more people."
        )
    if said is not None:
        warnings.warn(said, ClusterWarning, stacklevel=5)  # at the call of `fit`
