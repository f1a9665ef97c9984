"""Lund 2013: eye movements of 34 trials coded sample by sample by two experts, from the authors' repository."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from labeltide_bench.datasets.files import check_size, find_member, members, write_table
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.source import Source

COMMIT = "3e12416ab3fd6254c81811cf03f8e5d67c5d7129"
PAGE = "https://github.com/richardandersson/EyeMovementDetectorEvaluation"
URL = f"{PAGE}/archive/{COMMIT}.zip"
TRIAL = re.compile(r"data used in the article/(dots|img|video)/([^/]+)_labelled_(MN|RA)\.mat$")
CODERS = ("MN", "RA")
FIXED_TRIAL = "UH29_img_Europe"  # a trial of MN that Zemblys and others (2018) corrected
FIXED_FILE = f"fix_by_Zemblys2018/{FIXED_TRIAL}_labelled_FIX_MN.mat"
FILE = "lund2013_two_coders_500hz.parquet"
# The trials of the article that both coded, and their samples. The repository publishes no checksum.
N_TRIALS = 34
N_SAMPLES = 103_878

Columns = dict[str, np.ndarray]


def fetch(source: Source, folder: Path) -> None:
    """Take the archive from the source and convert it."""
    convert(source.single(URL), folder)


def convert(archive: Path, folder: Path) -> None:
    """Write one row for each sample of 2 ms: 1 fixation, 2 saccade, 3 oscillation, 4 pursuit, 5 blink, 6 undefined."""
    with ZipFile(archive) as opened:
        trials = [_read_trial(opened, *key, paths) for key, paths in sorted(_find_trials(opened).items())]
    n_samples = sum(len(trial["sample"]) for trial in trials)
    if (len(trials), n_samples) != (N_TRIALS, N_SAMPLES):
        raise ValueError(
            f"There must be {N_SAMPLES} samples of {N_TRIALS} trials coded by both. Got {n_samples} of {len(trials)}."
        )
    write_table({name: np.concatenate([trial[name] for trial in trials]) for name in trials[0]}, folder / FILE)


def _find_trials(archive: ZipFile) -> dict[tuple[str, str], dict[str, str]]:
    """Trials that both coded: {(stimulus, trial): {coder: path}}."""
    trials: dict[tuple[str, str], dict[str, str]] = {}
    for path in members(archive):
        if match := TRIAL.search(path):
            trials.setdefault((match[1], match[2]), {})[match[3]] = path
    return {key: paths for key, paths in trials.items() if len(paths) == len(CODERS)}


def _read_trial(archive: ZipFile, stimulus: str, trial: str, paths: dict[str, str]) -> Columns:
    """The samples that both files have; in some trials one is longer by up to three."""
    coded = {coder: _read_samples(archive, paths[coder]) for coder in CODERS}
    n = min(len(samples) for samples in coded.values())
    signals, labels = coded["MN"][:n], {coder: samples[:n, 5].astype(np.int8) for coder, samples in coded.items()}
    fixed = labels["MN"]
    if trial == FIXED_TRIAL:
        fixed = _read_samples(archive, find_member(archive, FIXED_FILE))[:n, 5].astype(np.int8)
    return {
        "trial": np.full(n, trial),
        "stimulus": np.full(n, stimulus),
        "participant": np.full(n, trial.split("_")[0]),
        "sample": np.arange(n, dtype=np.int32),
        **{name: signals[:, index].astype(np.float32) for name, index in _SIGNALS.items()},
        "label_MN": labels["MN"],
        "label_RA": labels["RA"],
        "rate_hz": np.full(n, 500, np.int16),
        "label_MN_fixed": fixed,
    }


_SIGNALS = {"x_px": 3, "y_px": 4, "pupil1": 1, "pupil2": 2}  # columns of ETdata.pos; the last is the label


def _read_samples(archive: ZipFile, path: str) -> np.ndarray:
    """ETdata.pos of a MATLAB file: time, two of the pupil, x, y, label."""
    from scipy.io import loadmat  # here, because they take a while to load
    from scipy.io.matlab import MatReadError

    check_size(archive, path)
    try:
        found: Any = loadmat(io.BytesIO(archive.read(path)), simplify_cells=True)["ETdata"]["pos"]
    except (MatReadError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must be a MATLAB file with ETdata.pos. It is not: {error}") from None
    samples = np.asarray(found, dtype=np.float64)
    if samples.ndim != 2 or samples.shape[1] != 6 or not np.isin(samples[:, 5], np.arange(1, 7)).all():
        raise ValueError(f"ETdata.pos in {path} must have six columns, the last of labels from 1 to 6. It has not.")
    return samples


DATASET = PublicDataset(
    name="lund2013",
    title="Lund 2013: eye movements of 34 trials of 20 people at 500 Hz, coded by two experts",
    licence="GPL-3.0 (of the repository, code and data together)",
    citation="Andersson, Larsson, Holmqvist, Stridh and Nystrom (Behavior Research Methods 2017)",
    page=PAGE,
    size="the whole repository, with the videos that were watched",
    archives=(URL,),
    folder="lund2013",
    files=(FILE,),
    fetch=fetch,
)
