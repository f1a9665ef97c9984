"""Read a large table: count its columns, open it, draw the windows to learn from, and say every decision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing import fitting
from labeltide.auditing.apply import read_decided
from labeltide.auditing.checks import kept_codes, leave_out, say_rare
from labeltide.auditing.fitting import check_training_memory
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.format import count
from labeltide.auditing.reading import (
    AuditInput,
    AuditSteps,
    check_features,
    needed_columns,
    position_feature,
    say_blank,
)
from labeltide.auditing.resume import Stages
from labeltide.auditing.survey import (
    ROW,
    Chunk,
    Layout,
    OnRows,
    count_columns,
    find_roles,
    mix,
    open_layout,
    prepare_rows,
    select_windows,
    time_numbers,
)
from labeltide.tables.columns import Steps, code_values, load_table, open_table, whole
from labeltide.tables.features import Features, apply_encoders, encode_features, encode_probabilities
from labeltide.tables.files import FileSet
from labeltide.tables.roles import RoleColumns
from labeltide.tables.rows import UNNAMED, TableRows, describe_trusted, read_table_labels, read_trusted
from labeltide.tables.tidy import TableCounts, Tidying, choose_tidying, describe_overview, name_files
from labeltide.tables.times import MINUTE, Moments, count_gaps, read_moments, say_gaps, written_length, written_offset
from labeltide.tables.windows import Windows, read_clocks, say_windows


def read_large_table(
    table: Any, files: FileSet, options: AuditOptions, stages: Stages
) -> tuple[Layout, AuditInput, int]:
    """Count, open and survey the table, draw the windows to learn from, and say every decision.

    Returns how the table is read, the sample, and the number of windows of the table.
    """
    roles = find_roles(files, options.columns)
    files = name_files(files, roles, options.missing)
    assert options.checkpoint is not None
    needed = needed_columns(files.schema.names, options.columns)
    counts = count_columns(files, roles, needed, _shown(stages, files.n_rows, (0.0, 0.3)))
    tidy, tidying_messages = _choose_tidying(counts, roles, options)
    on_rows = _shown(stages, files.n_rows, (0.3, 0.6))
    decided = None if options.decisions is None else (read_decided(Path(options.decisions)), table)
    prepared = prepare_rows(files, roles, tidy, options.reading, options.checkpoint, on_rows, decided)
    if prepared.kept is not None:
        counts = count_columns(files, roles, needed, on_rows, prepared.kept)
        tidy, tidying_messages = _choose_tidying(counts, roles, options)
    layout, layout_messages = open_layout(prepared, options.window, options.checkpoint, on_rows, tidy)
    n_rows, n_windows, size = layout.survey.n_rows, layout.size.windows, layout.size
    if options.train_on is not None:  # refuse to draw more windows than fit into memory
        wanted = fitting.most_windows(size, options.pace, options.n_train)
        numbers = len(layout.columns.features), len(layout.class_names), len(layout.annotator_names or " ")
        check_training_memory((wanted, size.window), round(size.labels * wanted / size.windows), *numbers)
    held = draw_windows(layout, options, _shown(stages, n_rows, (0.6, 0.8)))
    layout, sample, features = read_sample(layout, held, counts, _shown(stages, n_rows, (0.8, 1.0)))
    messages = [*roles.messages, *prepared.row_messages, *tidying_messages, *say_blank(counts, roles), *sample.messages]
    messages += [prepared.decisions["sentence"]] if prepared.decisions else []
    messages.append(say_windows(n_windows, layout.window, layout.survey.counts))
    messages += say_rare(layout.survey.class_names, layout.survey.class_counts, layout.rare)
    messages += [*layout_messages, f"The table is read in {count(len(layout.chunks), 'part')}."]
    overview = describe_overview(counts, tidy, files.schema.names, roles, features)
    sample = replace(sample, messages=tuple(messages), overview=overview, decisions=prepared.decisions)
    return layout, sample, n_windows


def _choose_tidying(counts: TableCounts, roles: RoleColumns, options: AuditOptions) -> tuple[Tidying, list[str]]:
    """What to change in the table, and what to say; columns of numbers among texts are read as such in every part."""
    tidy, messages = choose_tidying(counts, roles, options.missing, options.classes)
    in_text = [name for name in counts.numbers_in_text(roles) if name not in tidy.as_numbers]
    return replace(tidy, in_text=tuple(in_text)), messages


def _shown(stages: Stages, total: int, part: tuple[float, float]) -> Any:
    return lambda done: stages.rows(min(done, total), total, part)


# A window is drawn by a hash of the seed, the name of its sequence and its number there: the windows with the smallest
# hashes are taken (bottom-k sampling, Cohen and Kaplan 2007). The draw is therefore uniform over windows, and the same
# whatever the order of files and their number.


RARE = 20_000  # labels of a class, below which its windows are looked for on their own
OF_RARE = 2  # windows with a class that no drawn window holds
CANDIDATE = np.dtype([("rank", np.uint64), ("sequence", np.int64), ("number", np.int64), ("is_labelled", bool)])


def draw_windows(layout: Layout, options: AuditOptions, on_rows: OnRows) -> np.ndarray:
    """Draw windows with labels, or all where so many are wanted, and some with every class.

    Gives the sequence and number of each: int64 of shape (windows, 2), in the order of the names of sequences.
    """
    total = layout.size.windows
    most = fitting.most_windows(layout.size, options.pace, options.n_train)
    key, texts = options.seed.to_bytes(8, "little"), layout.survey.names.to_pylist()
    digests = [hashlib.blake2b(name.encode(), digest_size=8, key=key).digest() for name in texts]
    names = np.frombuffer(b"".join(digests), dtype=np.uint64)
    codes, chosen = kept_codes(layout.rare), np.zeros(0, CANDIDATE)
    of_class: dict[int, np.ndarray] = {}
    if total > most:
        few = np.flatnonzero(layout.survey.class_counts[~layout.rare] < RARE)
        of_class = {code: np.zeros(0, CANDIDATE) for code in few.tolist()}
    keys = [name for name in (layout.columns.time, layout.columns.annotator) if name]
    labelled = replace(layout, stream=layout.stream.with_columns([*keys, *layout.columns.label]))
    for chunk in layout.chunks:
        (windows, numbers), rows = layout.windows(chunk), read_rows(labelled, chunk)
        labels = codes[_labels(layout, rows)][windows.filled_index()]
        labels = np.where(windows.belongs[..., None], labels, np.int8(-1))
        candidates = np.empty(len(labels), dtype=CANDIDATE)
        candidates["sequence"] = chunk.first_sequence + windows.groups
        candidates["number"] = numbers
        candidates["rank"] = mix(names[candidates["sequence"]], candidates["number"])
        candidates["is_labelled"] = (labels >= 0).any((1, 2))
        wanted = candidates if total <= most else candidates[candidates["is_labelled"]]
        chosen = _smallest(np.append(chosen, wanted), most)
        for code, before in of_class.items():
            of_class[code] = _smallest(np.append(before, candidates[(labels == code).any((1, 2))]), OF_RARE)
        on_rows(chunk.last_row)
    # Where no window with a class is candidates, its window with the smallest hash is not.
    missing = [found for found in of_class.values() if len(found) and found[0] not in chosen]
    held = np.unique(np.concatenate([chosen, *missing]))
    fitting.check_labelled(held["is_labelled"])
    turn = np.empty(len(texts), dtype=np.int64)
    turn[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    held = held[np.lexsort((held["number"], turn[held["sequence"]]))]
    return np.stack([held["sequence"], held["number"]], axis=1)


def _smallest(candidates: np.ndarray, most: int) -> np.ndarray:
    return candidates[np.argsort(candidates["rank"], kind="stable")[:most]]


def _chunks_with(layout: Layout, drawn: np.ndarray, on_rows: OnRows) -> Iterator[tuple[Chunk, Windows, np.ndarray]]:
    """The chunks that hold some of the windows, these windows, and the index of each among `drawn`."""
    n_windows = layout.n_windows
    first = np.cumsum(n_windows) - n_windows
    index = np.full(int(n_windows.sum()), -1, dtype=np.int64)
    index[first[drawn[:, 0]] + drawn[:, 1]] = np.arange(len(drawn))
    for chunk in layout.chunks:
        windows, numbers = layout.windows(chunk)
        indices = index[first[chunk.first_sequence + windows.groups] + numbers]
        wanted = np.flatnonzero(indices >= 0)
        if len(wanted):
            yield chunk, select_windows(windows, wanted), indices[wanted]
        on_rows(chunk.last_row)


def read_sample(
    layout: Layout, drawn: np.ndarray, counts: TableCounts, on_rows: OnRows
) -> tuple[Layout, AuditInput, Features]:
    """Fit the encoding of features, find the clocks and the usual step, and cut the windows.

    `counts` are those of the columns of the whole table.
    """
    tables: dict[int, pa.Table] = {}
    offset, warm_up = np.zeros(len(drawn), dtype=np.int64), np.zeros(len(drawn), dtype=np.int64)
    for chunk, windows, indices in _chunks_with(layout, drawn, on_rows):
        rows = read_rows(layout, chunk)
        offset[indices] = windows.starts - rows.steps.first[windows.starts] + chunk.first_step
        warm_up[indices] = windows.warm_up
        first_row = np.append(rows.steps.rows, len(rows.table))
        ends = first_row[windows.starts + windows.lengths]
        for index, begin, end in zip(indices.tolist(), first_row[windows.starts], ends, strict=True):
            tables[index] = rows.table.take(pa.array(np.arange(begin, end)))
    ordered = [tables[index] for index in range(len(drawn))]
    sizes, sequences = np.array([len(table) for table in ordered]), drawn[:, 0]
    rows = _sorted_rows(
        layout,
        pa.concat_tables(ordered).unify_dictionaries().combine_chunks(),
        begins=np.cumsum(sizes) - sizes,
        ids=layout.survey.names.take(pa.array(sequences)).to_pylist(),
        offset=offset,
        totals=layout.survey.counts[sequences],
    )
    lengths = rows.steps.counts
    starts = np.cumsum(lengths) - lengths
    windows = Windows(starts, lengths, warm_up, np.arange(len(drawn)), layout.window)
    layout, features, messages = _fit(layout, rows, windows, counts)
    sample = to_steps(layout, rows).take(windows)
    # The last value before a missing one, and the time before a gap, may lie before the window.
    for chunk, some, indices in _chunks_with(layout, drawn, on_rows):
        read = leave_out(to_steps(layout, read_rows(layout, chunk)).take(some), layout.rare)
        for array, values, padding in ((sample.features, read.features, 0), (sample.gaps, read.gaps, 1)):
            if array is not None and values is not None:
                array[indices, : values.shape[1]] = values
                array[indices, values.shape[1] :] = padding
    names, groups = np.unique(np.array(rows.steps.ids, dtype=object), return_inverse=True)
    of_row = groups[rows.steps.sequence[rows.steps.step_of_row]].astype(np.int32)
    sample = replace(
        sample,
        groups=groups,
        sequence_names=tuple(names),
        ids=pa.DictionaryArray.from_arrays(pa.array(of_row), pa.array(names)),
        columns=layout.prepared.shown.describe(),
        n_all_steps=layout.size.steps,
        messages=messages,
    )
    return layout, leave_out(sample, layout.rare), features


def _fit(
    layout: Layout, rows: TableRows, windows: Windows, counts: TableCounts
) -> tuple[Layout, Features, tuple[str, ...]]:
    """The layout with encoders, clocks and the usual step, from the steps that belong to the windows."""
    columns, survey, prepared = layout.columns, layout.survey, layout.prepared
    own = np.zeros(len(rows.steps.rows), dtype=bool)
    own[windows.index[windows.belongs]] = True
    taken = np.flatnonzero(own[rows.steps.step_of_row])
    table, annotator = rows.table.take(pa.array(taken)), rows.annotator[taken]
    step_of_row = (np.cumsum(own) - 1)[rows.steps.step_of_row[taken]]
    first = np.searchsorted(step_of_row, np.arange(own.sum()))
    steps = Steps(first, rows.steps.sequence[own], rows.steps.ids, rows.steps.times[own], step_of_row, annotator)
    labels = _labels(layout, replace(rows, table=table, steps=steps, annotator=annotator))
    tidy = layout.stream.tidy
    of_whole = counts.of_whole(tidy.as_numbers, tidy.in_text, len(windows.starts) < layout.size.windows)
    named = columns.features_named
    if columns.probabilities:
        features = encode_probabilities(table, columns.features, steps, survey.class_names)
    else:
        features = encode_features(table, columns.features, steps, labels, named=named, of_whole=of_whole)
    moments = read_moments(columns.time, whole(table[columns.time])) if columns.time else None
    _, clocks, clock_messages = read_clocks(table, columns.clock, columns.time, moments, steps)
    time_messages = prepared.time_messages
    if time_messages is None:
        time_messages = moments.messages if moments else ()
    messages = [*time_messages, *features.messages, *clock_messages]
    if prepared.shown.trusted:
        settled = prepared.decisions["used"] if prepared.decisions else 0
        messages.append(describe_trusted(survey.trusted - settled, prepared.shown.trusted))
    if not features.columns:
        check_features(rows.n_annotators, prepared.shown.left_out)
    usual, gap_messages = _find_gaps(layout, rows.steps, windows)
    layout = replace(layout, encoders=features.encoders, clocks=clocks, usual=usual)
    return layout, features, (*messages, *gap_messages)


def _find_gaps(layout: Layout, steps: Steps, windows: Windows) -> tuple[float | None, list[str]]:
    """The usual step and a sentence about gaps: of all rows, or where these were not counted of the windows."""
    survey, is_dated = layout.survey, layout.survey.earliest is not None
    if layout.columns.time is None:
        return None, []
    if survey.n_gaps is not None and survey.usual is not None:
        return survey.usual, [say_gaps(survey.n_gaps, survey.usual, is_dated)] if survey.n_gaps else []
    moments = (steps.times.astype(np.int64) / 1e6 if is_dated else steps.times).astype(np.float64)
    after = windows.index[windows.belongs & (np.arange(int(windows.lengths.max())) > 0)]
    with np.errstate(invalid="ignore", over="ignore"):
        spent = moments[after] - moments[after - 1]
    usual = float(np.median(spent)) if len(spent) else 0.0
    if not 0 < usual < np.inf:
        return None, []
    return usual, [
        f"Steps are too irregular to count gaps over all parts of the table. The usual step, "
        f"{written_length(usual, is_dated)}, is that of the training windows. The longer the gap, the less weight "
        "the labels before it have for those after it."
    ]


# Chunks of rows, read as a table in memory is, with what is known of the whole table.


def read_rows(layout: Layout, chunk: Chunk) -> TableRows:
    """Read a chunk with the number of each row in the user's table, and find the steps of its sorted rows."""
    table, survey = layout.stream.read(chunk.first_row, chunk.last_row), layout.survey
    # Columns of odd types become texts or numbers; those that are dictionary-encoded stay so.
    plain = [field.name for field in table.schema if not pa.types.is_dictionary(field.type)]
    simple = load_table(open_table(table.select(plain))) if plain else table
    for name in plain:
        table = table.set_column(table.column_names.index(name), name, simple[name])
    if ROW not in table.column_names:  # neither a copy nor sorted
        table = table.append_column(ROW, pa.array(np.arange(chunk.first_row, chunk.last_row)))
    totals = survey.counts[chunk.first_sequence : chunk.last_sequence]
    begins = np.maximum(survey.first_rows[chunk.first_sequence : chunk.last_sequence] - chunk.first_row, 0)
    names = survey.names.slice(chunk.first_sequence, len(totals)).to_pylist()
    rows = _sorted_rows(layout, table, begins, names, chunk.first_step, totals)
    if not chunk.last_window and not np.array_equal(rows.steps.counts, totals):
        raise ValueError("The files of the table changed while they were read. Start the audit again.")
    return rows


