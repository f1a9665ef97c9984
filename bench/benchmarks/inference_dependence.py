"""Size and power of the tests of change where windows of one person depend on each other.

Part `dependence` of inference.py. A cell is a number of people, a dependence of their windows, a kind of study and
whether the noise changes. Its record is one JSON line with the p-values of all its studies, null where the test says
that it cannot be told. The evidence is drawn, EM starts at the true chain without bursts, and the null models of all
studies of a batch are fitted as one fleet of chains. Cells run in several processes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

import labeltide as lt
from inference_dependence_page import COMPARISON, MOST, called
from labeltide._clock import Cells
from labeltide.chain.families import Family, constant_shape, family, hold_annotator, hold_class, pooled, sum_shape
from labeltide.chain.passes import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.inference.bootstrap import GRID_POINTS, free_family, free_of, likelihood_ratio_test
from labeltide.inference.score_tests import (
    ChangeTest,
    change_tests,
    clock_moments,
    fit_nulls,
    score_test,
    study_design,
    tested_labels,
)
from labeltide.inference.temporality import TEST_SMOOTHNESS, WEAK_POOLING
from labeltide_bench.simulated import Differences, SimulatedStudy, record_windows, simulate

WINDOWS = {5: 32, 10: 16, 20: 8, 50: 4}  # of each person, by the number of people
DEPENDENCE = {
    "nothing": Differences(),
    "windows' level": Differences(windows=1.0),
    "correlated by .5": Differences(windows=1.0, correlation=0.5),
    "correlated by .8": Differences(windows=1.0, correlation=0.8),
    "correlated by .95": Differences(windows=1.0, correlation=0.95),
}
KINDS = ("one clock", "two clocks", "three annotators")
SETTINGS = {"persistence": {"stay": 0.95, "sharpness": 1.0}, "features": {"stay": None, "sharpness": 3.0}}
RATE, DRIFT = 0.2, 0.636  # share of wrong labels; on the logit scale, from 15 to 25 %
STEPS, MOMENTS = 30, 6  # of a window; of the clock within a window, where there are two clocks
REPLICATES, SIMULATED = 99, 19  # of a score test, and of a parametric bootstrap test
COMPARED, COMPARED_STUDIES = 20, 10  # people of studies, some of which are also tested as if windows were independent
AT_ONCE = 75  # most studies that are fitted together
# Tests that are left out where nothing changes, and where something does.
SKIPPED = {False: ("the second annotator, who never changes",), True: ("within a window",)}
ITERATIONS = 12  # of EM for a null model from the true chain; 60 gave the same decision in 249 of 250 tests
POWER_SHARE = 3  # studies without a change for each one with a change
AGAIN = 500_000  # number of the first study of the other draws


class Cell(NamedTuple):
    """Studies of one kind."""

    kind: str
    people: int
    dependence: str
    changes: bool


class Question(NamedTuple):
    """A test of a null family against an alternative over one of the clocks."""

    null: Family
    alternative: Family
    clock: int = 0


class Batch(NamedTuple):
    """Studies of one cell that are fitted together."""

    cell: Cell
    setting: str
    first: int  # number of the first study of this setting
    count: int
    compare: bool


def dependence(studies: int = 40, processes: int = 1) -> Iterator[dict[str, Any]]:
    """Is noise called temporal that is not, or not called temporal that is, where windows depend on each other?"""
    cells = [Cell(*cell) for cell in product(KINDS, WINDOWS, DEPENDENCE, (False, True))]
    batches = [batch for cell in cells for batch in _batches(cell, studies)]
    found: dict[Cell, dict[str, list[ChangeTest]]] = {cell: {} for cell in cells}
    with multiprocessing.get_context("spawn").Pool(processes, partial(torch.set_num_threads, 1)) as pool:
        for batch, tests in zip(batches, pool.imap(run_batch, batches), strict=True):
            for name, results in tests.items():
                found[batch.cell].setdefault(name, []).extend(results)
    for cell, tests in found.items():
        yield {**cell._asdict(), "tests": {name: _columns(results) for name, results in tests.items()}}


def dependence_again(studies: int, processes: int, seen: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Other draws of the cells without a change in which more than 7 % were called: was that chance?"""
    del processes  # one cell in a hundred
    for record in seen:
        above = [name for name, test in record["tests"].items() if called(test["p_values"]) > MOST]
        if record["changes"] or not (above := [name for name in above if COMPARISON not in name]):
            continue
        cell = Cell(*(record[key] for key in Cell._fields))
        found: dict[str, list[ChangeTest]] = {name: [] for name in above}
        for batch in _batches(cell, studies, AGAIN):
            tests = run_batch(batch._replace(compare=False))
            for name in above:
                found[name].extend(tests[name])
        yield {**cell._asdict(), "tests": {name: _columns(results) for name, results in found.items()}}


