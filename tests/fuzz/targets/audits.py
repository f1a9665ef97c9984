"""Folders of audits given to predict, review, compare, apply and export; databases of decisions."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import sqlite3
from collections.abc import Callable

import pyarrow as pa
from pyarrow import parquet

from auditing.tables import make_table
from fuzz.engine import Room, Target
from fuzz.mutations import NUMBERS, TEXTS
from fuzz.targets.samples import reviewed_audit
from fuzz.targets.stored import mutate_text_json
from labeltide.auditing.apply import apply_decisions
from labeltide.auditing.compare import compare_audits
from labeltide.auditing.page.page import write_comparison
from labeltide.auditing.predict import predict_table
from labeltide.auditing.results import write_new_table
from labeltide.exporting.spans import export_audit
from labeltide.reviewing.session import open_session, view_item
from labeltide.reviewing.summary import summarise

AUDIT, LABELS, DECISIONS = "audit.json", "labels.parquet", "decisions.sqlite"


def _prepare(name: str) -> Callable[[Room], list[bytes]]:
    def prepare(room: Room) -> list[bytes]:
        shutil.copytree(reviewed_audit(), room.folder / "audit")
        shutil.copytree(reviewed_audit(), room.folder / "other")
        shutil.copy(reviewed_audit().with_name("study.parquet"), room.folder)
        room.things["table"] = make_table(people=3, steps=6, seed=1)
        return [(room.folder / "audit" / name).read_bytes()]

    return prepare


def _with(name: str, use: Callable[[Room], object]) -> Callable[[bytes, Room], None]:
    def run(content: bytes, room: Room) -> None:
        for left in ("-journal", "-wal", "-shm"):
            (room.folder / "audit" / f"{DECISIONS}{left}").unlink(missing_ok=True)
        (room.folder / "audit" / name).write_bytes(content)
        with contextlib.chdir(room.folder):
            use(room)

    return run


def predict(room: Room) -> None:
    found = predict_table(room.folder / "audit", room.things["table"])
    write_new_table(found, room.out / "new.csv")


def compare(room: Room) -> None:
    folders = room.folder / "audit", room.folder / "other"
    write_comparison(compare_audits(*folders).summary, room.out / "page.html")


def apply(room: Room) -> None:
    apply_decisions(room.folder / "audit", room.out / "new.csv", above=0.6)


def export(room: Room) -> None:
    export_audit(room.folder / "audit", "csv", room.out / "spans")


def review(room: Room) -> None:
    session = open_session(room.folder / "audit", items=6, sample=11)
    with session.store:
        session.progress("Ada")
        for position in (0, len(session.queue) - 1):
            view_item(session, position, "Ada")
        summarise(session.audit, session.store)


def review_anew(room: Room) -> None:
    """The queue is drawn from the files, not read from the database."""
    (room.folder / "audit" / DECISIONS).unlink(missing_ok=True)
    review(room)


def mutate_parquet(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """Another type, value, order or number of columns."""
    if draw.random() < 0.4:
        return None
    try:
        table = parquet.read_table(io.BytesIO(content))
        changed = _other_table(draw, table)
        sink = io.BytesIO()
        parquet.write_table(changed, sink)
    except (pa.ArrowException, OSError, ValueError, OverflowError, TypeError):
        return None
    return sink.getvalue()


def _other_table(draw: random.Random, table: pa.Table) -> pa.Table:
    if not table.num_columns:
        return table
    index = draw.randrange(table.num_columns)
    name, kind = table.column_names[index], draw.randrange(7)
    values = table[name].to_pylist()
    if kind == 0:
        return table.remove_column(index)
    if kind == 1:
        return table.slice(0, draw.choice([0, 1, 5]))
    if kind == 2:
        return table.set_column(index, name, pa.array([str(value) for value in values]))
    if kind == 3:
        return table.set_column(index, draw.choice(TEXTS), table[name])
    if kind == 4:
        return table.set_column(index, name, pa.nulls(len(table)))
    if kind == 5:
        return table.append_column(name, table[name])
    for _ in range(draw.choice([1, 5]) if values else 0):
        small = [number for number in NUMBERS if isinstance(number, float) or abs(number) < 2**63]
        choices = TEXTS if isinstance(values[0], str) else [True, False] if isinstance(values[0], bool) else small
        values[draw.randrange(len(values))] = draw.choice([None, *choices])
    return table.set_column(index, name, pa.array(values, None if draw.random() < 0.5 else table[name].type))


def mutate_database(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """Another value in some cell, a missing table or a newer version."""
    if draw.random() < 0.3:
        return None
    path = room.put("mutated.sqlite", content)
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute(_statement(draw, connection))
        finally:
            connection.close()
    except Exception:  # of a database that earlier mutations have damaged
        return None
    return path.read_bytes()


VALUES = ("NULL", "-1", "1e300", "'x'", "x'00ff'", "9223372036854775807", "''", "'{}'", "'[1'", "1.5", "0", "'rest'")


def _statement(draw: random.Random, connection: sqlite3.Connection) -> str:
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = draw.choice([name for name in tables if not name.startswith("sqlite_")])
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    kind = draw.randrange(12)
    if kind == 0:
        return f"DROP TABLE {table}"
    if kind == 1:
        return f"DELETE FROM {table}"
    if kind == 2:
        return f"PRAGMA user_version = {draw.choice([0, 2, -1, 99])}"
    if kind == 3:
        return f"ALTER TABLE {table} RENAME COLUMN {draw.choice(columns)} TO other"
    where = "" if draw.random() < 0.5 else " WHERE rowid = 1"
    return f"UPDATE OR IGNORE {table} SET {draw.choice(columns)} = {draw.choice(VALUES)}{where}"


_COMMANDS = {"predict": predict, "review": review_anew, "compare": compare, "apply": apply, "export": export}
AUDITS = (
    *(
        Target(f"audit.json, {name}", _prepare(AUDIT), _with(AUDIT, use), mutate_text_json)
        for name, use in _COMMANDS.items()
    ),
    *(
        Target(f"labels.parquet, {name}", _prepare(LABELS), _with(LABELS, use), mutate_parquet)
        for name, use in _COMMANDS.items()
        if name != "predict"
    ),
    *(
        Target(f"decisions, {name}", _prepare(DECISIONS), _with(DECISIONS, use), mutate_database)
        for name, use in {"review": review, "apply": apply}.items()
    ),
)
