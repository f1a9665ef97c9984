"""How much an audit learns from and infers from, and planted errors, which say how far it can be trusted."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from labeltide._validation import UnanswerableError
from labeltide.auditing.options import ALL, USUAL, AuditOptions, Pace
from labeltide.auditing.reading import AuditInput
from labeltide.chain.passes import (
    INFERENCE_STEPS,
    TEST_STEPS,
    TrainingEvidence,
    draw_rows,
    posteriors,
    same_data,
    thin_evidence,
    thin_for_tests,
)
from labeltide.data.clusters import ClusterWarning
from labeltide.estimators.fleet import as_array, fit_fleet
from labeltide.estimators.tide import CHAIN_POINTS, TideClassifier
from labeltide.inference.audit import FDR, find_threshold
from labeltide.inference.bootstrap import BAND_REPLICATES
from labeltide.inference.conclusion import Diagnostic, NoiseWarning

PLANTED_SHARE = 0.04  # by hand: of the labels of each copy
RUN_STEPS = 6  # by hand: of runs of planted errors
MAX_SHIFT = 10  # by hand: steps by which recordings are shifted
MIN_RESPONSE, MAX_RESPONSE = 0.5, 1.5  # by hand: rise of the estimated share, against what was planted
MIN_FOUND = 0.5  # by hand: share of the planted errors of a class, below which its labels are not named
MIN_PLANTED = 20  # by hand: planted or flagged labels, of a class or of all, from which they are judged
MAX_STEPS = 12_000  # by hand: of the copies, so that they at most double the time of an audit
KINDS = ("at random", "by Q(t)", "in runs", "shifted")
SINGLE = KINDS[:2]  # errors of single steps, which labels that persist identify


@dataclass(frozen=True)
class PlantedErrors:
    """What became of errors that were planted in one copy of a study; arrays (classes,) are by recorded class."""

    kind: str  # one of KINDS
    planted: np.ndarray  # labels changed
    found: np.ndarray  # of these, labels flagged
    response: float  # rise of the estimated share of wrong labels against what was planted; 1 is right
    named: np.ndarray  # labels flagged in the study itself
    named_again: np.ndarray  # and again in the copy


class _Refit(TideClassifier):
    """The same without the last ensemble, which no label is judged by."""

    distils = False


def plant_errors(
    estimator: TideClassifier, X: np.ndarray, labels: np.ndarray, *, seed: int = 0, **inputs: Any
) -> tuple[PlantedErrors, ...]:
    """Fit copies of a study with planted errors of each kind, from what `fit` took; labels are codes or -1.

    Of a large study some recordings are taken, and a copy without planted errors is fitted to compare with.
    """
    training, generator = estimator.training_, np.random.default_rng([seed, 21])
    unit = np.arange(len(labels)) if training.clusters is None else training.clusters.numpy()
    rows = np.arange(len(labels))
    if labels[..., 0].size > MAX_STEPS:
        rows = draw_rows(unit, MAX_STEPS // labels.shape[1], 2, generator)
        X, labels, unit, training = X[rows], labels[rows], unit[rows], training.take_rows(torch.from_numpy(rows))
        inputs = {name: None if values is None else values[rows] for name, values in inputs.items()}
    posterior, n_classes = _posterior(training), training.data.n_classes
    trusted = inputs.get("trusted")
    may_change = (labels >= 0) & (True if trusted is None else (trusted < 0)[..., None])
    at_random = may_change & (generator.random(labels.shape) < PLANTED_SHARE)
    copies = [
        np.where(at_random, _other(generator, labels, n_classes), labels),
        _by_noise(generator, labels, may_change, training, posterior),
        _in_runs(generator, labels, may_change, n_classes),
        _shifted(generator, labels, may_change, unit),
    ]
    is_part = len(rows) < len(estimator.training_.data.mask)
    settings = {**estimator.get_params(), "checkpoint": None, "verbose": False}
    refits = [_Refit(**settings) for _ in range(len(copies) + is_part)]
    fit_fleet(refits, X, [*copies, labels][: len(refits)], **inputs)
    posteriors_of = [_posterior(refit.training_) for refit in refits]
    posterior = posteriors_of[-1] if is_part else posterior
    flagged, wrong = _judge(labels, posterior)
    results = []
    for kind, copy, of_copy in zip(KINDS, copies, posteriors_of, strict=False):
        again, wrong_now = _judge(copy, of_copy)
        changed = (copy != labels) & (copy >= 0)
        before, after = (np.take_along_axis(posterior, codes.clip(0).astype(np.intp), -1) for codes in (labels, copy))
        expected = float((before - after)[changed].sum())
        kept = flagged & ~changed
        results.append(
            PlantedErrors(
                kind,
                planted=np.bincount(copy[changed], minlength=n_classes),
                found=np.bincount(copy[changed & again], minlength=n_classes),
                response=(wrong_now - wrong) / expected if expected > 0 else math.nan,
                named=np.bincount(labels[kept], minlength=n_classes),
                named_again=np.bincount(labels[kept & again], minlength=n_classes),
            )
        )
    return tuple(results)


def check_planted(planted: Sequence[PlantedErrors], class_names: Sequence[str]) -> tuple[Diagnostic, ...]:
    """Checks of the share of wrong labels, which should rise by what was planted, and of the flags of each class."""
    single = [each for each in planted if each.kind in SINGLE and math.isfinite(each.response)]
    if not single:
        return ()
    response = float(np.mean([each.response for each in single]))
    n_planted, n_found = (sum(int(getattr(each, name).sum()) for each in single) for name in ("planted", "found"))
    sentence = (
        f"Of {n_planted} labels that were changed in copies of the study, {n_found} were found, and the estimated "
        f"share of wrong labels rose by {response:.1f} times the added share"
    )
    if n_planted >= 2 * MIN_PLANTED and not MIN_RESPONSE <= response <= MAX_RESPONSE:
        advice = "Check a random sample of labels: a review gives the share without a model."
        return (Diagnostic("planted", True, f"{sentence}, where 1 is right.", advice, denies=True),)
    checks = [Diagnostic("planted", False, f"{sentence} (1 is ideal).")]
    for code in np.flatnonzero(unreliable_classes(planted)).tolist():
        of_class = (sum(int(getattr(each, name)[code]) for each in single) for name in ("found", "planted"))
        found = "Of {1} planted errors of this class, {0} were found.".format(*of_class)
        sentence = f"Labels recorded as {class_names[code]!r} are not listed: {found}"
        checks.append(Diagnostic("planted class", True, sentence, "Review some of these labels."))
    return tuple(checks)


def unreliable_classes(planted: Sequence[PlantedErrors]) -> np.ndarray:
    """Recorded classes whose labels are not named: most of their planted errors are missed, or flags do not recur."""
    single = [each for each in planted if each.kind in SINGLE]
    names = ("planted", "found", "named", "named_again")
    n_planted, found, named, named_again = (sum(getattr(each, name) for each in single) for name in names)
    missed = (n_planted >= MIN_PLANTED) & (found < MIN_FOUND * n_planted)
    return missed | ((named >= MIN_PLANTED) & (named_again < MIN_FOUND * named))


def _posterior(training: TrainingEvidence) -> np.ndarray:
    """Of the true labels of the training rows: (rows, steps, classes)."""
    single = same_data(torch.ones(1, training.data.labels.shape[1]))
    return np.asarray(posteriors(training.data, single, training.parameters)[0].double().numpy())


def _judge(labels: np.ndarray, posterior: np.ndarray) -> tuple[np.ndarray, float]:
    """Flags, and the expected number of wrong labels."""
    quality = np.take_along_axis(posterior, labels.clip(0).astype(np.intp), -1)
    may_flag = (labels >= 0) & (labels != posterior.argmax(-1)[..., None])
    flagged = may_flag & (quality < find_threshold([quality[may_flag]], FDR)[0])
    return flagged, float((1 - quality)[labels >= 0].sum())


def _other(generator: np.random.Generator, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Another class for each, drawn evenly."""
    return ((codes + generator.integers(1, n_classes, codes.shape)) % n_classes).astype(codes.dtype)