def _sorted_rows(
    layout: Layout, table: pa.Table, begins: np.ndarray, ids: list[Any], offset: np.ndarray | int, totals: np.ndarray
) -> TableRows:
    """Sorted rows by step, without their times.

    `begins` and `ids` are the first row and the name of every sequence, `offset` and `totals` as of `Steps`.
    """
    columns, survey = layout.columns, layout.survey
    new_step, times = np.ones(len(table), dtype=bool), np.arange(len(table))
    if columns.time is not None:
        times = time_numbers(columns.time, table[columns.time])
        new_step[1:] = times[1:] != times[:-1]
    new_step[begins] = True
    rows = np.flatnonzero(new_step)
    step_times = times[rows].view("datetime64[us]") if survey.earliest is not None else times[rows]
    annotator = np.zeros(len(table), dtype=np.int64)
    if columns.annotator is not None and survey.annotators is not None:
        column = table[columns.annotator]
        if survey.unnamed_hold_labels:
            column = pc.fill_null(column.cast(pa.string()), UNNAMED)
        codes, values = code_values(column)
        known = pc.index_in(values, survey.annotators.cast(values.type)).fill_null(-1).to_numpy(zero_copy_only=False)
        annotator = np.append(known, -1).astype(np.int64)[codes]
    sequence = np.searchsorted(begins, rows, side="right") - 1
    step_of_row = np.cumsum(new_step) - 1
    steps = Steps(rows, sequence, ids, step_times, step_of_row, annotator, None, offset, totals)
    return TableRows(table, columns, steps, None, annotator, layout.annotator_names)


