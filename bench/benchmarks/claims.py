"""Claims under stress: what an audit says of studies whose truth is known, many of them built to mislead it.

    python bench/benchmarks/claims.py stress --seeds 2                  # every study of STUDIES, seeds 0 and 1
    python bench/benchmarks/claims.py "protocol study" tiny --seeds 100 # some studies, which are matched by their names
    python bench/benchmarks/claims.py page                              # the page from the records

Records are added to bench/results/claims/claims.jsonl; what is there already is not run again. A claim is wrong where
noise is said to be shown and its interval misses the true share of wrong labels, or where more of the named labels are
right than chance gives at the allowed share of false alarms.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
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
from labeltide.auditing.reading import read_audit_table
from labeltide.inference.conclusion import Diagnostic
from labeltide.tables.roles import Request

RESULTS = Path(__file__).parents[1] / "results" / "claims"
FDR, CHANCE = 0.1, 0.01  # allowed false alarms among named labels, and how rarely chance may exceed them
CHECKS_FIRST = ("protocol study",)  # studies in which the checks are expected to deny an answer, to save time
LONGEST = 300  # characters of what an audit said


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
    places = np.random.default_rng([seed, 2]).choice(len(study.table), 3, replace=False)
    study.table.loc[places, "label"] = "c2"
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
    places = np.random.default_rng([seed, 6]).choice(len(study.table), labels, replace=False)
    study.table.loc[places, "label"] = "c2"
    return study


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
}


def deny(study: Study) -> str:
    """Why an audit says "cannot be told", from the checks alone, which outweigh all tests; "" where none denies it."""
    table = leave_out_rare_classes(read_audit_table(study.table))
    clusters = clusters_of_copies(table)
    checks: list[Diagnostic] = [*check_copies(table, clusters), *check_leaks(table)]
    windows = fitting.choose_windows(table, 0)
    how: dict[str, Any] = {"model": "gru", "seed": 0, "device": "cpu", "out": None, "fdr": 0.1}
    options = AuditOptions(Request(), None, **how, resume=False, command=None)
    fitted = fitting.fit(table, windows, clusters[table.groups], options)
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
        return record | {"noise": "cannot be told", "said": f"cannot be told. {denied}"[:LONGEST], "seconds": seconds}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            audit = lt.audit(study.table)
    except ValueError as error:
        return record | {"noise": "refused", "said": str(error)[:LONGEST], "seconds": time.monotonic() - started}
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
        "named": int(named.sum()),
        "named right": int((named & (recorded == study.truth)).sum()),
        "corrected": int(corrected.sum()),
        "corrected wrongly": int((corrected & (labels["corrected"].to_numpy() != study.truth)).sum()),
        "warned": [check["name"] for check in summary["diagnostics"] if check["is_warning"]],
        "said": str(audit).split("\n")[1][11:].replace("\N{NO-BREAK SPACE}", " ")[:LONGEST],
        "seconds": time.monotonic() - started,
    }


def is_wrong(record: dict[str, Any]) -> bool:
    """Whether a claim is confident and wrong."""
    if record["noise"] != "shown":
        return False
    missed = not record["lower"] <= record["truth"] <= record["upper"]
    false = binom.sf(record["named right"] - 1, record["named"], FDR) < CHANCE if record["named"] else False
    return bool(missed or false)


def write_page(records: list[dict[str, Any]]) -> None:
    """The table of all studies, from their records."""
    lines = [
        "# Claims under stress",
        "",
        "Made by `bench/benchmarks/claims.py` from `claims.jsonl`. Each line is a kind of study with known truth; most",
        "were built to mislead an audit. A claim is wrong where noise is said to be shown and its 95 % interval misses",
        "the true share, or where significantly more than 10 % of the named labels are right. Of sound studies about",
        "one interval in twenty misses.",
        "",
        "| study | studies | truth | shown | not shown | cannot be told | refused | wrong claims | the first said |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for name in [name for name in STUDIES if any(record["study"] == name for record in records)]:
        of_name = [record for record in records if record["study"] == name]
        answers = [record["noise"] for record in of_name]
        counts = [answers.count(answer) for answer in ("shown", "not shown", "cannot be told", "refused")]
        truth = 100 * np.mean([record["truth"] for record in of_name])
        wrong = sum(map(is_wrong, of_name))
        numbers = " | ".join(map(str, [*counts, wrong]))
        said = of_name[0]["said"].replace("|", "/")
        lines.append(f"| {name} | {len(of_name)} | {truth:.1f} % | {numbers} | {said} |")
    lines += [
        "",
        "70 % wrong of two classes fits as well as 30 % with the names exchanged. No data tell them apart; the page",
        "states the assumption that each class is right more often than not.",
        "",
        *say_false_alarms([record for record in records if record["study"] == "one step a sequence"]),
    ]
    (RESULTS / "README.md").write_text("\n".join(lines) + "\n")


def say_false_alarms(records: list[dict[str, Any]]) -> list[str]:
    """The false discovery rate (Benjamini and Hochberg 1995) of studies with one step a sequence, in words."""
    shown = [record for record in records if record["noise"] == "shown"]
    rate = np.mean([record["named right"] / max(record["named"], 1) for record in shown]) if shown else 0.0
    return [
        "With one step a sequence nothing but features tells how many labels are wrong. The false discovery rate, the",
        f"mean share of right labels among the named ones, is {100 * rate:.0f} % over the studies of this kind.",
    ]


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
    parser.add_argument("--seeds", type=int, default=1, help="studies of each name")
    parser.add_argument("--processes", type=int, default=1, help="studies side by side")
    chosen = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    file = RESULTS / "claims.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(record["study"], record["seed"]) for record in records}
    names = [name for name in STUDIES if "stress" in chosen.words or any(word in name for word in chosen.words)]
    studies = [(name, seed) for seed in range(chosen.seeds) for name in names if (name, seed) not in done]
    with get_context("spawn").Pool(chosen.processes) as pool, file.open("a") as lines:
        for record in pool.imap_unordered(run, studies):
            records.append(record)
            lines.write(json.dumps(record) + "\n")
            lines.flush()
    write_page(records)


if __name__ == "__main__":
    main()
