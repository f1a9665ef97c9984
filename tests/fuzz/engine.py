"""A mutation engine: inputs from seeds, outcomes counted, what must not happen kept as a case.

An input that ends at a line of code at which no earlier one ended becomes a seed itself. A target runs in a child
process with limits of memory and time. Every input follows from the seed that is printed and its number.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.mutations import mutate_bytes

CASES = Path(__file__).parent / "cases"
MORE_MEMORY = 3 << 30  # bytes of address space beyond what the process has at the start
SECONDS = 10.0  # of processor time for one input
STUCK = 120.0  # seconds after which a child that does not go on is ended
MAX_SEEDS = 300
COUNTS = "QQQdd"  # tried, accepted, refused, when inputs began, when the last one did
MAX_CHILDREN = 20
CURRENT, TRACE = ".input", ".trace"


class TooSlowError(BaseException):
    """Not an Exception, so that no library catches it."""


class ForbiddenError(AssertionError):
    """An outcome that must not be, such as a file that was left half written."""


@dataclass
class Room:
    """Folders of one target: files that inputs lie beside, and a place for results that is empty before each input."""

    folder: Path
    things: dict[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def put(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def empty_out(self) -> None:
        if not self.out.is_dir() or any(self.out.iterdir()):
            shutil.rmtree(self.out, ignore_errors=True)
            self.out.mkdir(parents=True)


@dataclass(frozen=True)
class Target:
    """Something that reads bytes of strangers.

    Attributes
    ----------
    prepare : fills the room once and gives the first seeds
    run : reads the bytes; only ValueError and OSError may come out, and then nothing may lie in `room.out`
    mutate : makes another input of a seed; bytes are mutated where it gives None
    """

    kind: str
    prepare: Callable[[Room], list[bytes]]
    run: Callable[[bytes, Room], object]
    mutate: Callable[[random.Random, bytes, Room], bytes | None] = lambda *_: None


@dataclass
class Outcome:
    """What became of the inputs of one target."""

    kind: str
    tried: int = 0
    accepted: int = 0
    refused: int = 0
    failures: list[tuple[Path, str]] = field(default_factory=list)


def check(target: Target, content: bytes, room: Room) -> tuple[bool, str]:
    """Run one input: whether it was accepted, and where it ended; what may not come out is raised."""
    room.empty_out()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.run(content, room)
    except (ValueError, OSError) as error:
        if not str(error).strip():
            raise ForbiddenError(f"{type(error).__name__} without a sentence") from error
        left = sorted(path.name for path in room.out.iterdir())
        if left:
            raise ForbiddenError(f"refused, and {left[:3]} was left behind") from error
        return False, _location(error)
    return True, "accepted"


def _location(error: BaseException) -> str:
    """The line of code that refused an input, or what the error itself says of its location."""
    location: str | None = getattr(error, "location", None)
    if location is not None:
        return location
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} {frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__


def fuzz(target: Target, seconds: float, seed: int, cases: Path = CASES) -> Outcome:
    """Try inputs for some seconds; a child that crashes or hangs costs its input, and the next goes on."""
    outcome, spent = Outcome(target.kind), 0.0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        for part in range(MAX_CHILDREN):
            room = Room(Path(name, str(part)))
            room.folder.mkdir()
            spent += _one_child(target, room, seconds - spent, f"{target.kind}:{seed}:{part}", outcome, cases)
            if spent >= seconds:
                break
    return outcome


def _one_child(target: Target, room: Room, seconds: float, seed: str, outcome: Outcome, cases: Path) -> float:
    """The seconds that a child spent with inputs.

    This process itself only imports: what has computed with threads before a fork can hang after it.
    """
    shared = mmap.mmap(-1, 4096)
    _count(shared, 0, 0, 0, 0.0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _run_child(target, room, seconds, seed, shared)
            code = 0
        except BaseException:
            (room.folder / TRACE).write_text(traceback.format_exc())
        finally:
            os._exit(code)
    status = _wait(child, shared)
    tried, accepted, refused, began, last = struct.unpack_from(COUNTS, shared)
    outcome.tried += tried
    outcome.accepted += accepted
    outcome.refused += refused
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and _ends_alone(target, room):
        return last - began  # the machine stalled, not the input
    if status != 0:
        trace, current = room.folder / TRACE, room.folder / CURRENT
        why = trace.read_text() if trace.exists() else f"ended by signal {status & 127}"
        content = current.read_bytes() if current.exists() else b"no input: the target could not be prepared"
        outcome.failures.append((_keep(target.kind, content, cases), why))
    return last - began if began and status else seconds


def _ends_alone(target: Target, room: Room) -> bool:
    """Whether an input at which a child hung ends in another child."""
    again = Room(room.folder / "again")
    again.folder.mkdir()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            target.prepare(again)
            signal.alarm(int(STUCK))
            check(target, (room.folder / CURRENT).read_bytes(), again)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _count(shared: mmap.mmap, tried: int, accepted: int, refused: int, began: float) -> None:
    content = struct.pack(COUNTS, tried, accepted, refused, began, time.time())
    shared[: len(content)] = content  # struct.pack_into would write zeros first, which the parent may see


def _wait(child: int, shared: mmap.mmap) -> int:
    """The status of the child; it is killed where it does not go on."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.time() - struct.unpack_from(COUNTS, shared)[-1] > STUCK:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.05)


def limit_resources() -> None:
    """Limits of address space and, for each input, of processor time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def too_slow(*_: Any) -> None:
        raise TooSlowError(f"more than {SECONDS} s of processor time")

    signal.signal(signal.SIGPROF, too_slow)


def _run_child(target: Target, room: Room, seconds: float, seed: str, shared: mmap.mmap) -> None:
    """Inputs one after another; the one that fails lies in the room."""
    seeds = target.prepare(room)
    limit_resources()
    draw, known = random.Random(seed), set[str]()
    tried, accepted, began = 0, 0, time.time()
    end = time.monotonic() + seconds
    waiting = list(seeds)  # each first as it is
    while time.monotonic() < end:
        content = waiting.pop() if waiting else _mutate(target, draw, seeds, room)
        (room.folder / CURRENT).write_bytes(content)
        tried += 1
        _count(shared, tried, accepted, tried - 1 - accepted, began)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        is_accepted, location = check(target, content, room)
        signal.setitimer(signal.ITIMER_PROF, 0)
        accepted += is_accepted
        _count(shared, tried, accepted, tried - accepted, began)
        if location not in known and len(content) < 1 << 18 and len(seeds) < MAX_SEEDS:
            known.add(location)
            seeds.append(content)


def _mutate(target: Target, draw: random.Random, seeds: list[bytes], room: Room) -> bytes:
    chosen = draw.choice(seeds)
    try:
        found = target.mutate(draw, chosen, room)
    except RecursionError:  # of a seed that is nested deeply
        found = None
    return mutate_bytes(draw, chosen, seeds) if found is None else found


def _keep(kind: str, content: bytes, cases: Path) -> Path:
    folder = cases / kind.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(content).hexdigest()[:12]
    path.write_bytes(content)
    return path
