"""Read the records of a results folder into runs, whichever file format they are stored in."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from labeltide.noise.simulate import noise_matrices
from labeltide_bench.pages.method_order import Q_ERRORS, base_name
from labeltide_bench.studies.packed import read_packed
from labeltide_bench.studies.records import PACKED_FILE, RECORD_FORMAT, open_records, record_files

SAME_RATE = 1e-4  # difference of average rates up to which a noise function is the same
CONDITIONAL = "class-conditional"  # the variant of noise whose rates differ between classes
REVERSED = "classes reversed"
GIVEN = "known"  # the estimator that is given Q(t) or its average, and estimates none
Value = TypeVar("Value")


@dataclass(frozen=True)
class DatasetInfo:
    """What a record says about its data."""

    faithful: bool | None = None  # the paper's own data, a substitute, or neither
    note: str = ""
    split: str = ""
    n_train: int | None = None
    n_test: int | None = None
    n_steps: int | None = None
    n_features: int | None = None
    classes: tuple[str, ...] = ()
    reference: str = ""  # what real people's labels were measured against
    clock: str = ""  # its unit, where it has one


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its cell and draw, its metrics and its curves.

    Attributes
    ----------
    rate : true average share of wrong labels of the noise function
    metrics : name → number; NaN where the fit gave none
    over_time : name → array of shape (points,)
    noise, true_noise : array of shape (points, classes, classes), or None
    observed_change : distance of real people's noise from its own average over the clock
    referenced : share of the test steps for which there is a reference
    """

    dataset: str
    info: DatasetInfo
    shape: str
    level: str
    rate: float
    variant: str
    method: str
    draw: int
    metrics: Mapping[str, float]
    seconds: float = math.nan
    fleet: int = 1
    device: str = ""
    commit: str = ""
    finished: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    over_time: Mapping[str, np.ndarray] = field(default_factory=dict)
    clock: np.ndarray | None = None
    true_noise: np.ndarray | None = None
    noise: np.ndarray | None = None
    observed_change: float = math.nan
    referenced: float = math.nan

    @property
    def n_classes(self) -> int:
        if self.true_noise is not None:
            return int(self.true_noise.shape[-1])
        return max(len(self.info.classes), 2)

    @property
    def task(self) -> tuple[str, int, str]:
        """The data set, its number of classes and its split: what must agree for errors to be comparable."""
        return self.dataset, self.n_classes, self.info.split

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this run apart from every other; a later line with the same key replaces it."""
        return (*self.task, self.shape, self.level, self.variant, self.method, self.draw)


class Results(NamedTuple):
    """Everything a results folder holds."""

    runs: list[Run]
    title: str
    description: str
    unreadable: int  # lines that were passed over: torn by a kill, or not a record
    repeated: int  # lines that a later line of the same run replaced


def read_results(folder: Path) -> Results:
    """Read every file of records in a folder, and the study's title where it is there."""
    paths = record_files(folder)
    if not paths:
        raise FileNotFoundError(
            f"{folder} holds no records.jsonl. Point to the folder that 'labeltide bench' wrote to."
        )
    runs: dict[tuple[object, ...], Run] = {}
    unreadable = repeated = 0
    for record in (record for path in paths for record in _records(path)):
        run = None if record is None else _run(record)
        if run is None:
            unreadable += 1
            continue
        repeated += run.key in runs
        runs[run.key] = run
    if not runs:
        raise ValueError(f"{folder} holds no finished run yet. Start or continue it with 'labeltide bench'.")
    title, description = _study_text(folder)
    return Results(list(runs.values()), title, description, unreadable, repeated)


def _records(path: Path) -> Iterator[Any]:
    """What a file holds, None for a line that is not JSON; a compressed file that was cut off gives what it holds."""
    if path.name == PACKED_FILE:
        yield from read_packed(path)
        return
    try:
        with open_records(path, errors="replace") as file:
            yield from (_loads(line) for line in file if line.strip())
    except (gzip.BadGzipFile, lzma.LZMAError):
        raise ValueError(f"{path} is not compressed as its name says. Rename or remove it.") from None
    except (EOFError, zlib.error):
        yield None  # counted as unreadable


