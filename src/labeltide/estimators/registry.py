"""The registry of methods by name, below the estimators, so that files and fleets can look methods up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier


class UnknownMethodError(KeyError, ValueError):
    """Raised for a name that is no method; it reads as a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


class Methods(dict[str, "type[NoisyLabelClassifier]"]):
    """Name → class. An unknown name is answered with the names there are."""

    def __missing__(self, name: str) -> type[NoisyLabelClassifier]:
        raise UnknownMethodError(f"Unknown method {name!r}. Choose one of: {', '.join(self)}.")


METHODS = Methods()  # filled by `labeltide.estimators`, which imports every method
