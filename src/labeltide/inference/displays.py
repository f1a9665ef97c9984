"""How results are shown: short texts, HTML for notebooks, plots and frames.

Base classes of the results. What they need is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._display import ShortRepr


class NoiseDisplay(ShortRepr):
    """How a `NoiseEstimate` is shown."""

    def _repr_html_(self: Any) -> str:
        from labeltide.inference.notebook import noise_html

        return noise_html(self)

    def plot(self: Any, ax: Any = None, *, classes: Sequence[Hashable] | None = None, true: int | None = None) -> Any:
        """Draw Q(t) with 95 % bands; see `labeltide.inference.plots.plot_noise`."""
        from labeltide.inference.plots import plot_noise

        return plot_noise(self, ax, classes=classes, true=true)

    def to_frame(self: Any, kind: str = "pandas", *, classes: Sequence[Hashable] | None = None) -> Any:
        """Q with its bands, one line for each moment, true and recorded class: "pandas", "polars" or "pyarrow"."""
        from labeltide.inference.result_frames import noise_frame

        return noise_frame(self, kind, classes)


class LabelAuditDisplay(ShortRepr):
    """How a `LabelAudit` is shown."""

    def _repr_html_(self: Any) -> str:
        from labeltide.inference.notebook import label_audit_html

        return label_audit_html(self)

    def plot(self: Any, sequence: int = 0, ax: Any = None, *, times: ArrayLike | None = None) -> Any:
        """Draw recorded and suggested labels of one sequence over its steps; labels to check are marked."""
        from labeltide.inference.plots import plot_timeline

        return plot_timeline(self, sequence, ax, times=times)

    def plot_clock(self: Any, ax: Any = None, *, bins: int = 40) -> Any:
        """Draw the shares of wrong labels and of labels to check over the clock."""
        from labeltide.inference.plots import plot_over_clock

        return plot_over_clock(self, ax, bins=bins)

    def plot_reliability(self: Any, trusted: ArrayLike, ax: Any = None, *, bins: int = 10) -> Any:
        """Draw how often labels are right against their probability of being right.

        Parameters
        ----------
        trusted : array of shape (n, steps)
            Labels known to be right, in the values of `classes`; -1, None or NaN where none is known. They must not
            have been given to the audit.
        ax : matplotlib Axes, optional
        bins : int, default 10
        """
        from labeltide.inference.plots import plot_reliability

        codes = trusted_codes(trusted, self.mask, self.classes)[..., None]
        known = (codes >= 0) & (self.labels >= 0)
        quality = np.where(known, self.quality.reshape(self.labels.shape), np.nan)
        return plot_reliability(quality, self.labels == codes, ax, bins=bins)

    def to_frame(
        self: Any,
        kind: str = "pandas",
        *,
        ids: Sequence[Hashable] | None = None,
        times: ArrayLike | None = None,
        annotators: Sequence[Hashable] | None = None,
    ) -> Any:
        """One line for every recorded label, as `to_table` gives it: "pandas", "polars" or "pyarrow"."""
        from labeltide.tables.frames import as_frame

        return as_frame(self.to_table(ids, times, annotators), kind)


class TemporalityDisplay(ShortRepr):
    """How a `Temporality` is shown."""

    def _repr_html_(self: Any) -> str:
        from labeltide.inference.notebook import temporality_html

        return temporality_html(self)

    def to_frame(self: Any, kind: str = "pandas") -> Any:
        """One line for the test of all labels, of each class and of each annotator: "pandas", "polars" or "pyarrow"."""
        from labeltide.inference.result_frames import temporality_frame

        return temporality_frame(self, kind)


class ConsensusDisplay(ShortRepr):
    """How a `Consensus` is shown."""

    def _repr_html_(self: Any) -> str:
        from labeltide.inference.notebook import consensus_html

        return consensus_html(self)

    def plot(self: Any, ax: Any = None, *, annotators: Sequence[Hashable] | None = None) -> Any:
        """Draw the share of right labels of each annotator over the clock."""
        from labeltide.inference.plots import plot_annotators

        return plot_annotators(self, ax, annotators=annotators)

    def to_frame(self: Any, kind: str = "pandas", *, ids: Sequence[Hashable] | None = None) -> Any:
        """One line for every step: its consensus and the belief in each label: "pandas", "polars" or "pyarrow"."""
        from labeltide.inference.result_frames import consensus_frame

        return consensus_frame(self, kind, ids)


def trusted_codes(trusted: ArrayLike, mask: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Trusted labels as codes into the classes, (n, steps), -1 where none is known."""
    labels = _validation.check_labels(trusted, *mask.shape)[..., 0]
    present = mask & ~_validation.missing_labels(labels)
    return _validation.encode_labels(labels, present, classes.tolist(), "trusted")
