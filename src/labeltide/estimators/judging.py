"""What an audit needs from a fitted method; methods with more knowledge of the labels override it."""

from __future__ import annotations

import numpy as np

from labeltide.chain.data import Chain
from labeltide.inference.audit import no_persistence
from labeltide.inference.posterior import Recorded
from labeltide.noise.base import NoiseFunction


class Judging:
    """Chain and noise with which a method judges recorded labels: here every step by itself."""

    classes_: np.ndarray
    noise_: NoiseFunction

    def _persistence(self) -> Chain:
        """The hidden Markov model of the true labels, for an audit."""
        return no_persistence(len(self.classes_))

    def _timed_posterior(self, recorded: Recorded, features: np.ndarray) -> np.ndarray | None:
        """Posterior of the true labels with timing errors, for an audit; None where the chain gives it."""
        return None
