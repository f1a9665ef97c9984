"""Claims under stress: what an audit says of studies whose truth is known, many of them built to mislead it.

    python bench/benchmarks/claims.py stress --seeds 2                  # every study of STUDIES, seeds 0 and 1
    python bench/benchmarks/claims.py "protocol study" tiny --seeds 100 # some studies, which are matched by their names
    python bench/benchmarks/claims.py alone --data DATA                 # the labels without signals: alone.md
    python bench/benchmarks/claims.py page                              # the page from the records

Records are added to bench/results/claims/claims.jsonl; what is there already is not run again. A claim is wrong where
noise is said to be shown and its interval misses the true share of wrong labels, where it is said not to be shown and
the true share lies above the interval, or where more of the named labels are right than chance gives at the allowed
share of false alarms. Labels that are said to be late or early have no share.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.stats import binom

import labeltide as lt
from labeltide.auditing import fitting
from labeltide.auditing.checks import check_copies, check_leaks, clusters_of_copies, leave_out_rare_classes
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.format import Clock, View, terminal_text
from labeltide.auditing.page.verdict import shape_words
from labeltide.chain.em import flat_chain
from labeltide.chain.passes import ChainData, TrainingEvidence
from labeltide.inference.checks import share_alone
from labeltide.inference.conclusion import Diagnostic
from labeltide_bench.tables import read_audit_table
from shifts import load

RESULTS = Path(__file__).parents[1] / "results" / "claims"
FDR, CHANCE = 0.1, 0.01  # allowed false alarms among named labels, and how rarely chance may exceed them
CHECKS_FIRST = ("protocol study",)  # studies in which the checks are expected to deny an answer, to save time
UNSEEN = 0.01  # share of wrong labels above the interval's upper end that "not shown" may miss
LONGEST = 300  # characters of an audit's own words


class Study(NamedTuple):
    """A table with one row per step, and the true class of each row."""

    table: pd.DataFrame
    truth: np.ndarray  # of class names


def draw(
    seed: int,
    *,
    rate: float = 0.2,
    classes: int = 2,
    people: int = 30,
    steps: int = 40,
    separation: float = 1.5,
    stay: float = 0.9,
    features: int = 4,
) -> Study:
    """Classes that persist, features that tell them apart, and a share of labels replaced by another class."""
    random = np.random.default_rng(seed)
    true = random.integers(classes, size=(people, steps))
    for step in range(1, steps):
        kept = random.random(people) < stay
        true[kept, step] = true[kept, step - 1]
    centres = random.normal(size=(classes, features))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    signal = centres[true] + random.normal(size=(people, steps, features))
    wrong = random.random((people, steps)) < rate
    recorded = np.where(wrong, (true + random.integers(1, classes, size=true.shape)) % classes, true)
    return tabulate(signal, recorded, true)


def tabulate(signal: np.ndarray, recorded: np.ndarray, true: np.ndarray) -> Study:
    """The arrays (people, steps, ...) as a table."""
    people, steps, features = signal.shape
    names = np.array([f"c{code}" for code in range(max(recorded.max(), true.max()) + 1)])
    columns: dict[str, Any] = {
        "person": np.repeat([f"p{number}" for number in range(people)], steps),
        "time": np.tile(np.arange(steps), people),
        **{f"x{number}": signal[..., number].ravel() for number in range(features)},
        "label": names[recorded.ravel()],
    }
    return Study(pd.DataFrame(columns), names[true.ravel()])


def protocol(seed: int) -> Study:
    """Three classes in blocks at fixed moments, labels right by design, features weak beside how people differ.

    In every second study the borders of blocks lie up to two steps earlier or later from person to person.
    """
    random = np.random.default_rng([seed, 1])
    people, steps = 12, 45
    borders = np.array([15, 30]) + random.integers(-2, 3, size=(people, 2)) * (seed % 2)
    true = (np.arange(steps) >= borders[:, :1]).astype(int) + (np.arange(steps) >= borders[:, 1:])
    person = random.normal(size=(people, 1, 4)) * 1.5
    drift = np.cumsum(random.normal(size=(people, steps, 4)) * 0.3, axis=1)
    centres = random.normal(size=(3, 4)) * 0.8
    return tabulate(centres[true] + person + drift + random.normal(size=(people, steps, 4)) * 0.5, true, true)


def tiny(seed: int) -> Study:
    """720 right labels of two classes, and three stray labels of a third."""
    study = draw(seed, rate=0.0, people=18, separation=2.0)
    indices = np.random.default_rng([seed, 2]).choice(len(study.table), 3, replace=False)
    study.table.loc[indices, "label"] = "c2"
    return study


def copies(seed: int) -> Study:
    """Every recording under two ids."""
    study = draw(seed, rate=0.25, people=15)
    twin = study.table.assign(person=study.table["person"] + " again")
    return Study(pd.concat([study.table, twin], ignore_index=True), np.tile(study.truth, 2))


def identical(seed: int) -> Study:
    """Forty ids with the features of one recording, and labels of their own."""
    one = draw(seed, rate=0.0, people=1)
    random, steps = np.random.default_rng([seed, 3]), len(one.table)
    table = pd.concat([one.table.assign(person=f"p{number}") for number in range(40)], ignore_index=True)
    truth = np.tile(one.truth, 40)
    wrong = random.random(40 * steps) < 0.2
    table["label"] = np.where(wrong, np.where(truth == "c0", "c1", "c0"), truth)
    return Study(table, truth)


def leaking(seed: int, shift: int = 0) -> Study:
    """A column that copies the recorded label with a jitter of .05, perhaps of the row before."""
    study = draw(seed, rate=0.25)
    codes = (study.table["label"] == "c1").astype(float).to_numpy()
    jitter = np.random.default_rng([seed, 4]).normal(size=len(codes)) * 0.05
    study.table["leak"] = np.roll(codes, shift) + jitter
    return study


def scaled(seed: int, factor: float) -> Study:
    """Features times a factor."""
    study = draw(seed)
    for name in ("x0", "x1", "x2", "x3"):
        study.table[name] *= factor
    return study


def constant(seed: int) -> Study:
    """One column never changes."""
    study = draw(seed)
    study.table["x9"] = 3.0
    return study


def missing(seed: int) -> Study:
    """Labels of one step in fifty."""
    study = draw(seed, people=60)
    hidden = np.random.default_rng([seed, 5]).random(len(study.table)) > 0.02
    study.table.loc[hidden, "label"] = None
    return study


def few(seed: int, labels: int) -> Study:
    """20 % of two classes wrong, and a few labels of a third class that are right."""
    study = draw(seed, rate=0.2, people=40)
    indices = np.random.default_rng([seed, 6]).choice(len(study.table), labels, replace=False)
    study.table.loc[indices, "label"] = "c2"
    return study


# Studies in which label and signal disagree for many reasons, with 60 people, 100 steps and three classes. Most of them
# were found by people who tried to mislead an audit. Names begin with "clean" where every label is right, and with
# "wrong" where labels are wrong in another way than single steps at random.

PEOPLE, STEPS, CLASSES, FEATURES = 60, 100, 3, 4


class Arrays(NamedTuple):
    """A study as arrays of people and steps, before labels or signals are spoiled."""

    random: np.random.Generator
    true: np.ndarray  # (people, steps)
    centres: np.ndarray  # (classes, features)
    signal: np.ndarray  # (people, steps, features)


def arrays(seed: int, kind: int, *, stay: float = 0.95, separation: float = 4.0, people: int = PEOPLE) -> Arrays:
    """Three classes that persist and their signals."""
    random = np.random.default_rng([seed, 100 + kind])
    true = random.integers(CLASSES, size=(people, STEPS))
    for step in range(1, STEPS):
        kept = random.random(people) < stay
        true[kept, step] = true[kept, step - 1]
    centres = random.normal(size=(CLASSES, FEATURES))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    return Arrays(random, true, centres, centres[true] + random.normal(size=(people, STEPS, FEATURES)))


def other_class(random: np.random.Generator, codes: np.ndarray) -> np.ndarray:
    """Another class for each."""
    return (codes + random.integers(1, CLASSES, size=codes.shape)) % CLASSES


def in_runs(random: np.random.Generator, shape: tuple[int, int], share: float, length: int) -> np.ndarray:
    """Runs of steps that make up about a share of all: the number of the run of each step, 0 outside."""
    runs = np.zeros(shape, dtype=int)
    for number in range(1, 1 + round(share * shape[0] * shape[1] / length)):
        person, first = random.integers(shape[0]), random.integers(shape[1] - length)
        runs[person, first : first + random.integers(length // 2 + 1, length * 2)] = number
    return runs


def aleatoric(seed: int) -> Study:
    """The signal gives the class with a probability of three quarters, and classes do not persist."""
    random, true, centres, _ = arrays(seed, 1, stay=0.0)
    seen = np.where(random.random(true.shape) < 0.75, true, other_class(random, true))
    return tabulate(2 * centres[seen] + random.normal(size=(*true.shape, FEATURES)), true, true)


def artefacts(seed: int, share: float = 0.08, length: int = 6) -> Study:
    """Runs of steps whose signal looks like another class."""
    random, true, centres, signal = arrays(seed, 2)
    runs = in_runs(random, true.shape, share, length)
    looks = ((true + 1 + runs % 2) % CLASSES)[..., None]
    moved = signal + np.where(runs[..., None] > 0, centres[looks[..., 0]] - centres[true], 0.0)
    return tabulate(moved, true, true)


def detector(seed: int) -> Study:
    """The output of another detector, wrong in runs, is one of the features."""
    random, true, _, signal = arrays(seed, 3, separation=2.0)
    runs = in_runs(random, true.shape, 0.1, 6)
    output = np.where(runs > 0, (true + 1 + runs % 2) % CLASSES, true)
    return tabulate(np.concatenate([signal, 2.0 * np.eye(CLASSES)[output]], -1), true, true)


def heavy_tails(seed: int) -> Study:
    """Noise of the signals with heavy tails."""
    random, true, centres, _ = arrays(seed, 4)
    return tabulate(centres[true] + random.standard_t(1.5, size=(*true.shape, FEATURES)), true, true)


def brief_events(seed: int, seen: bool) -> Study:
    """Single steps of another class that are true, with or without a signal of their own."""
    random, true, centres, signal = arrays(seed, 5 + seen)
    event = random.random(true.shape) < 0.06
    event[:, 1:] &= ~event[:, :-1]
    after = np.where(event, other_class(random, true), true)
    if seen:
        signal = signal + centres[after] - centres[true]
    return tabulate(signal, after, after)


def fixed_durations(seed: int) -> Study:
    """Every class lasts about as long as it always does."""
    random, true, centres, signal = arrays(seed, 7)
    for person in range(len(true)):
        code, step = random.integers(CLASSES), 0
        while step < STEPS:
            length = (3, 8, 20)[code] + random.integers(-1, 2)
            true[person, step : step + length] = code
            step, code = step + length, (code + random.integers(1, CLASSES)) % CLASSES
    signal = centres[true] + random.normal(size=signal.shape)
    return tabulate(signal, true, true)


def one_long(seed: int) -> Study:
    """One long clean recording whose signals drift."""
    random, true, _, signal = arrays(seed, 8)
    drift = np.linspace(0, 2, true.size)[:, None] * random.normal(size=FEATURES)
    return tabulate(signal.reshape(1, -1, FEATURES) + drift, true.reshape(1, -1), true.reshape(1, -1))


def gain(seed: int) -> Study:
    """Signals whose gain decays to a third."""
    _, true, _, signal = arrays(seed, 9)
    return tabulate(signal * np.linspace(1, 1 / 3, STEPS)[None, :, None], true, true)


def cycle(seed: int) -> Study:
    """60 % of the labels are one class further in a cycle."""
    random, true, _, signal = arrays(seed, 10)
    return tabulate(signal, np.where(random.random(true.shape) < 0.6, (true + 1) % CLASSES, true), true)


def late(seed: int, steps: int, stay: float = 0.95) -> Study:
    """Labels that are late by so many steps."""
    _, true, _, signal = arrays(seed, 11, stay=stay)
    recorded = np.concatenate([np.repeat(true[:, :1], steps, 1), true[:, :-steps]], 1)
    return tabulate(signal, recorded, true)


def random_labels(seed: int) -> Study:
    """Labels that persist and have nothing to do with the signals."""
    _, true, _, signal = arrays(seed, 12)
    return tabulate(signal, arrays(seed, 13).true, true)


def repeats(seed: int) -> Study:
    """An annotator who repeats the last label in 80 % of the steps at which the class changes."""
    random, true, _, signal = arrays(seed, 14, stay=0.8)
    recorded = true.copy()
    for step in range(1, STEPS):
        again = random.random(len(true)) < 0.8
        recorded[again, step] = recorded[again, step - 1]
    return tabulate(signal, recorded, true)


def by_signal(seed: int) -> Study:
    """Labels of steps whose signal lies in a region are changed to the same other class."""
    _, true, centres, signal = arrays(seed, 15)
    wrong = (true == 0) & (signal @ centres[0] > np.quantile((signal @ centres[0])[true == 0], 0.4))
    return tabulate(signal, np.where(wrong, 1, true), true)


def smoothed(seed: int) -> Study:
    """An annotator who gives each step the commonest class of the five around it."""
    _, true, _, signal = arrays(seed, 21, stay=0.7)
    around = np.pad(true, ((0, 0), (2, 2)), mode="edge")
    counts = np.stack([sum(around[:, k : k + STEPS] == code for k in range(5)) for code in range(CLASSES)], -1)
    return tabulate(signal, counts.argmax(-1), true)


def slow_features(seed: int) -> Study:
    """Signals that follow the classes slowly: a moving average of the last eight steps."""
    random, true, centres, _ = arrays(seed, 22)
    slow = np.stack([centres[np.pad(true, ((0, 0), (8, 0)), mode="edge")[:, 8 - k : 8 - k + STEPS]] for k in range(8)])
    return tabulate(slow.mean(0) + random.normal(size=(*true.shape, FEATURES)), true, true)


def by_region(seed: int) -> Study:
    """Labels are wrong with a chance of one half where the first signal is high."""
    random, true, _, signal = arrays(seed, 23)
    wrong = (signal[..., 0] > np.quantile(signal[..., 0], 0.6)) & (random.random(true.shape) < 0.5)
    return tabulate(signal, np.where(wrong, other_class(random, true), true), true)


def relabelled(seed: int) -> Study:
    """In a quarter of the recordings, two classes have exchanged their names."""
    _, true, _, signal = arrays(seed, 24)
    recorded = true.copy()
    recorded[: PEOPLE // 4] = np.array([1, 0, 2])[true[: PEOPLE // 4]]
    return tabulate(signal, recorded, true)


def swapped(seed: int) -> Study:
    """Labels of a fifth of the recordings belong to other recordings."""
    _, true, _, signal = arrays(seed, 16)
    recorded = true.copy()
    fifth = np.arange(PEOPLE // 5)
    recorded[fifth] = true[np.roll(fifth, 1)]
    return tabulate(signal, recorded, true)


def few_people(seed: int) -> Study:
    """Six people whose labels are all drawn by chance."""
    random, true, _, signal = arrays(seed, 17)
    recorded = true.copy()
    recorded[:6] = random.integers(CLASSES, size=recorded[:6].shape)
    return tabulate(signal, recorded, true)


def near_copies(seed: int) -> Study:
    """Every recording twice, the second scaled, shifted and rounded, with the same wrong labels."""
    random, true, _, signal = arrays(seed, 18, people=PEOPLE // 2)
    recorded = np.where(random.random(true.shape) < 0.25, other_class(random, true), true)
    twice = np.concatenate([signal, np.round(1.1 * signal + 0.3, 1)])
    return tabulate(twice, np.tile(recorded, (2, 1)), np.tile(true, (2, 1)))


def wrong_runs(seed: int) -> Study:
    """Runs of wrong labels under signals that are right."""
    random, true, _, signal = arrays(seed, 19)
    runs = in_runs(random, true.shape, 0.1, 6)
    return tabulate(signal, np.where(runs > 0, (true + 1 + runs % 2) % CLASSES, true), true)


def isolated(seed: int, share: float) -> Study:
    """Single labels wrong at random: what an audit is made for."""
    random, true, _, signal = arrays(seed, 20)
    return tabulate(signal, np.where(random.random(true.shape) < share, other_class(random, true), true), true)


# Errors whose rate changes over the clock: what the first line should call a step, a trend, a season and a bump.
LOW, HIGH = 0.02, 0.25
MOMENT = np.arange(STEPS) / STEPS
CHANGES = {
    "step": np.where(MOMENT < 0.6, LOW, HIGH),
    "trend": LOW + (HIGH - LOW) * MOMENT,
    "season": LOW + (HIGH - LOW) * (1 - np.cos(6 * np.pi * MOMENT)) / 2,
    "bump": LOW + (HIGH - LOW) * np.exp(-(((MOMENT - 0.4) / 0.1) ** 2)),
}


def changing(seed: int, shape: str, of_class: int | None = None) -> Study:
    """Isolated errors at a rate that changes over the clock, of one true class or of all."""
    random, true, _, signal = arrays(seed, 25)
    wrong = random.random(true.shape) < np.where((of_class is None) | (true == of_class), CHANGES[shape], 0.0)
    return tabulate(signal, np.where(wrong, other_class(random, true), true), true)


STUDIES: dict[str, Callable[[int], Study]] = {
    "sound, 20 % wrong": draw,
    "sound, none wrong": lambda seed: draw(seed, rate=0.0),
    "sound, 5 % wrong of three classes": lambda seed: draw(seed, rate=0.05, classes=3),
    "random labels of two classes": lambda seed: draw(seed, rate=0.5),
    "random labels of three classes": lambda seed: draw(seed, rate=2 / 3, classes=3),
    "60 % wrong of three classes": lambda seed: draw(seed, rate=0.6, classes=3),
    "70 % wrong of two classes": lambda seed: draw(seed, rate=0.7),
    "features that say nothing": lambda seed: draw(seed, separation=0.0, stay=0.0),
    "protocol study": protocol,
    "tiny class: three stray labels": tiny,
    "five stray labels, 20 % wrong": lambda seed: few(seed, 5),
    "every recording under two ids": copies,
    "forty identical sequences": identical,
    "a feature that copies the label, jitter .05": leaking,
    "a feature that copies the label of the row before": lambda seed: leaking(seed, 1),
    "features times 1e8": lambda seed: scaled(seed, 1e8),
    "features times 1e-8": lambda seed: scaled(seed, 1e-8),
    "features times 1e31": lambda seed: scaled(seed, 1e31),
    "features times 1e-300": lambda seed: scaled(seed, 1e-300),
    "a constant feature": constant,
    "500 features": lambda seed: draw(seed, features=500),
    "one step a sequence": lambda seed: draw(seed, people=600, steps=1),
    "labels nearly all missing": missing,
    "5,000 sequences of three steps": lambda seed: draw(seed, people=5000, steps=3),
    "one sequence of 100,000 steps": lambda seed: draw(seed, people=1, steps=100_000),
    "100 classes": lambda seed: draw(seed, classes=100, people=60),
    "clean: class not determined by the signal": aleatoric,
    "clean: runs of artefacts": artefacts,
    "clean: rare artefacts": lambda seed: artefacts(seed, 0.02, 3),
    "clean: another detector among the features": detector,
    "clean: heavy-tailed signals": heavy_tails,
    "clean: brief true events with a signal": lambda seed: brief_events(seed, True),
    "clean: brief true events without a signal": lambda seed: brief_events(seed, False),
    "clean: durations not geometric": fixed_durations,
    "clean: one long recording with drift": one_long,
    "clean: gain that decays": gain,
    "clean: slow signals": slow_features,
    "clean: nothing special": lambda seed: isolated(seed, 0.0),
    "wrong: 5 % isolated": lambda seed: isolated(seed, 0.05),
    "wrong: 25 % isolated": lambda seed: isolated(seed, 0.25),
    "wrong: 60 % in a cycle": cycle,
    "wrong: runs": wrong_runs,
    "wrong: late by 10": lambda seed: late(seed, 10),
    "wrong: late by 30": lambda seed: late(seed, 30),
    "wrong: late by 3, fast classes": lambda seed: late(seed, 3, 0.7),
    "wrong: random labels that persist": random_labels,
    "wrong: repeats the last label": repeats,
    "wrong: by the signal": by_signal,
    "wrong: smoothed": smoothed,
    "wrong: by a region of the signals": by_region,
    "wrong: two classes exchanged in a quarter of the recordings": relabelled,
    "wrong: a fifth of the recordings swapped": swapped,
    "wrong: a few people": few_people,
    "wrong: near copies of recordings": near_copies,
    **{f"shape: {shape}": partial(changing, shape=shape) for shape in CHANGES},
    "shape: step of one class": partial(changing, shape="step", of_class=1),
}


def deny(study: Study) -> str:
    """Why an audit says "cannot be told", from the checks alone, which outweigh all tests; "" where none denies it."""
    table = leave_out_rare_classes(read_audit_table(study.table))
    clusters = clusters_of_copies(table)
    checks: list[Diagnostic] = [*check_copies(table, clusters), *check_leaks(table)]
    windows = fitting.choose_windows(table, 0)
    fitted = fitting.fit(table, windows, clusters[table.groups], AuditOptions(device="cpu"))
    checks += fitting.with_class_names(fitted, table).diagnostics_
    return next((check.sentence for check in checks if check.is_warning and check.denies), "")


def ask(study: Study, *, checks_first: bool = False) -> dict[str, Any]:
    """What an audit says of a study, beside the truth; where the checks deny an answer, tests need not be made."""
    started = time.monotonic()
    recorded = study.table["label"].to_numpy()
    known = pd.notna(recorded)
    record: dict[str, Any] = {"truth": float((recorded != study.truth)[known].mean())}
    denied = deny(study) if checks_first else ""
    if denied:
        seconds = time.monotonic() - started
        return record | {
            "noise": "cannot be told",
            "summary": f"cannot be estimated. {denied}"[:LONGEST],
            "seconds": seconds,
        }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            audit = lt.audit(study.table)
    except ValueError as error:
        return record | {"noise": "refused", "summary": str(error)[:LONGEST], "seconds": time.monotonic() - started}
    summary, labels = audit.summary, audit.labels.to_pandas()
    noise, conclusion = summary["noise"], summary["conclusion"]
    named, corrected = labels["is_issue"].to_numpy(), (labels["corrected"] != labels["recorded"]).to_numpy() & known
    return record | {
        "rate": noise["rate"],
        "lower": noise["rate_lower"],
        "upper": noise["rate_upper"],
        "is_noisy_p": summary["temporality"]["is_noisy_p"],
        "change_p": summary["temporality"]["p_value"],
        "noise": conclusion["noise"]["answer"],
        "change": conclusion["changes"][0]["answer"],
        "shifted": bool(summary["table"]["shifts"]["is_shifted"]),
        "named": int(named.sum()),
        "named right": int((named & (recorded == study.truth)).sum()),
        "corrected": int(corrected.sum()),
        "corrected wrongly": int((corrected & (labels["corrected"].to_numpy() != study.truth)).sum()),
        "warned": [check["name"] for check in summary["diagnostics"] if check["is_warning"]],
        "bouts": describe_bouts(study, summary["issues"]["bouts"]),
        "when": [line for line in str(audit).split("\n") if line.startswith(("Worst", "Over time"))],
        "curve": [[round(each, 4) for each in values] for values in (noise["clock"], noise["curves"][0]["rate"])],
        "class curves": [[round(each, 4) for each in values] for values in noise["curves"][0]["class_rate"]],
        "families": {name: round(weight, 3) for name, weight in audit.estimator.families_.items() if weight > 0.02},
        "summary": say(str(audit)).replace("\N{NO-BREAK SPACE}", " ")[:LONGEST],
        "seconds": time.monotonic() - started,
    }


def describe_bouts(study: Study, found: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Bouts of each class: true, recorded and corrected."""
    person = study.table["person"].to_numpy()
    begins = np.append(True, (study.truth[1:] != study.truth[:-1]) | (person[1:] != person[:-1]))
    true = {
        str(name): int(number) for name, number in zip(*np.unique(study.truth[begins], return_counts=True), strict=True)
    }
    return {each["class"]: [true.get(each["class"], 0), each["recorded"], each["corrected"]] for each in found}


