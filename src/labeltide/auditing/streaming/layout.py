"""How the rows of a large table are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from labeltide.auditing.fitting import TableSize
from labeltide.auditing.rare_classes import find_rare
from labeltide.auditing.streaming.chunks import ChunkPlan
from labeltide.auditing.streaming.survey import Survey
from labeltide.tables.clock_columns import ClockInfo
from labeltide.tables.features import Encoder
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.row_stream import RowStream
from labeltide.tables.wording import unique_texts


@dataclass(frozen=True)
class Layout:
    """How the rows of a large table are read.

    Attributes
    ----------
    encoders, clocks, usual : found from the windows that were drawn; empty or None before
    usual : the usual time between two steps, in seconds or the unit of the column
    row_column : the column that holds the number of each row before sorting; None where rows are as they were
    """

    stream: RowStream
    columns: RoleColumns
    survey: Survey
    plan: ChunkPlan
    encoders: tuple[Encoder, ...] = ()
    clocks: tuple[ClockInfo, ...] = ()
    usual: float | None = None
    row_column: str | None = None

    @cached_property
    def rare(self) -> np.ndarray:
        """Which classes have too few labels to be learned from: bool of shape (classes,)."""
        return find_rare(self.survey.class_counts, self.survey.trusted_codes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that are learned, judged and suggested."""
        return tuple(compress(self.survey.class_names, ~self.rare))

    @property
    def n_labels(self) -> int:
        """How many labels of these classes there are."""
        return int(self.survey.class_counts[~self.rare].sum())

    @property
    def size(self) -> TableSize:
        plan = self.plan
        return TableSize(int(plan.counts.sum()), int(plan.n_windows.sum()), plan.window, self.n_labels)

    @property
    def annotator_names(self) -> tuple[str, ...] | None:
        if len(self.columns.label) > 1:
            return tuple(unique_texts(self.columns.label))
        annotators = self.survey.annotators
        return None if annotators is None else tuple(unique_texts(annotators.to_pylist()))