def _by_noise(
    generator: np.random.Generator,
    labels: np.ndarray,
    may_change: np.ndarray,
    training: TrainingEvidence,
    posterior: np.ndarray,
) -> np.ndarray:
    """Errors with the confusions and at the moments of the estimated Q(t), from the likeliest true label."""
    matrices = training.parameters.matrices[0].mean(0).double().numpy()  # (points, true, recorded)
    rows = matrices[training.data.grid_index().numpy(), posterior.argmax(-1)].copy()  # (n, steps, recorded)
    np.put_along_axis(rows, posterior.argmax(-1)[..., None], 0.0, -1)
    rate = rows.sum(-1)
    drawn = (rows.cumsum(-1) < generator.random(rate.shape)[..., None] * rate[..., None]).sum(-1)
    drawn = drawn.clip(0, rows.shape[-1] - 1)[..., None].astype(labels.dtype)
    mean = float(np.broadcast_to(rate[..., None], labels.shape)[may_change].mean())
    chance = (rate / max(mean, 1e-9) * PLANTED_SHARE)[..., None]
    return np.where(may_change & (generator.random(labels.shape) < chance), drawn, labels)


def _in_runs(generator: np.random.Generator, labels: np.ndarray, may_change: np.ndarray, n_classes: int) -> np.ndarray:
    """Runs of one other class."""
    changed = labels.copy()
    n_steps = labels.shape[1]
    count = max(1, round(PLANTED_SHARE * may_change.any(-1).sum() / min(RUN_STEPS, n_steps)))
    rows = generator.choice(np.flatnonzero(may_change.any((1, 2))), count)
    for row, first in zip(rows, generator.integers(0, max(1, n_steps - RUN_STEPS), count), strict=True):
        part = np.s_[row, first : first + RUN_STEPS]
        seen = labels[part][may_change[part]]
        if len(seen):
            other = _other(generator, seen[:1], n_classes)[0]
            changed[part] = np.where(may_change[part], other, labels[part])
    return changed


