"""The database of decisions: one transaction for each, nothing ever deleted."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from labeltide._validation import COUNT, TEXT, Maybe, Rule, check_content, one_of

# Items of a review and decisions on them, as the database holds them.

ACTIONS = ("label", "keep", "skip")
KINDS = ("suspect", "sample")
MAX_TEXT = 10_000  # characters of a comment, a name or a label


@dataclass(frozen=True)
class Item:
    """One stretch of labels of one annotator that is to be settled."""

    item_id: str
    audit: str
    kind: str  # "suspect", or "sample" for an item of the probability sample
    sequence: str | None
    annotator: str | None
    first_row: int  # of the user's table, from 0; those rows of the stretch that have its sequence and annotator count
    last_row: int  # included
    probability: float | None = None  # of being drawn given the items before it; None for a suspect
    draws: int = 0  # how many times it was drawn; 0 for a suspect
    target: int | None = None  # the marked row, which a decision must cover; the drawn label of a sample item
    position: int | None = None  # in the queue; None for a single step that was split off a stretch
    draw: int | None = None  # number of the draw, from 0; None for a suspect


@dataclass(frozen=True)
class Decision:
    """What one reviewer decided about one item."""

    item_id: str
    audit: str
    reviewer: str
    action: str  # "label", "keep" if the recorded labels are right, or "skip"
    label: str | None  # the label that is right; None unless the action is "label"
    first_row: int  # they may be fewer than those of the item
    last_row: int
    sequence: str | None = None
    annotator: str | None = None
    comment: str = ""
    shown: str = "{}"  # JSON of what was on the screen
    probability: float | None = None
    request: str | None = None  # random text that the browser made, by which a repeated request is known
    decided_at: str = ""  # UTC in ISO 8601; set by the store where it is empty
    undone_at: str | None = None
    decision_id: int | None = None


_SHORT_TEXT = Rule(
    f"a text of at most {MAX_TEXT} characters", lambda value: isinstance(value, str) and len(value) <= MAX_TEXT
)
_SHARE = Rule("a probability above 0", lambda value: type(value) in (int, float) and 0 < value <= 1)
_ROWS = Rule(
    "about whole rows from 0, the first not after the last",
    lambda entry: 0 <= entry["first_row"] <= entry["last_row"],
)
_IS_DRAWN = Rule(
    "drawn with an inclusion probability, as every item of the sample is",
    lambda item: (
        item["kind"] != "sample" or item["position"] is None or None not in (item["draw"], item["probability"])
    ),
)
_HAS_LABEL = Rule(
    "with a label if its action is 'label', and without one otherwise",
    lambda decision: (decision["label"] is not None) == (decision["action"] == "label"),
)
_BY_TYPE = {"str": TEXT, "str | None": Maybe(TEXT), "int": COUNT, "int | None": Maybe(COUNT)}
_BY_TYPE |= {"float | None": Maybe(_SHARE)}
_STRICTER = {
    "kind": one_of(KINDS),
    "action": one_of(ACTIONS),
    "reviewer": (_SHORT_TEXT, Rule("a name that is not empty", lambda name: bool(name.strip()))),
    "label": Maybe(_SHORT_TEXT),
    "comment": _SHORT_TEXT,
}
_SHAPES: dict[type, Any] = {
    kind: {each.name: _STRICTER.get(each.name) or _BY_TYPE[str(each.type)] for each in fields(kind)}
    for kind in (Item, Decision)
}


def check_record(record: Item | Decision) -> None:
    """Refuse a record that the database must not hold; SQLite itself keeps any value in any column."""
    name, rule = ("item", _IS_DRAWN) if isinstance(record, Item) else ("decision", _HAS_LABEL)
    check_content(vars(record), (_SHAPES[type(record)], _ROWS, rule), name)


# The tables of `decisions.sqlite` and their version.

VERSION = 1

TABLES = (
    """CREATE TABLE items(
        item_id TEXT PRIMARY KEY, audit TEXT, kind TEXT CHECK(kind IN ('suspect','sample')), sequence TEXT,
        annotator TEXT, first_row INTEGER, last_row INTEGER, probability REAL, draws INTEGER,
        target INTEGER, position INTEGER, draw INTEGER)""",
    """CREATE TABLE decisions(
        decision_id INTEGER PRIMARY KEY AUTOINCREMENT, item_id TEXT, audit TEXT, reviewer TEXT, decided_at TEXT,
        action TEXT CHECK(action IN ('label','keep','skip')), label TEXT, first_row INTEGER, last_row INTEGER,
        sequence TEXT, annotator TEXT, comment TEXT, shown TEXT, probability REAL, request TEXT UNIQUE,
        undone_at TEXT)""",
    "CREATE INDEX decisions_of_items ON decisions(item_id, reviewer)",
    "CREATE INDEX undone_decisions ON decisions(undone_at) WHERE undone_at IS NOT NULL",
    "CREATE TABLE settings(name TEXT PRIMARY KEY, value TEXT)",
)


def prepare_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of an empty database; refuse one of a newer version, or of another program."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if (tables or version) and not {"items", "decisions", "settings"} <= tables:
        raise ValueError(f"{str(path)!r} is a database of another program. Move it out of the folder.")
    if version > VERSION:
        raise ValueError(
            f"{str(path)!r} was written by a newer version of labeltide (its format is {version}, this one reads up "
            f"to {VERSION}). Update labeltide with: pip install -U labeltide."
        )
    connection.execute("PRAGMA synchronous = EXTRA")  # the folder, too, after the journal is gone
    if version:  # nothing is written, so that a folder that is read-only can be read
        return
    with _immediate(connection):
        if not connection.execute("PRAGMA user_version").fetchone()[0]:  # another process may have been first
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that begins with the right to write."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back unless SQLite itself has, as where the disk is full
        yield


DECISIONS = "decisions.sqlite"
WAY_OUT = "Restore a copy, or move it away to start again."
PATIENCE = 10.0  # seconds to wait while another process writes
RENAME_SECONDS = 1.0  # for which the file may be missing while a new audit moves it

_ITEM = [field.name for field in fields(Item)]
_DECISION = [field.name for field in fields(Decision)]

Record = TypeVar("Record", Item, Decision)


class DecisionStore:
    """The decisions in the folder of an audit, safe for several threads and several processes at once.

    A decision whose `add` has returned survives the end of the process and of the machine. It is in the file itself:
    the database has a rollback journal, because a write-ahead log that somebody deletes takes decisions with it. Use
    the store as a context manager.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._file = _file_identity(path)
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
                prepare_schema(connection, path)
                problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if problem != "ok":
                    raise sqlite3.DatabaseError(problem)
            except BaseException:
                connection.close()
                raise
        return cls(connection, path)

    def __enter__(self) -> DecisionStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; what was added is on the disk already."""
        with self._turn:
            self._connection.close()

    def add_items(self, items: Iterable[Item]) -> None:
        """Add items in one transaction; those that are there stay as they are."""
        query = f"INSERT OR IGNORE INTO items({', '.join(_ITEM)}) VALUES ({', '.join('?' * len(_ITEM))})"
        with self.transaction() as connection:
            connection.executemany(query, [astuple(item) for item in items])

    def items(self) -> list[Item]:
        """All items in the order of the queue; single steps that were split off come last."""
        query = f"SELECT {', '.join(_ITEM)} FROM items ORDER BY position IS NULL, position, item_id"
        return [self._entry(Item, row) for row in self._read(query)]

    def add(self, decision: Decision, item: Item | None = None) -> int:
        """Keep a decision, with the item that it is about where that may be new, and return its number.

        A request that was kept before is not kept again.
        """
        check_record(decision)
        values = {name: getattr(decision, name) for name in _DECISION if name != "decision_id"}
        values["decided_at"] = decision.decided_at or _now()
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        with self.transaction() as connection:
            if decision.request is not None:
                query = "SELECT decision_id, item_id, reviewer, action, label FROM decisions WHERE request = ?"
                row = connection.execute(query, [decision.request]).fetchone()
                if row and row[1:] != (decision.item_id, decision.reviewer, decision.action, decision.label):
                    raise ValueError(
                        "This request was kept before for another decision. Reload the page, then decide again."
                    )
                if row:
                    return int(row[0])
            if item is not None:
                self.add_items([item])
            return int(connection.execute(f"INSERT INTO decisions({names}) VALUES ({marks})", values).lastrowid or 0)

    def undo(self, reviewer: str) -> Decision | None:
        """Take back the reviewer's last decision that stands; it stays in the database with the time of this."""
        with self.transaction() as connection:
            query = f"SELECT {', '.join(_DECISION)} FROM decisions WHERE reviewer = ? AND undone_at IS NULL"
            row = connection.execute(f"{query} ORDER BY decision_id DESC LIMIT 1", [reviewer]).fetchone()
            if row is None:
                return None
            undone = replace(Decision(*row), undone_at=_now())
            query = "UPDATE decisions SET undone_at = ? WHERE decision_id = ?"
            connection.execute(query, [undone.undone_at, undone.decision_id])
            return undone

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
        latest: dict[tuple[str, str], Decision] = {}
        for decision in self.all():
            if decision.undone_at is None:
                latest[decision.reviewer, decision.item_id] = decision
        return sorted(latest.values(), key=lambda decision: decision.decision_id or 0)

    def setting(self, name: str, default: Any = None) -> Any:
        """A value that was stored with the items, such as the seed of the sample."""
        found = self._read("SELECT value FROM settings WHERE name = ?", [name])
        try:
            return json.loads(found[0][0]) if found else default
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"{str(self.path)!r} is damaged: its setting {name!r} cannot be read. {WAY_OUT}") from None

    def keep_setting(self, name: str, value: Any) -> None:
        """Store a value with the items."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, json.dumps(value)])

    def _entry(self, kind: type[Record], row: tuple[Any, ...]) -> Record:
        """A row as an item or a decision, checked."""
        record = kind(*row)
        try:
            check_record(record)
        except ValueError as error:
            raise ValueError(f"{str(self.path)!r} is damaged: {str(error).rstrip('.')}. {WAY_OUT}") from None
        return record

    def _read(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn, _sentences(self.path):
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, in which other processes wait; transactions inside it are part of it."""
        with self._turn, _sentences(self.path):
            if self._connection.in_transaction:
                yield self._connection
                return
            self._check_file()
            with _immediate(self._connection):
                yield self._connection
            self._check_file()

    def _check_file(self) -> None:
        """Refuse to write into a file that was deleted or replaced: what is written there is lost."""
        end = time.monotonic() + RENAME_SECONDS
        while (found := _file_identity(self.path)) is None and time.monotonic() < end:
            time.sleep(0.02)  # a new audit moves the file from the old folder to the new one
        if found != self._file:
            raise ValueError(
                f"{str(self.path)!r} was deleted, moved or replaced, so this decision was not kept. Stop the review, "
                "bring the file back if you can, and start the review again."
            )


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
        raise ValueError(f"{str(path)!r} is damaged or not a database of decisions: {error}. {WAY_OUT}") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# Which decisions stand, where reviewers differ, and the labels that follow.


