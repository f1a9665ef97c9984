"""Coverage and width of the interval of the total share and of bands, and false alarms, from 100 to 1,000 labels.

A part of inference.py. Each record is one study: whether the interval held the share of the population and that of the
study's own labels, its width beside that of the best possible interval, which knows the true labels (Clopper and
Pearson 1934; with people of different error rates the t interval of their shares), and flags at 10 % false alarms.
Labels are flagged by `LabelAudit.is_issue`, as in an audit of a table: where two tests show wrong labels (p below 5 %)
and no check denies it, with expected false alarms averaged over the profile likelihood (`averaged_quality.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit
from scipy.stats import beta
from scipy.stats import t as student

import labeltide as lt
from labeltide.chain.families import constant_shape, family
from labeltide.chain.passes import TrainingEvidence, posteriors, same_data
from labeltide.inference.audit import LabelAudit
from labeltide.inference.bands import NoiseEstimate, estimate_annotators, presence_p
from labeltide.inference.bootstrap import likelihood_ratio_test
from labeltide.inference.checks import diagnose
from labeltide.inference.conclusion import SURE
from labeltide.inference.temporality import MIN_PART_REPLICATES, PART_REPLICATES
from labeltide_bench.simulated import Differences, SimulatedData, SimulatedStudy, fit_studies, record_windows, simulate

SIZES = {100: (10, 10), 150: (15, 10), 300: (20, 15), 1000: (40, 25)}  # labels: rows and steps
RATES, SHAPES = (0.0, 0.05, 0.2, 0.4), ("static", "growth", "mixed")
SETTINGS = {"persistence": {"stay": 0.95, "sharpness": 1.0}, "features": {"stay": None, "sharpness": 3.0}}
PEOPLE, PEOPLE_DIFFER = (3, 5, 10, 20), 0.5  # people, and the standard deviation of their logits
FIT_SIZES, FIT_RATES = (150, 300), (0.0, 0.2, 0.4)
FDR, FIRST_SEED = 0.1, 810_000


class Cell(NamedTuple):
    """Studies of one kind."""

    unit: str  # "rows", "people" or "whole fits"
    labels: int
    rate: float
    setting: str
    people: int | None
    studies: int
    seed: int


def intervals(studies: int, processes: int) -> Iterator[dict[str, Any]]:
    """Records of all cells; a process takes a cell at a time."""
    cells = list_cells(studies)
    if processes == 1:
        for cell in cells:
            yield from measure_cell(cell)
        return
    with get_context("spawn").Pool(processes) as pool:
        for records in pool.imap(measure_cell, cells):
            yield from records


def list_cells(studies: int) -> list[Cell]:
    """All kinds of studies, with their seeds."""
    rows = [("rows", size, rate, name, None) for size in SIZES for rate in RATES for name in SETTINGS]
    people = [("people", 1000, rate, name, count) for count in PEOPLE for rate in (0.0, 0.2) for name in SETTINGS]
    fits = [("whole fits", size, rate, "tide", None) for size in FIT_SIZES for rate in FIT_RATES]
    return [Cell(*kind, studies, FIRST_SEED + 1000 * k) for k, kind in enumerate([*rows, *people, *fits])]


def measure_cell(cell: Cell) -> list[dict[str, Any]]:
    """The records of one cell, on one thread."""
    torch.set_num_threads(1)
    measured = {"rows": by_rows, "people": by_people, "whole fits": by_fits}[cell.unit](cell)
    about = {key: getattr(cell, key) for key in ("unit", "labels", "rate", "setting", "people")}
    return [{**about, **record} for record in measured]


def by_rows(cell: Cell) -> Iterator[dict[str, Any]]:
    """Independent rows; shapes of noise take turns."""
    n, steps = SIZES[cell.labels]
    for number, shape in enumerate(SHAPES if cell.rate else SHAPES[:1]):
        count = len(range(number, cell.studies, len(SHAPES))) if cell.rate else cell.studies
        matrices = make_matrices(shape, cell.rate, steps)
        drawn = simulate(SimulatedStudy(matrices, n, **SETTINGS[cell.setting]), count, cell.seed + number)
        truth = 1 - np.diagonal(matrices, axis1=1, axis2=2)
        for index, (training, _) in enumerate(fit_studies(drawn.data) if count else ()):
            yield {"shape": shape, **measure(training, estimate_annotators(training)[0], drawn.clean[index], truth)}


def by_people(cell: Cell) -> Iterator[dict[str, Any]]:
    """Windows of people whose error rates differ; the share of the population is the mean over all people."""
    assert cell.people is not None
    windows = max(40 // cell.people, 2)
    study = SimulatedStudy(make_matrices("static", cell.rate, 25), cell.people * windows, **SETTINGS[cell.setting])
    drawn = simulate(study, cell.studies, cell.seed)
    people = torch.arange(cell.people * windows) // windows
    if cell.rate:
        data, people = record_windows(drawn, cell.people, cell.rate, Differences(people=PEOPLE_DIFFER), cell.seed + 1)
        drawn = SimulatedData(data, drawn.clean)
    share = float(np.mean(_mixed_rate(cell.rate)))
    truth = np.full((drawn.data.n_points, 2), share)
    for index, (training, _) in enumerate(fit_studies(drawn.data)):
        known = training._replace(clusters=people)
        yield {"shape": "static", **measure(known, estimate_annotators(known)[0], drawn.clean[index], truth)}


def by_fits(cell: Cell) -> Iterator[dict[str, Any]]:
    """Whole fits of tide with its networks; shapes of noise take turns."""
    n, steps = SIZES[cell.labels]
    for number in range(cell.studies):
        seed, shape = cell.seed + number, SHAPES[number % len(SHAPES)]
        matrices = make_matrices(shape, cell.rate, steps)
        study = lt.make_sequences(n, steps, 5, stay=0.9, random_state=seed, variance=2.0)
        labels = lt.corrupt(study.clean_labels, matrices, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = lt.TideClassifier(random_state=number, device="cpu").fit(study.features, labels)
            estimate = fitted.noise_estimate_
        truth = 1 - np.diagonal(matrices, axis1=1, axis2=2)
        yield {"shape": shape, **measure(fitted.training_, estimate, study.clean_labels, truth)}


WEAK_RATE, WEAK_STAY, WEAK_STEPS, WEAK_FEATURES = 0.2, 0.92, 100, 4
# Sequences, and distance of the class means from the origin in standard deviations of a feature; 0: no information.
WEAK_CELLS = [(60, 0.0), (60, 0.4), (60, 0.6), (60, 0.8), (60, 1.0), (60, 1.5), (240, 0.4), (240, 0.6), (240, 0.8)]


def weak_features(studies: int, processes: int) -> Iterator[dict[str, Any]]:
    """Whole fits of tide to two persistent classes, 20 % of whose labels are wrong, with weak features."""
    first = FIRST_SEED + 100_000  # every cell has labels of its own
    kinds = [
        (*cell, first + 1000 * index + number) for number in range(studies) for index, cell in enumerate(WEAK_CELLS)
    ]
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(fit_weak_features, kinds)


def fit_weak_features(kind: tuple[int, float, int]) -> dict[str, Any]:
    """The record of one fit: does the interval hold the error rate, and the share of the labels that were drawn?"""
    torch.set_num_threads(1)
    n, separation, seed = kind
    random = np.random.default_rng(seed)
    clean = random.integers(2, size=(n, WEAK_STEPS))
    for step in range(1, WEAK_STEPS):
        stays = random.random(n) < WEAK_STAY
        clean[stays, step] = clean[stays, step - 1]
    means = random.normal(size=(2, WEAK_FEATURES))
    means *= separation / np.linalg.norm(means, axis=1, keepdims=True)
    features = means[clean] + random.normal(size=(*clean.shape, WEAK_FEATURES))
    wrong = random.random(clean.shape) < WEAK_RATE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = lt.TideClassifier(random_state=seed, device="cpu").fit(features, np.where(wrong, 1 - clean, clean))
        estimate = fitted.noise_estimate_
    low, high = estimate.total_lower, estimate.total_upper
    return {
        "unit": "weak features",
        "sequences": n,
        "separation": separation,
        "distance": float(np.linalg.norm(means[0] - means[1])),
        "total": estimate.total,
        "covers": float(low <= WEAK_RATE <= high),
        "covers_realised": float(low <= wrong.mean() <= high),
        "below": float(high < WEAK_RATE),
        "width": high - low,
    }


def make_matrices(shape: str, rate: float, steps: int) -> np.ndarray:
    """Q of two classes over the clock; without noise the identity."""
    clock = np.linspace(0, 1, steps)
    return lt.make_noise(shape, 2, steps, rate).at(clock) if rate else np.tile(np.eye(2), (steps, 1, 1))


def measure(
    training: TrainingEvidence, estimate: NoiseEstimate, clean: np.ndarray, truth: np.ndarray
) -> dict[str, Any]:
    """One record; truth holds the error rates (points, classes)."""
    wrong = training.data.labels[0, ..., 0].numpy() != clean
    low, high, share = estimate.total_lower, estimate.total_upper, float(truth.mean())
    best = known_truth_interval(wrong, training.clusters)
    inside = (estimate.class_rate_lower <= truth) & (truth <= estimate.class_rate_upper)
    denied = any(check.is_warning and check.denies for check in diagnose(training, ["0", "1"]))
    flags = flag(training, estimate, may_name=not denied and are_shown(training, estimate))
    return {
        "total": estimate.total,
        "covers": float(low <= share <= high),
        "covers_realised": float(low <= wrong.mean() <= high),
        "below": float(high < share),
        "width": high - low,
        "upper": high,
        "best_width": best[1] - best[0],
        "best_upper": best[1],
        "best_covers": float(best[0] <= share <= best[1]),
        "pointwise": float(inside.mean()),
        "pointwise_width": float((estimate.class_rate_upper - estimate.class_rate_lower).mean()),
        "flags": int(flags.sum()),
        "false_flags": int((flags & ~wrong).sum()),
        "wrong": int(wrong.sum()),
        "denied": denied,
    }


def known_truth_interval(wrong: np.ndarray, clusters: torch.Tensor | None) -> tuple[float, float]:
    """The 95 % interval of the share of a population from labels that are known to be right or wrong."""
    n, k = wrong.size, int(wrong.sum())
    lower, upper = beta.ppf([0.025, 0.975], [max(k, 0.5), k + 1], [n - k + 1, max(n - k, 0.5)])
    binomial = (float(lower) if k else 0.0, float(upper))
    if clusters is None or not k:
        return binomial
    shares = np.array([wrong[clusters.numpy() == who].mean() for who in np.unique(clusters.numpy())])
    half = student.ppf(0.975, len(shares) - 1) * shares.std(ddof=1) / np.sqrt(len(shares))
    return max(float(shares.mean() - half), 0.0), min(float(shares.mean() + half), 1.0)


def are_shown(training: TrainingEvidence, estimate: NoiseEstimate) -> bool:
    """Whether both tests of an audit reject that no label is wrong; the second is made where the first rejects."""
    if estimate.total_p >= SURE:
        return False
    static = family(training.data.n_classes, constant_shape(training.grid), "each")
    test = likelihood_ratio_test(training, None, static, PART_REPLICATES, 0, MIN_PART_REPLICATES)
    return presence_p(test.p_value, estimate.total_p, training) < SURE


def flag(training: TrainingEvidence, estimate: NoiseEstimate, *, may_name: bool) -> np.ndarray:
    """The labels that an audit of a table flags at 10 % false alarms: (rows, steps)."""
    data = training.data
    members = same_data(torch.ones(1, data.labels.shape[1]))
    posterior = posteriors(data, members, training.parameters)
    labels, probabilities = data.labels[0].numpy(), posterior[0].double().numpy()
    unused = np.empty(0)  # what an audit says of a label besides its flag
    audit = LabelAudit(
        classes=np.arange(probabilities.shape[-1]),
        labels=labels,
        clock=unused,
        mask=data.mask.numpy(),
        probabilities=probabilities,
        signal=unused,
        error_rates=unused,
        fdr=FDR,
        may_name=may_name,
        false_alarms=estimate.false_alarms,
    )
    return audit.is_issue


def _mixed_rate(rate: float) -> np.ndarray:
    """Error rates of a large population of people whose logits are normal."""
    if not rate:
        return np.zeros(1)
    draws = np.random.default_rng(0).standard_normal(100_000)
    rates: np.ndarray = expit(np.log(rate / (1 - rate)) + PEOPLE_DIFFER * draws)
    return rates
