"""Spectral features of 30 s of EEG: band power by the method of Welch (1967), variance and mobility (Hjorth 1970)."""

from __future__ import annotations

import numpy as np

# Both ends belong to a band, in Hz.
BANDS = {"delta": (0.5, 4), "theta": (4, 8), "alpha": (8, 13), "beta": (13, 30), "gamma": (30, 50)}
FEATURES = (*BANDS, "logvar", "mobility")
SEGMENT = 256  # samples of a Welch segment (Hann window, half overlapping), as in the shared copy
# An electrode that came off gives a flat line, whose power is 0. One digital step of the cassette recorder is
# 0.1 uV, so that rounding alone leaves about 1e-5 uV^2/Hz: nothing real lies below this floor.
FLOOR = 1e-6


def eeg_features(epochs: np.ndarray, rate: float) -> dict[str, np.ndarray]:
    r"""Power in each band and variance, as :math:`\log_{10}` of uV²/Hz and of uV², and mobility.

    Mobility (Hjorth 1970): :math:`\sqrt{\mathrm{var}(\Delta x) / \mathrm{var}(x)}`, 0 for a flat line.

    Parameters
    ----------
    epochs : array of shape (epochs, samples) in uV
    rate : float
        Samples a second.

    Returns
    -------
    dict of float32 arrays of shape (epochs,)
    """
    from scipy.signal import welch  # here, because it is slow to load

    frequencies, density = welch(epochs, rate, nperseg=min(SEGMENT, epochs.shape[-1]), axis=-1)
    features = {}
    for name, (low, high) in BANDS.items():
        inside = (frequencies >= low) & (frequencies <= high)
        features[name] = _log10(density[:, inside].mean(1))
    variance = epochs.var(-1)
    features["logvar"] = _log10(variance)
    moves = np.diff(epochs, axis=-1).var(-1)
    features["mobility"] = np.sqrt(np.divide(moves, variance, out=np.zeros_like(moves), where=variance > FLOOR))
    return {name: values.astype(np.float32) for name, values in features.items()}


def _log10(values: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(values, FLOOR))