def disputed_items(standing: Iterable[Decision]) -> dict[str, list[Decision]]:
    """The items on which reviewers differ, with their decisions; one who skipped has not answered."""
    by_item: dict[str, list[Decision]] = {}
    for decision in standing:
        if decision.action != "skip":
            by_item.setdefault(decision.item_id, []).append(decision)
    return {item: found for item, found in by_item.items() if len({(each.action, each.label) for each in found}) > 1}


@dataclass(frozen=True)
class SettledLabels:
    """Labels that reviewers settled, one entry for each line of a table that a decision covers."""

    line: np.ndarray  # int64 (settled,): indices into the lines that were passed
    row: np.ndarray  # int64 (settled,): rows of the user's table
    annotator: list[str | None]
    label: list[str]  # the label that is right
    reviewer: list[str]  # those who agree are joined by ", "
    comment: list[str]
    disputed: np.ndarray  # int64 (disputed,): lines on which reviewers differ, which are left out

    @property
    def n_disputed(self) -> int:
        return len(self.disputed)

    def __len__(self) -> int:
        return len(self.line)


def settled_labels(decisions: Iterable[Decision], lines: pa.Table) -> SettledLabels:
    """The labels that standing decisions settle.

    A reviewer's latest decision on a label stands. Where reviewers differ, the label is left out and counted. A kept
    label is the recorded one; where nothing was recorded, nothing is settled. `lines` has the columns row, sequence,
    annotator and recorded, as labels.parquet has them.
    """
    rows = lines["row"].to_numpy()
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    columns = {name: lines[name].combine_chunks() for name in ("sequence", "annotator")}
    votes: dict[int, dict[str, Decision]] = {}  # the latest decision of each reviewer on each line that is covered
    for decision in sorted(decisions, key=lambda decision: decision.decision_id or 0):
        if decision.action == "skip" or decision.undone_at is not None:
            continue
        first, last = np.searchsorted(ordered, [decision.first_row, decision.last_row + 1])
        covered = order[first:last]
        inside = np.ones(len(covered), bool)
        for name, value in (("sequence", decision.sequence), ("annotator", decision.annotator)):
            if value is not None:
                texts = columns[name].take(pa.array(covered)).to_pylist()
                inside &= np.array([text == value for text in texts], bool)
        for index in covered[inside].tolist():
            votes.setdefault(index, {})[decision.reviewer] = decision
    indices = sorted(votes)
    table = lines.select(["row", "annotator", "recorded"]).take(pa.array(indices, pa.int64())).to_pylist()
    kept: list[tuple[int, dict[str, object], str, list[Decision]]] = []
    disputed: list[int] = []
    for index, line in zip(indices, table, strict=True):
        answers = {d.label if d.action == "label" else line["recorded"]: d.action for d in votes[index].values()}
        if len(answers) > 1:
            disputed.append(index)
        elif (label := next(iter(answers))) is not None:
            kept.append((index, line, label, list(votes[index].values())))
    return SettledLabels(
        line=np.array([index for index, *_ in kept], np.int64),
        row=np.array([line["row"] for _, line, *_ in kept], np.int64),
        annotator=[line["annotator"] for _, line, *_ in kept],  # type: ignore[misc]
        label=[label for _, _, label, _ in kept],
        reviewer=[", ".join(dict.fromkeys(d.reviewer for d in found)) for *_, found in kept],
        comment=["; ".join(d.comment for d in found if d.comment) for *_, found in kept],
        disputed=np.array(disputed, np.int64),
    )


