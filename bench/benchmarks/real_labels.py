"""False alarms on labels of real annotators, and a change by hand at a known hour of the night.

    python bench/benchmarks/real_labels.py draws --data DATA --processes 16    # errors at random, two draws
    python bench/benchmarks/real_labels.py draws --data DATA --only HAR70 --draws 8    # six more draws of one set
    python bench/benchmarks/real_labels.py sleep --data DATA --processes 16    # 5.0 % more errors from hour 4.0 on
    python bench/benchmarks/real_labels.py page                                # the tables from the records

*draws*: 0, 5 or 30 % of the labels of each set of `planted.py` are replaced by another class at random. What is not
replaced may be wrong as well, so the share of replaced labels among named ones is a lower bound of the precision. Where
other experts labelled the same steps, a false alarm is also counted as a named label that was not replaced and that
most of them recorded, too.

*sleep*: from hour 4.0 of every night on, labels N2 are replaced by another stage at random until 5.0 % of all labels
are. Both tables, touched and untouched, are audited with five seeds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from scipy.stats import rankdata

import labeltide as lt
from labeltide.auditing.page.verdict import write_verdict
from labeltide.estimators.planted import SINGLE
from planted import SHARES, SOURCES

RESULTS = Path(__file__).parents[1] / "results" / "claims"
DRAWS, SEEDS = 2, 5
PROMISED, WORST = 0.10, 0.15  # false alarms: in the mean, and in the worst set
CLOCK = "hours_since_lights_off"
STAGES = np.array(["W", "N1", "N2", "N3", "REM"])
HOUR, ADDED, EPOCHS_PER_HOUR = 4.0, 0.05, 120
ISOLATES = {0x2068: None, 0x2069: None}  # marks around names of the user
WAKE_KEPT = 60  # epochs of wake kept on either side of the sleep of a night
OTHERS = {"scorer_1": ["scorer_2", "scorer_3", "scorer_4", "scorer_5"], "label_RA": ["label_MN_fixed"]}


def list_draws(data: Path, draws: int) -> list[tuple[Any, ...]]:
    """Every data set with every share of replaced labels."""
    return [(name, share, draw, data) for draw in range(draws) for name in SOURCES for share in SHARES]


def measure_draw(job: tuple[str, float, int, Path]) -> dict[str, Any]:
    """Audit one data set with so many labels replaced."""
    name, share, draw, data = job
    source = SOURCES[name]
    table = read_table(data / source.file)
    there = np.arange(len(table[source.label])) % source.every == 0
    if source.label == "scorer_1":
        there &= table[source.label] >= 0
    table = {column: values[there] for column, values in table.items()}
    recorded = table[source.label]
    agree = np.full(len(recorded), np.nan)  # how many of the other experts recorded the same
    if source.label in OTHERS:
        agree = np.mean([table[other] == recorded for other in OTHERS[source.label]], 0)
    table, programs = name_programs({k: v for k, v in table.items() if k not in source.left_out})
    random, labels = np.random.default_rng(draw), recorded.astype(str)
    names, codes = np.unique(labels, return_inverse=True)
    replaced = random.random(len(codes)) < share
    codes = np.where(replaced, (codes + random.integers(1, len(names), len(codes))) % len(names), codes)
    table[source.label] = names[codes]
    began, audit = time.monotonic(), quiet_audit(table, source.sequence, source.time, source.label, features=programs)
    lines = {name: audit.labels[name].to_numpy() for name in ("row", "is_issue", "recorded")}
    named, was, supported = lines["is_issue"], replaced[lines["row"]], agree[lines["row"]] > 0.5
    classes = lines["recorded"].astype(str)
    kept = named & ~was & supported  # false alarms by the opinion of others
    by_class = {
        str(each): [int((part & (classes == each)).sum()) for part in (named, named & was, kept)]
        for each in np.unique(classes[named])
    }
    untold = np.isnan(agree).all()
    planted = {each["kind"]: each for each in audit.summary["planted"]}
    single = [planted[kind] for kind in SINGLE if kind in planted]
    return {
        "data": name,
        "share": share,
        "draw": draw,
        "replaced": float(replaced.mean()),
        **read_audit(audit),
        "named": int(named.sum()),
        "named, replaced": int((named & was).sum()),
        "named, others agree": None if untold else int(kept.sum()),
        "by class: named, replaced, others agree": by_class,
        "errors found": float(named[was].mean()) if was.any() else None,
        "planted found": {kind: sum(each["found"]) / max(sum(each["planted"]), 1) for kind, each in planted.items()},
        "recurred": sum(sum(each["named_again"]) for each in single) / max(sum(sum(e["named"]) for e in single), 1),
        "expected false alarms": audit.summary["issues"]["expected_false_alarms"],
        "seconds": time.monotonic() - began,
    }


def list_nights(data: Path, _draws: int) -> list[tuple[Any, ...]]:
    """Both tables, touched and untouched, with five seeds."""
    return [(name, touched, seed, data) for name in NIGHTS for seed in range(SEEDS) for touched in (True, False)]


Columns = dict[str, np.ndarray]


def read_table(path: Path) -> Columns:
    table = parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def sleep_edf(data: Path) -> Columns:
    """Nights of Sleep-EDF from half an hour before sleep to half an hour after it."""
    table = read_table(data / "sleep_edf" / "sleep_edf_sc_20nights_30s.parquet")
    there = np.zeros(len(table["night"]), bool)
    for night in np.unique(table["night"]):
        rows = np.flatnonzero(table["night"] == night)
        asleep = np.flatnonzero(table["stage"][rows] > 0)
        there[rows[max(asleep[0] - WAKE_KEPT, 0) : asleep[-1] + WAKE_KEPT + 1]] = True
    return {name: table[name][there] for name in table if name not in ("subject", "stage_rk", "epoch")}


def dreem(data: Path) -> Columns:
    """Nights of Dreem as the first scorer labelled them, with the stages of six programs as features."""
    table = read_table(data / "dod_scorers" / "dod_hypnograms.parquet")
    there = table["in_scored_window"].astype(bool) & (table["scorer_1"] >= 0)
    named = {"record": "night", "scorer_1": "stage"} | {name: name for name in table if name.startswith("auto_")}
    return {new: table[old][there] for old, new in named.items()}


def name_programs(table: Columns) -> tuple[Columns, list[str] | None]:
    """Stages that programs gave as texts, and the names of their columns; None where there are none."""
    programs = [name for name in table if name.startswith("auto_")]
    return table | {name: table[name].astype(str) for name in programs}, programs or None


NIGHTS = {"Sleep-EDF": sleep_edf, "Dreem": dreem}


def measure_night(job: tuple[str, bool, int, Path]) -> dict[str, Any]:
    """One audit of nights with or without errors by hand."""
    name, touched, seed, data = job
    table, programs = name_programs(NIGHTS[name](data))
    night, stage = table["night"], table["stage"]
    begins = np.append(True, night[1:] != night[:-1])  # the rows of a night follow each other
    number = np.arange(len(night))
    elapsed = (number - np.maximum.accumulate(np.where(begins, number, 0))) / EPOCHS_PER_HOUR
    random = np.random.default_rng(0)
    late = np.flatnonzero((stage == 2) & (elapsed >= HOUR))
    changed = np.zeros(len(stage), bool)
    if touched:
        changed[random.choice(late, round(ADDED * len(stage)), replace=False)] = True
    recorded = np.where(changed, (stage + random.integers(1, 5, len(stage))) % 5, stage)
    table |= {"stage": STAGES[recorded], CLOCK: elapsed}
    began = time.monotonic()
    roles = ("night", CLOCK, "stage")
    audit = quiet_audit(table, *roles, features=programs, clock=CLOCK, seed=seed)
    lines = {name: audit.labels[name].to_numpy() for name in audit.labels.column_names}
    named, row = lines["is_issue"], lines["row"]
    was, classes = changed[row], lines["recorded"]
    noise = audit.summary["noise"]
    clock = np.array(noise["clock"])
    n2 = audit.summary["table"]["classes"].index("N2")
    rate = np.array(noise["curves"][0]["class_rate"])[n2]
    score = -np.log(lines["probability_right"].clip(1e-12))
    return {
        "data": name,
        "touched": touched,
        "seed": seed,
        "changed": float(changed.mean()),
        "changed N2 after hour 4": float(changed.sum() / len(late)),
        **read_audit(audit),
        "step": find_step(clock, rate),
        "N2 before": float(rate[clock < HOUR].mean()),
        "N2 after": float(rate[clock >= HOUR].mean()),
        "area under the curve": area(score, was) if touched else None,
        "named": int(named.sum()),
        "named, changed": int((named & was).sum()),
        "named by class": {str(k): int((classes[named] == k).sum()) for k in STAGES},
        "headline": write_verdict(audit.summary).headline,
        "bouts": bouts(night, stage, recorded, row, lines["corrected"]),
        "flags": row[named & ~was].tolist(),
        "seconds": time.monotonic() - began,
    }


def find_step(clock: np.ndarray, rate: np.ndarray) -> float:
    """The moment that divides a curve into two constants with the least squared error."""
    errors = [rate[:k].var() * k + rate[k:].var() * (len(rate) - k) for k in range(1, len(rate))]
    k = int(np.argmin(errors)) + 1
    return float((clock[k - 1] + clock[k]) / 2)


def area(score: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve (Mann and Whitney 1947)."""
    ranks = rankdata(score)
    n = int(positive.sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(score) - n)))


