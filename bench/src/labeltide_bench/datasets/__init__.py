"""Public data sets: list them, download them and convert them to the Parquet files that studies read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import pyarrow as pa

from labeltide._validation import check_choice
from labeltide_bench.datasets import (
    dod_scorers,
    eeg_eye_state,
    har70plus,
    lund2013,
    neonatal_seizure,
    sleep_edf,
    uci_har,
)
from labeltide_bench.datasets.public import FetchError, PublicDataset
from labeltide_bench.datasets.source import OnProgress, Source
from labeltide_bench.datasets.staging import install, workplace

__all__ = ["DATASETS", "DatasetRow", "FetchError", "PublicDataset", "fetch", "list_datasets"]

SOURCES = (uci_har, eeg_eye_state, har70plus, sleep_edf, dod_scorers, lund2013, neonatal_seizure)
DATASETS = {each.DATASET.name: each.DATASET for each in SOURCES}

# Errors of a broken download, a wrong archive or a full disk. All other errors are bugs and are not caught.
BROKEN = (
    OSError,
    ValueError,
    BadZipFile,
    EOFError,
    zlib.error,
    NotImplementedError,
    ImportError,
    pa.ArrowException,
)

AnyPath = str | os.PathLike[str]


class DatasetRow(NamedTuple):
    """What `list_datasets` says of one data set."""

    name: str
    title: str
    licence: str
    size: str  # of the download
    present: bool
    missing: tuple[str, ...]  # files that are not there


def list_datasets(data_dir: AnyPath) -> list[DatasetRow]:
    """Every data set we can fetch, and which of its files are missing from the folder."""
    rows = []
    for dataset in DATASETS.values():
        folder = Path(data_dir, dataset.folder)
        missing = tuple(name for name in dataset.files if not (folder / name).is_file())
        rows.append(DatasetRow(dataset.name, dataset.title, dataset.licence, dataset.size, not missing, missing))
    return rows


def fetch(
    name: str,
    data_dir: AnyPath,
    archives: AnyPath | Iterable[AnyPath] | None = None,
    on_progress: OnProgress | None = None,
) -> Path:
    """Download a data set from its official address, check it and convert it to parquet, or change nothing.

    PhysioNet publishes checksums, and every file is held against them. For the others the numbers of rows, columns
    and labels must be as published.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    data_dir : path
        The files go to a folder of the data set's name below it, over those already there.
    archives : path or paths, optional
        Archives downloaded by hand, to convert instead. For sleep_edf: the unpacked folder, or the files of
        any number of nights. For neonatal_seizure: the three files, or their folder.
    on_progress : callable, optional
        Called with what is being downloaded, the bytes so far and the bytes in all (0 where unknown).

    Returns
    -------
    Path of the data set's folder
    """
    dataset = DATASETS[check_choice("data set", name, DATASETS)]
    local_archives = _check_archives(archives)
    destination = Path(data_dir, dataset.folder)
    try:
        with workplace(Path(data_dir), dataset.folder) as work:
            made = work / "made"
            made.mkdir()
            dataset.fetch(Source(work, local_archives, on_progress), made)
            install(made, destination, dataset.files)
    except BROKEN as error:
        raise FetchError(_explain(dataset, local_archives, error)) from error
    return destination


def _check_archives(archives: AnyPath | Iterable[AnyPath] | None) -> tuple[Path, ...]:
    if archives is None:
        return ()
    paths = [archives] if isinstance(archives, str | os.PathLike) else list(archives)
    if not paths:
        raise ValueError("archives must name at least one file. Got none; leave it out to download.")
    for path in paths:
        if not Path(path).exists():
            raise ValueError(f"archives must be paths of files that are there. {path} is not.")
    return tuple(Path(path) for path in paths)


def _explain(dataset: PublicDataset, local_archives: tuple[Path, ...], error: BaseException) -> str:
    what = "converted from the given archives" if local_archives else "downloaded and converted"
    reason = str(error).rstrip(".") or type(error).__name__
    way_out = (
        f"Download again from {dataset.page}"
        if local_archives
        else f"Run it again; or download by hand from {dataset.page} and pass the paths as archives"
    )
    return f"{dataset.name} could not be {what}: {reason}. Nothing was changed. {way_out}."
