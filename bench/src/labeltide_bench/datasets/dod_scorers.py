"""Dreem Open Datasets: sleep stages of 80 nights by five scorers, from the authors' repository; no signals."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import numpy as np

from labeltide_bench.datasets.files import check_size, members, write_table
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.source import Source

COMMIT = "1e4c142d84634b60898845243b01b81d7eb4acec"
PAGE = "https://github.com/Dreem-Organization/dreem-learning-evaluation"
URL = f"{PAGE}/archive/{COMMIT}.zip"
SCORERS = tuple(f"scorer_{number}" for number in range(1, 6))
FILE = "dod_hypnograms.parquet"
# Nights of DOD-H (healthy) and DOD-O (sleep apnoea), as published, and their epochs at this commit.
N_NIGHTS = {"dodh": 25, "dodo": 55}
N_EPOCHS = 85_911

Night = dict[str, np.ndarray]


def fetch(source: Source, folder: Path) -> None:
    """Take the archive from the source and convert it."""
    convert(source.single(URL), folder)


def convert(archive: Path, folder: Path) -> None:
    """Write one row for each epoch of 30 s: -1 not scored, 0 W, 1 N1, 2 N2, 3 N3, 4 REM."""
    with ZipFile(archive) as opened:
        nights = [_read_night(opened, *key, paths) for key, paths in sorted(_find_nights(opened).items())]
    found = {name: sum(night["dataset"][0] == name for night in nights) for name in N_NIGHTS}
    n_epochs = sum(len(night["epoch"]) for night in nights)
    if (found, n_epochs) != (N_NIGHTS, N_EPOCHS):
        raise ValueError(f"The archive must hold {N_EPOCHS} epochs of {N_NIGHTS} nights. Got {n_epochs} of {found}.")
    write_table({name: np.concatenate([night[name] for night in nights]) for name in nights[0]}, folder / FILE)


def _find_nights(archive: ZipFile) -> dict[tuple[str, str], dict[str, str]]:
    """Paths such as scorers/dodh/scorer_1/RECORD.json: {(dataset, record): {scorer: path}}."""
    nights: dict[tuple[str, str], dict[str, str]] = {}
    for path in members(archive):
        parts = PurePosixPath(path).parts[-4:]
        if len(parts) == 4 and parts[0] == "scorers" and parts[1] in N_NIGHTS and parts[3].endswith(".json"):
            nights.setdefault((parts[1], PurePosixPath(path).stem), {})[parts[2]] = path
    return nights


def _read_night(archive: ZipFile, dataset: str, record: str, paths: dict[str, str]) -> Night:
    if sorted(paths) != sorted(SCORERS):
        raise ValueError(f"The night {record} must have {', '.join(SCORERS)}. It has {', '.join(sorted(paths))}.")
    stages = {scorer: _read_stages(archive, paths[scorer]) for scorer in SCORERS}
    lengths = {len(values) for values in stages.values()}
    if len(lengths) != 1:
        raise ValueError(f"The five scorers of {record} must have stages of one length. Got {sorted(lengths)}.")
    n = lengths.pop()
    return {
        "dataset": np.full(n, dataset),
        "record": np.full(n, record),
        "epoch": np.arange(n, dtype=np.int16),
        **stages,
        "in_scored_window": _scored_by_all(list(stages.values())),
    }


def _read_stages(archive: ZipFile, path: str) -> np.ndarray:
    check_size(archive, path)
    values = np.asarray(json.loads(archive.read(path)))
    if values.ndim != 1 or not np.isin(values, np.arange(-1, 5)).all():
        raise ValueError(f"{path} must be a list of stages from -1 to 4. It is not.")
    return values.astype(np.int8)


def _scored_by_all(stages: list[np.ndarray]) -> np.ndarray:
    """Epochs from the last scorer's first stage to the first scorer's last stage."""
    scored = [np.flatnonzero(values >= 0) for values in stages]
    epochs = np.arange(len(stages[0]))
    if not all(len(indices) for indices in scored):
        return np.zeros(len(epochs), bool)
    return (epochs >= max(indices[0] for indices in scored)) & (epochs <= min(indices[-1] for indices in scored))


DATASET = PublicDataset(
    name="dod_scorers",
    title="Dreem Open Datasets (DOD-H, DOD-O): sleep stages of 80 nights by five scorers; no signals",
    licence="MIT (of the repository that publishes the hypnograms)",
    citation="Guillot, Sauvet, During and Thorey (IEEE TNSRE 2020)",
    page=PAGE,
    size="some MB",
    archives=(URL,),
    folder="dod_scorers",
    files=(FILE,),
    fetch=fetch,
)