def _loads(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _run(record: Any) -> Run | None:
    """One record, or None where it is not one."""
    try:
        newer = isinstance(record, dict) and record.get("format", RECORD_FORMAT) > RECORD_FORMAT
    except TypeError:
        return None
    if newer:
        raise ValueError(
            f"The records have format {record['format']}, and this labeltide reads up to {RECORD_FORMAT}. "
            "Update labeltide."
        )
    try:
        return _parse(record)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _parse(record: Mapping[str, Any]) -> Run:
    level = record.get("level") or {}
    constants = level.get("constants", {}) if isinstance(level, dict) else {}
    if isinstance(level, dict) and "rate" in level and not math.isfinite(float(level["rate"])):
        raise ValueError("a rate must be finite: it is shown as a percentage")
    true_noise, noise = _matrices(record.get("true_noise")), _matrices(record.get("noise"))
    over_time = {str(name): _array(values) for name, values in (record.get("over_time") or {}).items()}
    metrics = {str(name): _number(value) for name, value in record["metrics"].items()}
    if str(record.get("estimator") or base_name(str(record["method"]))) == GIVEN:
        metrics, over_time, noise = _without_q(metrics), _without_q(over_time), None
    clock = _array(record["clock"]) if record.get("clock") is not None else None
    if true_noise is None and clock is None:  # records without arrays
        true_noise, clock = _drawn_noise(record, json.dumps(level, sort_keys=True))
    return Run(
        dataset=str(record["dataset"]),
        info=_info(record.get("dataset_info") or {}),
        shape=str(record["shape"]),
        level=json.dumps(level, sort_keys=True),
        rate=_number(record.get("rate")),
        variant=str(record.get("variant") or "uniform"),
        method=str(record["method"]),
        draw=int(record["draw"]),
        metrics=metrics,
        seconds=_number(record.get("seconds")),
        fleet=int(record.get("fleet") or 1),
        device=str(record.get("device") or ""),
        commit=str(record.get("commit") or ""),
        finished=str(record.get("finished") or record.get("date") or ""),
        versions={str(name): str(version) for name, version in (record.get("versions") or {}).items()},
        constants={str(name): float(value) for name, value in constants.items()},
        over_time=over_time,
        clock=clock,
        true_noise=true_noise,
        noise=noise,
        observed_change=_number(record.get("observed_change")),
        referenced=_number(record.get("referenced")),
    )


def _drawn_noise(record: Mapping[str, Any], level: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The Q(t) that the labels of a record were drawn from and its clock, made again from shape and level.

    None where it does not have the record's average rate: the level then had another meaning.
    """
    info, variant = record.get("dataset_info") or {}, str(record.get("variant") or "uniform")
    n_classes, n_steps = len(info.get("classes") or ()), info.get("n_steps")
    if n_classes < 2 or not isinstance(n_steps, int) or "annotator" in level or ":" in str(record["shape"]):
        return None, None
    matrices = _noise_of_level(str(record["shape"]), level, variant, n_classes, n_steps)
    wrong = 1 - np.diagonal(matrices, axis1=1, axis2=2).mean()
    is_same = abs(wrong - _number(record.get("rate"))) < SAME_RATE
    return (matrices, _array(np.linspace(0, 1, n_steps))) if is_same else (None, None)


@cache
def _noise_of_level(shape: str, level: str, variant: str, n_classes: int, n_steps: int) -> np.ndarray:
    settings = {"rate": 0.3, **json.loads(level)}
    matrices = noise_matrices(shape, n_classes, n_steps, class_conditional=variant == CONDITIONAL, **settings)
    return _array(matrices[:, ::-1, ::-1] if variant == REVERSED else matrices)


def _without_q(values: dict[str, Value]) -> dict[str, Value]:
    """Values without the errors of a Q that was given to the method and not estimated."""
    return {name: value for name, value in values.items() if name not in Q_ERRORS}


def _info(info: Mapping[str, Any]) -> DatasetInfo:
    counts = {name: info.get(name) for name in ("n_train", "n_test", "n_steps", "n_features")}
    return DatasetInfo(
        faithful=info.get("faithful"),
        note=str(info.get("note") or ""),
        split=str(info.get("split") or ""),
        reference=str(info.get("reference") or ""),
        clock=str(info.get("clock") or ""),
        classes=tuple(str(name) for name in info.get("classes") or ()),
        **{name: None if count is None else int(count) for name, count in counts.items()},
    )


def _number(value: Any) -> float:
    """A float; NaN for null and for what is not finite."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else math.nan


def _array(values: Any) -> np.ndarray:
    """Single precision keeps thousands of runs small; null becomes NaN."""
    return np.array(values, dtype=np.float32)


def _matrices(values: Any) -> np.ndarray | None:
    if values is None:
        return None
    matrices = _array(values)
    if matrices.ndim != 3 or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"Q must have shape (points, classes, classes). Got {matrices.shape}.")
    return matrices


def _study_text(folder: Path) -> tuple[str, str]:
    """Title and description from the copy of the study; a broken copy is no reason to have no page."""
    try:
        study = tomllib.loads((folder / "study.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        study = {}
    return str(study.get("title") or "Benchmark results"), str(study.get("description") or "")
