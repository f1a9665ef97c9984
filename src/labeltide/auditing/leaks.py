"""Label leakage: a column that was made from the recorded labels, perhaps shifted by some rows or with a jitter.

A column that tells the recorded labels nearly without error, while all other columns and the labels before and after do
not, also tells the wrong ones. Then no label looks wrong, however many are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labeltide.auditing.audit_input import AuditInput
from labeltide.inference.diagnostic import Diagnostic
from labeltide.tables.wording import quoted

# docs/decisions/016-when-nothing-can-be-told.md
SHIFTS = (0, 1, -1, 2, -2)  # by hand: rows by which a column may be shifted against the labels
MOST_STEPS, LEAST_STEPS = 4_000, 100  # that are looked at
BINS = 64  # by hand: quantiles of a column, each with its most frequent label
MOST_ERRORS = 0.02  # by hand: of a column that may be a copy; also at most a tenth of those of the most frequent label
LEAST_OTHER_ERRORS, TIMES_AS_MANY = 0.05, 4.0  # by hand: of everything else
MOST_COLUMNS = 60  # with more, neighbouring steps of the other columns are not used


class Labelled(NamedTuple):
    """The labels of one annotator, with the features around them."""

    codes: np.ndarray  # (labels,)
    values: dict[int, np.ndarray]  # features at the step, and some steps before or after: (labels, features) each
    inside: dict[int, np.ndarray]  # bool (labels,): whether that step is there; at the ends it is the last one
    neighbours: np.ndarray  # the labels before and after as indicators: (labels, 2 * classes)
    half: np.ndarray  # bool (labels,): sequences are divided into two halves


def check_leaks(table: AuditInput, seed: int = 0) -> tuple[Diagnostic, ...]:
    """A warning that names the columns which look like copies of the labels; nothing where there is none."""
    if table.features.shape[2] < 2:
        return ()
    found: dict[str, float] = {}
    windows = _draw_windows(table, seed)
    for annotator in range(table.labels.shape[2]):
        labelled = _gather(table, windows, annotator)
        if labelled is not None:
            found |= find_leaks(labelled, table.feature_names)
    if not found:
        return ()
    sentence = (
        f"{quoted(list(found))} alone {'tell' if len(found) > 1 else 'tells'} {100 * min(found.values()):.1f} % of the "
        "recorded labels, far more than everything else does. A column that was made from the labels also copies their "
        "mistakes, so that none can be seen."
    )
    return (Diagnostic("leak", True, sentence, "Leave such a column out of the features.", denies=True),)


def find_leaks(labelled: Labelled, names: tuple[str, ...]) -> dict[str, float]:
    """The columns that look like copies of the labels, and the share of labels that each tells."""
    usual = 1 - np.bincount(labelled.codes).max() / len(labelled.codes)
    found = {}
    for column, name in enumerate(names):
        errors = min(_column_errors(labelled, column, shift) for shift in SHIFTS)
        if errors > min(MOST_ERRORS, 0.1 * usual):
            continue
        if _other_errors(labelled, column) > max(LEAST_OTHER_ERRORS, TIMES_AS_MANY * errors):
            found[name] = 1 - errors
    return found


def _column_errors(labelled: Labelled, column: int, shift: int) -> float:
    """Share of labels that differ from the most frequent one in their bin of the column, by the other half."""
    inside = labelled.inside[shift]
    values, codes, half = labelled.values[shift][inside, column], labelled.codes[inside], labelled.half[inside]
    if min(half.sum(), (~half).sum()) < LEAST_STEPS // 2:
        return 1.0
    wrong = 0
    for judged in (half, ~half):
        edges = np.unique(np.quantile(values[~judged], np.linspace(0, 1, BINS + 1)[1:-1]))
        place = np.searchsorted(edges, values, side="right")
        counts = np.zeros((len(edges) + 1, codes.max() + 1))
        np.add.at(counts, (place[~judged], codes[~judged]), 1)
        wrong += int((counts.argmax(1)[place[judged]] != codes[judged]).sum())
    return wrong / len(values)


def _other_errors(labelled: Labelled, column: int) -> float:
    """Share of labels that a logistic regression on all other columns and the neighbouring labels does not tell."""
    shifts = SHIFTS[:3] if labelled.values[0].shape[1] <= MOST_COLUMNS else SHIFTS[:1]
    rest = [np.delete(labelled.values[shift], column, axis=1) for shift in shifts]
    inputs = np.concatenate([*rest, labelled.neighbours], axis=1)
    wrong = 0
    for judged in (labelled.half, ~labelled.half):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
        model.fit(inputs[~judged], labelled.codes[~judged])
        wrong += int((model.predict(inputs[judged]) != labelled.codes[judged]).sum())
    return wrong / len(inputs)


def _draw_windows(table: AuditInput, seed: int) -> np.ndarray:
    labelled = np.flatnonzero((table.fit_labels >= 0).any((1, 2)))
    drawn = np.random.default_rng([seed, 13]).permutation(labelled)
    return np.sort(drawn[: max(2, MOST_STEPS // table.index.shape[1])])


def _gather(table: AuditInput, windows: np.ndarray, annotator: int) -> Labelled | None:
    """The labels of an annotator in some windows; None where they are too few, or of one class in a half."""
    labels, steps = table.fit_labels[windows, :, annotator], np.arange(table.index.shape[1])
    last = table.lengths[windows][:, None] - 1
    row, step = np.nonzero(labels >= 0)
    if len(row) < LEAST_STEPS:
        return None
    groups = np.unique(table.groups[windows], return_inverse=True)[1]
    half = (groups if groups.max() > 0 else np.arange(len(windows)))[row] % 2 == 0
    codes = labels[row, step].astype(np.int64)
    if min(len(np.unique(codes[half])), len(np.unique(codes[~half]))) < 2:
        return None
    features = table.features[windows]
    moved = {shift: np.clip(steps + shift, 0, last) for shift in SHIFTS}  # (windows, steps)
    values = {shift: features[row, place[row, step]] for shift, place in moved.items()}
    inside = {shift: place[row, step] == step + shift for shift, place in moved.items()}
    kinds = np.arange(len(table.class_names))
    beside = [labels[row, moved[shift][row, step]][:, None] == kinds for shift in (1, -1)]
    return Labelled(codes, values, inside, np.concatenate(beside, axis=1).astype(float), half)
