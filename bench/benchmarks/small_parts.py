"""What two parts of `tide` buy in studies of 100 to 300 labels: the prior of k, and averaged false alarms.

    python bench/benchmarks/small_parts.py --studies 30      # writes bench/results/tide/small_parts.jsonl and .md

Whole fits of `tide` to simulated studies with 0, 20 and 40 % wrong labels (static, growing, mixed), as in intervals.py,
and to studies with one label a sequence, in which only features identify the noise.
The prior is switched off in a second fit to the same labels (`labeltide_bench/studies/parts.py`). For false alarms the
same fit flags its labels once more with Q and k taken as known.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labeltide as lt
from intervals import FIRST_SEED, FIT_RATES, SHAPES, SIZES, are_shown, flag, make_matrices
from labeltide.inference.checks import diagnose
from labeltide_bench.studies.parts import without

RESULTS = Path(__file__).parents[1] / "results" / "tide"
SETTINGS = {"tide": (), "no prior of k": ("prior of k",)}
KINDS = {
    "150": SIZES[150],
    "300": SIZES[300],
    "100 sequences of one label": (100, 1),
    "300 sequences of one label": (300, 1),
}


def records(studies: int) -> Iterator[dict[str, Any]]:
    """One record for each study and setting."""
    for kind in KINDS:
        for rate in FIT_RATES:
            for number in range(studies):
                for setting, parts in SETTINGS.items():
                    with without(parts):
                        measured = measure(kind, rate, number)
                    yield {"labels": kind, "rate": rate, "study": number, "setting": setting, **measured}


def measure(kind: str, rate: float, number: int) -> dict[str, Any]:
    """The stated and the true share of wrong labels, and flags with averaged false alarms and without."""
    n, steps = KINDS[kind]
    shape = SHAPES[number % len(SHAPES)] if steps > 1 else "static"
    seed = FIRST_SEED + 500_000 + 1000 * n * steps + number
    study = lt.make_sequences(n, steps, 5, stay=0.9, random_state=seed, variance=2.0)
    labels = lt.corrupt(study.clean_labels, make_matrices(shape, rate, steps), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = lt.TideClassifier(random_state=number, device="cpu").fit(study.features, labels)
        estimate = fitted.noise_estimate_
    wrong = fitted.training_.data.labels[0, ..., 0].numpy() != study.clean_labels
    denied = any(check.is_warning and check.denies for check in diagnose(fitted.training_, ["0", "1"]))
    shown = not denied and are_shown(fitted.training_, estimate)
    flags = {
        "averaged": flag(fitted.training_, estimate, may_name=shown),
        "plain": flag(fitted.training_, replace(estimate, false_alarms=None), may_name=shown),
    }
    about = {f"{name}_flags": int(found.sum()) for name, found in flags.items()}
    about |= {f"{name}_false": int((found & ~wrong).sum()) for name, found in flags.items()}
    covers = estimate.total_lower <= wrong.mean() <= estimate.total_upper
    return {"stated": estimate.total, "true": float(wrong.mean()), "covers": bool(covers), **about}


def write_page(results: list[dict[str, Any]], studies: int) -> str:
    """Both tables in Markdown."""
    command = f"`python bench/benchmarks/small_parts.py --studies {studies}`"
    lines = ["# Two parts of tide in small studies", "", f"{command}, {studies} studies in each line.", ""]
    lines += [
        "| labels | wrong | setting | error of the share, points | interval covers | flags | false alarms | "
        "flags, Q and k as known | false alarms |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        for rate in FIT_RATES:
            for setting in SETTINGS:
                cell = [r for r in results if (r["labels"], r["rate"], r["setting"]) == (kind, rate, setting)]
                errors = 100 * np.array([abs(r["stated"] - r["true"]) for r in cell])
                numbers = [f"{errors.mean():.1f} ± {errors.std(ddof=1) / len(errors) ** 0.5:.1f}"]
                numbers.append(f"{100 * np.mean([r['covers'] for r in cell]):.0f} %")
                for name in ("averaged", "plain"):
                    flags, false = (sum(r[f"{name}_{kind}"] for r in cell) for kind in ("flags", "false"))
                    numbers += [str(flags), f"{100 * false / flags:.1f} %" if flags else "-"]
                lines.append(f"| {kind} | {100 * rate:.0f} % | {setting} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=30)
    studies = parser.parse_args().studies
    torch.set_num_threads(1)
    results = list(records(studies))
    (RESULTS / "small_parts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in results))
    page = write_page(results, studies)
    (RESULTS / "small_parts.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
