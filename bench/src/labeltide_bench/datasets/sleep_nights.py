"""The nights of the Sleep-EDF cassette study: pairs of files, their download and their checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from labeltide_bench.datasets.source import Source

BASE = "https://physionet.org/files/sleep-edfx/1.0.0/"
SUMS = "SHA256SUMS.txt"
CASSETTE_FOLDER = "sleep-cassette/"
N_NIGHTS = 153


class Night(NamedTuple):
    """The two files of one night."""

    recording: Path
    hypnogram: Path


def download_nights(source: Source) -> Iterator[Night]:
    """Download night after night; the 50 MB of a night are deleted before the next."""
    sums = read_sums(source.download(BASE + SUMS))
    pairs = pair_names(sums)
    if len(pairs) != N_NIGHTS:
        raise ValueError(f"{SUMS} must name {N_NIGHTS} cassette nights. It names {len(pairs)}.")
    for i, names in enumerate(pairs, 1):
        files = []
        for name in names:
            title = f"{name} (night {i} of {len(pairs)})"
            files.append(source.download(BASE + CASSETTE_FOLDER + name, sums[name], title))
        yield Night(*files)
        for file in files:
            file.unlink()


def given_nights(paths: Sequence[Path]) -> list[Night]:
    """Every night among files and folders given by hand, checked if SHA256SUMS.txt is there too."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    by_name = {file.name: file for file in files if file.name == SUMS or file.name.startswith("SC4")}
    nights = [Night(by_name[recording], by_name[hypnogram]) for recording, hypnogram in pair_names(by_name)]
    if not nights:
        raise ValueError(
            "archives must hold at least one night: SC4001E0-PSG.edf and SC4001EC-Hypnogram.edf, say, "
            f"or the unpacked folder with them. Got {', '.join(map(str, paths))}."
        )
    if SUMS in by_name:
        sums = read_sums(by_name[SUMS])
        for file in (file for night in nights for file in night):
            _check_sum(file, sums.get(file.name))
    return nights


def pair_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Recordings with their hypnograms, which share seven letters: SC4001E0-PSG and SC4001EC-Hypnogram."""
    all_names = list(names)
    hypnograms = {name[:7]: name for name in all_names if name.endswith("-Hypnogram.edf")}
    recordings = {name[:7]: name for name in all_names if name.endswith("-PSG.edf")}
    alone = sorted(set(recordings) ^ set(hypnograms))
    if alone:
        raise ValueError(f"A night must have a -PSG.edf and a -Hypnogram.edf file. {alone[0]} has only one.")
    return [(recordings[key], hypnograms[key]) for key in sorted(recordings)]


def read_sums(path: Path) -> dict[str, str]:
    """Checksums by file name, from lines such as "2b40... sleep-cassette/SC4001E0-PSG.edf"."""
    lines = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [(line[0], line[1].strip().lstrip("*").removeprefix("./")) for line in lines if len(line) == 2]
    return {
        name.removeprefix(CASSETTE_FOLDER): total for total, name in rows if name.startswith(CASSETTE_FOLDER + "SC4")
    }


def _check_sum(file: Path, expected: str | None) -> None:
    with open(file, "rb") as opened:
        checksum = hashlib.file_digest(opened, "sha256").hexdigest()
    if checksum != expected:
        raise ValueError(f"{file.name} must have the SHA-256 {expected} named in {SUMS}. It has {checksum}.")
