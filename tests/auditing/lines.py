"""The lines of a table as the first columns of labels.parquet show them."""

import numpy as np
import pyarrow as pa

from labeltide.auditing.reading import decode


def lines_of(audit):
    """Row, sequence, time, annotator, clocks and the recorded label of every line."""
    rows, annotator = pa.array(audit.line_row), audit.line_annotator
    titles = ["clock", *(f"clock_{number}" for number in range(2, 1 + len(audit.clocks)))]
    clocks = [of_lines(audit, clock) for clock in audit.each_clock]
    recorded = np.where(annotator >= 0, of_lines(audit, audit.labels)[np.arange(len(annotator)), annotator], -1)
    return pa.table(
        {
            "row": rows,
            "sequence": audit.ids.take(rows).cast(pa.string()),
            "time": audit.times.take(rows).cast(pa.string()),
            "annotator": decode(annotator, audit.annotator_names or (None,)),
            **dict(zip(titles, clocks, strict=True)),
            "recorded": decode(recorded, audit.class_names),
        }
    )


def of_lines(audit, values):
    """Values of shape (n, steps, ...) for each line."""
    return audit.from_steps(values)[audit.line_step]