def say(words: str) -> str:
    """The lines of an audit's text that say what is wrong and when."""
    lines = [line for line in words.split("\n") if line.startswith(("Wrong", "Timing"))]
    return "; ".join(line[11:] for line in sorted(lines))


def is_wrong(record: dict[str, Any]) -> bool:
    """Whether a claim is confident and wrong."""
    if record["noise"] in ("cannot be told", "refused"):
        return False
    if record["noise"] == "not shown" and not record.get("shifted"):
        return bool(record["truth"] > record["upper"] + UNSEEN)
    missed = record["noise"] == "shown" and not record["lower"] <= record["truth"] <= record["upper"]
    false = binom.sf(record["named right"] - 1, record["named"], FDR) < CHANCE if record["named"] else False
    return bool(missed or false)


# What audits said before the checks of 2026-11-18, of studies drawn by others from the same descriptions.
BEFORE = {
    "clean: class not determined by the signal": "25 % (22 to 27), named",
    "clean: runs of artefacts": "7 to 10 %, named",
    "clean: rare artefacts": "1 to 6 %, named",
    "clean: another detector among the features": "9 to 10 %, named",
    "clean: heavy-tailed signals": "1 to 6 %, named",
    "clean: brief true events with a signal": "5 to 8 %, named",
    "clean: brief true events without a signal": "5 to 8 %, named",
    "clean: durations not geometric": "3 %, named",
    "clean: one long recording with drift": "2 to 3 %, named",
    "clean: gain that decays": "2 to 3 %, named",
    "clean: slow signals": "1 to 6 %, named",
    "wrong: 60 % in a cycle": "40 %, 2,378 named, of which 1 % wrong",
    "wrong: late by 10": "no clear sign (28 % wrong)",
    "wrong: late by 30": "no clear sign (47 % wrong)",
    "wrong: late by 3, fast classes": "no clear sign (44 % wrong)",
    "wrong: random labels that persist": "no clear sign (66 % wrong)",
    "wrong: repeats the last label": "no clear sign (20 % wrong)",
    "wrong: smoothed": "no clear sign (9 % wrong)",
    "wrong: by the signal": "no clear sign (19 to 33 % wrong)",
    "wrong: by a region of the signals": "no clear sign (19 to 33 % wrong)",
    "wrong: two classes exchanged in a quarter of the recordings": "no clear sign (19 to 33 % wrong)",
    "wrong: a fifth of the recordings swapped": "no clear sign (23 % wrong)",
    "wrong: a few people": "no clear sign, up to 13.5 % (10 % wrong)",
    "wrong: near copies of recordings": "13 to 20 % (25 % wrong)",
}


