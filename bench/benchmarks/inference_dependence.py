"""Size and power of the tests of change where windows of one person depend on each other.

Part `dependence` of inference.py. A cell is a number of people, a dependence of their windows, a kind of study and
whether the noise changes. Its record is one JSON line with the p-values of all its studies, null where the test says
that it cannot be told. Cells run in several processes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

import labeltide as lt
from labeltide._clock import Cells
from labeltide.chain.data import ChainData, TrainingEvidence
from labeltide.chain.families import Family, constant_shape, family, hold_annotator, pooled, sum_shape
from labeltide.inference.budget import coarsen
from labeltide.inference.change import ChangeTest, change_test
from labeltide.inference.cluster_bootstrap import free_family, free_of
from labeltide.inference.likelihood_ratio import likelihood_ratio_test
from labeltide.inference.temporality import TEST_SMOOTHNESS, WEAK_POOLING, hold_class
from labeltide_bench.simulated import Differences, SimulatedStudy, fit_studies, record_windows, simulate

WINDOWS = {5: 32, 10: 16, 20: 8, 50: 4}  # of each person, by the number of people
DEPENDENCE = {
    "nothing": Differences(),
    "people's level": Differences(people=1.0),
    "windows' level": Differences(windows=1.0),
    "correlated by .5": Differences(windows=1.0, correlation=0.5),
    "correlated by .8": Differences(windows=1.0, correlation=0.8),
    "correlated by .95": Differences(windows=1.0, correlation=0.95),
}
KINDS = ("one clock", "two clocks", "three annotators")
SETTINGS = {"persistence": {"stay": 0.95, "sharpness": 1.0}, "features": {"stay": None, "sharpness": 3.0}}
RATE, DRIFT = 0.2, 0.636  # share of wrong labels; on the logit scale, from 15 to 25 %
STEPS, MOMENTS = 30, 6  # of a window; of the clock within a window, where there are two clocks
REPLICATES = 99  # of a test
COMPARED = 20  # people of studies that are also tested as if their windows were independent
AT_ONCE = 10  # studies that are fitted together


class Cell(NamedTuple):
    """Studies of one kind."""

    kind: str
    people: int
    dependence: str
    changes: bool


def dependence(studies: int = 40, processes: int = 1) -> Iterator[dict[str, Any]]:
    """Is noise called temporal that is not, or not called temporal that is, where windows depend on each other?"""
    cells = [Cell(*cell) for cell in product(KINDS, WINDOWS, DEPENDENCE, (False, True))]
    batches = [(cell, first, min(AT_ONCE, studies - first)) for cell in cells for first in range(0, studies, AT_ONCE)]
    found: dict[Cell, list[dict[str, ChangeTest]]] = {cell: [] for cell in cells}
    with multiprocessing.get_context("spawn").Pool(processes, partial(torch.set_num_threads, 1)) as pool:
        for (cell, *_), tests in zip(batches, pool.imap(run_batch, batches), strict=True):
            found[cell] += tests
    for cell, tests in found.items():
        yield {**cell._asdict(), "tests": {name: _columns([test[name] for test in tests]) for name in tests[0]}}


def _columns(tests: list[ChangeTest]) -> dict[str, Any]:
    methods = [test.method for test in tests]
    p_values = [None if np.isnan(test.p_value) else round(test.p_value, 4) for test in tests]
    return {"methods": {name: methods.count(name) for name in sorted(set(methods))}, "p_values": p_values}


def run_batch(batch: tuple[Cell, int, int]) -> list[dict[str, ChangeTest]]:
    """The tests of some studies of a cell; half of the batches have persistent labels, half have strong features."""
    cell, first, count = batch
    setting = list(SETTINGS)[first // AT_ONCE % 2]
    place = (KINDS.index(cell.kind), cell.people, list(DEPENDENCE).index(cell.dependence), cell.changes)
    # The last number marks draws that were not looked at while the tests were developed.
    seed = int(np.random.SeedSequence([*map(int, place), first, 1]).generate_state(1)[0]) // 2
    annotators = 3 if cell.kind == "three annotators" else 1
    static = lt.make_noise("static", 2, STEPS, RATE).at(np.linspace(0, 1, STEPS))
    rows = cell.people * WINDOWS[cell.people]
    study = SimulatedStudy(np.stack([static] * annotators), rows, **SETTINGS[setting])
    drift = DRIFT * cell.changes
    differences = DEPENDENCE[cell.dependence]._replace(drift=(drift, 0.0, 0.0) if annotators == 3 else (drift,))
    data, whose = record_windows(simulate(study, count, seed), cell.people, RATE, differences, seed + 1)
    tests = {"one clock": _one_clock, "two clocks": _two_clocks, "three annotators": _annotators}[cell.kind]
    return [tests(training._replace(clusters=whose), seed + k) for k, training in enumerate(_fits(cell.kind, data))]


def _fits(kind: str, data: ChainData) -> Iterator[TrainingEvidence]:
    grid = None
    if kind == "two clocks":
        cells = Cells((np.linspace(0, 1, data.n_points // STEPS), np.linspace(0, 1, MOMENTS)), (None, None))
        window, step = data.places() // STEPS, data.places() % STEPS
        grid = cells.grid
        data = replace(data, points=window * MOMENTS + step * MOMENTS // STEPS, n_points=len(grid))
    for training, _ in fit_studies(data, choose=False, grid=grid):
        yield training if kind == "two clocks" else coarsen(training)


def _families(training: TrainingEvidence) -> tuple[Family, Family]:
    static = family(2, constant_shape(training.grid), "each")
    return static, free_family(2, training.grid, TEST_SMOOTHNESS)


def _one_clock(training: TrainingEvidence, seed: int) -> dict[str, ChangeTest]:
    static, free = _families(training)
    tests = {
        "noise": change_test(training, static, free, REPLICATES, seed),
        "noise of one class": change_test(training, hold_class(free, 0), free, REPLICATES, seed),
    }
    people = int(training.clusters.max()) + 1 if training.clusters is not None else 0
    if people == COMPARED:
        by_rows = change_test(training._replace(clusters=None), static, free, REPLICATES, seed)
        drawn = likelihood_ratio_test(training, static, free, REPLICATES, seed)
        tests |= {
            "noise by rows, for comparison": by_rows,
            "noise by parametric bootstrap, for comparison": ChangeTest(*drawn, "bootstrap", len(training.data.mask)),
        }
    return tests


def _two_clocks(training: TrainingEvidence, seed: int) -> dict[str, ChangeTest]:
    """The first clock runs over a person's windows, the second within each; only the first may have an effect."""
    smooth = TEST_SMOOTHNESS
    both, second, first = (
        free_of(2, sum_shape(training.grid, smoothness, None))
        for smoothness in ((smooth, smooth), (None, smooth), (smooth, None))
    )
    return {
        "over the windows": change_test(training, second, both, REPLICATES, seed, clock=0),
        "within a window, which never changes": change_test(training, first, both, REPLICATES, seed, clock=1),
    }


def _annotators(training: TrainingEvidence, seed: int) -> dict[str, ChangeTest]:
    """Only the first annotator may change."""
    static, free = (pooled(one, WEAK_POOLING) for one in _families(training))
    return {
        "noise of all": change_test(training, static, free, REPLICATES, seed),
        "the first annotator": change_test(training, hold_annotator(free, 0), free, REPLICATES, seed),
        "the second annotator, who never changes": change_test(
            training, hold_annotator(free, 1), free, REPLICATES, seed
        ),
    }
