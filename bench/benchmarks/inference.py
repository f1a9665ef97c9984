"""Calibration of the inference: coverage of confidence bands, size and power of tests, error rates of checks.

    python bench/benchmarks/inference.py coverage unseen temporality annotators checks time fits  # or some
    python bench/benchmarks/inference.py dependence --studies 150                    # 7 minutes of one core
    python bench/benchmarks/inference.py dependence_again --studies 900              # cells above 7 %, other draws
    python bench/benchmarks/inference.py intervals --studies 40 --processes 2            # small studies, in processes
    python bench/benchmarks/inference.py weak-features --studies 40 --processes 16 --out FILE  # fits, weak features
    python bench/benchmarks/inference.py page                                            # the table from the records

Each part writes one JSON line per simulated study to bench/results/inference/<part>.jsonl, `intervals` to
intervals.jsonl.gz, and `dependence` one per cell to dependence.jsonl.gz. All parts but `fits` and `time` draw the
evidence directly, as calibrated probabilities; `fits` measures the coverage of whole fits of `tide`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labeltide as lt
from inference_dependence import dependence, dependence_again
from inference_page import read_records, weak_features_table, write_page
from intervals import intervals, weak_features
from labeltide.chain.families import constant_shape, family, hold_annotator, pooled
from labeltide.chain.passes import TrainingEvidence
from labeltide.inference.bands import NoiseEstimate, estimate_annotators
from labeltide.inference.bootstrap import free_family, likelihood_ratio_test
from labeltide.inference.checks import diagnose
from labeltide.inference.temporality import TEST_SMOOTHNESS, WEAK_POOLING, judge_temporality
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

RESULTS = Path(__file__).parents[1] / "results" / "inference"
SHAPES = ("static", "linear", "decay", "growth", "periodic", "mixed")
SETTINGS = {"persistence": {"stay": 0.95, "sharpness": 1.0}, "features": {"stay": None, "sharpness": 3.0}}
STEPS, N = 50, 150
CLOCK = np.linspace(0, 1, STEPS)
AT_ONCE = 10  # studies that are fitted together
COVERAGE, UNSEEN, STATIC, TEMPORAL, CHECKS, FITS = 200, 10, 300, 40, 40, 12  # studies
ANNOTATORS, OWN_N, OWN_STEPS, FEW = 20, 80, 30, 16  # studies of a kind, and sequences: the last annotator labels a few
REPLICATES = 39  # of a test: p <= .05 is then exactly the two largest of forty


def coverage() -> Iterator[dict[str, Any]]:
    """Must 1: do 95 % bands hold the truth in 95 of 100 cases?"""
    for number, setting in enumerate(SETTINGS):
        for kind, shape in enumerate(SHAPES):
            count = len(range(kind, COVERAGE // 2, len(SHAPES)))
            yield from cover(setting, shape, matrices_of(shape), count, 40000 + 1000 * number + kind)


def unseen() -> Iterator[dict[str, Any]]:
    """The same for other kinds of noise: a jump from no noise at all, less noise, more classes."""
    cases = {
        "jump, 20 %": lt.make_noise("jump", 2, STEPS, 0.2),
        "growth, 10 %": lt.make_noise("growth", 2, STEPS, 0.1),
        "mixed, 3 classes": lt.make_noise("mixed", 3, STEPS, 0.3),
    }
    for number, setting in enumerate(SETTINGS):
        for kind, (name, noise) in enumerate(cases.items()):
            yield from cover(setting, name, noise.at(CLOCK), UNSEEN, 50000 + 1000 * number + kind)


def cover(setting: str, shape: str, matrices: np.ndarray, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Bands for several studies of one kind."""
    data = simulate(SimulatedStudy(matrices, N, **SETTINGS[setting]), count, seed).data
    for study in batches(count):
        part = replace(data, labels=data.labels[study], evidence=data.evidence[study])
        for training, _ in fit_studies(part):
            yield {"setting": setting, "shape": shape, **covered(estimate_annotators(training)[0], matrices)}


