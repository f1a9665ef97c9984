"""The database of decisions: one transaction for each, nothing ever deleted."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from labeltide.decisions.records import Decision, Item, check_decision, check_stored
from labeltide.decisions.schema import prepare_schema
from labeltide.decisions.settle import disputed_items, standing_decisions

DECISIONS = "decisions.sqlite"
WAY_OUT = "Bring back a copy, or move it away to start anew."
PATIENCE = 10.0  # seconds to wait while another process writes

_ITEM = [field.name for field in fields(Item)]
_DECISION = [field.name for field in fields(Decision)]

Record = TypeVar("Record", Item, Decision)


class DecisionStore:
    """The decisions in the folder of an audit, safe for several threads and several processes at once.

    The database is in WAL mode with full synchronisation: a decision whose `add` has returned survives the end of the
    process and of the machine. Use it as a context manager.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._turn = threading.RLock()
        self._known: list[Decision] = []  # read before; rows are only ever added or undone
        self._n_undone = 0

    @classmethod
    def open(cls, folder: Path, *, create: bool) -> DecisionStore:
        """Open the database of a folder; with create=False it must be there."""
        path = Path(folder) / DECISIONS
        if not create and not path.is_file():
            raise ValueError(
                f"The folder {str(folder)!r} holds no decisions. Make some with: labeltide review {str(folder)!r}."
            )
        if not path.parent.is_dir():
            raise ValueError(f"Decisions are kept in the folder of an audit. There is no folder {str(folder)!r}.")
        with _sentences(path):
            connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                _set_up(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(connection, path)

    def __enter__(self) -> DecisionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; what was added is on the disk already."""
        with self._turn:
            self._connection.close()

    def add_items(self, items: Iterable[Item]) -> None:
        """Add items in one transaction; those that are there stay as they are."""
        with self._transaction() as connection:
            _insert_items(connection, items)

    def items(self) -> list[Item]:
        """All items in the order of the queue; single steps that were split off come last."""
        query = f"SELECT {', '.join(_ITEM)} FROM items ORDER BY position IS NULL, position, item_id"
        return [self._entry(Item, row) for row in self._read(query)]

    def add(self, decision: Decision, item: Item | None = None) -> int:
        """Keep a decision, with the item that it is about where that may be new, and return its number.

        A request that was kept before is not kept again.
        """
        check_decision(decision)
        values = {name: getattr(decision, name) for name in _DECISION if name != "decision_id"}
        values["decided_at"] = decision.decided_at or _now()
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        with self._transaction() as connection:
            if decision.request is not None:
                number = _find_request(connection, decision)
                if number is not None:
                    return number
            if item is not None:
                _insert_items(connection, [item])
            return int(connection.execute(f"INSERT INTO decisions({names}) VALUES ({marks})", values).lastrowid or 0)

    def undo(self, reviewer: str) -> Decision | None:
        """Take back the reviewer's last decision that stands; it stays in the database with the time of this."""
        with self._transaction() as connection:
            query = f"SELECT {', '.join(_DECISION)} FROM decisions WHERE reviewer = ? AND undone_at IS NULL"
            row = connection.execute(f"{query} ORDER BY decision_id DESC LIMIT 1", [reviewer]).fetchone()
            if row is None:
                return None
            now = _now()
            number = row[_DECISION.index("decision_id")]
            connection.execute("UPDATE decisions SET undone_at = ? WHERE decision_id = ?", [now, number])
            return Decision(**dict(zip(_DECISION, row, strict=True)) | {"undone_at": now})

    def all(self) -> list[Decision]:
        """Every decision ever made, in order, those undone included."""
        with self._turn:
            last = self._known[-1].decision_id if self._known else 0
            query = f"SELECT {', '.join(_DECISION)} FROM decisions WHERE decision_id > ? ORDER BY decision_id"
            self._known += [self._entry(Decision, row) for row in self._read(query, [last])]
            undone = dict(self._read("SELECT decision_id, undone_at FROM decisions WHERE undone_at IS NOT NULL"))
            if len(undone) > self._n_undone:
                self._known = [replace(d, undone_at=undone.get(d.decision_id)) for d in self._known]
                self._n_undone = len(undone)
            return list(self._known)

    def standing(self) -> list[Decision]:
        """The latest decision of each reviewer on each item, those undone left out."""
        return standing_decisions(self.all())

    def disputed(self) -> dict[str, list[Decision]]:
        """The items on which reviewers differ, with their standing decisions; a skip does not count."""
        return disputed_items(self.standing())

    def setting(self, name: str, default: Any = None) -> Any:
        """A value that was kept beside the items, such as the seed of the sample."""
        found = self._read("SELECT value FROM settings WHERE name = ?", [name])
        try:
            return json.loads(found[0][0]) if found else default
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"{str(self.path)!r} is damaged: its setting {name!r} cannot be read. {WAY_OUT}") from None

    def keep_setting(self, name: str, value: Any) -> None:
        """Keep a value beside the items."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, json.dumps(value)])

    def _entry(self, kind: type[Record], row: tuple[Any, ...]) -> Record:
        """A row as an item or a decision, checked."""
        record = kind(*row)
        try:
            check_stored(record)
        except ValueError as error:
            raise ValueError(f"{str(self.path)!r} is damaged: {str(error).rstrip('.')}. {WAY_OUT}") from None
        return record

    def _read(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn, _sentences(self.path):
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn, _sentences(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise


def _insert_items(connection: sqlite3.Connection, items: Iterable[Item]) -> None:
    marks = ", ".join("?" * len(_ITEM))
    query = f"INSERT OR IGNORE INTO items({', '.join(_ITEM)}) VALUES ({marks})"
    connection.executemany(query, [astuple(item) for item in items])


def _find_request(connection: sqlite3.Connection, decision: Decision) -> int | None:
    """The number of the decision that was kept for the same request; None where there is none."""
    query = "SELECT decision_id, item_id, reviewer, action, label FROM decisions WHERE request = ?"
    row = connection.execute(query, [decision.request]).fetchone()
    if row is None:
        return None
    if row[1:] != (decision.item_id, decision.reviewer, decision.action, decision.label):
        raise ValueError("This request was kept before for another decision. Reload the page, then decide again.")
    return int(row[0])


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    prepare_schema(connection, path)
    said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        raise sqlite3.DatabaseError(said)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode; SQLite does not wait by itself while another process does the same."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise ValueError(
                f"{str(path)!r} is locked by another program. Close it there, then try again; nothing was lost."
            ) from None
        raise ValueError(f"{str(path)!r} cannot be used: {error}. Check its permissions and the free disk.") from None
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{str(path)!r} is damaged or no database of decisions: {error}. {WAY_OUT}") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
