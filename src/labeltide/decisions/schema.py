"""The tables of `decisions.sqlite` and their version."""

from __future__ import annotations

import sqlite3
from pathlib import Path

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
    "CREATE TABLE settings(name TEXT PRIMARY KEY, value TEXT)",
)


def prepare_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of an empty database; refuse one of a newer version, or of another program."""
    version = read_version(connection)
    if version == 0:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = read_version(connection)  # another process may have been first
            if version == 0:
                _create(connection, path)
                version = VERSION
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    check_version(version, path)


def read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_version(version: int, path: Path) -> None:
    """Refuse a version that this one cannot know."""
    if version > VERSION:
        raise ValueError(
            f"{str(path)!r} was written by a newer version of labeltide (its format is {version}, this one reads up "
            f"to {VERSION}). Update labeltide with: pip install -U labeltide."
        )


def _create(connection: sqlite3.Connection, path: Path) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables:
        raise ValueError(f"{str(path)!r} is a database of another program. Move it away.")
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
