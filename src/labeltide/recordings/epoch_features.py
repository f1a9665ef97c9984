"""Simple features of every epoch of a signal, by field; they say what an epoch is like, not what its label should be.

===========  ======================================================================================================
eeg          log10 of the power in delta (0.5-4 Hz), theta (4-8), alpha (8-12), sigma (12-16) and beta (16-30), by
             Welch's method (1967) with windows of 4 s; log10 of standard deviation and of line length
muscle       log10 of standard deviation and of line length
ecg          heart rate, RMSSD (root mean square of successive differences of RR intervals), log10 of standard deviation
movement     mean, standard deviation, dominant frequency; mean and standard deviation of the length of three axes
gaze         mean position, standard deviation, median and largest speed
plain        mean, standard deviation, smallest, largest, line length
===========  ======================================================================================================

Line length is the mean absolute difference of neighbouring samples (Esteller and others 2001).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from scipy import signal as scipy_signal

from labeltide.recordings.spans.table import Signal

BANDS = {"delta": (0.5, 4.0), "theta": (4.0, 8.0), "alpha": (8.0, 12.0), "sigma": (12.0, 16.0), "beta": (16.0, 30.0)}
WELCH_SECONDS = 4.0
MIN_SAMPLES = 8  # in an epoch; with fewer, only their mean is a feature
BLOCK_SAMPLES = 4_000_000  # of a channel that are held at once
MAX_RATE = 1000.0  # of samples in a second, up to which channels share the blocks of epochs
MIN_POWER = 1e-12  # under a logarithm
NAMES = {  # field → words in the name of a channel
    "ecg": r"\b(ecg|ekg)",
    "muscle": r"\b(emg|chin|tib|leg|submental)",
    "gaze": r"gaze|pupil|\beye\b|\bpor\b",
    "eeg": r"\b(eeg|eog|fp\d|fpz|af\d|fz|cz|pz|oz|[fcpto]\d|loc|roc|e1|e2)",
    "movement": r"\b(acc|accel\w*|gyr\w*|imu|mag|acti\w*|[xyz])\b|accelero|_acc|acc_",
}
UNITS = {"uv": "eeg", "mv": "ecg", "g": "movement", "m/s2": "movement", "m/s^2": "movement", "deg/s": "movement"}
EpochFeatures = dict[str, np.ndarray]  # name → (epochs,)
OwnFeatures = Callable[[Mapping[str, np.ndarray], Mapping[str, float]], Mapping[str, float]]


def field_of(name: str, unit: str, asked: str | None = None) -> str:
    """The field of a channel: as asked for, else by its name, else by its unit, else plain."""
    words = re.sub(r"[_:/.]", " ", name.casefold())
    by_name = next((field for field, pattern in NAMES.items() if re.search(pattern, words)), None)
    if asked == "sleep":
        return by_name or "eeg"
    return asked or by_name or UNITS.get(unit.casefold().replace("µ", "u").replace("μ", "u"), "plain")


def channel_features(signal: Signal, starts: np.ndarray, length: float, field: str) -> EpochFeatures:
    """Features of one channel in the epochs that begin at `starts`, in seconds; loaded block by block."""
    samples = int(signal.rate * length + 1e-6)
    features = FIELDS[field] if samples >= MIN_SAMPLES else lambda epochs, rate: {"mean": epochs.mean(1)}
    return _join(signal.name, [features(epochs, signal.rate) for epochs in blocks(signal, starts, length)])


def magnitude_features(axes: Sequence[Signal], starts: np.ndarray, length: float) -> EpochFeatures:
    """Mean and standard deviation of the length of the vector of three axes."""
    loaded = zip(*(blocks(axis, starts, length) for axis in axes), strict=True)
    return _join("magnitude", [_mean_and_sd(np.sqrt(sum(epochs**2 for epochs in block))) for block in loaded])


def own_features(signals: Sequence[Signal], starts: np.ndarray, length: float, function: OwnFeatures) -> EpochFeatures:
    """Features that the user's own function makes of each epoch: it gets {channel: samples} and {channel: rate}."""
    rates = {signal.name: signal.rate for signal in signals}
    loaded = zip(*(blocks(signal, starts, length) for signal in signals), strict=True)
    epochs = (dict(zip(rates, epoch, strict=True)) for block in loaded for epoch in zip(*block, strict=True))
    rows = [dict(function(epoch, rates)) for epoch in epochs]
    names = list(rows[0])
    if not names or any(list(row) != names for row in rows):
        raise ValueError(
            "features must return the same names for every epoch, at least one, as in {'mean': 0.5}. "
            f"Got {names} for the first epoch and another result for a later one."
            if names
            else "features must return at least one named number, as in {'mean': 0.5}. Got none."
        )
    return {str(name): np.array([float(row[name]) for row in rows]) for name in names}