def write_page(records: list[dict[str, Any]], folder: Path) -> None:
    """The table of all studies, from their records."""
    lines = [
        "# Claims under stress",
        "",
        "Made by `bench/benchmarks/claims.py` from `claims.jsonl`. Each line is a kind of study with known truth; most",
        "were built to mislead an audit. A claim is wrong where noise is said to be shown and its 95 % interval misses",
        "the true share, where it is said not to be shown and the true share lies a point or more above the interval,",
        "or where significantly more than 10 % of the named labels are right. Of sound studies about one interval in",
        "twenty misses. An audit that cannot estimate the share lists only runs in which labels and signals disagree,",
        "and does not call them wrong. *Before*: answers before the checks of 2026-11-18.",
        "bench/results/README.md gives the version of each record.",
        "",
        "| study | studies | truth | shown | not shown | not estimable | wrong claims | listed (right) | before "
        "| first line of seed 0 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    for name in [name for name in STUDIES if any(record["study"] == name for record in records)]:
        of_name = [record for record in records if record["study"] == name]
        of_name.sort(key=lambda record: record["seed"])
        answers = [record["noise"] for record in of_name]
        counts = [answers.count("shown"), answers.count("not shown"), len(answers)]
        counts[2] -= sum(counts[:2])
        truth = 100 * np.mean([record["truth"] for record in of_name])
        listed, right = (sum(record.get(key) or 0 for record in of_name) for key in ("named", "named right"))
        numbers = " | ".join([*map(str, counts), str(sum(map(is_wrong, of_name)))])
        shown = f"{listed:,} ({right / listed:.0%})" if listed else "0"
        summary = stored_summary(of_name[0]).replace("|", "/")
        cells = [name, str(len(of_name)), f"{truth:.1f} %", numbers, shown, BEFORE.get(name, ""), summary]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "70 % wrong of two classes fits as well as 30 % with the names exchanged. No data tell them apart; the page",
        "states the assumption that each class is right more often than not.",
        "",
        *say_false_alarms([record for record in records if record["study"] == "one step a sequence"]),
    ]
    lines += say_shapes([record for record in records if record["study"].startswith("shape")])
    (folder / "README.md").write_text("\n".join(lines) + "\n")


