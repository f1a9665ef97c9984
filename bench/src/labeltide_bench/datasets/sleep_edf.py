"""Sleep-EDF Expanded, cassette study (PhysioNet sleep-edfx 1.0.0): 153 nights of 78 people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from edfio import EdfAnnotation
from pyarrow import parquet

from labeltide_bench.datasets import sleep_nights
from labeltide_bench.datasets.edf import EdfFile, open_edf
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.sleep_nights import Night
from labeltide_bench.datasets.source import Source
from labeltide_bench.datasets.spectra import eeg_features

CHANNELS = {
    "eeg_fpz_cz": "EEG Fpz-Cz",
    "eeg_pz_oz": "EEG Pz-Oz",
    "eog_horizontal": "EOG horizontal",
    "resp_oro_nasal": "Resp oro-nasal",
    "emg_submental": "EMG submental",
    "temp_rectal": "Temp rectal",
    "event_marker": "Event marker",
}
SPECTRA = {"fpzcz": "EEG Fpz-Cz", "pzoz": "EEG Pz-Oz"}
# The stages of Rechtschaffen and Kales as scored. Rows without one of them are left out.
STAGES_RK = {f"Sleep stage {name}": code for code, name in enumerate(("W", "1", "2", "3", "4", "R"))}
UNSCORED = ("Sleep stage ?", "Movement time")
STAGES = np.array([0, 1, 2, 3, 3, 4], np.int8)  # W, N1, N2, N3 (= S3 and S4), REM
MINUTE_FILE = "channels_1min.parquet"
EPOCH_FILE = "sleep_edf_sc_30s.parquet"
TWENTY_FILE = "sleep_edf_sc_20nights_30s.parquet"  # the nights of subjects 0 to 9, which our studies read


def fetch(source: Source, folder: Path) -> None:
    """Take the nights from the source, one at a time, and convert them."""
    local_nights = sleep_nights.given_nights(source.local_files) if source.local_files else None
    convert(local_nights or sleep_nights.download_nights(source), folder)


def convert(nights: Iterable[Night], folder: Path) -> None:
    """Write one row a minute of all seven channels, and one row each 30 s of spectral features.

    The first twenty nights (ten subjects) also go to a file of their own.
    """
    with ExitStack() as stack:
        writers: dict[str, parquet.ParquetWriter] = {}
        for night in nights:
            tables = convert_night(night)
            epochs = tables[EPOCH_FILE]
            tables[TWENTY_FILE] = epochs.filter(pc.less(epochs["subject"], 10))  # empty for later nights
            for name, table in tables.items():
                if name not in writers:
                    writer = parquet.ParquetWriter(folder / name, table.schema, compression="zstd")
                    writers[name] = stack.enter_context(writer)
                writers[name].write_table(table)


def convert_night(night: Night) -> dict[str, pa.Table]:
    """The tables of one night, by file name."""
    recording, hypnogram = open_edf(night.recording), open_edf(night.hypnogram)
    if recording.start != hypnogram.start:
        raise ValueError(
            f"A recording and its hypnogram must start together. {night.recording.name} starts at "
            f"{recording.start}, {night.hypnogram.name} at {hypnogram.start}."
        )
    name, notes, seconds = night.recording.name[:6], hypnogram.annotations(), recording.seconds
    return {
        MINUTE_FILE: _table(name, "minute", minute_channels(recording), stages_at(notes, 60, seconds)),
        EPOCH_FILE: _table(name, "epoch", epoch_features(recording), stages_at(notes, 30, seconds)),
    }


def minute_channels(recording: EdfFile) -> dict[str, np.ndarray]:
    """Each channel's sample at the start of every minute, in the file's own units.

    The paper says only that it downsamples to each minute. We take the sample, and the stage scored at that
    moment, rather than means over the minute: the mean of an EEG signal is about zero.
    """
    return {
        column: recording.read(label, every=_samples(recording, label, 60)).astype(np.float32)
        for column, label in CHANNELS.items()
    }


def epoch_features(recording: EdfFile) -> dict[str, np.ndarray]:
    """The spectral features of both EEG channels in every full 30 s from the start."""
    columns: dict[str, np.ndarray] = {}
    for prefix, label in SPECTRA.items():
        unit = recording.signal(label).physical_dimension
        if unit != "uV":
            raise ValueError(f"{label} must be in uV. In {recording.path.name} it is in {unit!r}.")
        samples, values = _samples(recording, label, 30), recording.read(label)
        epochs = values[: len(values) // samples * samples].reshape(-1, samples)  # (epochs, samples)
        features = eeg_features(epochs, recording.rate(label))
        columns |= {f"{prefix}_{name}": column for name, column in features.items()}
    return columns


def stages_at(notes: Sequence[EdfAnnotation], step: int, seconds: float) -> np.ndarray:
    """The stage (0 to 5, -1 none) scored at 0, step, 2 step, ... seconds, before the recording ends.

    Hypnograms go on to 24 h, past the end of the recording.
    """
    unknown = sorted({note.text for note in notes} - set(STAGES_RK) - set(UNSCORED))
    if unknown or not notes:
        rule = f"A hypnogram must hold {', '.join((*STAGES_RK, *UNSCORED))} only, and one at least"
        raise ValueError(f"{rule}. Got {', '.join(unknown) or 'none'}.")
    times = np.arange(0, seconds, step)
    onsets = np.array([note.onset for note in notes])
    ends = onsets + [note.duration or 0.0 for note in notes]
    codes = np.array([STAGES_RK.get(note.text, -1) for note in notes], np.int8)
    at = np.searchsorted(onsets, times, side="right") - 1
    return np.where((at >= 0) & (times < ends[at]), codes[at], np.int8(-1))


def _samples(recording: EdfFile, label: str, seconds: int) -> int:
    """The samples of a signal in some seconds, which must be a whole number."""
    samples = recording.rate(label) * seconds
    if samples < 1 or samples != int(samples):
        raise ValueError(f"{label} must have a whole number of samples in {seconds} s. It has {samples:g}.")
    return int(samples)


def _table(night: str, step: str, columns: dict[str, np.ndarray], stages: np.ndarray) -> pa.Table:
    """The scored rows of one night; a last step cut short has no features and is left out."""
    n = min(len(stages), *(len(values) for values in columns.values()))
    rows = np.flatnonzero(stages[:n] >= 0)
    return pa.table(
        {
            "night": pa.array([night] * len(rows), pa.large_string()),
            "subject": np.full(len(rows), int(night[3:5]), np.int8),
            step: rows.astype(np.int16),
            **{name: values[rows] for name, values in columns.items()},
            "stage": STAGES[stages[rows]],
            "stage_rk": stages[rows],
        }
    )


DATASET = PublicDataset(
    name="sleep_edf",
    title="Sleep-EDF Expanded, cassette nights (PhysioNet): 153 nights of 78 people, 7 channels, 5 stages",
    licence="ODC-By 1.0",
    citation="Kemp and others (IEEE TBME 2000); Goldberger and others (2000); https://doi.org/10.13026/C2X676",
    page="https://physionet.org/content/sleep-edfx/1.0.0/",
    size="about 7 GB, one night (50 MB) at a time",
    archives=(sleep_nights.BASE + sleep_nights.CASSETTE_FOLDER, sleep_nights.BASE + sleep_nights.SUMS),
    folder="sleep_edf",
    files=(MINUTE_FILE, EPOCH_FILE, TWENTY_FILE),
    fetch=fetch,
)
