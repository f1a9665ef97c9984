"""Classifiers that learn from noisy labels, by name: baselines, the methods of the paper, and `tide`."""

from __future__ import annotations

from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import METHODS, Methods, UnknownMethodError, fit_fleet, predict_fleet
from labeltide.estimators.paper import (
    AnchorClassifier,
    ContinuousClassifier,
    DiscontinuousClassifier,
    IgnoreClassifier,
    KnownNoiseClassifier,
    PlugInClassifier,
    VolMinClassifier,
)
from labeltide.estimators.tide import TideClassifier

METHODS.update(
    {
        method.name: method
        for method in (
            IgnoreClassifier,
            AnchorClassifier,
            VolMinClassifier,
            PlugInClassifier,
            DiscontinuousClassifier,
            ContinuousClassifier,
            KnownNoiseClassifier,
            TideClassifier,
        )
    }
)

__all__ = ["METHODS", "Methods", "NoisyLabelClassifier", "UnknownMethodError", "fit_fleet", "predict_fleet"] + [
    method.__name__ for method in METHODS.values()
]
