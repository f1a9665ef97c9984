"""A small writer of EDF and EDF+ files, and nights made with it."""

from pathlib import Path

import numpy as np

START = ("24.04.89", "16.13.00")
# Label, unit, physical range and samples in a 30 s record, as in the files of Sleep-EDF.
CHANNELS = [
    ("EEG Fpz-Cz", "uV", (-192, 192), 3000),
    ("EEG Pz-Oz", "uV", (-197, 196), 3000),
    ("EOG horizontal", "uV", (-1009, 1009), 3000),
    ("Resp oro-nasal", "", (-2048, 2047), 30),
    ("EMG submental", "uV", (-5, 5), 30),
    ("Temp rectal", "DegC", (34, 40), 30),
    ("Event marker", "", (-2047, 2048), 30),
]
DIGITAL = (-2048, 2047)


def header(signals: list[tuple], n_records: int, seconds: float, kind: str = "", start=START) -> bytes:
    """Signals are (label, unit, physical range, digital range, samples in a record)."""
    n = len(signals)
    fixed = [("0", 8), ("X X X X", 80), ("Startdate X X X X", 80), (start[0], 8), (start[1], 8)]
    fixed += [(256 * (n + 1), 8), (kind, 44), (n_records, 8), (f"{seconds:g}", 8), (n, 4)]
    each = [("label", 16), ("", 80), ("unit", 8), ("low", 8), ("high", 8), ("dlow", 8), ("dhigh", 8)]
    each += [("", 80), ("samples", 8), ("", 32)]
    keys = ("label", "unit", "low", "high", "dlow", "dhigh", "samples", "")
    rows = [
        dict(zip(keys, (name, unit, *physical, *digital, samples, ""), strict=True))
        for name, unit, physical, digital, samples in signals
    ]
    fields = fixed + [(row[key], width) for key, width in each for row in rows]
    return b"".join(str(value).encode("ascii").ljust(width) for value, width in fields)


def write_signals(path: Path, signals: list[tuple], digital: list[np.ndarray], seconds: float, **options) -> Path:
    """`digital` holds one array of shape (records, samples) for each signal."""
    body = np.concatenate(digital, axis=1).astype("<i2").tobytes()
    path.write_bytes(header(signals, len(digital[0]), seconds, **options) + body)
    return path


def tal(onset: float, duration: float | None, *texts: str) -> bytes:
    length = "" if duration is None else f"\x15{duration:g}"
    return f"{onset:+g}{length}\x14{''.join(text + chr(20) for text in texts)}\0".encode()


def write_hypnogram(path: Path, notes: list[tuple[float, float, str]], start=START) -> Path:
    """All notes in one record of one annotation signal, as in Sleep-EDF."""
    block = tal(0, None, "") + b"".join(tal(*note) for note in notes)
    block += b"\0" * (len(block) % 2 + 40)
    signal = ("EDF Annotations", "", (-1, 1), (-32768, 32767), len(block) // 2)
    path.write_bytes(header([signal], 1, 0, "EDF+C", start) + block)
    return path


def write_recording(path: Path, n_records: int, seed: int = 0, record_seconds: int = 30, start=START) -> Path:
    """Seven channels of digital noise."""
    generator = np.random.default_rng(seed)
    scale = record_seconds // 30
    signals = [(name, unit, physical, DIGITAL, samples * scale) for name, unit, physical, samples in CHANNELS]
    digital = [generator.integers(*DIGITAL, (n_records, signal[-1]), endpoint=True) for signal in signals]
    return write_signals(path, signals, digital, record_seconds, start=start)


def write_night(folder: Path, name: str = "SC4001", letter: str = "C", n_records: int = 10, **options) -> list[Path]:
    """A recording of 5 minutes and a longer hypnogram."""
    notes = [
        (0, 60, "Sleep stage W"),
        (60, 30, "Sleep stage 1"),
        (90, 30, "Sleep stage 2"),
        (120, 30, "Sleep stage 3"),
        (150, 30, "Sleep stage 4"),
        (180, 60, "Movement time"),
        (240, 30, "Sleep stage R"),
        (270, 86_130, "Sleep stage ?"),
    ]
    return [
        write_recording(folder / f"{name}E0-PSG.edf", n_records, seed=int(name[2:]), **options),
        write_hypnogram(folder / f"{name}E{letter}-Hypnogram.edf", notes),
    ]