def stored_summary(record: dict[str, Any]) -> str:
    """An audit in its own words; earlier records have them under another name."""
    return str(record.get("summary", record.get("said")))


def say_false_alarms(records: list[dict[str, Any]]) -> list[str]:
    """The false discovery rate (Benjamini and Hochberg 1995) of studies with one step a sequence, in words."""
    shown = [record for record in records if record["noise"] == "shown"]
    rate = np.mean([record["named right"] / max(record["named"], 1) for record in shown]) if shown else 0.0
    return [
        "With one step a sequence nothing but features tells how many labels are wrong. The false discovery rate, the",
        f"mean share of right labels among the named ones, is {100 * rate:.0f} % over the studies of this kind.",
    ]


def say_shapes(records: list[dict[str, Any]]) -> list[str]:
    """What audits say of the form of a change over the clock, one line for each study."""
    lines = ["", "Rates that change over the clock, from 2 to 25 % (a step at 60 %, three waves, a bump at 40 %):", ""]
    for record in sorted(records, key=lambda record: (record["study"], record["seed"])):
        worst = next((line[11:] for line in record["when"] if line.startswith("Worst")), stored_summary(record))
        lines.append(f"- {record['study']}, seed {record['seed']}: {worst.replace(chr(160), ' ')}")
    return lines if records else []


