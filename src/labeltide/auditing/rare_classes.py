"""Classes with so few labels that nothing can be learned of them are left out of the fit, neither judged nor suggested.

Of three stray labels of a class among 720 right ones, an error rate of that class cannot be estimated, and Q would be
free to explain many other labels by it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.tables.wording import quoted

FEWEST_LABELS, LEAST_SHARE = 20, 0.02  # a class with fewer labels and a smaller share is left out


def leave_out_rare_classes(table: AuditInput) -> AuditInput:
    """The same table without the labels of rare classes, and a sentence that names them; others keep their order.

    Classes with trusted labels stay, and so do all where fewer than two would be left.
    """
    recorded = table.fit_labels[table.fit_labels >= 0]
    counts = np.bincount(recorded, minlength=len(table.class_names))
    rare = (counts < FEWEST_LABELS) & (counts < LEAST_SHARE * counts.sum())
    if table.fit_trusted is not None:
        rare[np.unique(table.fit_trusted[table.fit_trusted >= 0])] = False
    if not rare.any() or (~rare).sum() < 2:
        return table
    codes = np.append(np.where(rare, -1, np.cumsum(~rare) - 1), -1).astype(np.int8)  # the last one stands for -1
    kept = tuple(name for name, left_out in zip(table.class_names, rare, strict=True) if not left_out)
    return replace(
        table,
        labels=codes[table.labels],
        fit_labels=codes[table.fit_labels],
        trusted=None if table.trusted is None else codes[table.trusted],
        fit_trusted=None if table.fit_trusted is None else codes[table.fit_trusted],
        class_names=kept,
        said=(*table.said, _say(table, counts, rare)),
    )


def _say(table: AuditInput, counts: np.ndarray, rare: np.ndarray) -> str:
    names = [name for name, left_out in zip(table.class_names, rare, strict=True) if left_out]
    few = ", ".join(str(count) for count in counts[rare][:20])
    noun = "class" if len(names) == 1 else "classes"
    return (
        f"The {noun} {quoted(names)} had too few labels to learn from ({few} of {FEWEST_LABELS} that are needed); "
        "they were left as recorded, neither judged nor suggested for other rows."
    )
