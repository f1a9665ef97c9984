"""The page of the study in which one scorer reviews another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

INTRODUCTION = """# A scorer reviews another scorer

`python bench/benchmarks/reviewer_study.py --nights {nights} --epochs {epochs} --draws {draws}`. The labels of one
scorer are audited with features. Another scorer, whose labels no fit has seen, plays the reviewer of 200 labels drawn
by `lt.review_sample`; a label is wrong if the two differ. *Counted* is the share of all labels at which they differ.
*Before* is the error of the model's estimate, *after* the mean error of `lt.checked_rate` over {draws} reviews with
other random numbers, *covered* how often its 95 % interval held what was counted. *Over the clock* is the mean over
five parts of the clock, each with about 40 of the 200 items. The model's probability is that a label is **wrong**, or
that it is **contested**: another expert would record another one. All numbers are percent or percentage points.
{limits}
"""
HEAD = (
    "| model | pairs | counted | model says | before | after | covered | ± | over the clock: before | after | covered |"
)


def write_page(records: Sequence[Mapping[str, Any]], path: Path, settings: Mapping[str, Any]) -> None:
    """Write the tables: means by data set and model, then every pair."""
    limits = f"Of Dreem {settings['nights']} of 80 nights were used, one step a minute; of Lund all 34 trials."
    parts = [INTRODUCTION.format(**settings, limits=limits)]
    for study in dict.fromkeys(record["study"] for record in records):
        own = [record for record in records if record["study"] == study]
        parts.append(f"## {study}\n\n{_means(own)}\n\n{_pairs(own)}")
    path.write_text("\n\n".join(part.rstrip() for part in parts) + "\n", encoding="utf-8")


def _means(records: Sequence[Mapping[str, Any]]) -> str:
    lines = [HEAD, "|---" + "|--:" * 10 + "|"]
    for model in dict.fromkeys(record["model"] for record in records):
        own = [record for record in records if record["model"] == model]
        lines.append(f"| {model} | {len(own)} | {' | '.join(_numbers(own))} |")
    return "\n".join(lines)


def _pairs(records: Sequence[Mapping[str, Any]]) -> str:
    lines = ["Every pair:", "", HEAD.replace("pairs", "audited, reviewer"), "|---|---" + "|--:" * 9 + "|"]
    for record in records:
        pair = f"{record['audited']}, {record['reviewer']}"
        lines.append(f"| {record['model']} | {pair} | {' | '.join(_numbers([record]))} |")
    return "\n".join(lines)


def _numbers(records: Sequence[Mapping[str, Any]]) -> list[str]:
    names = ["counted", "model_rate", "error_before", "error_after", "coverage", "half_width"]
    names += ["clock_error_before", "clock_error_after", "clock_coverage"]
    means = {name: 100 * float(np.mean([record[name] for record in records])) for name in names}
    return [f"{value:.0f}" if "coverage" in name else f"{value:.1f}" for name, value in means.items()]
