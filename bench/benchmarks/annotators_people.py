"""Annotators with features: the Q of each coder of gaze, and tests of whose noise changes over the clock.

The data are those of bench/studies/annotators.toml, which compares methods on them; here nothing is held out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import labeltide as lt
from labeltide.chain.families import constant_shape, family
from labeltide.chain.passes import TrainingEvidence
from labeltide.data.sequences import Sequences
from labeltide.estimators import fit_fleet
from labeltide.inference.bootstrap import (
    MIN_TEST_REPLICATES,
    REFIT_ITERATIONS,
    affordable,
    coarsen,
    free_family,
    likelihood_ratio_test,
)
from labeltide.inference.temporality import TEST_REPLICATES, TEST_SMOOTHNESS
from labeltide_bench.studies import read_study
from labeltide_bench.studies.dataset_spec import DatasetSpec
from labeltide_bench.studies.loading import Split, load_dataset
from labeltide_bench.studies.recorded import CLOCK_BINS, AnnotatorLabels, clock_bins, compare_with_others

STUDY = Path(__file__).parents[1] / "studies" / "annotators.toml"
GAZE, SLEEP = "gaze (Lund 2013)", "sleep (Dreem)"
SEED = 0
DRAWS = 1000  # of recordings, for intervals of what is counted


def coders(data: Path) -> Iterator[dict[str, Any]]:
    """Both coders of gaze together: each one's Q by labels alone, and by tide with features."""
    spec, study, _ = whole_dataset(GAZE, data)
    y, more = study.labels.astype(int), {"clock": study.clock, "lengths": study.lengths}
    started = time.perf_counter()
    consensus = lt.consensus(y, ids=study.ids, **more)
    by_labels = time.perf_counter() - started
    tide = lt.TideClassifier(random_state=SEED).fit(study.features, y, **more)
    by_tide = tide.annotator_matrices_ if tide.annotator_matrices_ is not None else tide.noise_matrices_[None]
    yield {
        "study": "coders",
        "people": list(spec.annotators),
        "classes": list(spec.labels),
        "steps": int(study.lengths.sum()),
        "seconds": [round(by_labels, 1), round(time.perf_counter() - started - by_labels, 1)],
        "chosen": consensus.chosen._asdict(),
        "fleiss": round(consensus.agreement.fleiss, 4),
        "fleiss_over_clock": consensus.agreement.fleiss_over_clock.round(4).tolist(),
        "labels alone": consensus.noise.mean(1).round(4).tolist(),  # (people, classes, classes)
        "tide": np.broadcast_to(by_tide.mean(1), (2, *by_tide.shape[2:])).round(4).tolist(),
        "counted": [_counted(study, name).round(4).tolist() for name in spec.annotators],
        "runs": _runs(study),
    }


def alone(data: Path) -> Iterator[dict[str, Any]]:
    """Each person as the only label of all sequences: does tide see the noise change, and what do the others say?"""
    for name in (GAZE, SLEEP):
        spec, study, split = whole_dataset(name, data)
        labels = [study.labels[..., index].astype(int) for index in range(len(spec.annotators))]
        fits = [lt.TideClassifier(random_state=SEED) for _ in labels]
        started = time.perf_counter()
        recordings = np.unique(study.ids, return_inverse=True)[1]
        fit_fleet(fits, study.features, labels, clock=study.clock, lengths=study.lengths, clusters=recordings)
        fitting = time.perf_counter() - started
        for person, fit in zip(spec.annotators, fits, strict=True):
            yield _alone(spec, study, split, person, fit, fitting / len(fits))


def _alone(
    spec: DatasetSpec, study: Sequences, split: Split, person: str, fit: lt.TideClassifier, seconds: float
) -> dict[str, Any]:
    started = time.perf_counter()
    test = fit.temporality_
    p_drawn, drawn = _by_drawn_labels(fit.training_)
    compared = compare_with_others("majority", person, study)
    both = (compared.recorded >= 0) & (compared.others >= 0)
    edges, middles = clock_bins(split)
    cell = np.digitize(study.clock, edges)
    unlike = [float((compared.recorded != compared.others)[both & (cell == item)].mean()) for item in range(CLOCK_BINS)]
    return {
        "study": "alone",
        "dataset": spec.name,
        "person": person,
        "seconds": [round(seconds, 1), round(time.perf_counter() - started, 1)],
        "p_value": p_drawn,
        "drawn": drawn,
        "by_design": None if np.isnan(test.p_value) else test.p_value,
        "method": test.method,
        "change": [round(value, 4) for value in (test.change, test.change_lower, test.change_upper)],
        "worst": [round(test.worst_at, 2), round(test.worst_rate, 4)],
        "best": [round(test.best_at, 2), round(test.best_rate, 4)],
        "per_class": {name: item.p_value for name, item in zip(spec.labels, test.per_class, strict=True)},
        "is_noisy_p": test.is_noisy_p,
        "wrong": round(float((1 - fit.noise_at(study.clock[study.mask]).diagonal(axis1=1, axis2=2)).mean()), 4),
        "clock": middles.round(3).tolist(),
        "unlike": [round(value, 4) for value in unlike],
        "counted": round(float((compared.recorded != compared.others)[both].mean()), 4),
        "later": _later(study, compared, spec.labels),
    }


