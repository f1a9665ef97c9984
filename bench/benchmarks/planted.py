"""Planted errors on public recordings: what an audit says of itself, and what is true of errors that we added.

    python bench/benchmarks/planted.py --data DATA --processes 2

Labels of each data set are taken as they are, and with 5 and 30 % of them replaced by another class at random. The
audit does not know which. For each: the estimated share, the response to errors that the audit planted itself (1 is
right), how many of them it found, how many flags recurred, and how many of the named labels are among those that we
replaced. Labels as they are have errors of their own, so the last number is a lower bound of the precision.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import labeltide as lt
from labeltide.estimators.planted import SINGLE

RESULTS = Path(__file__).parents[1] / "results" / "claims"
SHARES = (0.0, 0.05, 0.3)
HEADS = ("data", "replaced", "estimate", "answer", "response", "planted errors found", "flags that recur", "named")
HEADS += ("replaced among named",)


class Source(NamedTuple):
    """A data set as a table: its file, the columns that play a role, and every how many rows are taken."""

    file: str
    sequence: str
    time: str
    label: str
    left_out: tuple[str, ...] = ()
    every: int = 1


SOURCES = {
    "sleep stages (Sleep-EDF)": Source(
        "sleep_edf/sleep_edf_sc_20nights_30s.parquet", "night", "epoch", "stage", ("subject", "stage_rk")
    ),
    "activities of seniors (HAR70+)": Source(
        "har70plus/means_5s.parquet", "subject", "window", "label_mode", ("label_first", "mode_share")
    ),
    "sleep stages (Dreem, one scorer, programs as features)": Source(
        "dod_scorers/dod_hypnograms.parquet",
        "record",
        "epoch",
        "scorer_1",
        ("dataset", "scorer_2", "scorer_3", "scorer_4", "scorer_5", "in_scored_window"),
    ),
    "eye movements (Lund 2013, one coder)": Source(
        "lund2013/lund2013_two_coders_500hz.parquet",
        "trial",
        "sample",
        "label_RA",
        ("label_MN", "label_MN_fixed", "rate_hz", "stimulus", "participant"),
        5,
    ),
}


def run(job: tuple[str, float, Path]) -> dict[str, Any]:
    """Audit one data set with so many labels replaced."""
    import pandas as pd  # real_labels.py reads the list of sources without it

    name, share, data = job
    torch.set_num_threads(1)
    source = SOURCES[name]
    table = pd.read_parquet(data / source.file).drop(columns=list(source.left_out)).iloc[:: source.every]
    table = table[table[source.label] >= 0] if source.label == "scorer_1" else table
    programs = [name for name in table.columns if name.startswith("auto_")]
    table = table.astype(dict.fromkeys(programs, str))
    random = np.random.default_rng(0)
    labels = table[source.label].astype(str).to_numpy()
    names = np.unique(labels)
    codes = np.searchsorted(names, labels)
    replaced = random.random(len(codes)) < share
    codes = np.where(replaced, (codes + random.integers(1, len(names), len(codes))) % len(names), codes)
    table = table.assign(**{source.label: names[codes]})
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = lt.audit(table, sequence=source.sequence, time=source.time, label=source.label)
    summary, lines = audit.summary, audit.labels.to_pandas()
    planted = {each["kind"]: each for each in summary["planted"]}
    single = [planted[kind] for kind in SINGLE if kind in planted]
    named, was_replaced = lines["is_issue"].to_numpy(), replaced[lines["row"].to_numpy()]
    by_class = {
        str(name): [len(part), round(float(part.mean()), 3)]
        for name, part in pd.Series(was_replaced[named]).groupby(lines["recorded"].astype(str).to_numpy()[named])
    }
    return {
        "data": name,
        "asked": share,
        "replaced": float(replaced.mean()),
        "labels": len(lines),
        "rate": summary["noise"]["rate"],
        "lower": summary["noise"]["rate_lower"],
        "upper": summary["noise"]["rate_upper"],
        "answer": summary["conclusion"]["noise"]["answer"],
        "response": {kind: each["response"] for kind, each in planted.items()},
        "found": {kind: sum(each["found"]) / max(sum(each["planted"]), 1) for kind, each in planted.items()},
        "recurred": sum(sum(each["named_again"]) for each in single) / max(sum(sum(e["named"]) for e in single), 1),
        "named": int(named.sum()),
        "named replaced": float(was_replaced[named].mean()) if named.any() else None,
        "named and replaced by recorded class": by_class,
        "replaced labels named": float(named[was_replaced].mean()) if was_replaced.any() else None,
        "unclear": summary["noise"].get("rate_unclear"),
        "bouts": summary["issues"]["bouts"],
        "by kind": summary["issues"]["by_kind"],
        "warned": [check["name"] for check in summary["diagnostics"] if check["is_warning"]],
        "seconds": time.monotonic() - started,
    }


def write_page(records: list[dict[str, Any]], folder: Path) -> None:
    """The table of all audits."""
    lines = [
        "# Planted errors on public recordings",
        "",
        "Made by `bench/benchmarks/planted.py`. *Response* is the rise of the estimated share against errors that the",
        "audit planted itself, at random / by its Q(t) / in runs / by shifts of recordings; 1 is right. *Replaced",
        "among named* is a lower bound of the precision, because the labels as they are have errors, too. HAR70+ with",
        "5 % replaced is of commit cd29859, the other rows are of 1eabacf, both of 2026-11-18, one draw each.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|---|--:|--:|---|---|---|--:|--:|--:|",
    ]
    for record in records:
        share = f"{100 * record['rate']:.1f} % ({100 * record['lower']:.1f} to {100 * record['upper']:.1f})"
        response = " / ".join("-" if value is None else f"{value:.2f}" for value in record["response"].values())
        found = " / ".join(f"{100 * value:.0f} %" for value in record["found"].values())
        right = "" if record["named replaced"] is None else f"{100 * record['named replaced']:.0f} %"
        lines.append(
            f"| {record['data']} | {100 * record['replaced']:.0f} % | {share} | {record['answer']} | {response} | "
            f"{found} | {100 * record['recurred']:.0f} % | {record['named']:,} | {right} |"
        )
    (folder / "planted.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public recordings")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="data sets whose names contain this")
    parser.add_argument("--shares", type=float, nargs="*", help="shares of labels that are replaced")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / "planted.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    shares = chosen.shares or SHARES
    jobs = [(name, share, chosen.data) for name in SOURCES for share in shares if chosen.only in name]
    with get_context("spawn").Pool(chosen.processes) as pool:
        for record in pool.imap(run, jobs):
            old = [r for r in records if (r["data"], r.get("asked")) != (record["data"], record["asked"])]
            records = sorted([*old, record], key=lambda r: (list(SOURCES).index(r["data"]), r["replaced"]))
            file.write_text("".join(json.dumps(each) + "\n" for each in records))
            write_page(records, chosen.out)


if __name__ == "__main__":
    main()
