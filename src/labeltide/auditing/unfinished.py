"""The work of an audit that has not ended, kept beside its folder: a lock, its settings, its fit and its findings.

A killed audit goes on from there with the same numbers. Results are written by `folder.py`, whole, at the end.
"""

from __future__ import annotations

import json
import os
import reprlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeltide._files import to_json, write_json
from labeltide.auditing.evidence_file import read_evidence, write_evidence
from labeltide.auditing.folder import restore_interrupted
from labeltide.estimators import TideClassifier
from labeltide.estimators.storage import load

LOCK, SETTINGS = "lock", "settings.json"
FITTED, EVIDENCE, INFERRED = "fitted.safetensors", "evidence.safetensors", "inferred.safetensors"


@dataclass(frozen=True)
class Unfinished:
    """What an audit has done so far; keeps nothing where `folder` is None."""

    folder: Path | None

    def begin(self, settings: Mapping[str, Any], resume: bool) -> None:
        """Go on with the work of the same settings and data, or start anew; earlier work is kept until this moment."""
        if self.folder is None:
            return
        if resume:
            _check_same(_read_settings(self.folder / SETTINGS), to_json(settings))
            return
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        write_json(self.folder / SETTINGS, settings)

    def fitted(self, settings: TideClassifier) -> TideClassifier | None:
        """The fit, where it had ended; files do not hold all of its settings."""
        if self.folder is None or not (self.folder / EVIDENCE).exists():
            return None
        estimator = _load_tide(self.folder / FITTED)
        estimator.training_ = read_evidence(self.folder / EVIDENCE)
        estimator.set_params(**settings.get_params())
        return estimator

    def keep_fit(self, estimator: TideClassifier) -> None:
        """Keep the fit."""
        if self.folder is not None:
            estimator.save_fit(self.folder / FITTED)
            write_evidence(self.folder / EVIDENCE, estimator.training_)  # last: it says that the fit is whole

    def take_findings(self, estimator: TideClassifier) -> None:
        """Give the estimator the bands and tests that were computed before."""
        if self.folder is not None and (self.folder / INFERRED).exists():
            estimator.findings_ = _load_tide(self.folder / INFERRED).findings_

    def keep_findings(self, estimator: TideClassifier) -> None:
        """Keep the bands and tests that were computed so far."""
        if self.folder is not None:
            estimator.save_fit(self.folder / INFERRED)


@contextmanager
def unfinished_work(folder: Path | None, out: Path | None, resume: bool) -> Iterator[Unfinished]:
    """Lock the folder of unfinished work for one audit; it is gone after a good end, or if nothing was begun."""
    if folder is None:
        yield Unfinished(None)
        return
    if resume and not (folder / SETTINGS).exists():
        raise ValueError(
            f"There is no interrupted audit to go on with beside {str(out)!r}. Leave --resume out to start one."
        )
    handle = _lock(folder, out)
    try:
        if out is not None:
            restore_interrupted(out)
        yield Unfinished(folder)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        if not (folder / SETTINGS).exists():
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _lock(folder: Path, out: Path | None) -> int:
    """An open file that only one process can hold; the system lets go of it when the process ends, however it does."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # another audit has just ended
            continue
        if not _take(handle):
            os.close(handle)
            raise ValueError(
                f"Another audit is at work on {str(out)!r}. Wait until it ends, or name another folder with --out."
            )
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
        os.close(handle)


def _take(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _load_tide(path: Path) -> TideClassifier:
    try:
        estimator = load(path)
    except ValueError as error:
        raise ValueError(f"The kept work {error} Leave --resume out to start anew.") from None
    if not isinstance(estimator, TideClassifier):
        raise ValueError(f"The kept work {path} holds another method. Leave --resume out to start anew.")
    return estimator


def _read_settings(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"The kept work {path} cannot be read. Leave --resume out to start anew.") from None


def _check_same(earlier: Any, now: Mapping[str, Any]) -> None:
    earlier = earlier if isinstance(earlier, dict) else {}
    others = [name for name in now if earlier.get(name) != now[name]]
    if others:
        words = "; ".join(_difference(name, earlier.get(name), now[name]) for name in others[:3])
        raise ValueError(
            f"The interrupted audit had other settings or data: {words}. Give the same to go on with it, or leave "
            "--resume out to start anew."
        )


def _difference(name: str, earlier: Any, now: Any) -> str:
    if name == "data":
        return "the table has changed"
    return f"{name} was {reprlib.repr(earlier)} and is now {reprlib.repr(now)}"
