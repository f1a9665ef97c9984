"""The options of an audit, and the checkpoint with which an interrupted one is resumed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from labeltide import _validation
from labeltide.auditing.pace import FAST, USUAL, Pace
from labeltide.tables.roles import Request

MODELS = ("gru", "tcn", "transformer")
UNFINISHED = "started"  # beside the checkpoints of a fit, which are gone once it ends


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
    fast: bool = False

    def __post_init__(self) -> None:
        _validation.check_choice("model", self.model, MODELS)
        _validation.check_number("seed", self.seed, 0, 2**32 - 1, whole=True)
        _validation.check_number("fdr", self.fdr, 0, 1)

    @property
    def pace(self) -> Pace:
        """How much work is done."""
        return FAST if self.fast else USUAL

    @property
    def checkpoint(self) -> Path | None:
        """Beside the folder, which holds nothing until the audit is whole."""
        return None if self.out is None else self.out.absolute().with_name(f".{self.out.absolute().name}-unfinished")


def prepare_checkpoint(options: AuditOptions) -> None:
    """Start anew, or make sure that there is something to go on with."""
    folder = options.checkpoint
    if folder is None:
        return
    if options.resume and not folder.exists():
        raise ValueError(
            f"There is no interrupted audit to go on with beside {str(options.out)!r}. Leave --resume out to start one."
        )
    if not options.resume and folder.exists():
        shutil.rmtree(folder)


def mark_unfinished(options: AuditOptions) -> None:
    """Leave a trace until all is written, so that an audit stopped at any later moment can be gone on with."""
    if options.checkpoint is not None:
        options.checkpoint.mkdir(parents=True, exist_ok=True)
        (options.checkpoint / UNFINISHED).touch()
