"""Classifiers that learn from noisy labels, by name: baselines, the methods of the paper, and `tide`."""

from __future__ import annotations

from labeltide.estimators.anchor import AnchorClassifier
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.continuous import ContinuousClassifier
from labeltide.estimators.discontinuous import DiscontinuousClassifier
from labeltide.estimators.fleet import fit_fleet, predict_fleet
from labeltide.estimators.ignore import IgnoreClassifier
from labeltide.estimators.known import KnownNoiseClassifier
from labeltide.estimators.plugin import PlugInClassifier
from labeltide.estimators.registry import METHODS, Methods, UnknownMethodError
from labeltide.estimators.tide import TideClassifier
from labeltide.estimators.volmin import VolMinClassifier

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
