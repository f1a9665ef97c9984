"""Standardisation of features of shape (n, steps, features), as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from labeltide import _validation

SCOPES = ("all", "sequence")
TAIL = 0.001  # share of the values on either side that is outside the usual range
MAX_STEPS = 2**20  # steps from which the scaling of an estimator is learned


def find_scaling(values: np.ndarray) -> np.ndarray:
    """Low, high, centre and scale of the features, (4, features), from finite values of shape (steps, features).

    Winsorised z-scores: values beyond the usual range of a feature, extended by its width on either side, are pulled
    in, so that an artefact does not decide the scale. Features that are standardised already change little. A constant
    feature is centred only.
    """
    low, low_usual, middle, high_usual, high = np.quantile(values, [0, TAIL, 0.5, 1 - TAIL, 1], axis=0)
    width = high_usual - low_usual
    moves = width > 0
    low = np.where(moves, np.maximum(low, low_usual - width), low)
    high = np.where(moves, np.minimum(high, high_usual + width), high)
    distances = np.clip(values, low, high) - middle
    centre = middle + distances.mean(0)
    scale = distances.std(0)
    return np.stack([low, high, centre, np.where(scale > np.abs(centre) * 1e-12, scale, 1.0)])


def apply_scaling(values: ArrayLike, scaling: np.ndarray) -> np.ndarray:
    """Standardised features in single precision, (..., features), computed in double precision."""
    low, high, centre, scale = scaling
    return ((np.clip(np.asarray(values, dtype=np.float64), low, high) - centre) / scale).astype(np.float32)


class SequenceScaler(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Centres and scales every feature over all steps (z-scores), and fills missing values.

    Padding and missing values do not count. A missing value (NaN) takes the last value before it in its sequence (last
    observation carried forward), or the mean where there is none.

    The output is always an array: it has three axes, and a frame of pandas or polars has two. scikit-learn's
    ``set_config(transform_output="pandas")`` is therefore not followed, and ``set_output(transform="pandas")`` refused.

    Parameters
    ----------
    scope : {"all", "sequence"}, default "all"
        Whether mean and spread are those of all sequences in `fit`, or each sequence's own, as where people or devices
        differ in level.
    indicators : bool, default False
        Add a feature for each of those that had missing values in `fit`: 1 where a value was filled, 0 elsewhere.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (features,)
    has_missing_ : bool array of shape (features,)
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np, labeltide as lt
    >>> X = np.array([[[1.0], [3.0], [np.nan]]])
    >>> lt.SequenceScaler().fit_transform(X)[0, :, 0].tolist()
    [-1.0, 1.0, 1.0]
    """

    def __init__(self, *, scope: str = "all", indicators: bool = False) -> None:
        self.scope = scope
        self.indicators = indicators

    def fit(self, X: ArrayLike, y: Any = None, lengths: ArrayLike | None = None) -> Self:
        """Learn mean and spread of every feature; `y` is not used.

        Parameters
        ----------
        X : array of shape (n, steps, features), NaN where a value is missing
        y : ignored
        lengths : array of shape (n,), optional
            Steps beyond a sequence's length are padding.
        """
        _validation.check_choice("scope", self.scope, SCOPES)
        values, real = _masked(X, lengths)
        self.n_features_in_ = values.shape[2]
        self.mean_, self.scale_ = _moments(values, (0, 1))
        self.has_missing_ = (np.isnan(values) & real[..., None]).any((0, 1))
        return self

    def transform(self, X: ArrayLike, lengths: ArrayLike | None = None) -> np.ndarray:
        """The scaled features, (n, steps, features) and indicators, without gaps; zero on padding."""
        check_is_fitted(self, "mean_")
        values, real = _masked(X, lengths)
        if values.shape[2] != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} features, as in fit. Got {values.shape[2]}.")
        mean, scale = (self.mean_, self.scale_) if self.scope == "all" else _moments(values, (1,))
        gaps = np.isnan(values)
        latest = np.maximum.accumulate(np.where(gaps, -1, np.arange(values.shape[1])[:, None]), axis=1)
        carried = np.take_along_axis((values - mean) / scale, latest.clip(0), axis=1)
        scaled = np.where((latest >= 0) & real[..., None], carried, 0.0)
        if not self.indicators:
            return scaled
        return np.concatenate([scaled, (gaps & real[..., None])[..., self.has_missing_]], -1).astype(np.float64)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Names of the features, those of indicators last."""
        check_is_fitted(self, "mean_")
        given = [f"x{index}" for index in range(self.n_features_in_)] if input_features is None else input_features
        names = np.asarray(given, dtype=object)
        added = [f"{name} (missing)" for name in names[self.has_missing_]] if self.indicators else []
        return np.array([*names, *added], dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Only "default", arrays, or None, which changes nothing."""
        if transform not in (None, "default"):
            raise ValueError(
                "The output of SequenceScaler has three axes (n, steps, features), so it cannot be a frame. Got "
                f'transform={transform!r}. Leave set_output out, or take "default".'
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.input_tags.allow_nan = True
        return tags


def _masked(X: ArrayLike, lengths: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """A copy of X with NaN on padding, and which steps are real, (n, steps)."""
    try:
        values = np.array(_validation.plain_array(X), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("X must be numbers of shape (n, steps, features).") from None
    if values.ndim != 3 or 0 in values.shape:
        raise ValueError(f"X must have shape (n, steps, features), none of them zero. Got shape {values.shape}.")
    real = _validation.steps_mask(_validation.check_lengths(lengths, *values.shape[:2]), values.shape[1])
    values[~real] = np.nan
    if np.isinf(values).any():
        raise ValueError("X must not hold infinite values. Put NaN where a value is missing.")
    return values, real


def _moments(values: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over axes without NaN; 0 and 1 where nothing is known or moves."""
    known = ~np.isnan(values)
    count = known.sum(axes, keepdims=True).clip(1)
    mean = np.where(known, values, 0).sum(axes, keepdims=True) / count
    spread = np.sqrt((np.where(known, values - mean, 0) ** 2).sum(axes, keepdims=True) / count)
    scale = np.where(spread > np.abs(mean) * 1e-12, spread, 1.0)
    return (mean[0, 0], scale[0, 0]) if len(axes) == 2 else (mean, scale)
