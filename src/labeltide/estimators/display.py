"""How an estimator is shown, how well its probabilities hold, and what it says to wrong use."""

from __future__ import annotations

import re
import sys
from types import FunctionType
from typing import Any

from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.utils import estimator_html_repr

SCORER_DEPTH = 8  # frames between a scorer and `predict`, as inside a Pipeline
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
COPY = re.compile(r"<(i|button)\b[^>]*\bcopy-paste-icon\b[^>]*>\s*</\1>")  # buttons of that script


class EstimatorDisplay:
    """scikit-learn's diagram without its script, and once fitted what was learned."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let Python's error about an unknown parameter name the user's class, not the one that has `__init__`."""
        super().__init_subclass__(**options)
        if "__init__" not in cls.__dict__ and isinstance(cls.__init__, FunctionType):
            cls.__init__ = _renamed(cls.__init__, f"{cls.__qualname__}.__init__")  # type: ignore[method-assign]

    def __dir__(self) -> list[str]:
        """Names of attributes. scikit-learn's own asks for each value, which would compute bands and tests."""
        lazy = {name for cls in type(self).__mro__ for name, value in vars(cls).items() if isinstance(value, property)}
        return [name for name in object.__dir__(self) if name in lazy or hasattr(self, name)]

    def _html_repr(self: Any) -> str:
        diagram = COPY.sub("", SCRIPT.sub("", estimator_html_repr(self)))
        if not hasattr(self, "noise_matrices_"):
            return diagram
        from labeltide.inference.notebook import estimator_html

        return diagram + estimator_html(self)

    def _repr_html_inner(self) -> str:
        """What scikit-learn's `_repr_html_` gives; before 1.7 it did not ask `_html_repr`."""
        return self._html_repr()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        plain = {"text/plain": repr(self)}
        return plain | {"text/html": self._html_repr()} if get_config()["display"] == "diagram" else plain

    def plot_reliability(
        self: Any, X: ArrayLike, trusted: ArrayLike, lengths: ArrayLike | None = None, ax: Any = None, *, bins: int = 10
    ) -> Any:
        """Draw how often the predicted label is right against its probability, on labels that you trust.

        Parameters
        ----------
        X : array of shape (n, steps, features), not seen in `fit`
        trusted : array of shape (n, steps)
            Labels known to be right; missing where none is known.
        lengths : array of shape (n,), optional
        ax : matplotlib Axes, optional
        bins : int, default 10
        """
        from labeltide.inference.displays import trusted_codes
        from labeltide.inference.plots import plot_reliability

        chances = self.predict_proba(X, lengths)
        codes = trusted_codes(trusted, chances.sum(-1) > 0, self.classes_)
        top = chances.max(-1)
        top[codes < 0] = float("nan")
        return plot_reliability(top, chances.argmax(-1) == codes, ax, bins=bins)


def _renamed(function: FunctionType, name: str) -> FunctionType:
    """The same function under another qualified name, which is what errors show."""
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__, copied.__annotations__ = function.__kwdefaults__, function.__annotations__
    copied.__doc__, copied.__module__, copied.__qualname__ = function.__doc__, function.__module__, name
    return copied


def refuse_scorer() -> None:
    """Refuse to predict for a scorer of scikit-learn that would compare whole sequences.

    ``scoring="accuracy"`` takes labels of shape (n, steps) as n labels that must agree in all steps, or raises for more
    than two classes. It does not ask the estimator, so the call can only be seen from `predict`.
    """
    frame = sys._getframe(2)
    for _ in range(SCORER_DEPTH):
        if frame.f_globals.get("__name__") == "sklearn.utils._response":
            raise ValueError(
                "scikit-learn's scorers by name, such as scoring='accuracy', take one label per sequence, and here "
                "every step has one. Leave scoring out, which gives the accuracy over steps, or pass "
                "scoring=labeltide.step_scorer('accuracy')."
            )
        if frame.f_back is None:
            return
        frame = frame.f_back
