"""Steps that audits of tables in memory and in parts have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from labeltide.auditing import fitting
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.copies import check_copies, clusters_of_copies
from labeltide.auditing.leaks import check_leaks
from labeltide.auditing.memory import check_memory
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.reading_words import reading_text
from labeltide.auditing.shared_classes import check_shared_classes
from labeltide.auditing.stages import Stages
from labeltide.auditing.train_on import check_training_memory
from labeltide.auditing.training_windows import Learned
from labeltide.auditing.unfinished import Unfinished
from labeltide.estimators import TideClassifier
from labeltide.inference.diagnostic import Diagnostic


def say_reading(about: Mapping[str, Any], read: AuditInput, stages: Stages) -> None:
    """Say what was read and decided, before anything is fitted; too little memory is an error."""
    stages.say(reading_text(about))
    check_memory(read)


def check_table(
    read: AuditInput, seed: int, learned: Learned | None = None
) -> tuple[np.ndarray, tuple[Diagnostic, ...]]:
    """The recording of each sequence, which copies share, and the checks for copies and for leaks of labels.

    `learned` are the windows to learn from where they are more than those read into memory. Annotators who name classes
    differently are refused.
    """
    check_shared_classes(read)
    windows = read if learned is None else learned
    clusters = clusters_of_copies(windows)
    return clusters, (*check_copies(windows, clusters), *check_leaks(read, seed))


def check_training(read: AuditInput, windows: np.ndarray, options: AuditOptions) -> None:
    """Refuse to learn from more than fits into memory, where the user asked for many labels."""
    if options.train_on is not None:
        labels = int((read.fit_labels[windows] >= 0).sum())
        sizes = read.features.shape[2], len(read.class_names), read.labels.shape[2]
        check_training_memory((len(windows), read.index.shape[1]), labels, *sizes)


def learn(
    read: Learned, windows: np.ndarray, clusters: np.ndarray, options: AuditOptions, kept: Unfinished
) -> TideClassifier:
    """Fit to some windows, or take the fit that an interrupted audit has kept."""
    estimator = kept.fitted(fitting.new_estimator(read, windows, options))
    if estimator is None:
        estimator = fitting.fit(read, windows, clusters[read.groups], options)
        kept.keep_fit(estimator)
    return estimator
