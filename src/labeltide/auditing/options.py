"""The options of an audit, and the places where its results and its unfinished work lie."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from labeltide import _validation
from labeltide.auditing.page.format import percent
from labeltide.recordings.recordings import RecordingRequest
from labeltide.tables.files import FORMATS, address_path
from labeltide.tables.roles import Reading, Request

MODELS = ("gru", "tcn", "transformer")
TABLES = tuple(end for each in FORMATS for end in each.extensions)
ENDINGS = (".gz", *TABLES, ".txt", ".pq", ".edf", ".bdf", ".hea", ".fif")


@dataclass(frozen=True)
class AuditOptions:
    """How a table is to be audited; see `audit`."""

    columns: Request
    window: int | None
    model: str
    out: Path | None
    seed: int
    device: str
    fdr: float
    resume: bool
    command: str | None
    recordings: RecordingRequest = field(default_factory=RecordingRequest)
    reading: Reading = field(default_factory=Reading)
    decisions: Path | None = None
    baseline: Path | None = None
    fast: bool = False
    spend_fdr: bool = False
    train_on: float | None = None  # labels, infinite for all; None for the usual number

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            raise ValueError(
                f"The audit of a table knows networks by name: {', '.join(MODELS)}. Got {self.model!r}. With a network "
                "of your own, TideClassifier(model=...).fit(X, y) takes arrays, and its method audit(X, y) audits them."
            )
        _validation.check_choice("model", self.model, MODELS)
        _validation.check_number("seed", self.seed, 0, 2**32 - 1, whole=True)
        _validation.check_number("fdr", self.fdr, 0, 1)

    @property
    def pace(self) -> Pace:
        """How much work is done."""
        return FAST if self.fast else USUAL

    @property
    def checkpoint(self) -> Path | None:
        """Next to the folder, which holds nothing until the audit is whole; a link to it has the same."""
        return None if self.out is None else self.out.resolve().with_name(f".{self.out.resolve().name}-unfinished")

    def settings(self, data: str) -> dict[str, Any]:
        """What an audit that goes on must have in common with the one that was stopped; `data` is a digest."""
        others = {"out", "resume", "command", "device", "recordings"}
        return {name: str(value) for name, value in vars(self).items() if name not in others} | {"data": data}


def default_folder(table: str | Path) -> Path:
    """The folder for the results of a table where none is named: its name without the ending, and "-audit"."""
    parts = [part for part in re.split(r"[/\\]", address_path(table)) if part and not re.search(r"[*?\[]", part)]
    name = table_name = parts[-1] if parts else "table"
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    folder = Path(f"{name or 'table'}-audit")
    earlier = _audited(folder)
    if earlier not in (None, Path(address_path(table)).name):
        raise ValueError(
            f"The folder {str(folder)!r} holds the audit of {earlier!r}, not of {table_name!r}. Name another folder "
            "with --out, or remove that one."
        )
    return folder


def _audited(folder: Path) -> str | None:
    """The name of the table whose audit a folder holds."""
    try:
        return str(json.loads((folder / "audit.json").read_bytes())["table"]["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


class Pace(NamedTuple):
    """Shares of the usual limits of an audit (`fitting.py`)."""

    epochs: float = 1.0  # of each network
    training: float = 1.0  # of the steps to learn from, and of those that a network sees over all epochs
    inference: float = 1.0  # of the steps from which bands, checks and tests are computed
    is_fast: bool = False


USUAL = Pace()
FAST = Pace(epochs=1 / 4, training=1 / 4, inference=1 / 4, is_fast=True)


def say_pace(pace: Pace, train_on: float | None = None) -> list[str]:
    """What a fast audit leaves out, as a sentence; nothing for a usual one. `train_on` labels were asked for."""
    if not pace.is_fast:
        return []
    fewer = f" and from at most {percent(pace.training)} of the usual windows" if train_on is None else ""
    return [
        f"This is a fast audit: networks are trained for {percent(pace.epochs)} of the usual epochs{fewer}; bands, "
        f"checks and tests rest on at most {percent(pace.inference)} of the usual windows. Intervals are wider and "
        "tests weaker than in a full audit, and fewer labels may be named."
    ]
