"""Made-up recordings with labels, written by the libraries of their formats."""

from datetime import date, time

import edfio
import numpy as np

STAGES = ["Sleep stage W", "Sleep stage N2"]


def stages(seed, epochs=60):
    random = np.random.default_rng(seed)
    return (np.cumsum(random.random(epochs) < 0.15) + random.integers(2)) % 2


def write_night(folder, name, seed=0, *, epochs=60, length=30, rate=50, labels=True):
    """A recording of one EEG and one EMG channel with two stages, and its hypnogram; gives the stages."""
    random = np.random.default_rng(seed)
    states = stages(seed, epochs)
    t = np.arange(epochs * length * rate) / rate
    slow = np.repeat(states, length * rate)
    eeg = np.where(slow, 40 * np.sin(4 * np.pi * t), 10 * np.sin(20 * np.pi * t)) + random.normal(0, 2, len(t))
    emg = random.normal(0, np.where(slow, 1.0, 8.0))
    signals = [
        edfio.EdfSignal(eeg, rate, label="EEG Fpz-Cz", physical_dimension="uV"),
        edfio.EdfSignal(emg, rate, label="EMG chin", physical_dimension="uV"),
    ]
    about = {"recording": edfio.Recording(startdate=date(2024, 5, 1)), "starttime": time(22, 30)}
    edfio.Edf(signals, **about).write(folder / f"{name}-PSG.edf")
    if labels:
        write_hypnogram(folder / f"{name}-Hypnogram.edf", states, length, **about)
    return [STAGES[state] for state in states]


def write_hypnogram(path, states, length=30, **about):
    """Stages as annotations of EDF+."""
    notes = [edfio.EdfAnnotation(k * length, length, STAGES[state]) for k, state in enumerate(states)]
    edfio.Edf([], annotations=notes, **about).write(path)