def blocks(signal: Signal, starts: np.ndarray, length: float) -> Iterator[np.ndarray]:
    """Samples of shape (epochs, samples), some epochs at a time, loaded while they are gone through.

    Missing samples take the mean of their epoch; an epoch with more than half missing stays missing.
    """
    samples = max(int(signal.rate * length + 1e-6), 1)
    at_once = max(BLOCK_SAMPLES // max(int(MAX_RATE * length), samples), 1)  # the same for all channels
    first = np.clip(np.rint(starts * signal.rate).astype(np.int64), 0, max(signal.count - samples, 0))
    for begin in range(0, len(first), at_once):
        indices = first[begin : begin + at_once]
        loaded = signal.load(int(indices[0]), int(indices[-1]) + samples)
        epochs = loaded[(indices - indices[0])[:, None] + np.arange(samples)]
        missing = ~np.isfinite(epochs)
        if missing.any():
            mean = np.where(missing, 0, epochs).sum(1) / np.maximum((~missing).sum(1), 1)
            epochs = np.where(missing, mean[:, None], epochs)
            epochs[missing.mean(1) > 0.5] = np.nan
        yield epochs


def _join(name: str, parts: Sequence[EpochFeatures]) -> EpochFeatures:
    """The features of all blocks, after the name of what they are features of."""
    return {f"{name}: {feature}": np.concatenate([part[feature] for part in parts]) for feature in parts[0]}


def _mean_and_sd(epochs: np.ndarray) -> EpochFeatures:
    return {"mean": epochs.mean(1), "sd": epochs.std(1)}


def _log(values: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(values, MIN_POWER))  # NaN stays


def _line_length(epochs: np.ndarray) -> np.ndarray:
    return np.abs(np.diff(epochs, axis=1)).mean(1)


def _muscle(epochs: np.ndarray, rate: float) -> EpochFeatures:
    return {"log amplitude": _log(epochs.std(1)), "log line length": _log(_line_length(epochs))}


def _eeg(epochs: np.ndarray, rate: float) -> EpochFeatures:
    length = min(int(WELCH_SECONDS * rate), epochs.shape[1])
    frequencies, density = scipy_signal.welch(epochs, rate, nperseg=length, axis=1)
    width = frequencies[1] - frequencies[0] if len(frequencies) > 1 else 1.0
    found = {}
    for name, (low, high) in BANDS.items():
        inside = (frequencies >= low) & (frequencies < high)
        if inside.any() and low < rate / 2:
            found[f"log {name}"] = _log(density[:, inside].sum(1) * width)
    return {**found, **_muscle(epochs, rate)}


def _ecg(epochs: np.ndarray, rate: float) -> EpochFeatures:
    rates, variability = np.full(len(epochs), np.nan), np.full(len(epochs), np.nan)
    for index, epoch in enumerate(epochs):
        slope = np.gradient(epoch) ** 2
        if not np.isfinite(slope).all() or not slope.any():
            continue
        peaks, _ = scipy_signal.find_peaks(slope, height=0.3 * slope.max(), distance=max(int(0.3 * rate), 1))
        intervals = np.diff(peaks) / rate
        if len(intervals) > 1:
            rates[index] = 60 / intervals.mean()
            variability[index] = np.sqrt((np.diff(intervals) ** 2).mean())
    return {"heart rate": rates, "RMSSD": variability, "log amplitude": _log(epochs.std(1))}


def _movement(epochs: np.ndarray, rate: float) -> EpochFeatures:
    centred = epochs - epochs.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, axis=1))
    dominant = np.fft.rfftfreq(epochs.shape[1], 1 / rate)[np.nan_to_num(spectrum).argmax(1)]
    return {**_mean_and_sd(epochs), "dominant frequency": dominant}


def _gaze(epochs: np.ndarray, rate: float) -> EpochFeatures:
    speed = np.abs(np.diff(epochs, axis=1)) * rate
    return {**_mean_and_sd(epochs), "median speed": np.median(speed, axis=1), "largest speed": speed.max(1)}


def _plain(epochs: np.ndarray, rate: float) -> EpochFeatures:
    extremes = {"smallest": epochs.min(1), "largest": epochs.max(1)}
    return {**_mean_and_sd(epochs), **extremes, "line length": _line_length(epochs)}


FIELDS: dict[str, Callable[[np.ndarray, float], EpochFeatures]] = {
    "eeg": _eeg,
    "muscle": _muscle,
    "ecg": _ecg,
    "movement": _movement,
    "gaze": _gaze,
    "plain": _plain,
}