def to_steps(layout: Layout, rows: TableRows) -> AuditSteps:
    """Labels, features, clocks, trusted labels and gaps of rows, by what is known of the whole table."""
    survey, columns, table, steps = layout.survey, layout.columns, rows.table, rows.steps
    rows = replace(rows, moments=_moments(layout, table))
    features = apply_encoders(table, layout.encoders, steps) if layout.encoders else position_feature(steps)
    known = layout.clocks, survey.earliest
    clock = read_clocks(table, columns.clock, columns.time, rows.moments, steps, *known)[0]
    trusted = read_trusted(table, columns.trusted, survey.classes, steps) if columns.trusted else None
    gaps = count_gaps(steps, layout.usual) if layout.usual and survey.n_gaps != 0 else None
    return AuditSteps(rows, features, _labels(layout, rows), survey.class_names, clock, layout.clocks, trusted, gaps)


def _labels(layout: Layout, rows: TableRows) -> np.ndarray:
    """Recorded labels of every step: int8 of shape (steps, annotators)."""
    return read_table_labels(rows.table, layout.columns.label, layout.survey.classes).of_steps(rows)


def _moments(layout: Layout, table: pa.Table) -> Moments:
    """The times of all rows, of which each distinct one is read once, with texts as in the whole table."""
    name, survey = layout.columns.time, layout.survey
    if name is None:
        return Moments(pa.nulls(0), None, False, whole(table[ROW]).cast(pa.string()))
    encoded = whole(table[name]).dictionary_encode()
    moments, texts = read_moments(name, encoded.dictionary), None
    if pa.types.is_timestamp(encoded.dictionary.type):
        local = pa.array(moments.local).cast(pa.timestamp("us"))
        texts = local.cast(pa.timestamp(survey.unit), safe=False).cast(pa.string())
        if survey.offsets_vary:
            ahead = (moments.local - moments.order.cast(pa.int64()).to_numpy(zero_copy_only=False)) // MINUTE
            texts = pc.binary_join_element_wise(texts, pa.array(map(written_offset, ahead.tolist())), "")
    coded = (moments.texts if texts is None else texts).dictionary_encode()  # some read the same when clocks go back
    indices = encoded.indices
    return Moments(
        order=pa.nulls(0),
        local=None if moments.local is None else moments.local[indices.to_numpy()],
        has_hours=moments.has_hours,
        texts=pa.DictionaryArray.from_arrays(coded.indices.take(indices), coded.dictionary),
    )
