"""How the audit of a table is shown, drawn and given back on the user's own rows."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from labeltide._display import ShortRepr
from labeltide._validation import check_choice
from labeltide.tables.frames import as_frame

TABLES = ("labels", "issues", "noise")


class TableAuditDisplay(ShortRepr):
    """Frames, a plot and corrected labels of a `TableAudit`."""

    def to_frame(self: Any, kind: str = "pandas", *, of: str = "labels") -> Any:
        """One line for every label, or another table of the audit, as "pandas", "polars" or "pyarrow".

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}
            In pandas, labels and issues have the index of the frame that was audited.
        of : {"labels", "issues", "noise"}
        """
        table = getattr(self, check_choice("table of an audit", of, TABLES))
        frame = as_frame(table, kind)
        if kind == "pandas" and self.index is not None and of != "noise":
            frame.index = self.index.take(table["row"].to_numpy())
        return frame

    def corrected(self: Any, frame: Any) -> Any:
        """The audited frame with its labels corrected where the model is sure, in its own kind, index and values.

        Parameters
        ----------
        frame : pandas, polars or Arrow
            The table that was audited, in the same order of rows.
        """
        return correct_frame(frame, self.labels, self.summary["table"])

    def plot(self: Any, ax: Any = None) -> Any:
        """Draw the share of wrong labels over the first clock, with its 95 % band."""
        from labeltide.inference.plots import new_axes

        ax = new_axes(ax)
        noise = self.summary["noise"]
        moments = np.asarray(noise["clock"], dtype=float)
        for curve in noise["curves"]:
            name = "all labels" if curve.get("annotator") is None else str(curve["annotator"]).replace("$", r"\$")
            (line,) = ax.plot(moments, np.asarray(curve["rate"], dtype=float), label=name)
            ends = (np.asarray(curve[f"rate_{end}"], dtype=float) for end in ("lower", "upper"))
            ax.fill_between(moments, *ends, color=line.get_color(), alpha=0.2, linewidth=0)
        clock = str(self.summary["clock"]["name"]).replace("$", r"\$")
        ax.set(xlabel=clock, ylabel="share of wrong labels", ylim=(0, None))
        ax.legend(frameon=False)
        return ax


def correct_frame(frame: Any, lines: pa.Table, described: dict[str, Any]) -> Any:
    """See `TableAuditDisplay.corrected`."""
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        kind = type(frame).__name__
        raise ValueError(f"corrected needs the audited frame of pandas, polars or Arrow. Got {kind}.") from None
    if len(table) != described["rows"]:
        raise ValueError(f"The frame must be the audited one, with {described['rows']} rows. Got {len(table)}.")
    for column, part in _by_column(lines, described).items():
        if column not in table.columns:
            raise ValueError(f"The frame must be the audited one, with the label column {column!r}.")
        table = table.with_columns(_corrected_column(table[column], part))
    return table.to_native()


def _by_column(lines: pa.Table, described: dict[str, Any]) -> dict[str, pa.Table]:
    """The audited lines of every label column: one column, or one for each annotator."""
    columns = described["columns"]
    names = described["annotators"]
    if columns.get("annotator") is not None or not names:
        return {columns["label"]: lines}
    annotators = np.asarray(lines["annotator"].to_pylist(), dtype=object)
    return {name: lines.filter(pa.array(annotators == name)) for name in names}


def _corrected_column(values: Any, lines: pa.Table) -> Any:
    """The column with other values where the corrected label differs; values are those that the column has."""
    rows = lines["row"].to_numpy()
    recorded, corrected = (np.asarray(lines[name].to_pylist(), dtype=object) for name in ("recorded", "corrected"))
    changed = np.flatnonzero(recorded != corrected)
    if not len(changed):
        return values
    of_text = dict(zip(recorded.tolist(), rows.tolist(), strict=True))  # a row that has the label
    unknown = sorted({str(text) for text in corrected[changed]} - {str(text) for text in of_text})
    if unknown:
        raise ValueError(f"The label column holds no {unknown[0]!r}, to which labels would be corrected.")
    known = {text: values[row] for text, row in of_text.items()}
    if values.dtype not in (nw.Categorical, nw.Enum):  # of several spellings, the one that stands for the class
        known = {text: text if isinstance(value, str) else value for text, value in known.items()}
    new = [known[text] for text in corrected[changed]]
    return values.scatter(rows[changed].tolist(), new)