class Short(lt.TideClassifier):
    """Without the last ensemble, which judges no label."""

    distils = False


def write_forms(seeds: int, file: Path) -> None:
    """What a fit says of the form of a change, without bands and tests: one line for each study and seed."""
    lines = [
        "# The form of a change over the clock",
        "",
        f"Made by `python bench/benchmarks/claims.py forms --seeds {seeds}`: words of the first lines of an audit,",
        "from the curves of a fit alone. Rates go from 2 to 25 %: a step at 60 %, a trend, three waves (the first",
        "highest at 17 %), a bump at 40 %, and a step in one class.",
        "Whether classes differ, which an audit tests, is given here. The wording of waves was chosen on these seeds:",
        "the highest of three equal peaks differed from seed to seed, the first one does not.",
        "",
    ]
    for name in [name for name in STUDIES if name.startswith("shape")]:
        for seed in range(seeds):
            study = STUDIES[name](seed)
            columns = [f"x{number}" for number in range(FEATURES)]
            X = study.table[columns].to_numpy().reshape(PEOPLE, STEPS, FEATURES)
            y = study.table["label"].to_numpy().reshape(PEOPLE, STEPS)
            fit = Short(hidden_size=32, epochs=60, align=False, random_state=0).fit(X, y)
            moments = np.linspace(0, 1, STEPS)
            rates = 1 - np.diagonal(fit.noise_.at(moments), axis1=-2, axis2=-1)  # (steps, classes)
            noise = {
                "clock": moments.tolist(),
                "steps": sum(each.weight for each in fit.training_.families if each.kind == "pieces"),
                "curves": [{"rate": rates.mean(-1).tolist(), "class_rate": rates.T.tolist()}],
            }
            test = {"classes_differ_p": 0.01 if name.endswith("class") else 0.5}
            audit = {"noise": noise, "temporality": test, "table": {"classes": fit.classes_.tolist()}}
            words = shape_words(View(audit, Clock("position", "position", None, None), "", 0))
            lines.append(f"- {name[7:]}, seed {seed}: {terminal_text(words)}".replace("\N{NO-BREAK SPACE}", " "))
    file.write_text("\n".join(lines) + "\n")


