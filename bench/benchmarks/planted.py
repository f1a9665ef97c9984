"""Planted errors on public recordings: what the copies of a study with planted errors are worth, and what they cost.

    python bench/benchmarks/planted.py --data DATA --processes 16 --refits

takes the data sets of studies/tide-ablation.toml with 0 to 30 % of the labels replaced: does the estimated share rise
by what was planted, are the posteriors of labels that no copy changed better if they are averaged over the refits, does
the spread of the refits cover the error of the share, do bouts come back, and do the signals support the suggestions?
`real_labels.py draws` says how many planted errors whole audits find.

    python bench/benchmarks/planted.py --time

prints the processor time of an audit with planted errors and without them.
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
from sklearn.metrics import roc_auc_score

import labeltide as lt
from labeltide.auditing import fitting
from labeltide.chain.passes import posteriors, same_data
from labeltide.data.studies import simulate_study
from labeltide.estimators import planted as planting
from labeltide.estimators.planted import SINGLE
from labeltide.inference.audit import FDR, find_threshold
from labeltide.inference.bands import interval_around
from labeltide_bench.studies.loading import load_dataset

RESULTS = Path(__file__).parents[1] / "results" / "claims"
ABLATION = Path(__file__).parents[1] / "studies" / "tide-ablation.toml"
SHARES = (0.0, 0.05, 0.3)


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


class Short(lt.TideClassifier):
    """Without the last ensemble, which judges no label."""

    distils = False


def refit(job: tuple[str, float, int, Path]) -> dict[str, Any]:
    """Fit one data set with so many labels replaced and its copies with planted errors, and compare with the truth."""
    name, share, draw, data = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    started = time.monotonic()
    spec = next(spec for spec in lt.read_study(ABLATION).datasets if spec.name == name)
    train = load_dataset(spec, data).train
    clean, random = np.asarray(train.labels[..., 0]), np.random.default_rng([draw, 7])
    real, n_classes = clean >= 0, int(clean.max()) + 1
    replaced = real & (random.random(clean.shape) < share)
    recorded = np.where(replaced, (clean + random.integers(1, n_classes, clean.shape)) % n_classes, clean)
    labels = recorded.astype(np.int8)[..., None]
    fleets: list[tuple[list[Any], list[np.ndarray]]] = []
    fit_fleet, planting.MAX_STEPS = lt.fit_fleet, 10**9

    def remember(estimators: list[Any], X: np.ndarray, of_copies: list[np.ndarray], **inputs: Any) -> None:
        fit_fleet(estimators, X, of_copies, **inputs)
        fleets.append((estimators, of_copies))

    planting.fit_fleet = remember
    inputs = {"clock": train.clock, "lengths": train.lengths, "clusters": np.asarray(train.ids).astype(str)}
    estimator = Short(hidden_size=32, epochs=60, align=False, random_state=draw)
    estimator.fit(train.features, labels, **inputs)
    errors = planting.plant_errors(estimator, train.features, labels, seed=draw, **inputs)
    ((refits, copies),) = fleets
    of_study = truths(estimator)
    wrong = replaced[real]

    def qualities(posterior: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return np.take_along_axis(posterior, codes.clip(0).astype(np.intp)[..., None], -1)[..., 0]

    def judge(posterior: np.ndarray) -> dict[str, float]:
        quality, suggested = qualities(posterior, recorded), posterior.argmax(-1)
        may = real & (suggested != recorded)
        flags = may & (quality < find_threshold([quality[may]], FDR)[0])
        bouts = [count_bouts(codes, real) for codes in (clean, recorded, np.where(flags, suggested, recorded))]
        return {
            "share": float(1 - quality[real].mean()),
            "auc": roc_auc_score(wrong, -quality[real]) if wrong.any() else None,
            "flags": int(flags.sum()),
            "false": float((flags & ~replaced).sum() / max(flags.sum(), 1)),
            "recall": float((flags & replaced).sum() / max(replaced.sum(), 1)),
            "left": float((np.where(flags, suggested, recorded) != clean)[real].mean()),
            "bouts": [{code: one.get(code, 0) for code in range(n_classes)} for one in bouts],
        }

    averaged, weight, single, weight_single = of_study.copy(), np.ones_like(clean), of_study.copy(), np.ones_like(clean)
    shares = {}
    for kind, fitted, copy in zip(planting.KINDS, refits, copies, strict=False):
        posterior, same = truths(fitted), copy[..., 0] == recorded
        averaged, weight = averaged + posterior * same[..., None], weight + same
        if kind in SINGLE:
            single, weight_single = single + posterior * same[..., None], weight_single + same
        untouched = real & same
        shares[kind] = [float(1 - qualities(each, recorded)[untouched].mean()) for each in (of_study, posterior)]
    evidence = estimator.training_.data.evidence
    supported = None
    if evidence is not None:
        log_probs, quality = evidence[0].double().numpy(), qualities(of_study, recorded)
        suggested = of_study.argmax(-1)
        isolated = real & (suggested != recorded) & (quality < 0.5)
        ratio = qualities(log_probs, suggested) - qualities(log_probs, recorded)
        kept = ~isolated & real
        prior = np.log(np.bincount(recorded[real], minlength=n_classes) / real.sum())
        ratio -= prior[suggested] - prior[recorded]
        supported = {
            "power": float(estimator.chain_.power),
            "flagged": float((ratio > 0)[isolated].mean()) if isolated.any() else None,
            "signal says suggested": float((log_probs.argmax(-1) == suggested)[isolated].mean()),
            "signal says label elsewhere": float((log_probs.argmax(-1) == recorded)[kept].mean()),
            "mean ratio": float(ratio[isolated].mean()) if isolated.any() else None,
        }
    estimate = estimator.noise_estimate_
    return {
        "data": name,
        "asked": share,
        "draw": draw,
        "truth": float(wrong.mean()),
        "total": [estimate.total, estimate.total_lower, estimate.total_upper],
        "is_noisy_p": estimator.is_noisy_p_,
        "response": {each.kind: each.response for each in errors},
        "study": judge(of_study),
        "averaged": judge(averaged / weight[..., None]),
        "averaged over single errors": judge(single / weight_single[..., None]),
        "shares": shares,
        "support": supported,
        "seconds": time.monotonic() - started,
    }


def truths(estimator: Any) -> np.ndarray:
    """The posterior of the true labels of the training rows: (rows, steps, classes)."""
    training = estimator.training_
    single = same_data(torch.ones(1, training.data.labels.shape[1]))
    return np.asarray(posteriors(training.data, single, training.parameters)[0].double().numpy())


def count_bouts(codes: np.ndarray, real: np.ndarray) -> dict[int, int]:
    """The number of bouts of each class."""
    begins = real.copy()
    begins[:, 1:] &= (codes[:, 1:] != codes[:, :-1]) | ~real[:, :-1]
    return {int(code): int(count) for code, count in zip(*np.unique(codes[begins], return_counts=True), strict=True)}


def run_refits(jobs: list[tuple[str, float, int, Path]], processes: int, file: Path) -> None:
    """Run all fits, the largest first as far as that is known, and add a line for each."""
    with get_context("spawn").Pool(processes, maxtasksperchild=1) as pool, file.open("a") as lines:
        for record in pool.imap_unordered(refit, jobs):
            lines.write(json.dumps(record) + "\n")
            lines.flush()
    write_refits_page(file)


def write_refits_page(file: Path) -> None:
    """What refits are worth, from their records: means over draws."""
    import pandas as pd

    records = pd.DataFrame([json.loads(line) for line in file.read_text().splitlines()])
    lines = [
        "# What the refits of copies with planted errors are worth",
        "",
        "Made by `bench/benchmarks/planted.py --refits` from `refits.jsonl`. Labels of the data sets of",
        "`studies/tide-ablation.toml` were replaced at random; the others count as right. Posteriors are those of",
        "the study, averaged with the refits of the two copies with single planted errors, and with all four (of",
        "each label only copies that left it). *False* is the share of right labels among flags, where 10 % are",
        "allowed; *left* the share of wrong labels if all flags are corrected, runs too; *bouts* the largest error",
        "of the number of bouts of a class, as recorded and as corrected. The interval is also given with the",
        "spread of the two refits (Rubin 1987). *Signals* support the likeliest class at this share of the labels",
        "that are probably wrong. *Response*: rise of the estimated share against errors planted at random / by the",
        "estimated Q(t) / in runs / by shifts of recordings; 1 is right.",
        "",
        "| data | replaced | share (95 %) | widened | response | false: study / two / four | left: the same | bouts "
        "| signals |",
        "|---|--:|---|---|---|---|---|---|--:|",
    ]
    for record in records.sort_values(["asked", "data"]).to_dict("records"):
        share, (total, lower, upper) = record["study"]["share"], record["total"]
        ends = interval_around(share, total, lower, upper)
        moved = [after - before for kind, (before, after) in record["shares"].items() if kind in SINGLE]
        none = np.zeros(1, int)
        errors = [planting.PlantedErrors(SINGLE[0], none, none, 1.0, *[none] * 4, each) for each in moved]
        ways = [record[name] for name in ("study", "averaged over single errors", "averaged")]
        false, left = (
            " / ".join(f"{100 * way[name]:.1f}" for way in ways) if record["asked"] else ""
            for name in ("false", "left")
        )
        true, *others = record["study"]["bouts"]
        bouts = " to ".join(
            f"{100 * max(abs(found[code] / true[code] - 1) for code in true if true[code]):.0f} %" for found in others
        )
        wider = planting.widen_interval(share, *ends, errors)
        messages = [f"{100 * low:.1f} to {100 * high:.1f}" for low, high in (ends, wider)]
        support = (record["support"] or {}).get("flagged")
        response = " / ".join("-" if each is None else f"{each:.2f}" for each in record["response"].values())
        signals = "" if support is None or not record["asked"] else f"{100 * support:.0f} %"
        lines.append(
            f"| {record['data']} | {100 * record['truth']:.1f} % | {100 * share:.1f} ({messages[0]}) | {messages[1]} | "
            f"{response} | {false} | {left} | {bouts} | {signals} |"
        )
    (file.parent / "refits.md").write_text("\n".join(lines) + "\n")


def measure_time(repeats: int = 3) -> None:
    """Processor time of audits of a quarter of the study of `labeltide demo`, with planted errors and without them."""
    table = simulate_study(people=30, days=7).drop_columns(["true_label"])
    roles: dict[str, Any] = {"sequence": "person", "time": "time", "label": "label", "annotator": "annotator"}
    plant = fitting.plant
    torch.set_num_threads(1)
    for repeat in range(repeats):
        for name, planting_part in (("with", plant), ("without", lambda *each, **more: ())):
            fitting.plant = planting_part
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lt.audit(table, **roles, clock="hour_of_day", seed=repeat, device="cpu")
            print(f"{name} planted errors, seed {repeat}: {time.process_time() - began:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public recordings")
    parser.add_argument("--time", action="store_true", help="processor time with and without planted errors, no data")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="data sets whose names contain this")
    parser.add_argument("--shares", type=float, nargs="*", help="shares of labels that are replaced")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--refits", action="store_true", help="what the refits of the copies are worth")
    parser.add_argument("--draws", type=int, default=2, help="of --refits")
    chosen = parser.parse_args()
    if chosen.time:
        return measure_time()
    chosen.out.mkdir(parents=True, exist_ok=True)
    specs = [spec for spec in lt.read_study(ABLATION).datasets if chosen.only in spec.name]
    fits = [
        (spec.name, share, draw, chosen.data)
        for draw in range(chosen.draws)
        for share in chosen.shares or SHARES
        for spec in specs
        if all((chosen.data / part).exists() for part in spec.files)
    ]
    run_refits(fits, chosen.processes, chosen.out / "refits.jsonl")


if __name__ == "__main__":
    main()
