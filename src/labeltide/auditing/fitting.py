"""Fit, label audit and inference for a table of any size; costs are limited, and limits that were met are reported."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from labeltide._validation import UnanswerableError
from labeltide.auditing.options import ALL, USUAL, AuditOptions
from labeltide.auditing.reading import AuditInput
from labeltide.chain.passes import (
    INFERENCE_STEPS,
    TEST_STEPS,
    TrainingEvidence,
    draw_rows,
    thin_evidence,
    thin_for_tests,
)
from labeltide.data.clusters import ClusterWarning
from labeltide.estimators.fleet import as_array, prepare
from labeltide.estimators.planted import PlantedErrors, plant_errors
from labeltide.estimators.predictions import FIT_STEPS, PredictionFit, power_factors
from labeltide.estimators.tide import CHAIN_POINTS, TideClassifier
from labeltide.inference.bootstrap import BAND_REPLICATES
from labeltide.inference.conclusion import NoiseWarning

# Limits of time (docs/decisions/018-size-of-an-audit.md).
EPOCHS, HIDDEN_SIZE = 60, 32  # by hand
USUAL_STEPS = 100_000  # of a table; a larger one may take longer, and the limits below grow with the root of its size
MAX_PATIENCE = 4.0
UPDATES = 800_000  # steps of windows that one network may see in training, over all epochs
MIN_EPOCHS = 10
TRAINING_STEPS = 60_000  # steps of windows that are learned from; all others are judged by the networks' average
# Share of the labelled windows above which a sequence is cut, and into how many blocks
# (docs/decisions/019-people-are-the-unit.md).
MAX_OF_ONE, BLOCKS = 0.4, 20  # by hand


def patience(n_steps: int) -> float:
    """The factor by which limits are larger than for a table of usual size: the root of the ratio of sizes."""
    return float(np.clip(np.sqrt(n_steps / USUAL_STEPS), 1, MAX_PATIENCE))


class TableSize(NamedTuple):
    """How large a table is: steps, windows, steps of a window, and labels."""

    steps: int
    windows: int
    window: int
    labels: int


def most_windows(size: TableSize, pace: float = USUAL, train_on: float | None = None) -> int:
    """How many windows of a table are learned from at most: the usual number, or those with so many labels."""
    if train_on is not None:
        wanted = min(train_on * size.windows / max(size.labels, 1), size.windows)
        return min(size.windows, max(2, math.ceil(wanted)))
    return max(2, int(TRAINING_STEPS * pace * patience(size.steps)) // size.window)


def check_labelled(labelled: np.ndarray) -> None:
    """Refuse fewer than two windows with labels."""
    if labelled.sum() < 2:
        raise UnanswerableError(
            "An audit judges each stretch of labels by the others, so it needs labels in at least two sequences or "
            f"windows. Got {int(labelled.sum())}. Choose a shorter window (--window STEPS), or provide more data."
        )


def choose_windows(table: AuditInput, seed: int, pace: float = USUAL, train_on: float | None = None) -> np.ndarray:
    """The windows to learn from, in order: all, or a random sample of those with labels that holds every class."""
    labelled = np.asarray((table.fit_labels >= 0).any((1, 2)))
    check_labelled(labelled)
    size = TableSize(table.n_all_steps, len(table.index), table.index.shape[1], int((table.fit_labels >= 0).sum()))
    most = most_windows(size, pace, train_on)
    if len(labelled) <= most:
        return np.arange(len(labelled))
    chosen = np.random.default_rng([seed, 9]).permutation(np.flatnonzero(labelled))[:most]
    return _with_every_class(table.fit_labels, chosen)


def _with_every_class(labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The chosen windows, and two of each class that they lack: in order."""
    missing = np.setdiff1d(labels[labels >= 0], labels[chosen])
    more = [np.flatnonzero((labels == code).any((1, 2)))[:2] for code in missing]
    return np.unique(np.concatenate([chosen, *more]))