def _by_drawn_labels(training: TrainingEvidence) -> tuple[float, int]:
    """How often labels drawn from a chain without a change seem to change as much, and of how many such studies."""
    coarse = coarsen(training)
    static = family(coarse.data.n_classes, constant_shape(coarse.grid), "each")
    free = free_family(coarse.data.n_classes, coarse.grid, TEST_SMOOTHNESS, coarse.period)
    test = likelihood_ratio_test(coarse, static, free, TEST_REPLICATES, SEED)
    return test.p_value, affordable(coarse.data, free, 2 * REFIT_ITERATIONS, TEST_REPLICATES, MIN_TEST_REPLICATES)


def _later(study: Sequences, compared: AnnotatorLabels, classes: Iterable[str]) -> dict[str, list[float]]:
    """How much more often a person departs from the others in the second half of recordings than in their first.

    All steps together, as if classes were as frequent in both halves, and for each class that the others give: the
    difference and a 95 % interval from recordings drawn with replacement. Half of each recording lies on either side,
    so that long ones, which alone have late moments, do not decide.
    """
    both = (compared.recorded >= 0) & (compared.others >= 0)
    names, whose = np.unique(study.ids, return_inverse=True)
    middles = np.array(
        [np.median(study.clock[(whose == recording)[:, None] & both]) for recording in range(len(names))]
    )
    late = study.clock > middles[whose][:, None]
    cells = (np.broadcast_to(whose[:, None], both.shape)[both], late[both].astype(int), compared.others[both])
    steps, departs = np.zeros((2, len(names), 2, len(study.classes)))
    np.add.at(steps, cells, 1)
    np.add.at(departs, cells, (compared.recorded != compared.others)[both])
    drawn = np.random.default_rng(SEED).multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
    weights = np.concatenate([np.ones((1, len(names))), drawn])
    differences = _differences(*(np.einsum("dr,rhc->dhc", weights, counts) for counts in (steps, departs)))
    ends = np.quantile(differences[1:], [0.025, 0.975], axis=0)
    titles = ["all", "classes alike", *classes]
    return {
        name: [round(float(value), 4) for value in (differences[0, index], *ends[:, index])]
        for index, name in enumerate(titles)
    }


def _differences(steps: np.ndarray, departs: np.ndarray) -> np.ndarray:
    """From counts (draws, halves, classes) to the differences of `_later`: (draws, 2 + classes)."""
    rates = departs / steps.clip(1)
    by_class = rates[:, 1] - rates[:, 0]
    overall = departs.sum(2) / steps.sum(2)
    shares = steps.sum(1) / steps.sum((1, 2))[:, None]
    return np.column_stack([overall[:, 1] - overall[:, 0], (shares * by_class).sum(1), by_class])


def whole_dataset(name: str, data: Path) -> tuple[DatasetSpec, Sequences, Split]:
    """A data set of the study with both parts of a fold put together again."""
    spec = next(spec for spec in read_study(STUDY).datasets if spec.name == name)
    split = load_dataset(spec, data)
    train, test = split

    def join(field: str) -> np.ndarray:
        return np.concatenate([getattr(train, field), getattr(test, field)])

    arrays = {field: join(field) for field in ("features", "labels", "lengths", "clock")}
    return (
        spec,
        Sequences(**arrays, ids=train.ids + test.ids, classes=train.classes, annotators=train.annotators),
        split,
    )


def _counted(study: Sequences, person: str) -> np.ndarray:
    """What a person records where the others give each class."""
    compared, n_classes = compare_with_others("majority", person, study), len(study.classes)
    both = (compared.recorded >= 0) & (compared.others >= 0)
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (compared.others[both], compared.recorded[both]), 1)
    return counts / counts.sum(1, keepdims=True)


def _runs(study: Sequences) -> dict[str, Any]:
    """How two coders' disagreement lies in time: runs of it, and its share in events of which most is disputed."""
    first, second = study.labels[..., 0], study.labels[..., 1]
    unlike = (first >= 0) & (second >= 0) & (first != second)
    edge = np.diff(np.pad(unlike.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    lengths = np.nonzero(edge.ravel() == -1)[0] - np.nonzero(edge.ravel() == 1)[0]
    return {
        "steps": int(unlike.sum()),
        "runs": len(lengths),
        "mean": round(float(lengths.mean()), 2),
        "long": round(float(lengths[lengths >= 10].sum() / lengths.sum()), 4),
        "whole": [_whole_events(coder_labels, unlike, study.lengths) for coder_labels in (first, second)],
    }


def _whole_events(labels: np.ndarray, unlike: np.ndarray, lengths: np.ndarray) -> float:
    """The share of disputed steps in events, stretches of one recorded label, of which at least half is disputed."""
    inside = 0
    for row_labels, disputed, length in zip(labels, unlike, lengths, strict=True):
        starts = np.flatnonzero(np.diff(row_labels[:length], prepend=row_labels[0] - 1))
        shares = np.add.reduceat(disputed[:length].astype(float), starts)
        sizes = np.diff(np.append(starts, length))
        inside += shares[shares >= sizes / 2].sum()
    return round(float(inside / unlike.sum()), 4)