# What an audit and its table are known by, so that decisions are never used for another table.

TABLE = ("name", "rows", "sequences", "labels", "columns", "classes", "features", "annotators", "digest")
SETTINGS = ("model", "seed", "window", "fdr")


def audit_identity(summary: Mapping[str, Any]) -> str:
    """A hash over what audit.json says of the table and the settings: 16 hexadecimal digits.

    Two audits of one table with the same settings have the same identity.
    """
    table, settings = summary.get("table") or {}, summary.get("settings") or {}
    content = [[table.get(name) for name in TABLE], [settings.get(name) for name in SETTINGS]]
    content += [[table["content"]]] if table.get("content") else []  # of a frame or of several files
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if file != path:
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode("utf-8", "replace"))
        with file.open("rb") as source:
            hashlib.file_digest(source, lambda: digest)
    return f"sha256:{digest.hexdigest()}"


def find_table(audit: Mapping[str, Any], folder: Path, named: str | Path | None) -> Path | None:
    """The audited table, unchanged since, by its name or its path; None where it was not a file and none is named."""
    about = audit["table"]
    known, name = about.get("path"), str(about.get("name"))
    if named is None and not known:
        return None
    paths = (
        [Path(known or ""), folder / name, folder.absolute().parent / name, Path(name)] if named is None else [named]
    )
    path = next((Path(each) for each in paths if Path(each).exists()), None)
    if path is None:
        raise ValueError(f"The audited table is not at {str(paths[0])!r}. Say where it is with --table FILE.")
    if about.get("digest") and file_digest(path) != about["digest"]:
        raise ValueError(
            f"The table {str(path)!r} has changed since the audit in {str(folder)!r}, so its rows may be others now. "
            "Name the audited table with --table, or audit the new one with: labeltide audit TABLE --decisions FOLDER."
        )
    return path
