"""Whether an audit fits into the free memory, before it starts."""

from __future__ import annotations

import os

from labeltide._validation import UnanswerableError
from labeltide.auditing.audit_input import AuditInput
from labeltide.estimators.tide_steps import CHAIN_POINTS
from labeltide.inference.cluster_bootstrap import BAND_REPLICATES

BAND_COPIES = 6  # of the Qs of all replicates, while bands are computed
LABEL_COPIES = 8  # of probabilities of all classes at every step: posterior, evidence, opinions
AT_LEAST = 400e6  # bytes of the libraries
# Bytes of a fit for each step of its windows, from fits to 100,000 to 400,000 steps with 7 or 28 features, 4 or 12
# classes and 1 or 4 annotators; the windows of the audit itself are counted in.
FIT_FEATURE, FIT_CLASS, FIT_ANNOTATOR, FIT_STEP = 28, 40, 20, 60
FIT_AT_LEAST = 600e6  # bytes of the libraries and of buffers
# The same where windows are on disk, from audits of 10^6 and 10^7 rows and a fit to 2.5 million steps of one annotator:
# evidence, posterior, labels, and their places on the clock. Fits then took up to 0.6 GB more than now.
MAPPED_CLASS, MAPPED_ANNOTATOR, MAPPED_STEP, MAPPED_AT_LEAST = 12, 6, 45, 1.1e9


def needed_bytes(n_steps: int, n_classes: int, n_annotators: int) -> float:
    """About how much memory an audit takes at its peak."""
    points = next(points for classes, points in CHAIN_POINTS if n_classes <= classes)
    bands = BAND_COPIES * BAND_REPLICATES * n_annotators * points * n_classes**2
    labels = LABEL_COPIES * n_steps * n_classes
    return AT_LEAST + 8.0 * (bands + labels)


def training_bytes(n_steps: int, n_features: int | None, n_classes: int, n_annotators: int) -> float:
    """About how much memory a fit to so many steps of windows takes at its peak; features are None on disk."""
    if n_features is None:
        of_step = MAPPED_CLASS * n_classes + MAPPED_ANNOTATOR * n_annotators + MAPPED_STEP
        return MAPPED_AT_LEAST + float(n_steps) * of_step
    of_step = FIT_FEATURE * n_features + FIT_CLASS * n_classes + FIT_ANNOTATOR * n_annotators + FIT_STEP
    return FIT_AT_LEAST + float(n_steps) * of_step


def free_bytes() -> float:
    """Memory that is free or can be freed; infinite where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def check_memory(table: AuditInput) -> None:
    """Refuse an audit that would not fit."""
    classes, annotators = len(table.class_names), len(table.annotator_names or ()) or 1
    needed, free = needed_bytes(table.index.size, classes, annotators), free_bytes()
    if needed > free:
        raise UnanswerableError(
            f"An audit of {classes} classes and {annotators} annotators over {table.n_rows:,} rows needs about "
            f"{needed / 2**30:.1f} GiB of memory, most of it for Q of every pair of classes. {free / 2**30:.1f} GiB "
            "are free. Merge classes, audit some of the annotators or rows at a time, or take a larger machine."
        )
