"""Read a large table: count its columns, open it, draw the windows to learn from, and say every decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from labeltide.auditing import fitting
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.numbers import count
from labeltide.auditing.rare_classes import say_rare
from labeltide.auditing.reading import needed_columns
from labeltide.auditing.stages import Stages
from labeltide.auditing.streaming.draw import draw_windows
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.opening import count_columns, find_roles, open_layout, used_columns
from labeltide.auditing.streaming.sample import read_sample
from labeltide.auditing.streaming.windows_file import map_windows, shape_bytes, window_shapes
from labeltide.auditing.streaming.work import check_windows_disk
from labeltide.auditing.train_on import check_training_memory
from labeltide.auditing.training_windows import TrainingWindows
from labeltide.tables.column_counts import TableCounts
from labeltide.tables.file_set import FileSet
from labeltide.tables.labels import say_blank
from labeltide.tables.overview import describe_overview
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.tidying import choose_tidying, tidy_contents
from labeltide.tables.windows import say_windows


class LargeTable(NamedTuple):
    """What was read of a large table.

    Attributes
    ----------
    sample : the windows to learn from with every decision; of more than usual, as many as usual
    n_windows : of the whole table
    learned : all windows to learn from, on disk; None where the sample is all
    """

    layout: Layout
    sample: AuditInput
    n_windows: int
    learned: TrainingWindows | None


def read_large_table(files: FileSet, options: AuditOptions, stages: Stages) -> LargeTable:
    """Count, open and survey the table, draw the windows to learn from, and say every decision."""
    roles = find_roles(files, options.columns)
    assert options.checkpoint is not None
    counts = count_columns(
        files, roles, needed_columns(files.schema.names, options.columns), _shown(stages, files.n_rows, (0.0, 0.3))
    )
    tidy, tidied_said = choose_tidying(counts, roles)
    in_text = [name for name in counts.numbers_in_text(roles) if name not in tidy.as_numbers]
    tidy = replace(tidy, in_text=tuple(in_text))
    on_rows = _shown(stages, files.n_rows, (0.3, 0.6))
    layout, sorted_said = open_layout(
        files, roles, used_columns(files, roles), options.window, options.checkpoint, on_rows, tidy
    )
    _check_training(layout, options)
    drawn, n_windows, places = draw_windows(layout, options, _shown(stages, layout.survey.n_rows, (0.6, 0.8)))
    layout, sample, features = read_sample(layout, drawn, counts)
    used, why = [encoder.column for encoder in features.encoders], {**roles.left_out, **features.left_out}
    contents = tidy_contents(counts, tidy)
    said = [*roles.said, *tidied_said, *_say_blank(counts, roles), *sample.said, *_say_layout(layout, n_windows)]
    said += [*sorted_said, f"The table is read in {count(len(layout.plan.chunks), 'part')}."]
    overview = describe_overview(contents, files.schema.names, roles, used, why, tidy.as_numbers)
    sample = replace(sample, said=tuple(said), overview=overview)
    learned = None if places is None else _map_windows(layout, places, sample, options, stages)
    return LargeTable(layout, sample, n_windows, learned)


def _map_windows(
    layout: Layout, places: np.ndarray, sample: AuditInput, options: AuditOptions, stages: Stages
) -> TrainingWindows:
    """Write the windows to learn from to the work folder, where there is room for them."""
    assert options.checkpoint is not None
    n_features = sample.features.shape[2]
    check_windows_disk(shape_bytes(window_shapes(layout, places, n_features)), options.checkpoint)
    on_rows = _shown(stages, layout.survey.n_rows, (0.8, 1.0))
    return map_windows(layout, places, n_features, options.checkpoint, on_rows)


def _check_training(layout: Layout, options: AuditOptions) -> None:
    """Refuse to draw more windows than fit into memory, where the user asked for many."""
    if options.train_on is None:
        return
    size = layout.size
    wanted = fitting.most_windows(size, options.pace, options.train_on)
    labels = round(size.labels * wanted / size.windows)
    on_disk = wanted > fitting.most_windows(size, options.pace)
    n_features = None if on_disk else len(layout.columns.features)
    check_training_memory(
        (wanted, size.window), labels, n_features, len(layout.class_names), len(layout.annotator_names or " ")
    )


def _say_blank(counts: TableCounts, roles: RoleColumns) -> list[str]:
    blank = {name: counts.columns[name].blank for name in roles.label}
    return [say_blank(count, name) for name, count in blank.items() if count]


def _say_layout(layout: Layout, n_windows: int) -> list[str]:
    survey, plan = layout.survey, layout.plan
    windows = say_windows(n_windows, plan.window, plan.counts)
    return [windows, *say_rare(survey.class_names, survey.class_counts, layout.rare)]


def sizes(layout: Layout) -> dict[str, int]:
    """The numbers of the whole table, not of the windows that were drawn."""
    return {"rows": layout.survey.n_rows, "sequences": len(layout.survey.names), "labels": layout.n_labels}


def _shown(stages: Stages, total: int, part: tuple[float, float]) -> Any:
    return lambda done: stages.rows(min(done, total), total, part)
