"""Cases that once ended as none may are replayed, and a few inputs of every cheap kind are tried."""

import mmap
import os
import signal
import time

import pytest

from fuzz.engine import CASES, Room, _count, check, fuzz
from fuzz.targets import TARGETS

FOUND = sorted(path for path in CASES.rglob("*") if path.is_file())
SEED = 20


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    """The room of a target, prepared once."""
    made: dict[str, Room] = {}

    def room_of(kind: str) -> Room:
        if kind not in made:
            made[kind] = Room(tmp_path_factory.mktemp("room"))
            TARGETS[kind].prepare(made[kind])
        return made[kind]

    return room_of


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_kept_case_is_read_or_refused_with_a_sentence(path, rooms):
    kind = path.parent.name.replace("_", " ")
    check(TARGETS[kind], path.read_bytes(), rooms(kind))


@pytest.mark.parametrize(
    "kind", ["unfinished settings", "studies", "records", "csv", "spans, label studio", "review requests"]
)
def test_mutated_inputs_are_read_or_refused_with_a_sentence(kind, tmp_path):
    found = fuzz(TARGETS[kind], 0.5, SEED, tmp_path)
    assert not found.failures, found.failures[0][1]
    assert found.tried


def test_the_counts_of_a_child_are_never_seen_empty():
    """Zeros would read as a child that hangs since 1970, and end it."""
    shared = mmap.mmap(-1, 4096)
    _count(shared, 1, 1, 0, 1.0)
    child = os.fork()
    end = time.monotonic() + 1
    if child == 0:
        while time.monotonic() < end + 1:
            _count(shared, 1, 1, 0, 1.0)
        os._exit(0)
    try:
        while time.monotonic() < end:
            assert all(shared[index : index + 8] != bytes(8) for index in (0, 8, 24, 32))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_failure_is_kept_as_a_case(tmp_path):
    bad = TARGETS["csv"].__class__("bad", lambda room: [b"abc"], lambda content, room: 1 / (content != b"abc"))
    found = fuzz(bad, 0.2, SEED, tmp_path)
    assert "ZeroDivisionError" in found.failures[0][1]
    assert found.failures[0][0].read_bytes() == b"abc"