def _shifted(
    generator: np.random.Generator, labels: np.ndarray, may_change: np.ndarray, unit: np.ndarray
) -> np.ndarray:
    """One recording in ten has its labels some steps later."""
    names = np.unique(unit)
    chosen = generator.choice(names, max(1, len(names) // 10), replace=False)
    changed = labels.copy()
    for name in chosen:
        steps = int(generator.integers(2, max(3, min(MAX_SHIFT, labels.shape[1] // 3))))
        rows = unit == name
        moved = np.roll(labels[rows], steps, axis=1)
        moved[:, :steps] = -1
        changed[rows] = np.where(may_change[rows] & (moved >= 0), moved, labels[rows])
    return changed


# Fit, label audit and inference for a table of any size; costs are limited, and limits that were met are reported.

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


def most_windows(size: TableSize, pace: Pace = USUAL, train_on: float | None = None) -> int:
    """How many windows of a table are learned from at most: the usual number, or those with so many labels."""
    if train_on is not None:
        wanted = min(train_on * size.windows / max(size.labels, 1), size.windows)
        return min(size.windows, max(2, math.ceil(wanted)))
    return max(2, int(TRAINING_STEPS * pace.training * patience(size.steps)) // size.window)


def choose_windows(table: AuditInput, seed: int, pace: Pace = USUAL, train_on: float | None = None) -> np.ndarray:
    """The windows to learn from, in order: all, or a random sample of those with labels that holds every class."""
    labelled = np.asarray((table.fit_labels >= 0).any((1, 2)))
    if labelled.sum() < 2:
        raise UnanswerableError(
            "An audit judges each stretch of labels by the others, so it needs labels in at least two sequences or "
            f"windows. Got {int(labelled.sum())}. Choose a shorter window (--window STEPS), or provide more data."
        )
    size = TableSize(table.n_all_steps, len(table.index), table.index.shape[1], int((table.fit_labels >= 0).sum()))
    most = most_windows(size, pace, train_on)
    if len(labelled) <= most:
        return np.arange(len(labelled))
    chosen = np.random.default_rng([seed, 9]).permutation(np.flatnonzero(labelled))[:most]
    missing = set(range(len(table.class_names))) - set(np.unique(table.fit_labels[chosen]).tolist())
    rare = [np.flatnonzero((table.fit_labels == code).any((1, 2)))[:2] for code in sorted(missing)]
    return np.unique(np.concatenate([chosen, *rare]))


def choose_epochs(table: AuditInput, windows: np.ndarray, pace: Pace = USUAL) -> int:
    """The usual number of epochs, or fewer where each is long."""
    steps = len(windows) * table.fit_labels.shape[1]
    return min(
        round(EPOCHS * pace.epochs),
        max(MIN_EPOCHS, int(UPDATES * pace.training * patience(table.n_all_steps)) // steps),
    )


def new_estimator(table: AuditInput, windows: np.ndarray, options: AuditOptions) -> TideClassifier:
    """The method with the settings of an audit, not yet fitted."""
    return TideClassifier(
        model=options.model,
        hidden_size=HIDDEN_SIZE,
        epochs=choose_epochs(table, windows, options.pace),
        period=table.clocks[0].period if len(table.clocks) == 1 else tuple(clock.period for clock in table.clocks),
        standardize=False,  # the encoders of the table have done it
        align=False,  # labels of whole sequences were moved before windows were cut
        device=options.device,
        checkpoint=options.checkpoint,
        random_state=options.seed,
    )


def fit(table: AuditInput, windows: np.ndarray, clusters: np.ndarray, options: AuditOptions) -> TideClassifier:
    """Learn from the chosen windows. Classes are codes; `with_class_names` gives them their names.

    `clusters` holds the recording of each of all windows: its sequence, or one of several with the same features.
    """
    estimator = new_estimator(table, windows, options)
    features, labels, inputs, sequences = _inputs(table, windows, clusters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterWarning)  # where all labels lie in one block, windows are the units
        estimator.fit(features, labels, **inputs)
    if inputs["clusters"] is sequences:
        return estimator
    # Bands and tests still go by sequences.
    return estimator._twin(training=estimator.training_._replace(clusters=torch.from_numpy(sequences)))


def plant(
    estimator: TideClassifier, table: AuditInput, windows: np.ndarray, clusters: np.ndarray, options: AuditOptions
) -> tuple[PlantedErrors, ...]:
    """What is found of errors that are planted in the windows that were learned from; nothing in a fast audit."""
    if options.pace.is_fast or estimator.fold_model_ is None:
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
            most = int(steps * options.pace.inference * patience(table.n_all_steps))
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
    wanted: tuple[int, int],
    labels: int,
    *sizes: *tuple[int, int, int],
    free: Callable[[], float] = free_bytes,
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


def expected_seconds(table: AuditInput, windows: np.ndarray, epochs: int, pace: Pace) -> dict[str, float]:
    """Seconds of each stage after reading."""
    steps, classes = len(windows) * table.index.shape[1], len(table.class_names)
    annotators = len(table.annotator_names or ()) or 1
    a_pass = PASS * annotators + PASS_OF_CLASSES * classes**2
    limits = [int(most * pace.inference * patience(table.n_all_steps)) for most in (INFERENCE_STEPS, TEST_STEPS)]
    bands, tests = (min(steps, most) for most in limits)
    newton = NEWTON * annotators * classes
    training = TRAINING + TRAINING_OF_FEATURE * table.features.shape[-1]
    return {
        "fit": 1 + TRAININGS * training * steps * epochs + EM_PASSES * (steps * a_pass + newton),
        "judge": 0.5 + JUDGING * table.n_rows * annotators,
        "bands": 1 + BAND_PASSES * (bands * a_pass + newton) + TEST_PASSES * (tests * a_pass + newton / 4),
        "page": 1 + 1e-5 * table.n_rows,
    }
