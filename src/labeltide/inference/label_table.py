"""Export of a label audit to an Arrow table: one table row for every recorded label, under the user's names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import pyarrow as pa

    from labeltide.inference.audit import LabelAudit


def label_table(
    audit: LabelAudit,
    ids: Sequence[Hashable] | None = None,
    times: ArrayLike | None = None,
    annotators: Sequence[Hashable] | None = None,
) -> pa.Table:
    """See `LabelAudit.to_table`."""
    import pyarrow as pa  # imported late, because it is slow and often not needed

    n, n_steps, n_annotators = audit.labels.shape
    if ids is not None and len(ids) != n:
        raise ValueError(f"ids must be {n} names, one per sequence. Got {len(ids)}.")
    if times is not None and np.shape(times) != (n, n_steps):
        raise ValueError(f"times must have shape {(n, n_steps)}, one per step. Got shape {np.shape(times)}.")
    if annotators is not None and len(annotators) != n_annotators:
        raise ValueError(f"annotators must be {n_annotators} names. Got {len(annotators)}.")
    row, step, annotator = np.nonzero(audit.labels >= 0)
    whole = (n, n_steps, n_annotators)
    columns: dict[str, Any] = {
        "sequence": row if ids is None else _take(ids, row),
        "step": step,
        "time": step if times is None else np.asarray(times)[row, step],
    }
    if audit.has_annotators:
        columns["annotator"] = annotator if annotators is None else _take(annotators, annotator)
    columns |= {
        "clock": audit.clock[row, step],
        "recorded": _take(audit.classes.tolist(), audit.labels[row, step, annotator]),
        "probability_right": audit.quality.reshape(whole)[row, step, annotator],
        "probability_contested": audit.contested.reshape(whole)[row, step, annotator],
        "suggested": _take(audit.classes.tolist(), audit.probabilities.argmax(-1)[row, step]),
        "suggested_probability": audit.suggested_probability[row, step],
        "is_issue": audit.is_issue.reshape(whole)[row, step, annotator],
        "reason": pa.array(audit.reason.reshape(whole)[row, step, annotator], pa.string()),
    }
    return pa.table({name: _column(values) for name, values in columns.items()})


def _take(names: Sequence[Any], index: np.ndarray) -> list[Any]:
    return [names[i] for i in index.tolist()]


def _column(values: Any) -> Any:
    """An Arrow array of the values; text where Arrow has no type for them, as for mixed tuples."""
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")  # Arrow knows no minutes or days with a time
    try:
        return pa.array(values) if not isinstance(values, pa.Array) else values
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
