import numpy as np
import pytest

from labeltide_bench.datasets.spectra import BANDS, FEATURES, eeg_features


def slow_density(signal: np.ndarray, rate: float, size: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Welch's density, from its definition: windowed, half overlapping segments without their mean."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    densities = []
    for start in range(0, len(signal) - size + 1, size // 2):
        segment = signal[start : start + size]
        waves = np.exp(-2j * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size)
        power = np.abs(waves @ ((segment - segment.mean()) * window)) ** 2 / (rate * (window**2).sum())
        power[1:-1] *= 2  # negative frequencies
        densities.append(power)
    return np.arange(size // 2 + 1) * rate / size, np.mean(densities, axis=0)


def test_features_equal_their_definitions():
    epochs = np.random.default_rng(0).normal(0, 30, (3, 3000)).cumsum(1)
    features = eeg_features(epochs, 100.0)
    assert tuple(features) == FEATURES
    for i, epoch in enumerate(epochs):
        frequencies, density = slow_density(epoch, 100.0)
        for name, (low, high) in BANDS.items():
            inside = [d for f, d in zip(frequencies, density, strict=True) if low <= f <= high]
            assert features[name][i] == pytest.approx(np.log10(sum(inside) / len(inside)), rel=1e-4)
        assert features["logvar"][i] == pytest.approx(np.log10(epoch.var()), rel=1e-5)
        expected = (np.diff(epoch).var() / epoch.var()) ** 0.5
        assert features["mobility"][i] == pytest.approx(expected, rel=1e-5)


def test_a_sine_has_its_power_in_its_own_band():
    seconds = np.arange(3000) / 100
    features = eeg_features(20 * np.sin(2 * np.pi * 10 * seconds)[None], 100.0)
    assert max(BANDS, key=lambda name: features[name][0]) == "alpha"
    assert features["logvar"][0] == pytest.approx(np.log10(200), abs=1e-4)


def test_a_flat_line_gives_finite_features():
    features = eeg_features(np.full((2, 3000), 7.0), 100.0)
    assert all(np.isfinite(values).all() for values in features.values())
    assert (features["mobility"] == 0).all()
