"""Run a study fleet by fleet. Finished runs are kept at once, so that it can be interrupted and continued."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from labeltide import _validation
from labeltide._files import write_atomically
from labeltide_bench.studies.loading import missing_files
from labeltide_bench.studies.lock import locked
from labeltide_bench.studies.plan import plan_fleets
from labeltide_bench.studies.progress import study_bar
from labeltide_bench.studies.records import RECORDS_FILE, append_records, drop_torn_line, read_records
from labeltide_bench.studies.run_fleet import load_once
from labeltide_bench.studies.study import Study
from labeltide_bench.studies.workers import FleetTask, run_fleets

logger = logging.getLogger("labeltide_bench.studies")


def run_study(
    study: Study,
    data: str | Path,
    out: str | Path,
    *,
    jobs: int = 1,
    fleet_size: int = 64,
    device: str = "auto",
    verbose: bool = False,
) -> Path:
    """Run what is not yet recorded of a study and return the folder of its records.

    After an interruption, the same call continues: finished runs stay, the unfinished fleet continues from its
    checkpoint, and the numbers are the same as without the interruption.

    Parameters
    ----------
    study : as `read_study` gives it
    data : folder below which the study's files lie
    out : folder for `records.jsonl` and a copy of the study
        Refused where it holds the records of another study, or while another process writes to it.
    jobs : processes side by side
    fleet_size : most runs trained together

    Examples
    --------
    >>> import labeltide as lt
    >>> folder = lt.run_study(lt.read_study("small.toml"), data=".", out="results")
    >>> (folder / "records.jsonl").exists()
    True
    """
    data, out = Path(data), Path(out)
    _validation.check_number("jobs", jobs, 1, whole=True)
    _validation.check_number("fleet_size", fleet_size, 1, whole=True)
    device = _validation.check_device(device)
    study = _leave_out_missing(study, data)
    with locked(out):
        _claim(study, out)
        done = {record["key"] for record in read_records(out)}
        fleets = [plan for plan in plan_fleets(study, fleet_size) if not all(run.key in done for run in plan.runs)]
        _check_data(study, {plan.runs[0].dataset.name for plan in fleets}, data)
        work = [FleetTask(plan, data, out / "unfinished" / plan.digest, device) for plan in fleets]
        sizes = [len(plan.runs) for plan in fleets]
        with study_bar(sizes, verbose) as bar, closing(run_fleets(work, jobs, bar.start)) as finished:
            for plan, records in finished:
                append_records(out, [_chosen(study, record) for record in records if record["key"] not in done])
                bar.finish(plan.title, len(plan.runs))
        shutil.rmtree(out / "unfinished", ignore_errors=True)
    return out


def _chosen(study: Study, record: dict[str, Any]) -> dict[str, Any]:
    """The record with the metrics that the study asks for."""
    parts = {
        part: {name: value for name, value in record[part].items() if name in study.metrics}
        for part in ("metrics", "over_time")
    }
    return {**record, **parts}


def _leave_out_missing(study: Study, data: Path) -> Study:
    """The study without the optional data sets whose files are not there; an error for all others."""
    missing = {spec.name: missing_files(spec, data) for spec in study.datasets}
    needed = {name for spec in study.datasets if not spec.optional for name in missing[spec.name]}
    if needed:
        raise FileNotFoundError(
            f"{len(needed)} {'file' if len(needed) == 1 else 'files'} of the study cannot be found below {data}: "
            f"{', '.join(sorted(needed))}. Point --data at their folder; 'labeltide datasets list' names those that "
            "can be fetched."
        )
    absent = [spec.name for spec in study.datasets if missing[spec.name]]
    if absent:
        logger.warning("Left out, because their files are not below %s: %s.", data, ", ".join(absent))
    kept = tuple(spec for spec in study.datasets if spec.name not in absent)
    if not kept:
        raise FileNotFoundError(f"None of the study's data sets is below {data}. Point --data at their folder.")
    return replace(study, datasets=kept)


def _claim(study: Study, out: Path) -> None:
    """Write a copy of the study beside its results; refuse to mix it with another study."""
    copy = out / "study.toml"
    if copy.exists():
        if copy.read_text(encoding="utf-8") != study.text:
            raise ValueError(
                f"{out} holds the results of another study, or of another version of it. Choose a new folder."
            )
    elif any(out.glob("records*.jsonl*")):
        raise ValueError(f"{out} holds records but no study.toml, perhaps of another study. Choose a new folder.")
    else:
        write_atomically(copy, study.text.encode())
    drop_torn_line(out / RECORDS_FILE)


def _check_data(study: Study, names: Collection[str], data: Path) -> None:
    """Load the named data sets and make their noise, so that errors come before hours of work."""
    for spec in study.datasets:
        if spec.name in names:
            train = load_once(spec, data).train
            if spec.n_steps is None and not spec.annotators:  # else `read_study` has already looked
                for noise in study.noise_for(spec):
                    noise.make(len(train.classes), train.features.shape[1])
