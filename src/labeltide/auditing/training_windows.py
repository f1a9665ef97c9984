"""The windows that a fit learns from, where they are more than an audit holds in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.tables.clock_columns import ClockInfo


@dataclass(frozen=True)
class TrainingWindows:
    """What a fit takes, in arrays that may be files mapped into memory.

    Attributes have the names and meanings of those of `AuditInput`, without the mapping back to rows of the table.
    """

    features: np.ndarray
    fit_labels: np.ndarray
    lengths: np.ndarray
    clock: np.ndarray
    fit_trusted: np.ndarray | None
    gaps: np.ndarray | None
    groups: np.ndarray
    sequence_names: tuple[str, ...]
    clocks: tuple[ClockInfo, ...]
    n_all_steps: int  # of the whole table


Learned = AuditInput | TrainingWindows
