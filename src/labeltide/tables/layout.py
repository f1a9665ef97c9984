"""From a table to the fields of `Sequences`: one table row per step (and annotator), in any order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeltide._validation import check_clock, check_number, steps_mask
from labeltide.tables.columns import factorize_labels, group_rows, read_numbers, read_times
from labeltide.tables.intake import Column, is_moment, load_columns, open_table
from labeltide.tables.labels import FactorizedLabels, common_classes
from labeltide.tables.roles import ROLES, check_roles, columns_of_role
from labeltide.tables.steps import Steps, find_steps
from labeltide.tables.windows import cut_consecutive

Columns = Mapping[str, Column]


@dataclass(frozen=True)
class TableLayout:
    """Which column plays which role, and how sequences are cut; see `Sequences.from_table`."""

    sequence: str | Sequence[str]
    time: str
    label: str
    features: str | Sequence[str]
    annotator: str | None = None
    clock: str | None = None
    clean: str | None = None
    zscore: str | Sequence[str] | None = None
    window: int | None = None
    offset: int = 0
    keep_tail: bool = True

    def read(self, table: Any) -> dict[str, Any]:
        """The fields of `Sequences`, by name."""
        roles, columns = self._load(table)
        steps = find_steps(columns, roles, isinstance(self.sequence, str))
        windows = cut_consecutive(steps.counts, self.window, self.offset, self.keep_tail)
        lengths, n_steps = windows.lengths, windows.window
        real = steps_mask(lengths, n_steps)
        index = windows.filled_index(n_steps)  # clock and times hold real moments on padding too
        labels, clean, classes = _read_labels(columns, steps, self.label, self.clean)
        features = _read_features(columns, steps, roles["features"], roles["zscore"])[index]
        features[~real] = 0
        clock = _read_clock_column(columns, steps, self.clock)[index] if self.clock else None
        return {
            "features": features,
            "labels": np.where(real[..., None], labels[index], np.int8(-1)),
            "lengths": lengths,
            "clock": check_clock(None, lengths, n_steps) if clock is None else clock,
            "ids": tuple(steps.ids[code] for code in windows.groups),
            "classes": classes,
            "clean_labels": None if clean is None else np.where(real, clean[index], np.int8(-1)),
            "times": steps.times[index],
            "annotators": steps.annotators,
        }

    def _load(self, table: Any) -> tuple[dict[str, list[str]], dict[str, Column]]:
        """Check the request, then load only the columns it names."""
        if self.window is not None:
            check_number("window", self.window, 1, whole=True)
        check_number("offset", self.offset, 0, whole=True)
        opened = open_table(table)
        roles = {role: columns_of_role(role, getattr(self, role)) for role in ROLES}
        if self.zscore == "sequence" and "sequence" not in opened.names:
            roles["zscore"] = roles["sequence"]
        check_roles(roles, opened.names)
        return roles, load_columns(opened, list(dict.fromkeys(name for names in roles.values() for name in names)))


def _read_labels(
    columns: Columns, steps: Steps, label: str, clean: str | None
) -> tuple[np.ndarray, np.ndarray | None, tuple[Hashable, ...]]:
    """Recorded labels (steps, annotators), clean labels (steps,) and the classes of both together."""
    recorded, *known = [FactorizedLabels(*factorize_labels(columns[name])) for name in (label, clean) if name]
    if not len(recorded.distinct):
        raise ValueError(f"The label column {label!r} holds no label at all: every row is null, NaN or -1.")
    classes = common_classes([recorded, *known], f"The label column {label!r}")
    n_annotators = len(steps.annotators) if steps.annotators is not None else 1
    labels = steps.spread(recorded.encode(classes), steps.annotator_of_row, n_annotators)
    return labels, steps.pick(clean, known[0].encode(classes)) if clean else None, classes


def _read_features(columns: Columns, steps: Steps, names: list[str], zscore: list[str]) -> np.ndarray:
    """Features of shape (steps, features), as float32."""
    features = [steps.pick(name, read_numbers(columns[name], "feature")) for name in names]
    if zscore:
        group = steps.pick(zscore[0], group_rows(columns, zscore, "zscore")[0])
        features = [_zscore(feature, group) for feature in features]
    return np.stack([feature.astype(np.float32) for feature in features], axis=1)


def _zscore(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract the mean of the group and divide by its population standard deviation."""
    counts = np.bincount(group)
    anchor = np.empty(len(counts))
    anchor[group] = values  # any value of the group
    centred = values - anchor[group]  # a constant is now exactly zero, with no rounding left to blow up
    centred -= (np.bincount(group, centred) / counts)[group]
    scale = np.sqrt(np.bincount(group, centred**2) / counts)
    return centred / np.where(scale > 0, scale, 1)[group]


def _read_clock_column(columns: Columns, steps: Steps, name: str) -> np.ndarray:
    """Numbers as they are; datetimes as days since the earliest."""
    array = columns[name].array
    if array is not None and is_moment(array.type):
        moments, _ = read_times(columns[name], "clock")
        return steps.pick(name, (moments - moments.min()) / np.timedelta64(1, "D"))
    return steps.pick(name, read_numbers(columns[name], "clock"))
