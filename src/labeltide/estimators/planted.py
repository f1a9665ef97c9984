"""Planted errors: labels changed on purpose in copies of a study, to see what an audit of it can find.

Each copy is fitted as the study was, as members of one fleet without the last ensemble. Known errors that are found,
and the rise of the estimated share against what was planted, say how far an audit of these data can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import binom, norm
from scipy.stats import t as student

from labeltide.chain.passes import TrainingEvidence, draw_rows, posteriors, same_data
from labeltide.estimators.fleet import fit_fleet
from labeltide.estimators.tide import TideClassifier
from labeltide.inference.audit import FDR, find_threshold
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.shifts import move_labels

PLANTED_SHARE = 0.04  # by hand: of the labels of each copy
RUN_STEPS = 6  # by hand: of runs of planted errors
MAX_SHIFT = 10  # by hand: steps by which recordings are shifted
MIN_RESPONSE, MAX_RESPONSE = 0.5, 1.5  # by hand: rise of the estimated share, against what was planted
MIN_FOUND = 0.5  # by hand: share of the planted errors of a class, below which its labels are not named
MIN_PLANTED = 20  # by hand: planted or flagged labels, of a class or of all, from which they are judged
EXCESS_LEVEL = 0.05  # of the test that more labels of a class are flagged than errors at random explain
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
    unchanged: np.ndarray  # labels of the study that the copy leaves as they are
    recognised: np.ndarray  # of these, labels that the signals alone make likeliest
    moved: float = 0.0  # the estimated share of wrong labels among those not changed: in the copy, less in the study


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
    assert training.data.evidence is not None
    recognised = labels == training.data.evidence[0].argmax(-1).numpy()[..., None]
    results = []
    for kind, copy, of_copy in zip(KINDS, copies, posteriors_of, strict=False):
        again, wrong_now = _judge(copy, of_copy)
        changed = (copy != labels) & (copy >= 0)
        before, after = (np.take_along_axis(posterior, codes.clip(0).astype(np.intp), -1) for codes in (labels, copy))
        expected = float((before - after)[changed].sum())
        kept, same = flagged & ~changed, np.where(copy == labels, labels, -1)
        shares = [_judge(same, each)[1] / max((same >= 0).sum(), 1) for each in (posterior, of_copy)]
        results.append(
            PlantedErrors(
                kind,
                planted=np.bincount(copy[changed], minlength=n_classes),
                found=np.bincount(copy[changed & again], minlength=n_classes),
                response=(wrong_now - wrong) / expected if expected > 0 else math.nan,
                named=np.bincount(labels[kept], minlength=n_classes),
                named_again=np.bincount(labels[kept & again], minlength=n_classes),
                unchanged=np.bincount(labels[same >= 0], minlength=n_classes),
                recognised=np.bincount(labels[recognised & (same >= 0)], minlength=n_classes),
                moved=shares[1] - shares[0],
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
    off = not MIN_RESPONSE <= response <= MAX_RESPONSE
    bad = n_planted >= 2 * MIN_PLANTED and (off or n_found < MIN_FOUND * n_planted)
    advice = "Check a random sample of labels: a review gives the share without a model." if bad else "Nothing to do."
    checks = [Diagnostic("planted", bad, f"{sentence} (1 is ideal).", advice, denies=bad and off)]
    for code, why in {} if checks[0].denies else unnamed_classes(planted).items():
        sentence = f"Labels recorded as {class_names[code]!r} are not listed: {why}"
        checks.append(Diagnostic("planted class", True, sentence, "Review some of these labels.", unnamed=(code,)))
    return tuple(checks)


def unnamed_classes(planted: Sequence[PlantedErrors]) -> dict[int, str]:
    """Recorded classes whose labels are not named, and why.

    Most of their planted errors are missed, flags do not recur, or most of their labels are flagged, and more of them
    than errors at random explain: by the flags of other classes, each against the planted errors that are found. Short
    real events look like that, too, unless the signals recognise most labels of the class that are not flagged.
    """
    single, unnamed = [each for each in planted if each.kind in SINGLE], {}
    names = ("planted", "found", "named", "named_again")
    for code in range(len(single[0].planted)):
        changed, found, named, again = (sum(int(getattr(each, name)[code]) for each in single) for name in names)
        if changed >= MIN_PLANTED and found < MIN_FOUND * changed:
            unnamed[code] = f"of {changed} planted errors of this class, {found} were found."
        elif named >= MIN_PLANTED and again < MIN_FOUND * named:
            unnamed[code] = f"of {named} flags of this class in copies of the study, {again} recurred."
        elif single[0].kind == KINDS[0]:
            first = single[0]
            flags, hits, total = int(first.named[code]), int(first.found[code]), int(first.unchanged[code])
            ratio = (first.named.sum() - flags) / max(first.found.sum() - hits, 1) / (1 - FDR)
            excess = binom.sf(flags - 1, flags + hits, ratio / (1 + ratio)) < EXCESS_LEVEL
            recognised = int(first.recognised[code]) > MIN_FOUND * (total - flags)
            if flags >= MIN_PLANTED and flags > total / 2 and excess and not recognised:
                expected = round(ratio * (1 - FDR) * hits)
                unnamed[code] = f"{flags} of {total} seem wrong, where errors at random would give {expected}. "
                unnamed[code] += "They may be short real events."
    return unnamed


def widen_interval(share: float, lower: float, upper: float, planted: Sequence[PlantedErrors]) -> tuple[float, float]:
    """The 95 % interval of a share, with the variance between the fits of study and copies (Rubin 1987)."""
    moved = [0.0, *(each.moved for each in planted if each.kind in SINGLE)]
    between = (1 + 1 / len(moved)) * float(np.var(moved, ddof=1)) if len(moved) > 1 else 0.0
    within = ((upper - lower) / (2 * norm.isf(0.025))) ** 2
    if not between > 0 or not within > 0:
        return lower, upper
    freedom = (len(moved) - 1) * (1 + within / between) ** 2
    wider = float(student.isf(0.025, freedom) / norm.isf(0.025) * math.sqrt(1 + between / within))
    return max(share - wider * (share - lower), 0.0), min(share + wider * (upper - share), 1.0)


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
    names, row_unit = np.unique(unit, return_inverse=True)
    late = np.zeros(len(names), dtype=int)
    chosen = generator.choice(len(names), max(1, len(names) // 10), replace=False)
    late[chosen] = generator.integers(2, max(3, min(MAX_SHIFT, labels.shape[1] // 3)), len(chosen))
    moved = move_labels(labels, -late[row_unit])
    return np.where(may_change & (moved >= 0), moved, labels)
