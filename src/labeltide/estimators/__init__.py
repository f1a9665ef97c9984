"""Classifiers that learn from noisy labels, by name: baselines, the methods of the paper, and `tide`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labeltide.estimators.fleet import METHODS, Methods, UnknownMethodError, fit_fleet, predict_fleet

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier as NoisyLabelClassifier
    from labeltide.estimators.paper import AnchorClassifier as AnchorClassifier
    from labeltide.estimators.paper import ContinuousClassifier as ContinuousClassifier
    from labeltide.estimators.paper import DiscontinuousClassifier as DiscontinuousClassifier
    from labeltide.estimators.paper import IgnoreClassifier as IgnoreClassifier
    from labeltide.estimators.paper import KnownNoiseClassifier as KnownNoiseClassifier
    from labeltide.estimators.paper import PlugInClassifier as PlugInClassifier
    from labeltide.estimators.paper import VolMinClassifier as VolMinClassifier
    from labeltide.estimators.tide import TideClassifier as TideClassifier

__all__ = ["METHODS", "Methods", "NoisyLabelClassifier", "UnknownMethodError", "fit_fleet", "predict_fleet"]
__all__ += [name for _, name in METHODS.homes.values()]


def __getattr__(name: str) -> Any:
    """Load a class when it is first used: `tide` needs most of the library, the other methods do not."""
    homes = {"NoisyLabelClassifier": "base"} | {method: module for module, method in METHODS.homes.values()}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
