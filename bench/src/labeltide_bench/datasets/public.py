"""The description of a public data set, and the error of a failed download or conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labeltide_bench.datasets.source import Source


class FetchError(ValueError):
    """A data set could not be downloaded or converted; nothing was changed."""


@dataclass(frozen=True)
class PublicDataset:
    """A public data set: authors, licence, addresses, and the files that are made from it."""

    name: str
    title: str
    licence: str
    citation: str
    page: str  # where a person downloads by hand
    size: str  # of the download, as said to a person
    archives: tuple[str, ...]  # official addresses
    folder: str  # below the data folder
    files: tuple[str, ...]  # in that folder, once fetched
    fetch: Callable[[Source, Path], None]  # takes archives from the source, writes the files to the path