def write_alone(data: Path, file: Path) -> None:
    """The share of wrong labels by the labels alone: of simulated kinds, and of recordings as published."""
    lines = [
        "# The share of wrong labels by the labels alone",
        "",
        "Made by `python bench/benchmarks/claims.py alone --data DATA`: the hidden Markov model of the labels without",
        "signals, seed 0 of each kind, and public recordings in windows of 100 steps, whose labels count as right.",
        "",
        "| labels | truth | labels alone (95 % upper limit) |",
        "|---|--:|--:|",
    ]
    windows: dict[str, tuple[np.ndarray, np.ndarray, str]] = {}
    for name in [name for name in STUDIES if name.startswith(("clean", "wrong"))]:
        table, truth = STUDIES[name](0)
        wrong = f"{100 * (table['label'] != truth).mean():.1f} %"
        codes = np.unique(table["label"], return_inverse=True)[1].reshape(table["person"].nunique(), -1)
        windows[name] = codes, np.arange(len(codes)), wrong
    for name, recordings in load(data).items():
        cut = [(row, labels[: len(labels) // STEPS * STEPS]) for row, (_, labels) in enumerate(recordings)]
        cut = [(row, labels.reshape(-1, STEPS)) for row, labels in cut if len(labels)]
        codes = np.unique(np.concatenate([labels for _, labels in cut]), return_inverse=True)[1].reshape(-1, STEPS)
        windows[name] = codes, np.concatenate([np.full(len(labels), row) for row, labels in cut]), ""
    for name, (codes, owners, wrong) in windows.items():
        n_classes, shape = int(codes.max()) + 1, (1, *codes.shape)
        recorded = torch.from_numpy(codes.astype(np.int8))[None, ..., None]
        chain = ChainData(recorded, torch.ones(shape[1:], dtype=torch.bool), None, shape[2], n_classes)
        chain = chain.with_evidence(torch.zeros(*shape, n_classes), torch.ones(1))
        flat = flat_chain(1, 1, chain)
        grid = np.linspace(0, 1, shape[2])
        units = torch.from_numpy(owners)
        share, upper = share_alone(TrainingEvidence(chain, flat, torch.zeros(1, shape[1]), grid, units))
        lines.append(f"| {name} | {wrong} | {100 * max(share, 0):.1f} % ({100 * max(upper, 0):.1f} %) |")
    file.write_text("\n".join(lines) + "\n")


def run(study: tuple[str, int]) -> dict[str, Any]:
    """The record of one study, by name and seed."""
    name, seed = study
    torch.set_num_threads(1)
    record = {"study": name, "seed": seed, **ask(STUDIES[name](seed), checks_first=name in CHECKS_FIRST)}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in record.items()}


def main() -> None:
    """Run the studies whose names contain one of the words, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", help="parts of names of studies; stress for all, page for none")
    parser.add_argument("--data", type=Path, help="folder of the public recordings, for the word alone")
    parser.add_argument("--seeds", type=int, default=1, help="studies of each name")
    parser.add_argument("--processes", type=int, default=1, help="studies side by side")
    parser.add_argument("--file", type=Path, default=RESULTS / "claims.jsonl", help="where records are kept")
    chosen = parser.parse_args()
    file = chosen.file
    file.parent.mkdir(parents=True, exist_ok=True)
    if chosen.words == ["forms"]:
        return write_forms(chosen.seeds, file.parent / "forms.md")
    if chosen.words == ["alone"]:
        return write_alone(chosen.data, file.parent / "alone.md")
    lines_there = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    records = list({(record["study"], record["seed"]): record for record in lines_there}.values())  # the last of each
    done = {(record["study"], record["seed"]) for record in records}
    names = [name for name in STUDIES if "stress" in chosen.words or any(word in name for word in chosen.words)]
    studies = [(name, seed) for seed in range(chosen.seeds) for name in names if (name, seed) not in done]
    with get_context("spawn").Pool(chosen.processes) as pool, file.open("a") as lines:
        for record in pool.imap_unordered(run, studies):
            records.append(record)
            lines.write(json.dumps(record) + "\n")
            lines.flush()
    write_page(records, file.parent)


if __name__ == "__main__":
    main()
