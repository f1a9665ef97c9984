"""Train the runs of one fleet together and make the record of each."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.estimators import NoisyLabelClassifier, fit_fleet, predict_fleet
from labeltide_bench.studies.dataset_spec import DatasetSpec
from labeltide_bench.studies.drawing import draw_labels, keep_information
from labeltide_bench.studies.loading import Split, load_folds
from labeltide_bench.studies.measure import PredictedLabels, RecordedLabels, measure
from labeltide_bench.studies.method_spec import known_noise
from labeltide_bench.studies.origin import origin
from labeltide_bench.studies.own import method_class
from labeltide_bench.studies.parts import without
from labeltide_bench.studies.plan import FleetPlan, PlannedRun
from labeltide_bench.studies.recorded import labels_of, measure_recorded
from labeltide_bench.studies.records import RECORD_FORMAT


def run_fleet(plan: FleetPlan, data: Path, checkpoint: Path | None, device: str) -> list[dict[str, Any]]:
    """Train all runs of a fleet together and measure each."""
    spec, method = plan.runs[0].dataset, plan.runs[0].method
    split, settings = load_once(spec, data, plan.runs[0].fold), method.settings_for(spec)
    recorded = [record_labels(run, split.train) for run in plan.runs]
    seen = [_seen_labels(run, labels, split.train) for run, labels in zip(plan.runs, recorded, strict=True)]
    estimators = [
        _estimator(run, labels, settings, device, checkpoint) for run, labels in zip(plan.runs, recorded, strict=True)
    ]
    started = time.perf_counter()
    with without(method.without):
        _fit(estimators, seen, split.train, clean=method.clean, by_people=spec.split_by_people)
    seconds = (time.perf_counter() - started) / len(plan.runs)
    shared = {
        "dataset_info": _about(spec, split),
        "settings": settings,
        **origin(device),
        "fleet": len(plan.runs),
        "seconds": round(seconds, 4),  # of this run's share of the fleet, since the last start
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    on_test, on_train = (predict_fleet(estimators, part.features, part.lengths) for part in (split.test, split.train))
    predictions = (on_test.argmax(-1), on_train.argmax(-1), np.round(on_test).argmax(-1))
    return [
        {**_identity(run), **shared, **_measured(run, estimator, labels, split, PredictedLabels(*predicted))}
        for run, estimator, labels, *predicted in zip(plan.runs, estimators, recorded, *predictions, strict=True)
    ]


def record_labels(run: PlannedRun, train: Sequences) -> RecordedLabels:
    """The recorded labels of a run, drawn from Q(t) or those of a real annotator; the same for every method."""
    if run.dataset.annotators:
        noise, recorded = None, labels_of(run.annotator, train)
    else:
        noise = run.noise.make(len(train.classes), train.features.shape[1])
        recorded = draw_labels(train, noise, run.noise.variant, np.random.default_rng(run.noise_seed))
    absent = set(range(len(train.classes))) - set(np.unique(recorded).tolist())
    if absent:
        raise ValueError(
            f"{run.key}: no label of class number {min(absent)} was recorded. "
            f"{run.dataset.where} has too few of it for this noise."
        )
    return RecordedLabels(noise, recorded)


def _seen_labels(run: PlannedRun, drawn: RecordedLabels, train: Sequences) -> np.ndarray:
    """The labels that the method of a run learns from."""
    if not run.method.same_information:
        return drawn.recorded
    generator = np.random.default_rng([*run.noise_seed, 1])
    return keep_information(train.labels[..., 0], np.asarray(drawn.noise), generator)


def load_once(spec: DatasetSpec, data: Path, fold: int = 0) -> Split:
    """Load a data set, with a cache of the last one; fleets are ordered by data set."""
    key = (repr(spec), data)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = load_folds(spec, data)
    return _loaded[key][fold]


_loaded: dict[tuple[str, Path], tuple[Split, ...]] = {}


def _measured(
    run: PlannedRun, estimator: NoisyLabelClassifier, drawn: RecordedLabels, split: Split, predicted: PredictedLabels
) -> dict[str, Any]:
    if run.dataset.annotators:
        return measure_recorded(estimator, run.dataset.reference, run.annotator, split, predicted)
    return measure(estimator, drawn, split, predicted, as_code=run.method.published == "code")


def _estimator(
    run: PlannedRun, drawn: RecordedLabels, settings: dict[str, Any], device: str, checkpoint: Path | None
) -> NoisyLabelClassifier:
    # The inputs of the paper and of the records are not standardised; a study may ask for it.
    settings = {"standardize": False, **settings, "random_state": run.draw, "device": device, "checkpoint": checkpoint}
    if "noise" in settings:
        settings["noise"] = known_noise(settings["noise"], np.asarray(drawn.noise))
    return method_class(run.method.method)(**settings)


def _fit(
    estimators: list[NoisyLabelClassifier],
    recorded: list[np.ndarray],
    train: Sequences,
    *,
    clean: bool,
    by_people: bool,
) -> None:
    """Fit to recorded labels. Only methods that the study marks as `clean` get the clean labels."""
    trusted = train.labels[..., 0] if clean else None
    clusters = train.ids if by_people else None
    more: dict[str, Any] = {"clock": train.clock, "lengths": train.lengths, "trusted": trusted, "clusters": clusters}
    fit_fleet(estimators, train.features, recorded, **more)


def _identity(run: PlannedRun) -> dict[str, Any]:
    return {
        "format": RECORD_FORMAT,
        "key": run.key,
        "dataset": run.dataset.name,
        "shape": run.noise.shape,
        "level": dict(run.noise.level),
        "variant": run.noise.variant,
        "method": run.method.label,
        "estimator": run.method.method,
        "clean": run.method.clean,
        "draw": run.draw,
        "seed": run.draw,
        "noise_seed": run.noise_seed,
    }


def _about(spec: DatasetSpec, split: Split) -> dict[str, Any]:
    n_train, n_steps, n_features = split.train.features.shape
    return {
        "faithful": spec.faithful,
        "note": spec.note,
        "split": spec.split_name,
        **({"reference": spec.reference, "clock": spec.clock["name"] if spec.clock else ""} if spec.annotators else {}),
        "n_train": n_train,
        "n_test": len(split.test),
        "n_steps": n_steps,
        "n_features": n_features,
        "classes": list(spec.labels) or [str(name) for name in split.train.classes],
    }
