"""Checks of a table before the fit: copies of recordings, leaking columns, rare classes, names of classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations, compress
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labeltide.auditing.reading import AuditInput
from labeltide.estimators.cross_fit import digest_rows
from labeltide.inference.conclusion import Diagnostic
from labeltide.tables.words import quoted

# Copies of a recording under several ids must not lie on both sides of a split, or networks judge labels that they have
# seen. Windows are compared by digests and correlations, if they have this many different steps: shorter or simpler
# ones may be equal by chance (docs/decisions/016-when-nothing-can-be-told.md).
MIN_DISTINCT = 8  # by hand
MIN_CORRELATION, MAX_COMPARED = 0.99, 4_000  # by hand: of windows that are near copies, and windows that are compared


def clusters_of_copies(table: AuditInput) -> np.ndarray:
    """The cluster of each sequence, int64 of shape (sequences,): itself, or the first of those that share a window."""
    mask = np.arange(table.fit_labels.shape[1]) < table.lengths[:, None]
    windows: dict[bytes, list[int]] = defaultdict(list)
    for window, digest in enumerate(digest_rows(table.features, mask)):
        windows[digest.tobytes()].append(window)
    cluster = np.arange(len(table.sequence_names))
    for alike in [*windows.values(), *_near_copies(table.features, mask)]:
        sequences = np.unique(table.groups[alike])
        steps = table.features[alike[0], mask[alike[0]]]
        if len(sequences) > 1 and len(np.unique(steps, axis=0)) >= MIN_DISTINCT:
            joined = np.isin(cluster, cluster[sequences])
            cluster[joined] = cluster[joined].min()
    return cluster


def _near_copies(features: np.ndarray, mask: np.ndarray) -> list[list[int]]:
    """Pairs of windows that are the same but for scales, offsets and rounding; none is looked for among very many."""
    if len(features) > MAX_COMPARED:
        return []
    shown = mask[..., None]
    count = shown.sum(1, keepdims=True)
    centred = np.where(shown, features - (features * shown).sum(1, keepdims=True) / count, 0.0)
    spread = np.sqrt(np.square(centred).sum(1, keepdims=True) / count)
    flat = (centred / np.where(spread > 0, spread, 1.0)).reshape(len(features), -1).astype(np.float32)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True).clip(1e-9)
    pairs = []
    for start in range(0, len(flat), 500):
        first, second = np.nonzero(flat[start : start + 500] @ flat.T > MIN_CORRELATION)
        pairs += [[a, b] for a, b in zip((first + start).tolist(), second.tolist(), strict=True) if a < b]
    return pairs


def check_copies(table: AuditInput, clusters: np.ndarray) -> tuple[Diagnostic, ...]:
    """A warning where sequences are copies of others; where all are, labels cannot be judged by other sequences."""
    copies = np.flatnonzero(clusters != np.arange(len(clusters)))
    if not len(copies):
        return ()
    pair = quoted([table.sequence_names[clusters[copies[0]]], table.sequence_names[copies[0]]])
    count = f"{len(copies)} sequences have" if len(copies) > 1 else "1 sequence has"
    sentence = f"{count} the features of another (such as {pair}): copies count as one recording."
    whole = len(np.unique(clusters)) < 2
    if whole:
        sentence = f"All sequences have the same features (such as {pair}): none can be judged by another."
    return (Diagnostic("copies", True, sentence, "Check why recordings occur several times.", denies=whole),)


def check_circular(read: AuditInput) -> tuple[Diagnostic, ...]:
    """A warning where a model has corrected labels, which then agree with models."""
    if not read.by_model:
        return ()
    sentence = f"A model corrected {read.by_model:,} of these labels. That they agree with models now is circular."
    return (Diagnostic("circular", True, sentence, "Review a random sample of labels: labeltide review."),)


# A column that tells the recorded labels nearly without error, while all other columns and the labels before and after
# do not, also tells the wrong ones. Then no label looks wrong, however many are.
# docs/decisions/016-when-nothing-can-be-told.md
SHIFTS = (0, 1, -1, 2, -2)  # by hand: rows by which a column may be shifted against the labels
MAX_STEPS, MIN_STEPS = 4_000, 100  # that are looked at
BINS = 64  # by hand: quantiles of a column, each with its most frequent label
MAX_ERRORS = 0.02  # by hand: of a column that may be a copy; also at most a tenth of those of the most frequent label
MIN_OTHER_ERRORS, TIMES_AS_MANY = 0.05, 4.0  # by hand: of everything else
MAX_COLUMNS = 60  # with more, neighbouring steps of the other columns are not used


def check_leaks(table: AuditInput, seed: int = 0) -> tuple[Diagnostic, ...]:
    """A warning that names the columns which look like copies of the labels; nothing where there is none."""
    if table.features.shape[2] < 2 or table.encoders[0].is_log:
        return ()
    found: dict[str, float] = {}
    drawn = np.random.default_rng([seed, 13]).permutation(np.flatnonzero((table.fit_labels >= 0).any((1, 2))))
    windows = np.sort(drawn[: max(2, MAX_STEPS // table.index.shape[1])])
    for annotator in range(table.labels.shape[2]):
        found |= _find_leaks(table, windows, annotator)
    if not found:
        return ()
    sentence = (
        f"{quoted(list(found))} alone {'predict' if len(found) > 1 else 'predicts'} {100 * min(found.values()):.1f} % "
        "of the recorded labels, far more than all other features do. A column derived from the labels repeats their "
        "mistakes, which then cannot be found."
    )
    return (Diagnostic("leak", True, sentence, "Leave such a column out of the features.", denies=True),)


def _find_leaks(table: AuditInput, windows: np.ndarray, annotator: int) -> dict[str, float]:
    """The columns that look like copies of an annotator's labels, and the share of labels that each tells.

    None where labels are too few, or of one class in a half of the sequences.
    """
    labels, steps = table.fit_labels[windows, :, annotator], np.arange(table.index.shape[1])
    row, step = np.nonzero(labels >= 0)
    if len(row) < MIN_STEPS:
        return {}
    groups = np.unique(table.groups[windows], return_inverse=True)[1]
    half = (groups if groups.max() > 0 else np.arange(len(windows)))[row] % 2 == 0
    codes = labels[row, step].astype(np.int64)
    if min(len(np.unique(codes[half])), len(np.unique(codes[~half]))) < 2:
        return {}
    features, last = table.features[windows], table.lengths[windows][:, None] - 1
    moved = {shift: np.clip(steps + shift, 0, last)[row, step] for shift in SHIFTS}  # steps: (labels,) each
    values = {shift: features[row, at] for shift, at in moved.items()}  # (labels, features) each
    beside = [labels[row, moved[shift]][:, None] == np.arange(len(table.class_names)) for shift in (1, -1)]
    usual = 1 - np.bincount(codes).max() / len(codes)
    found = {}
    for column, name in enumerate(table.feature_names):
        errors = 1.0
        for shift in SHIFTS:
            inside = moved[shift] == step + shift
            errors = min(errors, _column_errors(values[shift][inside, column], codes[inside], half[inside]))
        if errors > min(MAX_ERRORS, 0.1 * usual):
            continue
        shifts = SHIFTS[:3] if features.shape[2] <= MAX_COLUMNS else SHIFTS[:1]
        rest = [np.delete(values[shift], column, axis=1) for shift in shifts]
        inputs = np.concatenate([*rest, *(each.astype(float) for each in beside)], axis=1)
        wrong = 0
        for judged in (half, ~half):
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
            model.fit(inputs[~judged], codes[~judged])
            wrong += int((model.predict(inputs[judged]) != codes[judged]).sum())
        others = wrong / len(inputs)
        if others > max(MIN_OTHER_ERRORS, TIMES_AS_MANY * errors):
            found[name] = 1 - errors
    return found


def _column_errors(values: np.ndarray, codes: np.ndarray, half: np.ndarray) -> float:
    """Share of labels that differ from the most frequent one in their bin of the column, by the other half."""
    if min(half.sum(), (~half).sum()) < MIN_STEPS // 2:
        return 1.0
    wrong = 0
    for judged in (half, ~half):
        edges = np.unique(np.quantile(values[~judged], np.linspace(0, 1, BINS + 1)[1:-1]))
        bins = np.searchsorted(edges, values, side="right")
        counts = np.zeros((len(edges) + 1, codes.max() + 1))
        np.add.at(counts, (bins[~judged], codes[~judged]), 1)
        wrong += int((counts.argmax(1)[bins[judged]] != codes[judged]).sum())
    return wrong / len(values)


# Of three stray labels of a class among 720 right ones, an error rate of that class cannot be estimated, and Q would be
# free to explain many other labels by it.


# A class with fewer labels and a smaller share is left out (docs/decisions/016-when-nothing-can-be-told.md).
MIN_LABELS, MIN_SHARE = 20, 0.02  # by hand


def leave_out_rare_classes(table: AuditInput) -> AuditInput:
    """The same table without the labels of rare classes, and a sentence that names them; others keep their order."""
    counts = np.bincount(table.fit_labels[table.fit_labels >= 0], minlength=len(table.class_names))
    trusted = () if table.fit_trusted is None else np.unique(table.fit_trusted[table.fit_trusted >= 0])
    rare = find_rare(counts, trusted)
    messages = (*table.messages, *say_rare(table.class_names, counts, rare))
    return replace(leave_out(table, rare), messages=messages) if rare.any() else table


def find_rare(counts: np.ndarray, trusted: Collection[int] | np.ndarray) -> np.ndarray:
    """Which classes are left out: bool of shape (classes,).

    Classes with trusted labels stay, and so do all where fewer than two would be left.
    """
    rare = (counts < MIN_LABELS) & (counts < MIN_SHARE * counts.sum())
    rare[list(trusted)] = False
    return rare if (~rare).sum() >= 2 else np.zeros_like(rare)


def kept_codes(rare: np.ndarray) -> np.ndarray:
    """The new code of each class, -1 for rare ones: int8 of shape (classes + 1,); the last one stands for -1."""
    return np.append(np.where(rare, -1, np.cumsum(~rare) - 1), -1).astype(np.int8)


def leave_out(table: AuditInput, rare: np.ndarray) -> AuditInput:
    """The same table without the labels of some classes."""
    if not rare.any():
        return table
    codes, more = kept_codes(rare), dict[str, Any]()
    if table.encoders and table.encoders[0].is_log:  # each feature is the probability of a class
        more = {"features": table.features[..., ~rare], "feature_names": tuple(compress(table.feature_names, ~rare))}
        more["encoders"] = tuple(compress(table.encoders, ~rare))
    for name in ("labels", "fit_labels", "trusted", "fit_trusted"):
        if getattr(table, name) is not None:
            more[name] = codes[getattr(table, name)]
    return replace(table, **more, class_names=tuple(compress(table.class_names, ~rare)))


def say_rare(class_names: Sequence[str], counts: np.ndarray, rare: np.ndarray) -> list[str]:
    """A sentence that names the classes left out; none where there are none."""
    names = list(compress(class_names, rare))
    few = ", ".join(str(count) for count in counts[rare][:20])
    noun = "class" if len(names) == 1 else "classes"
    sentence = (
        f"The {noun} {quoted(names)} had too few labels to learn from ({few} of {MIN_LABELS} that are needed); "
        "they were left as recorded, neither judged nor suggested for other rows."
    )
    return [sentence] if names else []


MIN_STEPS_OF_BOTH = 20  # that two annotators labelled both, before their names are compared


def check_shared_classes(table: AuditInput) -> None:
    """Refuse two annotators who labelled the same steps, both with several classes, of which none is in common."""
    labels, names = table.fit_labels, table.annotator_names or ()
    classes = [set(np.unique(labels[..., annotator]).tolist()) - {-1} for annotator in range(len(names))]
    for first, second in combinations(range(len(names)), 2):
        if classes[first] & classes[second] or min(len(classes[first]), len(classes[second])) < 2:
            continue
        both = int(((labels[..., first] >= 0) & (labels[..., second] >= 0)).sum())
        if both >= MIN_STEPS_OF_BOTH:
            of_first, of_second = (
                quoted([table.class_names[code] for code in sorted(classes[k])]) for k in (first, second)
            )
            raise ValueError(
                f"Annotators must use the same names for classes. {names[first]!r} has {of_first}, {names[second]!r} "
                f"has {of_second}, and on {both:,} steps that both labelled they never agree. Rename the labels of one."
            )
