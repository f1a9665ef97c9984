"""Flags on sleep with growing noise: false alarms, errors found, and how often stated probabilities are true.

    LABELTIDE_DATA=DATA python bench/benchmarks/sleep_flags.py --seeds 2    # bench/results/flags/sleep_growth.jsonl

Of the stages of 20 nights (Sleep-EDF) 5 % are replaced at the start of a night and 35 % at its end.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import labeltide as lt

RECORDS = Path(__file__).parents[1] / "results" / "flags" / "sleep_growth.jsonl"
STAGES = np.array(["W", "N1", "N2", "N3", "REM"])
STATED = ((0.05, 0.1), (0.1, 0.3), (0.3, 0.5))  # probabilities that a label is right


def measure(nights: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Audit the nights with drawn errors, beside the truth."""
    random = np.random.default_rng(seed)
    index = nights.groupby("night")["epoch"].transform(lambda epoch: (epoch - epoch.min()) / np.ptp(epoch)).to_numpy()
    true, wrong = nights["stage"].to_numpy(), random.random(len(nights)) < 0.05 + 0.3 * index
    recorded = np.where(wrong, (true + random.integers(1, 5, len(nights))) % 5, true)
    table = nights.drop(columns="stage").assign(label=STAGES[recorded])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = lt.audit(table, sequence="night", time="epoch", label="label", device="cpu", seed=seed)
    labels = found.labels.to_pandas()
    flags, right = labels["is_issue"].to_numpy(), labels["probability_right"].to_numpy()
    bins = [(right >= low) & (right < high) for low, high in STATED]
    return {
        "seed": seed,
        "wrong": round(float(wrong.mean()), 4),
        "interval": [round(found.summary["noise"][f"rate_{end}"], 4) for end in ("lower", "upper")],
        "flags": int(flags.sum()),
        "false alarms": round(float((flags & ~wrong).sum() / flags.sum()), 4),
        "errors found": round(float((flags & wrong).sum() / wrong.sum()), 4),
        "wrong where stated": {
            f"{1 - high:.0%} to {1 - low:.0%}": [round(float(wrong[part].mean()), 3), int(part.sum())]
            for (low, high), part in zip(STATED, bins, strict=True)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    data = Path(os.environ["LABELTIDE_DATA"]) / "sleep_edf" / "sleep_edf_sc_20nights_30s.parquet"
    nights = pd.read_parquet(data)
    records = [measure(nights, seed) for seed in range(parser.parse_args().seeds)]
    RECORDS.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    print(*records, sep="\n")


if __name__ == "__main__":
    main()
