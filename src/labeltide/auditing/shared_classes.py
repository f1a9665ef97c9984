"""Annotators of the same steps must name classes alike: 'Wake' of one and 'Wach' of another would be two classes."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.tables.wording import quoted

FEWEST_STEPS = 20  # that two annotators labelled both, before their names are compared


def check_shared_classes(table: AuditInput) -> None:
    """Refuse two annotators who labelled the same steps, both with several classes, of which none is in common."""
    labels, names = table.fit_labels, table.annotator_names or ()
    classes = [set(np.unique(labels[..., place]).tolist()) - {-1} for place in range(len(names))]
    for first, second in combinations(range(len(names)), 2):
        if classes[first] & classes[second] or min(len(classes[first]), len(classes[second])) < 2:
            continue
        both = int(((labels[..., first] >= 0) & (labels[..., second] >= 0)).sum())
        if both >= FEWEST_STEPS:
            of_first, of_second = (
                quoted([table.class_names[code] for code in sorted(classes[k])]) for k in (first, second)
            )
            raise ValueError(
                f"Annotators must use the same names for classes. {names[first]!r} has {of_first}, {names[second]!r} "
                f"has {of_second}, and on {both:,} steps that both labelled they never agree. Rename the labels of one."
            )
