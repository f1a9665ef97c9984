"""The folder of an audit opened for review: its numbers, its labels, and the table that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from labeltide.auditing.folder import AUDIT
from labeltide.auditing.page.results import read_audit
from labeltide.decisions import audit_identity, file_digest
from labeltide.reviewing.lines import Lines, read_lines
from labeltide.reviewing.signals import Signals, open_signals


@dataclass(frozen=True)
class AuditFolder:
    """An audit that can be reviewed."""

    folder: Path
    summary: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path) -> AuditFolder:
        """Read audit.json; a sentence where the folder is no audit."""
        folder = Path(folder)
        if not (folder / AUDIT).is_file():
            raise ValueError(
                f"{str(folder)!r} is not the folder of an audit: it holds no {AUDIT}. Make one with: labeltide audit "
                "TABLE --out FOLDER."
            )
        try:
            summary = read_audit(folder)
        except (UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ValueError(f"{str(folder / AUDIT)!r} cannot be read: {error}") from None
        if not isinstance(summary.get("table"), Mapping) or not summary["table"].get("classes"):
            raise ValueError(f"{str(folder / AUDIT)!r} must name the classes of its table. Audit again.")
        return cls(folder, summary)

    @property
    def identity(self) -> str:
        return audit_identity(self.summary)

    @property
    def table(self) -> Mapping[str, Any]:
        return self.summary["table"]

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.table["classes"]]

    @cached_property
    def lines(self) -> Lines:
        return read_lines(self.folder, self.classes)

    def open_table(self, named: Path | None) -> Signals | None:
        """The signals of the table; None where the audit was of a data frame and no file is named."""
        path = self.find_table(named)
        if path is None:
            return None
        digest = self.table.get("digest")
        if digest and file_digest(path) != digest:
            raise ValueError(
                f"The table {str(path)!r} has changed since the audit, so its rows may be others now. Name the table "
                "as it was with --table, or audit it again."
            )
        return open_signals(path, self.summary, self.lines)

    def find_table(self, named: Path | None) -> Path | None:
        """The file of the table: as named, where it was, or beside the folder."""
        if named is not None:
            if not named.exists():
                raise ValueError(f"There is no table {str(named)!r}. Name the table of the audit with --table.")
            return named
        kept, name = self.table.get("path"), str(self.table.get("name"))
        if not kept:
            return None
        for path in (Path(kept), self.folder / name, self.folder.absolute().parent / name, Path(name)):
            if path.exists():
                return path
        raise ValueError(
            f"The table of the audit is no longer at {kept!r}. Say where it is now with --table FILE; it is needed to "
            "show the signals."
        )
