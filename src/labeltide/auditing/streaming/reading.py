"""Read a large table: count its columns, open it, draw the windows to learn from, and say every decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from labeltide.auditing.train_on import check_training_memory
from labeltide.tables.column_counts import TableCounts
from labeltide.tables.file_set import FileSet
from labeltide.tables.labels import say_blank
from labeltide.tables.overview import describe_overview
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.tidying import choose_tidying, tidy_contents
from labeltide.tables.windows import say_windows


def read_large_table(files: FileSet, options: AuditOptions, stages: Stages) -> tuple[Layout, AuditInput, int]:
    """The layout of the table, the windows to learn from with every decision, and the number of all windows."""
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
    drawn, n_windows = draw_windows(layout, options, _shown(stages, layout.survey.n_rows, (0.6, 1.0)))
    layout, sample, features = read_sample(layout, drawn, counts)
    used, why = [encoder.column for encoder in features.encoders], {**roles.left_out, **features.left_out}
    contents = tidy_contents(counts, tidy)
    said = [*roles.said, *tidied_said, *_say_blank(counts, roles), *sample.said, *_say_layout(layout, n_windows)]
    said += [*sorted_said, f"The table is read in {count(len(layout.plan.chunks), 'part')}."]
    overview = describe_overview(contents, files.schema.names, roles, used, why, tidy.as_numbers)
    return layout, replace(sample, said=tuple(said), overview=overview), n_windows


def _check_training(layout: Layout, options: AuditOptions) -> None:
    """Refuse to draw more windows than fit into memory, where the user asked for many."""
    if options.train_on is None:
        return
    size = layout.size
    wanted = fitting.most_windows(size, options.pace, options.train_on)
    labels = round(size.labels * wanted / size.windows)
    sizes = len(layout.columns.features), len(layout.class_names), len(layout.annotator_names or " ")
    check_training_memory((wanted, size.window), labels, *sizes)


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