def choose_epochs(table: AuditInput, windows: np.ndarray, pace: float = USUAL) -> int:
    """The usual number of epochs, or fewer where each is long."""
    steps = len(windows) * table.fit_labels.shape[1]
    return min(
        round(EPOCHS * pace),
        max(MIN_EPOCHS, int(UPDATES * pace * patience(table.n_all_steps)) // steps),
    )


def new_estimator(table: AuditInput, windows: np.ndarray, options: AuditOptions) -> TideClassifier:
    """The method with the settings of an audit, not yet fitted."""
    method, model = (TideClassifier, options.model) if options.probabilities is None else (PredictionFit, "linear")
    return method(
        model=model,
        hidden_size=HIDDEN_SIZE,
        epochs=choose_epochs(table, windows, options.pace) if options.probabilities is None else EPOCHS,
        period=table.clocks[0].period if len(table.clocks) == 1 else tuple(clock.period for clock in table.clocks),
        standardize=False,  # the encoders of the table have done it
        align=False,  # labels of whole sequences were moved before windows were cut
        device=options.device,
        checkpoint=options.checkpoint,
        random_state=options.seed,
    )


class SequencePowers(NamedTuple):
    """The factor on the power k of given probabilities in each sequence, which a model may know better than others."""

    factors: dict[str, float]  # by name; 1 for other sequences

    def apply(self, table: AuditInput) -> AuditInput:
        """The table with its probabilities, whose logarithms are features, to these powers."""
        if not self.factors:
            return table
        factors = np.array([self.factors.get(name, 1.0) for name in table.sequence_names], np.float32)
        return replace(table, features=table.features * factors[table.groups, None, None])


def find_powers(table: AuditInput, windows: np.ndarray, options: AuditOptions) -> SequencePowers:
    """Learn the factors from some windows of each sequence (docs/decisions/005-prior-of-k.md)."""
    most = max(2, FIT_STEPS // table.index.shape[1])
    if options.probabilities is None or len(np.unique(table.groups[windows])) < 2:
        return SequencePowers({})
    if len(windows) > most:
        drawn = draw_rows(table.groups[windows], most, most, np.random.default_rng([options.seed, 10]))
        windows = windows[_with_every_class(table.fit_labels[windows], drawn)]
    sequences = list(dict.fromkeys(table.groups[windows].tolist()))  # in the order of the factors
    features, labels, inputs, of_window = _inputs(table, windows, table.groups)
    inputs |= {"clusters": of_window, "groups": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterWarning)
        fleet_fit, _ = prepare([new_estimator(table, windows, options)], features, [labels], inputs)
    factors = power_factors(fleet_fit)
    return SequencePowers({table.sequence_names[each]: float(f) for each, f in zip(sequences, factors, strict=True)})


def fit(table: AuditInput, windows: np.ndarray, clusters: np.ndarray, options: AuditOptions) -> TideClassifier:
    """Learn from the chosen windows. Classes are codes; `with_class_names` gives them their names.

    `clusters` holds the recording of each of all windows: its sequence, or one of several with the same features.
    """
    estimator = new_estimator(table, windows, options)
    features, labels, inputs, sequences = _inputs(table, windows, clusters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterWarning)  # where all labels lie in one block, windows are the units
        estimator.fit(features, labels, **inputs)
    if isinstance(estimator, PredictionFit):  # what it has learned is that of tide, and is saved as such
        given, estimator = estimator, TideClassifier()
        estimator.__dict__.update(given.__dict__)
    if inputs["clusters"] is sequences:
        return estimator
    # Bands and tests still go by sequences.
    return estimator._twin(training=estimator.training_._replace(clusters=torch.from_numpy(sequences)))


def plant(
    estimator: TideClassifier, table: AuditInput, windows: np.ndarray, clusters: np.ndarray, options: AuditOptions
) -> tuple[PlantedErrors, ...]:
    """What is found of errors that are planted in the windows that were learned from; nothing in a fast audit."""
    if options.fast or estimator.fold_model_ is None:
        return ()
    features, labels, inputs, _ = _inputs(table, windows, clusters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterWarning)
        return plant_errors(estimator, features, labels, seed=options.seed, **inputs)


def _inputs(
    table: AuditInput, windows: np.ndarray, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, Any], np.ndarray]:
    """Features, labels and other inputs of a fit, and the sequence of each window."""

    def take(values: np.ndarray) -> np.ndarray:
        """Those of the chosen windows; of all windows no copy, which may be large."""
        return values if len(windows) == len(values) else values[windows]

    labels, clock, lengths, sequences = map(take, (table.fit_labels, table.clock, table.lengths, clusters))
    trusted, gaps = (None if each is None else take(each) for each in (table.fit_trusted, table.gaps))
    units = cut_long_sequences(sequences, np.asarray((labels >= 0).any((1, 2))))
    inputs = {"clock": clock, "lengths": lengths, "clusters": units, "trusted": trusted, "gaps": gaps}
    return take(table.features), labels, inputs, sequences


def cut_long_sequences(sequences: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """Clusters for a fit: sequences, of which one with a large share of the labels is cut into consecutive windows.

    Networks that are to judge such a sequence would otherwise learn from too little
    (docs/decisions/019-people-are-the-unit.md). Both arrays have the shape (windows,).
    """
    counts = np.bincount(sequences, labelled)
    long = np.flatnonzero(counts > MAX_OF_ONE * counts.sum())
    if not len(long):
        return sequences
    clusters = sequences.copy()
    for number, sequence in enumerate(long, 1):
        rows = np.flatnonzero(sequences == sequence)
        clusters[rows] = number * BLOCKS + sequences.max() + np.arange(len(rows)) * BLOCKS // len(rows)
    return clusters


def with_class_names(estimator: TideClassifier, table: AuditInput) -> TideClassifier:
    """The same fit with the user's names in place of the codes that it learned; codes keep the order of classes."""
    return estimator._twin(classes=as_array([table.class_names[int(code)] for code in estimator.classes_]))


def infer(
    estimator: TideClassifier,
    table: AuditInput,
    options: AuditOptions,
    on_share: Any = None,
    keep: Callable[[TideClassifier], None] = lambda estimator: None,
) -> list[str]:
    """Compute bands, checks and tests, keep them in the estimator, and say what was limited.

    Each rests on a random subset of the sequences where all would take too long. A copy of the estimator holds the
    subset, so that `training_` stays as `fit` left it. Warnings of the checks are on the page.
    """
    stages: dict[str, tuple[Callable[..., TrainingEvidence], int, tuple[str, str]]] = {
        "Bands and checks": (thin_evidence, INFERENCE_STEPS, ("clock_estimates_", "diagnostics_")),
        "Tests": (thin_for_tests, TEST_STEPS, ("clock_temporality_", "is_noisy_p_")),
    }
    messages = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        for stage, (title, (thin, steps, results)) in enumerate(stages.items()):
            most = int(steps * options.pace * patience(table.n_all_steps))
            thinned = estimator._twin(training=thin(estimator.training_, options.seed, most))
            messages += _describe_sizes(title, thinned.training_, estimator.training_)
            for number, name in enumerate(results, 1):
                getattr(thinned, name)  # computed on first access and kept in `findings_`
                keep(thinned)
                if on_share:
                    on_share((stage + number / len(results)) / len(stages))
            estimator._take_findings(thinned)
    if len(table.clocks) > 1:
        moments = " by ".join(str(len(estimate.clock)) for estimate in estimator.clock_estimates_)
        messages.append(f"The clocks are rounded, so that Q is learned at {moments} moments.")
    return messages


def _describe_sizes(title: str, part: TrainingEvidence, whole: TrainingEvidence) -> list[str]:
    """Sentences on the windows that results rest on, where these are not all."""

    def sizes(training: TrainingEvidence) -> tuple[int, int]:
        """The numbers of windows and of sequences."""
        n_rows = len(training.data.mask)
        return n_rows, n_rows if training.clusters is None else len(training.clusters.unique())

    if part is whole:
        return []
    parts, messages = {title: part}, []
    if part.bootstrap_rows is not None:
        parts[f"{title} that simulate labels"] = part.for_bootstrap()
    all_windows, all_sequences = sizes(whole)
    for name, used in parts.items():
        windows, sequences = sizes(used)
        if windows < all_windows:
            of_sequences = f"({sequences} of {all_sequences} sequences)"
            messages.append(f"{name} rest on {windows} of {all_windows} windows {of_sequences}, drawn at random.")
    return messages


BAND_COPIES = 6  # of the Qs of all replicates, while bands are computed
LABEL_COPIES = 8  # of probabilities of all classes at every step: posterior, evidence, opinions
AT_LEAST = 400e6  # bytes of the libraries
# Bytes of a fit for each step of its windows, from fits to 100,000 to 400,000 steps with 7 or 28 features, 4 or 12
# classes and 1 or 4 annotators; the windows of the audit itself are counted in.
FIT_FEATURE, FIT_CLASS, FIT_ANNOTATOR, FIT_STEP = 28, 40, 20, 60
FIT_AT_LEAST = 600e6  # bytes of the libraries and of buffers


def training_bytes(n_steps: int, n_features: int, n_classes: int, n_annotators: int) -> float:
    """About how much memory a fit to so many steps of windows takes at its peak."""
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
    points = next(points for most, points in CHAIN_POINTS if classes <= most)
    bands = BAND_COPIES * BAND_REPLICATES * annotators * points * classes**2
    needed, free = AT_LEAST + 8.0 * (bands + LABEL_COPIES * table.index.size * classes), free_bytes()
    if needed > free:
        raise UnanswerableError(
            f"An audit of {classes} classes and {annotators} annotators over {table.n_rows:,} rows needs about "
            f"{needed / 2**30:.1f} GiB of memory, most of it for Q of every pair of classes. {free / 2**30:.1f} GiB "
            "are free. Merge classes, audit some of the annotators or rows at a time, or use a larger machine."
        )


def written(train_on: float | None) -> int | str | None:
    """The number of labels as audit.json holds it."""
    if train_on is None:
        return None
    return ALL if math.isinf(train_on) else int(train_on)


def check_training_memory(
    wanted: tuple[int, int], labels: int, *sizes: *tuple[int, int, int], free: Callable[[], float] = free_bytes
) -> None:
    """Refuse to learn from more than fits into memory.

    `wanted` are windows and steps of each, `sizes` numbers of features, classes and annotators.
    """
    needed, least, there = training_bytes(wanted[0] * wanted[1], *sizes), training_bytes(0, *sizes), free()
    if needed > there:
        possible = labels * (there - least) / (needed - least)
        power = math.floor(math.log10(max(possible, 1)))
        number = f"{math.floor(possible / 10**power)}e{power}"  # rounded down
        hint = f" (--train-on {number} would do)" if possible >= 1 else " (--train-on N)"
        raise UnanswerableError(
            f"Learning from {labels:,} labels needs about {needed / 2**30:.1f} GiB of memory, because their windows "
            f"and posteriors are kept there. {there / 2**30:.1f} GiB are free. Ask for fewer with train_on{hint}, or "
            "use a larger machine. Every label of the table is judged in any case."
        )


# Coefficients are rough and by hand (docs/decisions/018-size-of-an-audit.md). Only their proportions matter: `Stages`
# corrects their speed by what it observes.


TRAININGS = 2  # fleets of ten networks that a fit trains, one after the other
TRAINING, TRAINING_OF_FEATURE = 2.5e-6, 2.5e-8  # seconds for a step and epoch of such a fleet; for each feature
EM_PASSES = 1_500  # forward-backward passes over the windows to learn from, of all chains and iterations
PASS, PASS_OF_CLASSES = 1.6e-8, 8e-10  # seconds for a step and annotator, and for a step and pair of classes
BAND_PASSES, TEST_PASSES = 5_000, 20_000  # over the windows of bands, and of tests
NEWTON = 2e-5  # seconds for a Newton step of one annotator and class
JUDGING = 4e-6  # seconds for a row


def expected_seconds(table: AuditInput, windows: np.ndarray, epochs: int, pace: float) -> dict[str, float]:
    """Seconds of each stage after reading."""
    steps, classes = len(windows) * table.index.shape[1], len(table.class_names)
    annotators = len(table.annotator_names or ()) or 1
    a_pass = PASS * annotators + PASS_OF_CLASSES * classes**2
    limits = [int(most * pace * patience(table.n_all_steps)) for most in (INFERENCE_STEPS, TEST_STEPS)]
    bands, tests = (min(steps, most) for most in limits)
    newton = NEWTON * annotators * classes
    training = TRAINING + TRAINING_OF_FEATURE * table.features.shape[-1]
    return {
        "fit": 1 + TRAININGS * training * steps * epochs + EM_PASSES * (steps * a_pass + newton),
        "judge": 0.5 + JUDGING * table.n_rows * annotators,
        "bands": 1 + BAND_PASSES * (bands * a_pass + newton) + TEST_PASSES * (tests * a_pass + newton / 4),
        "page": 1 + 1e-5 * table.n_rows,
    }
