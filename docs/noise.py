"""The first picture of the README, docs/noise.png: `make noise-picture`.

Error rate over time in a simulation with 30 % wrong labels: the truth, and the estimates of three methods from noisy
labels alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import labeltide as lt
from labeltide_bench.pages import draw_noise

METHODS = ("ignore", "continuous", "tide")


def main() -> None:
    study = lt.make_sequences(n=300, n_steps=50, n_features=8, stay=0.9, random_state=0)
    noise = lt.make_noise("mixed", n_steps=50, rate=0.3)
    recorded = lt.corrupt(study, noise, random_state=0)
    clock = np.linspace(0, 1, 50)
    estimates = {}
    for name in METHODS:
        estimator = lt.METHODS[name](random_state=0).fit(recorded.features, recorded.labels)
        estimates[name] = estimator.noise_at(clock)
    draw_noise(Path(__file__).with_name("noise.png"), clock, noise.at(clock), estimates, ["rest", "walk"])


if __name__ == "__main__":
    main()
