"""The methods, by name."""

from __future__ import annotations

from labeltide.estimators.anchor import AnchorClassifier
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.continuous import ContinuousClassifier
from labeltide.estimators.discontinuous import DiscontinuousClassifier
from labeltide.estimators.fleet import fit_fleet, predict_fleet
from labeltide.estimators.ignore import IgnoreClassifier
from labeltide.estimators.known import KnownNoiseClassifier
from labeltide.estimators.plugin import PlugInClassifier
from labeltide.estimators.tide import TideClassifier
from labeltide.estimators.volmin import VolMinClassifier


class UnknownMethodError(KeyError, ValueError):
    """Raised for a name that is no method; it reads as a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


class Methods(dict[str, type[NoisyLabelClassifier]]):
    """Name → class. An unknown name is answered with the names there are."""

    def __missing__(self, name: str) -> type[NoisyLabelClassifier]:
        raise UnknownMethodError(f"Unknown method {name!r}. Choose one of: {', '.join(self)}.")


METHODS = Methods(
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
