"""Classes with so few labels that nothing can be learned of them are left out of the fit, neither judged nor suggested.

Of three stray labels of a class among 720 right ones, an error rate of that class cannot be estimated, and Q would be
free to explain many other labels by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.tables.wording import quoted

# A class with fewer labels and a smaller share is left out (docs/decisions/016-when-nothing-can-be-told.md).
FEWEST_LABELS, LEAST_SHARE = 20, 0.02  # by hand


def leave_out_rare_classes(table: AuditInput) -> AuditInput:
    """The same table without the labels of rare classes, and a sentence that names them; others keep their order."""
    counts = np.bincount(table.fit_labels[table.fit_labels >= 0], minlength=len(table.class_names))
    trusted = () if table.fit_trusted is None else np.unique(table.fit_trusted[table.fit_trusted >= 0])
    rare = find_rare(counts, trusted)
    said = (*table.said, *say_rare(table.class_names, counts, rare))
    return replace(leave_out(table, rare), said=said) if rare.any() else table


def find_rare(counts: np.ndarray, trusted: Collection[int] | np.ndarray) -> np.ndarray:
    """Which classes are left out: bool of shape (classes,).

    Classes with trusted labels stay, and so do all where fewer than two would be left.
    """
    rare = (counts < FEWEST_LABELS) & (counts < LEAST_SHARE * counts.sum())
    rare[list(trusted)] = False
    return rare if (~rare).sum() >= 2 else np.zeros_like(rare)


def kept_codes(rare: np.ndarray) -> np.ndarray:
    """The new code of each class, -1 for rare ones: int8 of shape (classes + 1,); the last one stands for -1."""
    return np.append(np.where(rare, -1, np.cumsum(~rare) - 1), -1).astype(np.int8)


def leave_out(table: AuditInput, rare: np.ndarray) -> AuditInput:
    """The same table without the labels of some classes."""
    if not rare.any():
        return table
    codes = kept_codes(rare)
    return replace(
        table,
        labels=codes[table.labels],
        fit_labels=codes[table.fit_labels],
        trusted=None if table.trusted is None else codes[table.trusted],
        fit_trusted=None if table.fit_trusted is None else codes[table.fit_trusted],
        class_names=tuple(compress(table.class_names, ~rare)),
    )


def say_rare(class_names: Sequence[str], counts: np.ndarray, rare: np.ndarray) -> list[str]:
    """A sentence that names the classes left out; none where there are none."""
    names = list(compress(class_names, rare))
    few = ", ".join(str(count) for count in counts[rare][:20])
    noun = "class" if len(names) == 1 else "classes"
    sentence = (
        f"The {noun} {quoted(names)} had too few labels to learn from ({few} of {FEWEST_LABELS} that are needed); "
        "they were left as recorded, neither judged nor suggested for other rows."
    )
    return [sentence] if names else []
