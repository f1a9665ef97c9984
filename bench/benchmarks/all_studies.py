"""Run the studies within a given time: on a rented GPU and its cores, the most important fleets first.

    python bench/benchmarks/all_studies.py run --data DATA --out OUT --minutes 25 --gpu 3 --tide 1 --cpu 11
    python bench/benchmarks/all_studies.py collect --out OUT

`run` starts processes that take one fleet after the other, in the order of PAPER and of TIDE below. A fit that several
studies share is run once, and then stands in the records of each. The same command continues what was interrupted.
`collect` writes the records of each study to its folder below bench/results, but of those whose older records are whole
only if they are named by --studies. With --missing both keep the records that are there, and add others. The numbers
are those of `labeltide bench`, but for the rounding that depends on the size of a fleet. Optional data sets are left
out.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labeltide_bench.studies.packed import ARRAYS
from labeltide_bench.studies.plan import FleetPlan, PlannedRun, plan_fleets
from labeltide_bench.studies.records import append_records, pack_records, read_records
from labeltide_bench.studies.run_fleet import run_fleet
from labeltide_bench.studies.study import Study, read_study

STUDIES = Path(__file__).parents[1] / "studies"
RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = {  # of a study, below RESULTS
    "paper-figures": "paper/figures",
    "paper-tables": "paper/tables",
    "paper-static": "paper/static",
    "paper-code": "paper/code",
    "paper-text": "paper/text",
    "paper-published": "paper/published",
    "paper-static-code": "paper/static-code",
    "one-draw": "paper/one-draw",
    "departures": "paper/departures",
    "ablation": "paper/ablation",
    "blinking": "paper/blinking",
    "class-conditional": "paper/class-conditional",
    "tide": "tide/cost",
    "tide-beyond": "tide/beyond",
    "tide-splits": "tide/splits",
    "heavy-noise": "tide/heavy",
    "annotators": "annotators",
}
PARTLY = ("ablation", "blinking")  # older records, run as a whole, are not replaced by a part of the study
WITH_CURVES = ("paper-tables", "annotators")  # all other records keep no curves, nor do those with published settings
TIDE = ("tide", "clean labels", "clean labels, same information")
FLEET = {"paper": 1000, "tide": 60, "cpu": 4}  # most runs of a fleet


class Part(NamedTuple):
    """Some runs of a study: its draws from `first` to before `last`, of real or simulated data sets or of both."""

    study: str
    first: int
    last: int
    simulated: bool | None = None
    tide: bool = False  # `tide` and its training on clean labels, or all other methods


_tide = partial(Part, tide=True)
PAPER = (
    Part("paper-figures", 0, 10, simulated=False),
    Part("paper-published", 0, 10),
    Part("paper-tables", 0, 10),
    Part("paper-figures", 0, 5, simulated=True),
    Part("paper-static", 0, 5),
    Part("class-conditional", 0, 10),
    Part("paper-text", 0, 5, simulated=False),
    Part("paper-code", 0, 5, simulated=False),
    Part("one-draw", 0, 15),
    Part("departures", 0, 5, simulated=False),
    Part("tide", 0, 10),
    Part("tide-beyond", 0, 10, simulated=False),
    Part("tide-splits", 0, 10),
    Part("annotators", 0, 10),
    Part("paper-static-code", 0, 5),
    Part("paper-text", 0, 2, simulated=True),
    Part("paper-code", 0, 2, simulated=True),
    Part("departures", 0, 3, simulated=True),
    Part("tide-beyond", 0, 3, simulated=True),
    Part("ablation", 0, 5, simulated=False),
    Part("blinking", 0, 10),
    Part("paper-static", 5, 10),
    Part("paper-figures", 5, 10, simulated=True),
    Part("paper-static-code", 5, 10),
    Part("departures", 5, 10, simulated=False),
    Part("ablation", 5, 10, simulated=False),
    Part("ablation", 0, 3, simulated=True),
)
TIDE_PARTS = (
    _tide("paper-tables", 0, 5),
    _tide("tide", 0, 3),
    _tide("paper-figures", 0, 1, simulated=False),
    _tide("annotators", 0, 10),
    _tide("class-conditional", 0, 3, simulated=False),
    _tide("tide-splits", 0, 3),
    _tide("tide-beyond", 0, 3, simulated=False),
    _tide("heavy-noise", 0, 3),
    _tide("paper-figures", 0, 1, simulated=True),
    _tide("class-conditional", 0, 3, simulated=True),
    _tide("tide", 3, 10),
    _tide("paper-tables", 5, 10),
    _tide("tide-splits", 3, 10),
    _tide("class-conditional", 3, 10, simulated=False),
    _tide("tide-beyond", 3, 10, simulated=False),
    _tide("heavy-noise", 3, 5),
    _tide("paper-figures", 1, 10, simulated=False),
)
PLANS = {
    "paper": (*PAPER, *TIDE_PARTS),
    "tide": (*TIDE_PARTS, *PAPER),
    "cpu": tuple(part for part in TIDE_PARTS if not part.simulated),
}


def identity(run: PlannedRun) -> str:
    """The same for two runs, also of two studies, that are one and the same fit; `collect` chooses the metrics."""
    dataset = replace(run.dataset, settings={}, note="", faithful=True, like=None)
    method = run.method
    parts = [repr(dataset), run.noise_key, run.draw, method.published, method.clean, method.same_information]
    parts += [method.without, method.method, sorted(method.settings_for(run.dataset).items(), key=str)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def planned(study: Study, part: Part | None = None) -> Iterator[list[PlannedRun]]:
    """The runs of a study, or of a part of it, by data set, method and fold."""
    for dataset in study.datasets:
        if dataset.optional or (part and part.simulated not in (None, dataset.simulate is not None)):
            continue
        draws = range(study.draws_for(dataset))
        if part and not dataset.annotators:
            draws = draws[part.first : part.last]
        for method in study.methods:
            if part and part.tide != (method.label in TIDE):
                continue
            noises = [noise for noise in study.noise_for(dataset) if method.takes(noise)]
            runs = [PlannedRun(dataset, noise, method, draw, study.same_noise) for draw in draws for noise in noises]
            for fold in range(dataset.folds):
                yield [run for run in runs if run.fold == fold]


def queue(plan: str, studies: dict[str, Study]) -> list[dict[str, PlannedRun]]:
    """Fleets in the order of a plan, without runs that an earlier one has."""
    fleets: list[dict[str, PlannedRun]] = []
    seen: set[str] = set()
    for part in PLANS[plan]:
        size = FLEET["cpu" if plan == "cpu" else "tide" if part.tide else "paper"]
        for runs in planned(studies[part.study], part):
            new = [(name, run) for run in runs if (name := identity(run)) not in seen]
            seen.update(name for name, _ in new)
            fleets += [dict(new[start : start + size]) for start in range(0, len(new), size)]
    return fleets


def work(plan: str, device: str, number: int, data: Path, out: Path, until: float) -> None:
    """Take fleets that no other process has taken, until the time is over."""
    import torch

    torch.set_num_threads(1)
    studies = {name: read_study(STUDIES / f"{name}.toml") for name in FOLDERS}
    curves = {identity(run) for name in WITH_CURVES for runs in planned(studies[name]) for run in runs}
    for fleet in queue(plan, studies):
        if time.time() > until:
            return
        mine = take(list(fleet), out)
        if not mine:
            continue
        started, runs = time.time(), FleetPlan(tuple(fleet[name] for name in mine))
        try:
            records = run_fleet(runs, data, None, device)
        except Exception as error:  # the other fleets go on
            print(f"{runs.title}: {type(error).__name__}: {error}", flush=True)
            continue
        kept = [
            {"identity": name, **{key: value for key, value in record.items() if name in curves or key not in ARRAYS}}
            for name, record in zip(mine, records, strict=True)
        ]
        append_records(out / f"{plan}-{number}", kept)
        print(f"{time.time() - started:7.1f} s  {runs.title}", flush=True)


def take(names: Sequence[str], out: Path) -> list[str]:
    """Those of these runs that nobody has taken, which are then taken."""
    with (out / "taken").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        taken = set(file.read().split())
        mine = [name for name in names if name not in taken]
        file.write("".join(f"{name}\n" for name in mine))
    return mine


def recorded() -> Iterator[str]:
    """The identities of the runs of which there are records."""
    for name, folder in FOLDERS.items():
        keys = {record["key"] for record in read_records(RESULTS / folder)}
        runs = (run for runs in planned(read_study(STUDIES / f"{name}.toml")) for run in runs)
        yield from (identity(run) for run in runs if run.key in keys)


def run(data: Path, out: Path, minutes: float, gpu: int, tide: int, cpu: int, is_missing: bool) -> None:
    """Start the processes and wait for them; what they have begun when the time is over is given up."""
    out.mkdir(parents=True, exist_ok=True)
    names = [*(record["identity"] for record in read_lines(out)), *(recorded() if is_missing else ())]
    (out / "taken").write_text("".join(f"{name}\n" for name in names))
    until = time.time() + 60 * minutes
    workers = []
    plans = ["paper"] * gpu + ["tide"] * tide + ["cpu"] * cpu
    for number, plan in enumerate(plans):
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if plan == "cpu" else {}
        device = "cpu" if plan == "cpu" else "cuda"
        places = ["--data", str(data), "--out", str(out)]
        command = [sys.executable, __file__, "work", *places, "--plan", plan, "--device", device]
        command += ["--number", str(number), "--until", str(until)]
        with (out / f"{plan}-{number}.log").open("a") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **hidden}
            workers.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
    while time.time() < until and any(worker.poll() is None for worker in workers):
        time.sleep(1)
    for worker in workers:
        worker.kill()


def collect(out: Path, studies: Sequence[str], is_missing: bool) -> None:
    """Write the records of these studies of which there are any, in place of those in their folders or beside them."""
    found = {record.pop("identity"): record for record in read_lines(out)}
    for name in studies:
        study, folder = read_study(STUDIES / f"{name}.toml"), RESULTS / FOLDERS[name]
        runs = [run for fleet in plan_fleets(study, study.n_runs) for run in fleet.runs if not run.dataset.optional]
        new = {run.key: _of_study(study, run, found[key]) for run in runs if (key := identity(run)) in found}
        by_key = {record["key"]: record for record in read_records(folder)} if is_missing else {}
        records = [(by_key | new)[run.key] for run in runs if run.key in by_key or run.key in new]
        print(f"{name:18} {len(records):6} of {len(runs)}, {len(new)} of them new")
        if new:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("records*"):
                old.unlink()
            (folder / "study.toml").write_text(study.text, encoding="utf-8")
            append_records(folder, records)
            pack_records(folder)


def _of_study(study: Study, run: PlannedRun, record: dict[str, Any]) -> dict[str, Any]:
    """The record of a fit under the names of the study, with the metrics that it asks for."""
    about = {**record["dataset_info"], "note": run.dataset.note, "faithful": run.dataset.faithful}
    parts: dict[str, Any] = {
        part: {name: value for name, value in record[part].items() if name in study.metrics}
        for part in ("metrics", "over_time")
        if part in record
    }
    mine = {**record, **parts, "key": run.key, "method": run.method.label, "dataset_info": about}
    has_curves = study.name in WITH_CURVES and not run.method.published
    return {key: value for key, value in mine.items() if has_curves or key not in ARRAYS}


def read_lines(out: Path) -> Iterator[dict[str, Any]]:
    """What all processes have finished; a torn last line is passed over."""
    for path in sorted(out.glob("*/records.jsonl")):
        with path.open(encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.endswith("\n"))


def main() -> None:
    """Run the studies, or write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "work", "collect"])
    parser.add_argument("--data", type=Path, default=os.environ.get("LABELTIDE_DATA"))
    parser.add_argument("--out", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--gpu", type=int, default=3, help="processes on the GPU, which begin with the paper's methods")
    parser.add_argument("--tide", type=int, default=1, help="processes on the GPU that begin with tide")
    parser.add_argument("--cpu", type=int, default=11, help="processes on one core each, for tide alone")
    parser.add_argument("--missing", action="store_true", help="keep the records that are there, and add others")
    parser.add_argument(
        "--studies",
        nargs="*",
        choices=FOLDERS,
        default=[name for name in FOLDERS if name not in PARTLY],
        help=f"whose records are written (default: all but {' and '.join(PARTLY)})",
    )
    for name, kind in (("plan", str), ("device", str), ("number", int), ("until", float)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)  # of a process
    chosen = parser.parse_args()
    if chosen.data is None and chosen.what != "collect":
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    if chosen.what == "run":
        run(chosen.data, chosen.out, chosen.minutes, chosen.gpu, chosen.tide, chosen.cpu, chosen.missing)
    elif chosen.what == "work":
        work(chosen.plan, chosen.device, chosen.number, chosen.data, chosen.out, chosen.until)
    else:
        collect(chosen.out, chosen.studies, chosen.missing)


if __name__ == "__main__":
    main()