def _batches(cell: Cell, studies: int, after: int = 0) -> Iterator[Batch]:
    count = studies // POWER_SHARE if cell.changes else studies
    compared = cell.kind == KINDS[0] and cell.people == COMPARED
    for setting in SETTINGS:
        for first in range(0, count // len(SETTINGS), AT_ONCE):
            size = min(AT_ONCE, count // len(SETTINGS) - first)
            yield Batch(cell, setting, after + first, size, compared and first == 0)


def _columns(tests: list[ChangeTest]) -> dict[str, Any]:
    methods = [test.method for test in tests]
    p_values = [None if np.isnan(test.p_value) else round(test.p_value, 4) for test in tests]
    return {"methods": {name: methods.count(name) for name in sorted(set(methods))}, "p_values": p_values}


def run_batch(batch: Batch) -> dict[str, list[ChangeTest]]:
    """The tests of some studies of a cell."""
    cell, setting, first, count, compare = batch
    number = (
        KINDS.index(cell.kind),
        cell.people,
        list(DEPENDENCE).index(cell.dependence),
        cell.changes,
        list(SETTINGS).index(setting),
    )
    # The last number marks draws that were not looked at while the tests were developed.
    seed = int(np.random.SeedSequence([*map(int, number), first, 3]).generate_state(1)[0]) // 2
    annotators = 3 if cell.kind == "three annotators" else 1
    static = lt.make_noise("static", 2, STEPS, RATE).at(np.linspace(0, 1, STEPS))
    rows = cell.people * WINDOWS[cell.people]
    study = SimulatedStudy(np.stack([static] * annotators), rows, **SETTINGS[setting])
    drift = DRIFT * cell.changes
    differences = DEPENDENCE[cell.dependence]._replace(drift=(drift, 0.0, 0.0) if annotators == 3 else (drift,))
    data, whose = record_windows(simulate(study, count, seed), cell.people, RATE, differences, seed + 1)
    data, grid = _on_cells(data) if cell.kind == "two clocks" else _on_coarse_grid(data)
    chain = true_chain(data, SETTINGS[setting]["stay"])
    folds = torch.zeros(1, rows, dtype=torch.int64)
    fits = [TrainingEvidence(data.of_fit(k), chain, folds, grid, whose) for k in range(count)]
    ask = {"one clock": _one_clock, "two clocks": _two_clocks, "three annotators": _annotators}[cell.kind]
    questions = {name: question for name, question in ask(grid).items() if name not in SKIPPED[cell.changes]}
    tests = {name: _test(data, fits, question, seed) for name, question in questions.items()}
    return tests | (_compare(data, fits[:COMPARED_STUDIES], questions["noise"], seed) if compare else {})


def true_chain(data: ChainData, stay: float | None) -> ChainParameters:
    """The chain that the labels were drawn from, at which EM of every test starts."""
    right = torch.eye(2) * (1 - 2 * RATE) + RATE
    transition = torch.full((1, 2, 2), 0.5) if stay is None else torch.tensor([[[stay, 1 - stay], [1 - stay, stay]]])
    matrices = right.expand(1, data.labels.shape[-1], data.n_points, 2, 2).clone()
    return ChainParameters(torch.full((1, 2), 0.5), transition, torch.ones(1), matrices)


def _on_coarse_grid(data: ChainData) -> tuple[ChainData, np.ndarray]:
    """Neighbouring points of the clock joined, as audits do before they test."""
    if data.n_points <= GRID_POINTS:
        return data, np.linspace(0, 1, data.n_points)
    points = data.grid_index() * GRID_POINTS // data.n_points
    return replace(data, points=points, n_points=GRID_POINTS), (np.arange(GRID_POINTS) + 0.5) / GRID_POINTS


def _on_cells(data: ChainData) -> tuple[ChainData, np.ndarray]:
    """Two clocks: one runs over the windows of a person, the other within each window."""
    cells = Cells((np.linspace(0, 1, data.n_points // STEPS), np.linspace(0, 1, MOMENTS)), (None, None))
    window, step = data.grid_index() // STEPS, data.grid_index() % STEPS
    points = window * MOMENTS + step * MOMENTS // STEPS
    return replace(data, points=points, n_points=len(cells.grid)), cells.grid


def _test(data: ChainData, fits: Sequence[TrainingEvidence], question: Question, seed: int) -> list[ChangeTest]:
    """One test of all studies; score tests fit their nulls together."""
    null, alternative, clock = question
    moments = clock_moments(fits[0], clock)
    design = study_design(fits[0], moments, tested_labels(fits[0], null))
    if design.method in ("bootstrap", "none"):
        return [
            change_tests(fit, {seed + k: null}, alternative, SIMULATED, clock=clock)[0] for k, fit in enumerate(fits)
        ]
    each = torch.arange(len(fits))  # the first sets of labels and evidence
    members = Members(each, each, torch.ones(len(fits), len(data.mask)))
    nulls = fit_nulls(fits[0]._replace(data=data), [null] * len(fits), members, ITERATIONS)
    return [
        score_test(fitted, moments, design, null, alternative, REPLICATES, seed + k) for k, fitted in enumerate(nulls)
    ]


def _compare(
    data: ChainData, fits: Sequence[TrainingEvidence], question: Question, seed: int
) -> dict[str, list[ChangeTest]]:
    """The same studies tested as if windows were independent."""
    n = len(data.mask)
    drawn = [likelihood_ratio_test(fit, *question[:2], SIMULATED, seed + k) for k, fit in enumerate(fits)]
    return {
        "noise by rows, for comparison": _test(data, [fit._replace(clusters=None) for fit in fits], question, seed),
        "noise by parametric bootstrap, for comparison": [test._replace(n_units=n) for test in drawn],
    }


def _families(grid: np.ndarray) -> tuple[Family, Family]:
    return family(2, constant_shape(grid), "each"), free_family(2, grid, TEST_SMOOTHNESS)


def _one_clock(grid: np.ndarray) -> dict[str, Question]:
    static, free = _families(grid)
    return {"noise": Question(static, free), "noise of one class": Question(hold_class(free, 0), free)}


def _two_clocks(grid: np.ndarray) -> dict[str, Question]:
    """The first clock runs over a person's windows, the second within each; only the first may have an effect."""
    smooth = TEST_SMOOTHNESS
    both, second, first = (
        free_of(2, sum_shape(grid, smoothness, None))
        for smoothness in ((smooth, smooth), (None, smooth), (smooth, None))
    )
    return {"over the windows": Question(second, both), "within a window": Question(first, both, 1)}


def _annotators(grid: np.ndarray) -> dict[str, Question]:
    """Only the first annotator may change."""
    static, free = (pooled(one, WEAK_POOLING) for one in _families(grid))
    return {
        "noise of all": Question(static, free),
        "the first annotator": Question(hold_annotator(free, 0), free),
        "the second annotator, who never changes": Question(hold_annotator(free, 1), free),
    }
