"""The folder of results: written atomically, and never over files that an audit did not write."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from labeltide._files import write_json
from labeltide.tables.columns import with_verdicts, write_safe_csv
from labeltide.tables.files import check_local, check_new_file

FORMAT = 1  # of audit.json
AUDIT, LABELS, ISSUES, ISSUES_CSV, NOISE = "audit.json", "labels.parquet", "issues.parquet", "issues.csv", "noise.csv"
ROW_GROUP = 1 << 16  # rows of labels.parquet that a review reads at once
PAGE, MODEL, MODEL_FILE = "report.html", "model", "model.safetensors"
DECISIONS = (*(f"decisions.sqlite{end}" for end in ("", "-journal", "-wal", "-shm")), "review.json")
OURS = frozenset((AUDIT, LABELS, ISSUES, ISSUES_CSV, NOISE, PAGE, MODEL))
DERIVED = frozenset(("compare.html",))  # of `labeltide compare`, which can be made again
MAX_IN_CSV = 20_000  # issues of a large table in issues.csv, for a person to read; all are in issues.parquet
EDITED = "issues-edited"  # and a number: an issues.csv in which somebody has typed


@contextmanager
def new_results(folder: Path) -> Iterator[Path]:
    """A draft to write all results to: at a good end it becomes the folder, in place of results of an earlier audit."""
    check_folder(folder)
    with draft_beside(folder) as draft:
        yield draft
        check_folder(folder)  # the audit may have taken an hour
        put_in_place(draft, folder)


def write_findings(
    draft: Path, audit_json: Mapping[str, Any], noise: pa.Table, save_model: Callable[[Path], None]
) -> None:
    """Write audit.json, in which what is not finite becomes null, noise.csv, and the model."""
    write_json(draft / AUDIT, audit_json)
    write_safe_csv(noise, draft / NOISE)
    (draft / MODEL).mkdir()
    save_model(draft / MODEL / MODEL_FILE)


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but the results of an audit; ask before the work starts, too."""
    check_local(folder)
    if folder.is_symlink() and not folder.exists():
        raise ValueError(f"The results need a folder. {str(folder)!r} is a broken link.")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"The results need a folder. {str(folder)!r} is a file; name a folder with --out.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    others = sorted(
        path.name for path in folder.iterdir() if path.name not in OURS | DERIVED and not is_kept(path.name)
    )
    model = folder / MODEL
    if model.is_dir() and not model.is_symlink():
        others += [f"{MODEL}/{path.name}" for path in sorted(model.iterdir()) if path.name != MODEL_FILE]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ValueError(
            f"The folder {str(folder)!r} must be new, empty or hold only the results of an audit, which are then "
            f"replaced. It also holds {others[0]!r}{more}. Name another folder with --out."
        )
    try:
        content = json.loads((folder / AUDIT).read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not {"format", "labeltide"} <= content.keys():
        raise ValueError(
            f"The folder {str(folder)!r} holds files named like the results of an audit, but no {AUDIT}. Name another "
            "folder with --out."
        )


def is_kept(name: str) -> bool:
    """Whether a file holds what people wrote: decisions, or an earlier issues.csv in which somebody has typed."""
    return name in DECISIONS or (name.startswith(f"{EDITED}-") and name.endswith(".csv"))


def restore_interrupted(folder: Path) -> None:
    """Put earlier results back that a kill left in a hidden folder, between two renames; remove drafts of a kill."""
    target = folder.resolve()
    if not target.parent.is_dir():
        return
    name = re.compile(re.escape(f".{target.name[:100]}-") + "[a-z0-9_]{8}")  # as tempfile.mkdtemp names it
    for work in [path for path in target.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]:
        if not {path.name for path in work.iterdir()} <= {"new", "old"}:
            continue
        if (work / "old").is_dir() and not target.exists():
            _move_kept(work / "new", work / "old")
            os.rename(work / "old", target)
        if not (work / "old").exists():
            shutil.rmtree(work, ignore_errors=True)


def rank_issues(labels: pa.Table) -> pa.Table:
    """The lines that are issues, least likely right first, with their rank from 1."""
    issues = labels.filter(labels["is_issue"])
    order = np.argsort(issues["probability_right"].to_numpy(), kind="stable")  # NaN last
    issues = issues.take(pa.array(order))
    return issues.add_column(0, "rank", pa.array(np.arange(1, len(issues) + 1)))


@contextmanager
def draft_beside(folder: Path) -> Iterator[Path]:
    """A hidden folder on the same disk, gone afterwards whatever happens."""
    parent = folder.resolve().parent
    new_parents = [path for path in (parent, *parent.parents) if not path.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.resolve().name[:100]}-", dir=parent))
    try:
        draft = work / "new"
        draft.mkdir()  # with the usual permissions, which mkdtemp's own folder has not
        yield draft
    finally:
        shutil.rmtree(work, ignore_errors=True)
        for path in new_parents:
            if path.exists() and not any(path.iterdir()):
                path.rmdir()


def put_in_place(draft: Path, folder: Path) -> None:
    """One rename, or two where an earlier audit steps aside; it returns if the second fails.

    Decisions of reviewers and what somebody typed into issues.csv move into the new results. A review that is running
    keeps its file open, which stays the same file.
    """
    target = folder.resolve()
    if not target.exists():
        os.rename(draft, target)
        return
    old = draft.with_name("old")
    os.rename(target, old)
    try:
        if (old / ISSUES_CSV).is_file() and not _is_as_written(old):  # somebody may have typed in it: it is kept
            numbers = [re.fullmatch(rf"{EDITED}-(\d+)\.csv", path.name) for path in old.iterdir()]
            latest = max((int(found[1]) for found in numbers if found), default=0)
            os.rename(old / ISSUES_CSV, old / f"{EDITED}-{latest + 1}.csv")
        _move_kept(old, draft)
        os.rename(draft, target)
    except BaseException:
        _move_kept(draft, old)
        os.rename(old, target)
        raise


def _move_kept(source: Path, target: Path) -> None:
    """Move what people wrote; what the target has already stays."""
    names = sorted(path.name for path in source.iterdir()) if source.is_dir() else []
    for name in names:
        if is_kept(name) and not (target / name).exists():
            os.rename(source / name, target / name)


def _is_as_written(folder: Path) -> bool:
    """Whether issues.csv is what the audit wrote; False where that cannot be known."""
    ours = folder / f"{ISSUES_CSV}.ours"
    try:
        content, issues = (folder / ISSUES_CSV).read_bytes(), parquet.read_table(folder / ISSUES)
        for table in (with_verdicts(issues), with_verdicts(issues.slice(0, MAX_IN_CSV)), issues):  # also as of old
            write_safe_csv(table, ours)
            if ours.read_bytes() == content:
                return True
    except (OSError, ValueError, pa.ArrowException):
        pass
    finally:
        ours.unlink(missing_ok=True)
    return False


# The columns of labels.parquet in their order, and what each holds; docs/reference/files.md says what they mean. Of
# several clocks the others are clock_2 and so on. `judge_lines` in judging.py computes them, and `write_lines` in
# writing.py the last three.
LABEL_COLUMNS = {
    "row": "count",
    "sequence": "text",
    "time": "text",
    "annotator": "text",
    "clock": "number",
    "recorded": "text",
    "probability_right": "chance",
    "probability_contested": "chance",
    "suggested": "text",
    "suggested_probability": "chance",
    "shift": "number",
    "corrected": "text",
    "is_issue": "flag",
    "kind": "text",
    "reason": "text",
}
RANGES = {"count": (0, 2**53 - 1), "chance": (-1e-6, 1 + 1e-6), "number": (-np.inf, np.inf)}


def read_labels(source: pa.Table | Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of the labels of an audit, of a table in memory or of the file in a folder."""
    if isinstance(source, pa.Table):
        return source.select(list(columns))
    path = source / LABELS if source.is_dir() else source
    if not path.is_file():
        raise ValueError(f"{str(path.parent)!r} must hold {path.name}. Audit again to write it.")
    try:
        table = parquet.read_table(path, columns=list(columns))
        table.validate(full=True)
        names = parquet.read_schema(path).names
        odd = [name for name in {*columns, *names} if names.count(name) != 1]
        if odd:
            raise ValueError(f"it must have the column {odd[0]!r} once. It has it {names.count(odd[0])} times")
        return pa.table({name: _check_column(name, table[name]) for name in columns})
    except (pa.ArrowException, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ValueError(f"{str(path)!r} is not what an audit of this version writes: {why}. Audit again.") from None


def _check_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the type that it has in memory; a ValueError where it holds anything else."""
    holds, kind, types = LABEL_COLUMNS.get(name, "text"), column.type, pa.types
    is_number = types.is_floating(kind) or types.is_integer(kind) or types.is_null(kind)
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind) or types.is_dictionary(kind)
    fits, wanted, words = {
        "count": (types.is_integer(kind) and not column.null_count, pa.int64(), "whole numbers, rows of a table"),
        "flag": (types.is_boolean(kind), kind, "true or false"),
        "number": (is_number, pa.float64(), "finite numbers"),
        "chance": (is_number, pa.float64(), "numbers from 0 to 1"),
        "text": (is_text and not (name == "sequence" and column.null_count), pa.string(), "texts without gaps"),
    }[holds]
    if fits:
        column = column.cast(wanted)
        if holds in RANGES:
            values = column.to_numpy()
            known, (low, high) = values[~np.isnan(values)], RANGES[holds]
            fits = bool((np.isfinite(known) & (known >= low) & (known <= high)).all())
    if not fits:
        raise ValueError(f"its column {name!r} must hold {words}")
    return column


TABLE_FILES = (".parquet", ".csv")


def write_new_table(table: pa.Table, path: Path) -> Path:
    """Write a table to a new .parquet or .csv file, whole or not at all."""
    with draft_of(path) as draft:
        if path.name.lower().endswith(".csv"):
            write_safe_csv(table, draft)
        else:
            parquet.write_table(table, draft, compression="zstd")
    return path


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A file to write, which gets its name once it is whole."""
    check_new_file(path, *TABLE_FILES)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}-????????"):  # drafts of processes that were killed
        if left.is_dir() and {file.name for file in left.iterdir()} <= {"draft"}:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as work:
        draft = Path(work) / "draft"
        yield draft
        check_new_file(path, *TABLE_FILES)  # the work may have taken long
        os.rename(draft, path)