def bouts(
    night: np.ndarray, true: np.ndarray, recorded: np.ndarray, row: np.ndarray, suggested: np.ndarray
) -> dict[str, list[int]]:
    """Bouts of each stage: before labels were changed, as recorded, and as corrected."""
    corrected = STAGES[recorded].astype(object)
    corrected[row] = suggested
    found: dict[str, list[int]] = {}
    for values in (STAGES[true], STAGES[recorded], corrected):
        begins = np.append(True, (values[1:] != values[:-1]) | (night[1:] != night[:-1]))
        for stage in STAGES:
            found.setdefault(str(stage), []).append(int((begins & (values == stage)).sum()))
    return found


def quiet_audit(table: Columns, sequence: str, time: str, label: str, **more: Any) -> lt.TableAudit:
    """An audit on one thread."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lt.audit(pa.table(table), sequence=sequence, time=time, label=label, device="cpu", **more)


def read_audit(audit: lt.TableAudit) -> dict[str, Any]:
    """What an audit states, and its responses to planted errors."""
    noise = audit.summary["noise"]
    return {
        "rate": noise["rate"],
        "lower": noise["rate_lower"],
        "upper": noise["rate_upper"],
        "unclear": noise.get("rate_unclear", 0.0),
        "answer": audit.summary["conclusion"]["noise"]["answer"],
        "planted response": {each["kind"]: each["response"] for each in audit.summary["planted"]},
        "warned": [check["name"] for check in audit.summary["diagnostics"] if check["is_warning"]],
        "runs": next(each["sentence"] for each in audit.summary["diagnostics"] if each["name"] == "bursts"),
    }


def write_page(folder: Path) -> None:
    """The tables of both parts, from their records."""
    lines = ["# False alarms on labels of real annotators", "", "`python bench/benchmarks/real_labels.py`", ""]
    drawn = read_records(folder / "real_draws.jsonl")
    drawn.sort(key=lambda record: (list(SOURCES).index(record["data"]), record["share"], record["draw"]))
    if drawn:
        lines += [
            f"Up to {1 + max(r['draw'] for r in drawn)} draws of replaced labels.",
            "*Right at least*: replaced labels among named ones; other named labels may be wrong as well. *Others",
            "agree*: named labels that were not replaced and that most other",
            "experts recorded, too: false alarms by their opinion. *Worst class*: the one with the most other named",
            "labels, of 50 named or more.",
            "",
            "| data | replaced | stated | named | right at least | others agree | worst class |",
            "|---|--:|---|--:|--:|--:|---|",
            *map(draw_line, drawn),
            "",
            "## Planted errors of the same audits",
            "",
            "Rise of the estimated share against what was planted (*response*; 1 is right), planted errors found, at",
            "random / by the estimated Q(t) / in runs / by shifts of recordings, and flags listed again in the copies.",
            "",
            "| data | replaced | response | found | flags that recur |",
            "|---|--:|---|---|--:|",
            *map(planted_line, drawn),
            "",
        ]
    nights = read_records(folder / "real_sleep.jsonl")
    nights.sort(key=lambda record: (record["data"], record["touched"], record["seed"]))
    if nights:
        lines += ["## 5.0 % more errors from hour 4.0 of the night on", "", *sleep_lines(nights)]
    (folder / "real_labels.md").write_text("\n".join(lines) + "\n")


def draw_line(record: dict[str, Any]) -> str:
    named, right = record["named"], record["named, replaced"]
    stated = f"{record['rate']:.1%} ({record['lower']:.1%} to {record['upper']:.1%}), {record['answer']}"
    agree = record["named, others agree"]
    large = {k: counts for k, counts in record["by class: named, replaced, others agree"].items() if counts[0] >= 50}
    worst = min(large, key=lambda name: large[name][1] / large[name][0]) if large else None
    of_class = ""
    if worst is not None:
        n, hit, others = large[worst]
        of_class = f"{worst}: {hit / n:.0%}" + (f", others agree {others / n:.0%}" if agree is not None else "")
    cells = [
        record["data"],
        f"{record['replaced']:.0%}",
        stated,
        f"{named:,}",
        f"{right / named:.0%}" if named else "",
        f"{agree / named:.0%}" if named and agree is not None else "",
        of_class,
    ]
    return f"| {' | '.join(cells)} |"


def planted_line(record: dict[str, Any]) -> str:
    response = " / ".join("-" if value is None else f"{value:.2f}" for value in record["planted response"].values())
    found = " / ".join(f"{value:.0%}" for value in record["planted found"].values())
    return f"| {record['data']} | {record['replaced']:.0%} | {response} | {found} | {record['recurred']:.0%} |"


def sleep_lines(records: list[dict[str, Any]]) -> list[str]:
    """For each data set: what five seeds say with and without errors by hand."""
    lines = [
        "*Stated*: the share, where wrong labels are shown; *cannot be told* and *not shown* state none, and the",
        "number is the upper end of their interval. *Fit*: the share of the fitted model, in runs or not. *Response*:",
        "rise of the stated share, 0 where none is stated, for what was added. *Recur*: flags on untouched labels that",
        "the next seed raises again. N2 before and after: the mean estimated error rate of N2 on either side of 4 h.",
        "*Bouts* of all stages: before labels were changed / as recorded / as corrected, first seed.",
        "",
        "| data | | stated, by seed | fit | response | of the fit | step, h | N2 before | after | AUC | named "
        "| changed | recur | bouts |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in NIGHTS:
        parts = {touched: [r for r in records if (r["data"], r["touched"]) == (name, touched)] for touched in (0, 1)}
        for touched, part in [each for each in parts.items() if each[1]]:
            before = {record["seed"]: stated_share(record) for record in parts[0]}
            pairs = [record for record in part if record["touched"] and record["seed"] in before]
            over = [f"{(stated_share(r) - before[r['seed']]) / r['changed']:.2f}" for r in pairs]
            fitted = {record["seed"]: record["rate"] for record in parts[0]}
            of_fit = [f"{(r['rate'] - fitted[r['seed']]) / r['changed']:.2f}" for r in pairs]
            flags = [set(record["flags"]) for record in part]  # on labels that nobody touched
            recur = [len(a & b) / max(len(a), 1) for a, b in zip(flags, [*flags[1:], flags[0]], strict=True)]
            counts = np.array(list(part[0]["bouts"].values())).sum(0)
            cells = [
                name,
                "touched" if touched else "as it is",
                ", ".join(
                    f"{r['rate']:.1%}" if r["answer"] == "shown" else f"{r['answer']} (up to {r['upper']:.1%})"
                    for r in part
                ),
                ", ".join(f"{r['rate']:.1%}" for r in part),
                ", ".join(over),
                ", ".join(of_fit),
                ", ".join(f"{r['step']:.1f}" for r in part),
                *(", ".join(f"{r[key]:.0%}" for r in part) for key in ("N2 before", "N2 after")),
                ", ".join(f"{r['area under the curve']:.3f}" for r in part) if touched else "",
                ", ".join(f"{r['named']:,}" for r in part),
                ", ".join(f"{r['named, changed'] / max(r['named'], 1):.0%}" for r in part) if touched else "",
                ", ".join(f"{each:.0%}" for each in recur),
                " / ".join(f"{count:,}" for count in counts),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "First lines:", ""]
    headlines = [
        (f"- {r['data']}{', touched' if r['touched'] else ''}, seed {r['seed']}", r["headline"]) for r in records
    ]
    lines += [f"{which}: {text.translate(ISOLATES)}" for which, text in headlines]
    return lines


def stated_share(record: dict[str, Any]) -> float:
    """The share that the first line states; 0 where it states none."""
    return float(record["rate"]) if record["answer"] == "shown" else 0.0


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


Jobs = Callable[[Path, int], list[tuple[Any, ...]]]
PARTS: dict[str, tuple[Callable[[Any], dict[str, Any]], Jobs, tuple[str, ...]]] = {
    "draws": (measure_draw, list_draws, ("data", "share", "draw")),
    "sleep": (measure_night, list_nights, ("data", "touched", "seed")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["draws", "sleep", "page"])
    parser.add_argument("--data", type=Path, help="folder of the public recordings")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--only", default="", help="data sets whose names contain this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for part in [part for part in chosen.parts if part != "page"]:
        measure, jobs, keys = PARTS[part]
        file = chosen.out / f"real_{part}.jsonl"
        done = {tuple(record[key] for key in keys) for record in read_records(file)}
        left = [job for job in jobs(chosen.data, chosen.draws) if job[:3] not in done and chosen.only in job[0]]
        with get_context("spawn").Pool(chosen.processes) as pool:
            for record in pool.imap_unordered(measure, left):
                with file.open("a") as lines:
                    lines.write(json.dumps(record) + "\n")
    write_page(chosen.out)


if __name__ == "__main__":
    main()
