"""The options of an audit, defined once: the function `audit`, its documentation and the command follow from here.

Loads nothing heavy, because the command line reads the options whenever it starts.
"""

# ruff: noqa: RUF009  (`_option` makes a field)

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from labeltide import _validation

if TYPE_CHECKING:
    from labeltide.recordings.epoch_features import OwnFeatures
    from labeltide.recordings.recordings import RecordingRequest
    from labeltide.tables.roles import Labels, Names, Reading, Request

ALL = "all"
TrainOn = int | float | str | None
ONLY_PYTHON = "only Python"
# What an interrupted audit and the one that goes on with it need not have in common. Signals and labels of recordings
# are compared as data.
MAY_DIFFER = {"out", "resume", "command", "device", "verbose", "labels", "epoch", "field"}
P = ParamSpec("P")
R = TypeVar("R")


def _option(default: Any, text: str, *, only_python: bool = False) -> Any:
    """An option with its description; the command line has no option that is for Python only."""
    return dataclasses.field(default=default, metadata={"help": text, ONLY_PYTHON: only_python})


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How a table is to be audited."""

    sequence: Names = _option(None, "The column that names the person, night or recording of a row.")
    time: str | None = _option(None, "The column that orders the rows of a sequence.")
    label: Names = _option(None, "The column of labels, or one column per annotator, separated by commas.")
    features: Names | OwnFeatures = _option(
        None, "The columns to use as features, separated by commas; by default all others."
    )
    probabilities: Names | Path = _option(
        None,
        "Columns with a model's out-of-sample probabilities, one for each class, separated by commas, or a file with "
        "such columns and the same rows: no network is trained.",
    )
    annotator: str | None = _option(None, "The column that names who labelled a row.")
    clock: Names = _option(
        None,
        "What the noise may depend on: a column, hour_of_day, day_of_week, days or position (the default); an audit "
        "takes up to three, separated by commas.",
    )
    trusted: str | None = _option(None, "A column of labels that are known to be right, empty elsewhere.")
    window: int | None = _option(None, "Cut sequences longer than this many steps; by default chosen from the data.")
    drop_bad_rows: bool = _option(False, "Leave out rows without a time or sequence, and exact duplicates.")
    timezone: str | None = _option(None, "Convert times to a time zone, such as Europe/Berlin; by default as written.")
    missing: Labels = _option(
        None,
        "Labels that mean 'not recorded', separated by commas, or none; by default texts such as ? and unknown, and a "
        "rare -1.",
    )
    classes: Labels = _option(
        None, "All classes, separated by commas: other labels are an error, and similar names are not merged."
    )
    labels: Any = _option(
        None, "Files with the labels of a recording (EDF+, CSV, JSON, XML and others), separated by commas."
    )
    epoch: float | None = _option(None, "The length of an epoch in seconds; by default taken from the labels.")
    field: str | None = _option(
        None,
        "Which features to compute from a recording: eeg, sleep, muscle, ecg, movement, gaze or plain; by default "
        "chosen by the names of its channels.",
    )
    model: str = _option("gru", "The network, such as gru, tcn or transformer; an unknown name lists them all.")
    out: str | Path | None = _option(
        None,
        "The folder for the results: new, empty or that of an earlier audit; nothing is written without it.",
        only_python=True,
    )
    seed: int = _option(0, "The random seed; the same seed gives the same numbers.")
    device: str = _option("auto", "cpu, cuda or auto, which uses a GPU if there is one.")
    fdr: float = _option(0.1, "The share of false alarms allowed among the labels to check.")
    spend_fdr: bool = _option(
        False, "List labels until that share is reached, even if the recorded label is the likeliest."
    )
    verbose: bool = _option(False, "Draw a progress bar on a terminal; elsewhere write log lines.", only_python=True)
    resume: bool = _option(False, "Continue an audit that was interrupted.")
    decisions: str | Path | None = _option(None, "The folder of a reviewed audit, whose settled labels are trusted.")
    baseline: str | Path | None = _option(None, "The folder of an earlier audit to compare with.")
    command: str | None = _option(None, "The command to show on the page.", only_python=True)
    fast: bool = _option(False, "A quick answer from fewer windows and epochs; the page says what was left out.")
    train_on: TrainOn = _option(None, "How many labels to learn from, such as 1e6, or all. Every label is judged.")

    def __post_init__(self) -> None:
        from labeltide.models import MODELS

        if not isinstance(self.model, str):
            raise ValueError(
                f"The audit of a table takes a network by name: {', '.join(MODELS)}. Got {self.model!r}. For a network "
                "of your own, fit TideClassifier(model=...) to arrays and call its method audit(X, y)."
            )
        _validation.check_choice("model", self.model, MODELS)
        if self.probabilities is not None and self.features is not None:
            raise ValueError("Probabilities take the place of features. Name one of the two.")
        _validation.check_number("seed", self.seed, 0, 2**32 - 1, whole=True)
        _validation.check_number("fdr", self.fdr, 0, 1)
        read_train_on(self.train_on)

    @property
    def columns(self) -> Request:
        """The columns that were named."""
        from labeltide.tables.roles import Request

        given = self.probabilities is not None
        features: Any = self.probabilities if given else None if callable(self.features) else self.features
        return Request(self.sequence, self.time, self.label, features, self.annotator, self.clock, self.trusted, given)

    @property
    def second_file(self) -> str | None:
        """The file with the probabilities, where they are not columns of the table."""
        from labeltide.tables.files import format_of, is_address

        given = self.probabilities
        is_file = isinstance(given, str | Path) and (is_address(given) or format_of(Path(given).name) is not None)
        return str(given) if is_file else None

    @property
    def recordings(self) -> RecordingRequest:
        """What is asked of recordings."""
        from labeltide.recordings.recordings import RecordingRequest

        return RecordingRequest(self.labels, self.epoch, self.field, self.features if callable(self.features) else None)

    @property
    def reading(self) -> Reading:
        """How rows, times and labels are read."""
        from labeltide.tables.roles import Reading

        return Reading(self.drop_bad_rows, self.timezone, self.missing, self.classes)

    @property
    def n_train(self) -> float | None:
        """How many labels to learn from, infinite for all; None for the usual number."""
        return read_train_on(self.train_on)

    @property
    def folder(self) -> Path | None:
        """The folder for the results."""
        return None if self.out is None else Path(self.out)

    @property
    def pace(self) -> float:
        """The share of the usual work that is done."""
        return FAST if self.fast else USUAL

    @property
    def checkpoint(self) -> Path | None:
        """Next to the folder, which holds nothing until the audit is whole; a link to it has the same."""
        folder = None if self.folder is None else self.folder.resolve()
        return None if folder is None else folder.with_name(f".{folder.name}-unfinished")

    def settings(self, data: str) -> dict[str, Any]:
        """What an audit that goes on must have in common with the one that was stopped; `data` is a digest."""
        given = {name: str(value) for name, value in vars(self).items() if name not in MAY_DIFFER}
        return given | {"train_on": str(self.n_train), "data": data}


def takes_options(
    options: Callable[P, AuditOptions],
) -> Callable[[Callable[[Any, AuditOptions], R]], Callable[Concatenate[Any, P], R]]:
    """Let a function of a table and `AuditOptions` take the options as keywords, and describe them where its docstring
    has the line "(options)"."""
    described = "\n".join(f"{each.name} : {each.metadata['help']}" for each in dataclasses.fields(AuditOptions))

    def decorate(function: Callable[[Any, AuditOptions], R]) -> Callable[Concatenate[Any, P], R]:
        table = inspect.signature(function).parameters["table"]
        signature = inspect.Signature([table, *inspect.signature(options).parameters.values()])

        @wraps(function)
        def with_keywords(table: Any, *values: P.args, **named: P.kwargs) -> R:
            signature.bind(table, *values, **named)  # its errors name the option, not a class
            return function(table, options(*values, **named))

        with_keywords.__signature__ = signature  # type: ignore[attr-defined]
        with_keywords.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("(options)", described)
        return with_keywords

    return decorate


def read_train_on(value: TrainOn) -> float | None:
    """The number of labels: None for the usual one, infinite for all."""
    if value is None or value == ALL:
        return None if value is None else math.inf
    try:
        number = float(value)
        is_whole = not isinstance(value, bool) and number >= 1 and number.is_integer()
    except (TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise ValueError(
            f"train_on must be a whole number of labels from 1, such as 1e6, or {ALL!r}. Got {value!r}. Leave it "
            "out for the usual number."
        )
    return number


def default_folder(table: str | Path) -> Path:
    """The folder for the results of a table where none is named: its name without the ending, and "-audit"."""
    from labeltide.tables.files import FORMATS, address_path

    known = [end for each in FORMATS for end in each.extensions]
    endings = (".gz", *known, ".txt", ".pq", ".edf", ".bdf", ".hea", ".fif")
    parts = [part for part in re.split(r"[/\\]", address_path(table)) if part and not re.search(r"[*?\[]", part)]
    name = table_name = parts[-1] if parts else "table"
    for ending in endings:
        name = name.removesuffix(ending)
    folder = Path(f"{name or 'table'}-audit")
    try:
        earlier = str(json.loads((folder / "audit.json").read_bytes())["table"]["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        earlier = None
    if earlier not in (None, Path(address_path(table)).name):
        raise ValueError(
            f"The folder {str(folder)!r} holds the audit of {earlier!r}, not of {table_name!r}. Name another folder "
            "with --out, or remove that one."
        )
    return folder


# Shares of the usual limits of an audit (`fitting.py`): epochs, windows to learn from, and windows of bands and tests.
USUAL, FAST = 1.0, 1 / 4


def say_pace(pace: float, train_on: float | None = None) -> list[str]:
    """What a fast audit leaves out, as a sentence; nothing for a usual one. `train_on` labels were asked for."""
    if pace == USUAL:
        return []
    from labeltide.auditing.page.format import percent

    fewer = f" and from at most {percent(pace)} of the usual windows" if train_on is None else ""
    return [
        f"This is a fast audit: networks are trained for {percent(pace)} of the usual epochs{fewer}; bands, "
        f"checks and tests rest on at most {percent(pace)} of the usual windows. Intervals are wider and "
        "tests weaker than in a full audit, and fewer labels may be named."
    ]
