"""Reading members of zip archives and writing tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
from pyarrow import parquet

MAX_BYTES = 2**30  # of one file in an archive; the largest of the data sets has 67 MB


def find_member(archive: ZipFile, ending: str) -> str:
    """The one member whose path ends so, such as "train/X_train.txt"; shadow copies of macOS are ignored."""
    wanted = PurePosixPath(ending).parts
    matches = [name for name in members(archive) if PurePosixPath(name).parts[-len(wanted) :] == wanted]
    if len(matches) != 1:
        raise ValueError(f"The archive must hold exactly one {ending}. It holds {len(matches)}.")
    check_size(archive, matches[0])
    return matches[0]


def check_size(archive: ZipFile, member: str) -> None:
    """Refuse a member that would fill the memory; zipfile reads no more of it than the archive says."""
    size = archive.getinfo(member).file_size
    if size > MAX_BYTES:
        raise ValueError(
            f"{member} must be at most {MAX_BYTES // 2**20} MiB. The archive inflates it to {size // 2**20} MiB: it "
            "is not the published one."
        )


def members(archive: ZipFile) -> list[str]:
    """The files in an archive, without folders and shadow copies of macOS."""
    return [name for name in archive.namelist() if not name.startswith("__MACOSX") and not name.endswith("/")]


def read_numbers(archive: ZipFile, ending: str, dtype: type, delimiter: str | None = None) -> np.ndarray:
    """A text member of numbers, one row a line, as an array of two axes."""
    with archive.open(find_member(archive, ending)) as lines:
        try:
            return np.loadtxt(lines, dtype=dtype, delimiter=delimiter, ndmin=2)
        except ValueError as error:
            raise ValueError(f"{ending} must hold rows of numbers. It does not: {error}") from None


def write_table(columns: Mapping[str, np.ndarray], path: Path) -> None:
    """A parquet file of these columns, in this order."""
    parquet.write_table(pa.table(dict(columns)), path, compression="zstd")
