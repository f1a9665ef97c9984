"""How an estimator is shown in a notebook, and how well its probabilities hold."""

from __future__ import annotations

import re
from typing import Any

from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.utils import estimator_html_repr

SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)


class EstimatorDisplay:
    """scikit-learn's diagram without its script, and once fitted what was learned."""

    def _html_repr(self: Any) -> str:
        diagram = SCRIPT.sub("", estimator_html_repr(self))
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