def fits() -> Iterator[dict[str, Any]]:
    """The same with whole fits of tide, whose networks are trained on the noisy labels."""
    for number, shape in enumerate(SHAPES * (FITS // len(SHAPES))):
        matrices = matrices_of(shape)
        study = lt.make_sequences(N, STEPS, 10, stay=0.95, random_state=number, variance=4.0)
        labels = lt.corrupt(study.clean_labels, matrices, random_state=number)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", lt.NoiseWarning)
            fitted = lt.TideClassifier(random_state=number, device="cpu").fit(study.features, labels)
            estimate = fitted.noise_estimate_
        names = [check.name for check in fitted.diagnostics_ if check.is_warning]
        assert len(raised) == len(names)
        yield {"setting": "whole fits", "shape": shape, **covered(estimate, matrices), "warned": names}


def temporality() -> Iterator[dict[str, Any]]:
    """Must 2: how often is noise called temporal, when it is not and when it is?"""
    for kind, shape in enumerate(SHAPES):
        count = STATIC if shape == "static" else TEMPORAL
        for number, (name, setting) in enumerate(SETTINGS.items()):
            n_studies = count // len(SETTINGS)
            data = simulate(
                SimulatedStudy(matrices_of(shape), N, **setting), n_studies, 5000 + 1000 * number + kind
            ).data
            for study in batches(n_studies):
                part = replace(data, labels=data.labels[study], evidence=data.evidence[study])
                for seed, (training, _) in enumerate(fit_studies(part, choose=False), study.start):
                    static = family(2, constant_shape(training.grid), "each")
                    free = free_family(2, training.grid, TEST_SMOOTHNESS)
                    test = likelihood_ratio_test(training, static, free, REPLICATES, seed)
                    yield {"setting": name, "shape": shape, "statistic": test.statistic, "p_value": test.p_value}


def annotators() -> Iterator[dict[str, Any]]:
    """Does an annotator get worse? Three of them, the last with few labels; one tires, or nobody does."""
    clock = np.linspace(0, 1, OWN_STEPS)
    steady = {"steady": 0.15 + 0 * clock, "tires": 0.05 + 0.35 * clock, "few labels": 0.25 + 0 * clock}
    cases = {"one tires": steady, "nobody": steady | {"tires": 0.225 + 0 * clock}}
    for kind, (case, rates) in enumerate(cases.items()):
        noise = np.stack([[[1 - r, r], [r, 1 - r]] for r in rates.values()]).transpose(0, 3, 1, 2)
        for number, (name, setting) in enumerate(SETTINGS.items()):
            data = simulate(SimulatedStudy(noise, OWN_N, **setting), ANNOTATORS, 60000 + 1000 * number + kind).data
            data.labels[:, FEW:, :, -1] = -1
            for study in batches(ANNOTATORS):
                part = replace(data, labels=data.labels[study], evidence=data.evidence[study])
                for seed, (training, _) in enumerate(fit_studies(part), study.start):
                    free = pooled(free_family(2, training.grid, TEST_SMOOTHNESS), WEAK_POOLING)
                    estimates = estimate_annotators(training)[1]
                    for who, (annotator, rate) in enumerate(rates.items()):
                        test = likelihood_ratio_test(
                            training, hold_annotator(free, who), free, REPLICATES, seed + 100 * who
                        )
                        about = {"setting": name, "case": case, "annotator": annotator, "drifts": bool(np.ptp(rate))}
                        yield {**about, "p_value": test.p_value, **covered(estimates[who], noise[who])}


def checks() -> Iterator[dict[str, Any]]:
    """Must 7: does each check speak up where it should, and only there?"""
    rising = np.linspace(0.2, 0.8, STEPS)
    confident = {"stay": None, "sharpness": 4.0}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "": (SETTINGS["persistence"], {}),
        "none, confident": (SETTINGS["features"], {}),
        "identifiability": ({"stay": None, "sharpness": 0.5}, {}),
        "bursts": ({"stay": 0.95, "sharpness": 3.0, "bursts": 0.7}, {}),
        "class_balance": (SETTINGS["persistence"], {"shares": np.stack([rising, 1 - rising], 1)}),
        "drift": ({"stay": None, "sharpness": 3.0}, {"sharpness_at": lambda clock: 1 - 0.8 * clock}),
        "recordings": (confident, {}),
    }
    for number, (case, (setting, more)) in enumerate(cases.items()):
        silent = case in ("", "none, confident")
        for shape in SHAPES if silent else ("static",):
            count = CHECKS // 2 if silent else CHECKS
            data = simulate(SimulatedStudy(matrices_of(shape), N, **setting), count, 9000 + number, **more).data
            for study in batches(count):
                part = replace(data, labels=data.labels[study], evidence=data.evidence[study])
                for training, _ in fit_studies(part, choose=False):
                    evidence = fail_one_network(training) if case == "recordings" else training
                    warned = [check.name for check in diagnose(evidence, ["a", "b"]) if check.is_warning]
                    yield {"case": "nothing" if silent else case, "shape": shape, "warned": warned}


def seconds() -> Iterator[dict[str, Any]]:
    """Must 6: 200 replicates on data of the size of `moving`, 137 sequences of 50 steps and 2 classes."""
    data = simulate(SimulatedStudy(matrices_of("growth"), 137, **SETTINGS["persistence"]), 1, 0).data
    training, _ = fit_studies(data)[0]
    for _ in range(3):
        first = time.perf_counter()
        estimate = estimate_annotators(training)[0]
        second = time.perf_counter()
        judge_temporality(training, estimate)
        yield {"bands": second - first, "temporality": time.perf_counter() - second, "threads": torch.get_num_threads()}


def covered(estimate: NoiseEstimate, matrices: np.ndarray) -> dict[str, Any]:
    """Where the bands hold the true noise of a study whose classes are equally common."""
    truth = 1 - np.diagonal(matrices, axis1=1, axis2=2)  # (points, classes)
    inside = (estimate.class_rate_lower <= truth) & (truth <= estimate.class_rate_upper)
    whole = (estimate.class_rate_simultaneous_lower <= truth) & (truth <= estimate.class_rate_simultaneous_upper)
    rate = truth.mean(1)
    change, width = estimate.change, estimate.class_rate_upper - estimate.class_rate_lower
    wide = estimate.class_rate_simultaneous_upper - estimate.class_rate_simultaneous_lower
    return {
        "pointwise": inside.mean(1).reshape(10, -1).mean(1).tolist(),
        "simultaneous": whole.all(0).mean(),
        "rate": ((estimate.rate_lower <= rate) & (rate <= estimate.rate_upper)).mean(),
        "total": float(estimate.total_lower <= rate.mean() <= estimate.total_upper),
        "change": float(change.lower <= np.ptp(rate) <= change.upper),
        "width": width.mean(),
        "simultaneous_width": wide.mean(),
        "error": np.abs(estimate.class_rate - truth).mean(),
    }


def fail_one_network(training: TrainingEvidence) -> TrainingEvidence:
    """The network of one fold takes each class for the other."""
    evidence = training.data.evidence
    assert evidence is not None
    failed = (training.folds == 2)[..., None, None]
    return training._replace(data=replace(training.data, evidence=torch.where(failed, evidence.flip(-1), evidence)))


def matrices_of(shape: str) -> np.ndarray:
    """Q of two classes over the clock, at 30 % wrong labels."""
    return lt.make_noise(shape, 2, STEPS, 0.3).at(CLOCK)


def batches(count: int) -> Iterator[slice]:
    """Some studies at a time."""
    for first in range(0, count, AT_ONCE):
        yield slice(first, min(first + AT_ONCE, count))


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "coverage": coverage,
    "unseen": unseen,
    "temporality": temporality,
    "annotators": annotators,
    "checks": checks,
    "time": seconds,
    "fits": fits,
}
IN_PROCESSES = {
    "dependence": dependence,
    "dependence_again": lambda studies, processes: dependence_again(
        studies, processes, read_records(RESULTS)["dependence"]
    ),
    "intervals": intervals,
    "weak-features": weak_features,
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, *IN_PROCESSES, "page"], default=[*PARTS])
    parser.add_argument("--studies", type=int, default=40, help="of each cell without a change")
    parser.add_argument("--processes", type=int, default=1, help=f"of {' and '.join(IN_PROCESSES)}")
    parser.add_argument("--out", type=Path, help="file of the records of a part, in place of that in bench/results")
    chosen = parser.parse_args(arguments)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in [name for name in chosen.parts if name != "page"]:
        began = time.perf_counter()
        found = IN_PROCESSES[name](chosen.studies, chosen.processes) if name in IN_PROCESSES else PARTS[name]()
        lines = [json.dumps(record) for record in found]
        text = "\n".join(lines) + "\n"
        if chosen.out is not None:
            chosen.out.write_text(text)
        elif name in IN_PROCESSES:
            (RESULTS / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            (RESULTS / f"{name}.jsonl").write_text(text)
        if name == "weak-features":
            print(weak_features_table([json.loads(line) for line in lines]))
        print(f"{name}: {len(lines)} records in {time.perf_counter() - began:.0f} s", flush=True)
    if chosen.out is None:
        print(write_page(RESULTS))


if __name__ == "__main__":
    main(sys.argv[1:])
