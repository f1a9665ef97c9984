"""Online prediction: filtering with a causal model, one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike

from labeltide.models.stream import ModelStream

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier


class Stream:
    """Follows one sequence, or several side by side, and predicts every step as it comes.

    The probabilities are those that `predict_proba` gives for whole sequences.

    Attributes
    ----------
    n_steps : int
        Steps seen so far.
    """

    def __init__(self, estimator: NoisyLabelClassifier) -> None:
        if not estimator.model_.is_causal:
            raise ValueError(
                "stream needs a model that judges a step by itself and earlier steps only. This one looks ahead: "
                "fit it with causal=True, or give whole sequences to predict_proba."
            )
        self.estimator, self.model = estimator, estimator.model_
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next step is the first of new sequences."""
        self.n_steps = 0
        self._stream: ModelStream | None = None

    def push(self, features: ArrayLike) -> np.ndarray:
        """The probability of each true label at the next step.

        Parameters
        ----------
        features : array of shape (features,), or (streams, features) for several sequences at once

        Returns
        -------
        array of shape (classes,) or (streams, classes)
        """
        shape = np.shape(features)
        if len(shape) not in (1, 2) or 0 in shape:
            raise ValueError(
                "push takes one step: shape (features,), or (streams, features) for several sequences at once. "
                f"Got shape {shape}."
            )
        values, _ = self.estimator._check_features(np.reshape(features, (-1, 1, shape[-1])), None)
        if self._stream is None:
            self._stream = ModelStream(self.model, len(values))
        if len(values) != self._stream.streams:
            raise ValueError(
                f"This stream follows {self._stream.streams} sequences, one row of features for each. "
                f"Got {len(values)}. Call reset, or start another stream."
            )
        logits = self._stream.push(torch.from_numpy(values[:, 0]))
        self.n_steps += 1
        probabilities = logits.log_softmax(-1).exp().mean(0).double().numpy()  # over the networks of an ensemble
        return probabilities if len(shape) == 2 else probabilities[0]
