"""Read a large table: count its columns, open it, draw the windows to learn from, and say every decision."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._files import write_folder_atomically
from labeltide._validation import UnanswerableError
from labeltide.auditing import fitting
from labeltide.auditing.apply import read_decided
from labeltide.auditing.checks import kept_codes, leave_out, say_rare
from labeltide.auditing.fitting import check_training_memory
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.format import count
from labeltide.auditing.reading import AuditInput, TrainingWindows, needed_columns
from labeltide.auditing.resume import WINDOWS, check_windows_disk
from labeltide.auditing.stages import Stages
from labeltide.auditing.survey import (
    Chunk,
    ChunkPlan,
    Layout,
    count_columns,
    find_roles,
    mix,
    open_layout,
    prepare_rows,
    time_numbers,
    used_columns,
)
from labeltide.tables.columns import Steps, encode_column, find_places
from labeltide.tables.features import MAX_VALUE, Features, apply_encoders, encode_features
from labeltide.tables.files import FileSet
from labeltide.tables.intake import is_number, load_table, open_table, whole
from labeltide.tables.roles import RoleColumns
from labeltide.tables.rows import UNNAMED, say_blank, say_trusted
from labeltide.tables.tidy import TableCounts, Tidying, choose_tidying, describe_overview, name_files, tidy_contents
from labeltide.tables.times import MINUTE, Moments, read_moments, say_gaps, written_length, written_offset
from labeltide.tables.windows import Windows, read_clocks, read_known_clocks, say_windows
from labeltide.tables.words import quoted, unique_texts


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


def read_large_table(table: Any, files: FileSet, options: AuditOptions, stages: Stages) -> LargeTable:
    """Count, open and survey the table, draw the windows to learn from, and say every decision."""
    roles = find_roles(files, options.columns)
    files = name_files(files, roles, options.missing)
    assert options.checkpoint is not None
    needed = needed_columns(files.schema.names, options.columns)
    counts = count_columns(files, roles, needed, _shown(stages, files.n_rows, (0.0, 0.3)))
    tidy, tidied_said = _choose_tidying(counts, roles, options)
    on_rows = _shown(stages, files.n_rows, (0.3, 0.6))
    decided = None if options.decisions is None else (read_decided(Path(options.decisions)), table)
    prepared = prepare_rows(files, roles, tidy, options.reading, options.checkpoint, on_rows, decided)
    if prepared.kept is not None:
        counts = count_columns(files, roles, needed, on_rows, prepared.kept)
        tidy, tidied_said = _choose_tidying(counts, roles, options)
    copy, read_roles = prepared.files, prepared.roles
    columns = used_columns(copy, read_roles)
    layout, sorted_said = open_layout(
        copy, read_roles, columns, options.window, options.checkpoint, on_rows, tidy, prepared
    )
    _check_training(layout, options)
    drawn, n_windows, places = draw_windows(layout, options, _shown(stages, layout.survey.n_rows, (0.6, 0.8)))
    layout, sample, features = read_sample(layout, drawn, counts)
    used, why = [encoder.column for encoder in features.encoders], {**roles.left_out, **features.left_out}
    contents = tidy_contents(counts, tidy)
    said = [*roles.messages, *prepared.row_messages, *tidied_said, *_say_blank(counts, roles), *sample.said]
    said += [prepared.decisions["sentence"]] if prepared.decisions else []
    said += _say_layout(layout, n_windows)
    said += [*sorted_said, f"The table is read in {count(len(layout.plan.chunks), 'part')}."]
    overview = describe_overview(contents, files.schema.names, roles, used, why, tidy.as_numbers)
    sample = replace(sample, said=tuple(said), overview=overview, decisions=prepared.decisions)
    learned = None if places is None else _map_windows(layout, places, sample, options, stages)
    return LargeTable(layout, sample, n_windows, learned)


def _choose_tidying(counts: TableCounts, roles: RoleColumns, options: AuditOptions) -> tuple[Tidying, list[str]]:
    """What to change in the table, and what to say; columns of numbers among texts are read as such in every part."""
    tidy, messages = choose_tidying(counts, roles, options.missing, options.classes)
    in_text = [name for name in counts.numbers_in_text(roles) if name not in tidy.as_numbers]
    return replace(tidy, in_text=tuple(in_text)), messages


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
    wanted = fitting.most_windows(size, options.pace, options.n_train)
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


# A window is drawn by a hash of the seed, the name of its sequence and its number there: the windows with the smallest
# hashes are taken (bottom-k sampling, Cohen and Kaplan 2007). The draw is therefore uniform over windows, and the same
# whatever the order of files and their number.


MORE = 1.3  # windows looked at for each that is wanted, as some hold no label
RARE = 20_000  # labels of a class, below which its windows are looked for on their own
OF_RARE = 2  # windows with a class that no drawn window holds
WHOLE = 2**64 - 1
PLACE = np.dtype([("rank", np.uint64), ("sequence", np.int64), ("number", np.int64)])


@dataclass(frozen=True)
class DrawnWindow:
    """One window: where it lies, and its rows, before which stands one with the last values before it."""

    rank: int  # its hash
    sequence: int
    number: int
    start: int  # its first step within the sequence
    length: int
    warm_up: int
    table: pa.Table
    classes: frozenset[int]  # of the labels that belong to it


class Drawn(NamedTuple):
    """The windows to learn from.

    Attributes
    ----------
    held : the windows themselves, sorted by the names of sequences: all, or as many as an audit usually learns from
    total : the number of all windows of the table
    places : int64 array of shape (windows, 2), or None where `held` are all
        Sequence and number of every window to learn from, in the same order.
    """

    held: list[DrawnWindow]
    total: int
    places: np.ndarray | None


def draw_windows(layout: Layout, options: AuditOptions, on_rows: Callable[[int], None] = lambda rows: None) -> Drawn:
    """Draw as many windows as asked for; of more than usual the places alone."""
    total = int(layout.plan.n_windows.sum())
    most = fitting.most_windows(layout.size, options.pace, options.n_train)
    held = min(most, fitting.most_windows(layout.size, options.pace))
    names = hash_names(layout.survey.names, options.seed)
    shares = [_first_share(count, total) for count in (held, most)]
    while True:
        limits = tuple(min(WHOLE, int(share * WHOLE)) for share in shares)
        drawn, rare, places = _pass(layout, names, limits, (total <= held, total <= most), on_rows)
        found = zip((len(drawn), len(places)), (held, most), shares, strict=True)
        if all(count >= min(wanted, total) or share >= 1.0 for count, wanted, share in found):
            break
        shares = [min(1.0, share * 8) for share in shares]
    windows = _with_rare(sorted(drawn, key=lambda each: each.rank)[:held] if total > held else drawn, rare)
    if sum(bool(each.classes) for each in windows) < 2:
        raise UnanswerableError(
            "An audit judges one stretch of labels by others, so it needs labels in at least two sequences or windows. "
            "Name a shorter window (--window STEPS), or give more data."
        )
    texts = {each.sequence: layout.survey.names[each.sequence].as_py() for each in windows}
    windows.sort(key=lambda each: (texts[each.sequence], each.number))
    if most <= held or total <= held:
        return Drawn(windows, total, None)
    chosen = places[np.argsort(places["rank"], kind="stable")[:most]]
    return Drawn(windows, total, _in_order(layout, chosen, windows))


def _first_share(count: int, total: int) -> float:
    """The share of windows to look at for so many, of which some hold no label."""
    return 1.0 if total <= count else min(1.0, MORE * (count + 4 * count**0.5 + 20) / total)


def _with_rare(drawn: list[DrawnWindow], rare: dict[int, list[DrawnWindow]]) -> list[DrawnWindow]:
    """The windows, and some with classes that none of them holds."""
    met: frozenset[int] = frozenset().union(*(each.classes for each in drawn)) if drawn else frozenset()
    chosen = {(each.sequence, each.number): each for each in drawn}
    for code, windows in rare.items():
        if code not in met:
            chosen |= {(each.sequence, each.number): each for each in windows}
    return list(chosen.values())


def _in_order(layout: Layout, chosen: np.ndarray, held: list[DrawnWindow]) -> np.ndarray:
    """Sequence and number of the chosen windows and of those held, sorted by the names of sequences."""
    sequence = np.append(chosen["sequence"], [each.sequence for each in held])
    number = np.append(chosen["number"], [each.number for each in held])
    places = np.unique(np.stack([sequence, number], axis=1).astype(np.int64), axis=0)
    names = layout.survey.names.to_pylist()
    turn = np.empty(len(names), dtype=np.int64)
    turn[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return places[np.lexsort((places[:, 1], turn[places[:, 0]]))]


def hash_names(names: pa.Array, seed: int) -> np.ndarray:
    """A number from the seed and the name of each sequence: uint64 of shape (sequences,)."""
    key = seed.to_bytes(8, "little")
    digests = [hashlib.blake2b(name.encode(), digest_size=8, key=key).digest() for name in names.to_pylist()]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _pass(
    layout: Layout,
    names: np.ndarray,
    limits: tuple[int, ...],
    every: tuple[bool, bool],
    on_rows: Callable[[int], None],
) -> tuple[list[DrawnWindow], dict[int, list[DrawnWindow]], np.ndarray]:
    """Windows that hold labels and whose hash is below the first limit; for rare classes some that hold them; and the
    places of windows whose hash is below the second limit. Where `every` is set, windows need no label."""
    codes = kept_codes(layout.rare)
    counts = layout.survey.class_counts[~layout.rare]
    looked_for = np.flatnonzero(counts < RARE).tolist() if not every[0] else []
    drawn: list[DrawnWindow] = []
    rare: dict[int, list[DrawnWindow]] = {code: [] for code in looked_for}
    places: list[np.ndarray] = [np.zeros(0, dtype=PLACE)]
    for chunk in layout.plan.chunks:
        windows, numbers = layout.plan.windows(chunk), layout.plan.numbers(chunk)
        ranks = mix(names[chunk.first_sequence + windows.groups], numbers)
        near, noted = (ranks <= np.uint64(limit) for limit in limits)
        if near.any() or noted.any() or looked_for:
            read = read_steps(layout, chunk)
            labels = codes[step_labels(layout, read)][windows.filled_index()]
            labels = np.where(windows.belongs[..., None], labels, np.int8(-1))
            labelled = (labels >= 0).any((1, 2))
            taker = _Taker(layout, chunk, read, windows, numbers, ranks, labels, read.steps.first)
            drawn += [taker.take(place) for place in np.flatnonzero(near & (every[0] | labelled)).tolist()]
            places.append(taker.places(np.flatnonzero(noted & (every[1] | labelled))))
            for code in looked_for:
                found = [taker.take(place) for place in _smallest(ranks, (labels == code).any((1, 2)))]
                rare[code] = heapq.nsmallest(OF_RARE, rare[code] + found, key=lambda each: each.rank)
        on_rows(chunk.last_row)
    return drawn, rare, np.concatenate(places)


def _smallest(ranks: np.ndarray, holds: np.ndarray) -> list[int]:
    places = np.flatnonzero(holds)
    return places[np.argsort(ranks[places])[:OF_RARE]].tolist()


@dataclass(frozen=True)
class _Taker:
    """The windows of one chunk, of which some are taken."""

    layout: Layout
    chunk: Chunk
    read: ChunkSteps
    windows: Windows
    numbers: np.ndarray
    ranks: np.ndarray
    labels: np.ndarray
    first_steps: np.ndarray  # of the sequence of each step

    def places(self, chosen: np.ndarray) -> np.ndarray:
        """Hash, sequence and number of some windows."""
        places = np.empty(len(chosen), dtype=PLACE)
        places["rank"], places["number"] = self.ranks[chosen], self.numbers[chosen]
        places["sequence"] = self.chunk.first_sequence + self.windows.groups[chosen]
        return places

    def take(self, place: int) -> DrawnWindow:
        start, length = int(self.windows.starts[place]), int(self.windows.lengths[place])
        rows, end = self.read.steps.rows, start + length
        sequence_start = int(self.first_steps[start])
        last = int(rows[end]) if end < len(rows) else len(self.read.table)
        found = np.unique(self.labels[place])
        return DrawnWindow(
            rank=int(self.ranks[place]),
            sequence=self.chunk.first_sequence + int(self.windows.groups[place]),
            number=int(self.numbers[place]),
            start=start - sequence_start + self.chunk.first_step,
            length=length,
            warm_up=int(self.windows.warm_up[place]),
            table=_with_last_values(self.layout, self.read.table, int(rows[sequence_start]), int(rows[start]), last),
            classes=frozenset(found[found >= 0].tolist()),
        )


def _with_last_values(layout: Layout, table: pa.Table, begin: int, first: int, last: int) -> pa.Table:
    """The rows of a window; before them a row with the last observation of every numeric feature, null without one."""
    usual = max(first - 1, begin)
    rows = np.append(usual, np.arange(first, last))
    window = table.take(pa.array(rows))
    for name in layout.columns.features:
        before = _last_value(table[name], begin, first)
        if before != usual:
            rows[0] = before or 0
            taken = whole(table[name]).take(pa.array(rows, mask=(np.arange(len(rows)) == 0) & (before is None)))
            window = window.set_column(window.column_names.index(name), name, taken)
    return window


def _last_value(column: pa.ChunkedArray, begin: int, first: int) -> int | None:
    """The row of the last number before `first`, in steps back that grow."""
    if not is_number(column.type):
        return None
    size, end = 64, first
    while end > begin:
        low = max(begin, end - size)
        values = whole(column.slice(low, end - low)).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            there = np.flatnonzero(np.abs(values) <= MAX_VALUE)
        if len(there):
            return low + int(there[-1])
        end, size = low, size * 8
    return None


def read_sample(layout: Layout, drawn: list[DrawnWindow], counts: TableCounts) -> tuple[Layout, AuditInput, Features]:
    """Fit the encoding of features, find the clocks and the usual step, and cut the windows.

    `counts` are those of the columns of the whole table.

    Returns
    -------
    the layout with these, the windows in order with sentences about what was read, and the features
    """
    table = pa.concat_tables([each.table for each in drawn]).unify_dictionaries().combine_chunks()
    read, step_of_window = _steps(layout, table, drawn)
    windows = _windows(drawn, step_of_window)
    fitted, features, said = _fit(layout, read, windows, counts)
    sample = to_audit_input(fitted, read, windows)
    names = sorted(set(sample.sequence_names))
    place = {name: number for number, name in enumerate(names)}
    sample = replace(
        sample,
        groups=np.array([place[str(name)] for name in read.steps.ids]),
        sequence_names=tuple(names),
        ids=sample.ids.cast(pa.string()),
        times=sample.times.cast(pa.string()),
        all_steps=int(layout.plan.counts.sum()),
        said=said,
    )
    return fitted, leave_out(sample, layout.rare), features


def _steps(layout: Layout, table: pa.Table, drawn: list[DrawnWindow]) -> tuple[ChunkSteps, np.ndarray]:
    """Every window as a sequence of its own, whose first step holds the last values before it."""
    sizes = np.array([len(each.table) for each in drawn])
    begins = np.cumsum(sizes) - sizes
    new_step = np.ones(len(table), dtype=bool)
    times = np.arange(len(table))
    if layout.columns.time is not None:
        times = time_numbers(layout.columns.time, table[layout.columns.time])
        new_step[1:] = times[1:] != times[:-1]
    new_step[begins] = True
    new_step[begins + 1] = True
    rows = np.flatnonzero(new_step)
    sequence = np.searchsorted(begins, rows, side="right") - 1
    names = layout.survey.names.take(pa.array([each.sequence for each in drawn])).to_pylist()
    step_times = times[rows].view("datetime64[us]") if is_dated(layout) else times[rows]
    people = annotator_places(layout, table)
    steps = Steps(rows, sequence, names, step_times, np.cumsum(new_step) - 1, people, None)
    moments = read_moments(layout.columns.time, whole(table[layout.columns.time])) if layout.columns.time else None
    totals = layout.plan.counts[[each.sequence for each in drawn]]
    offset = np.array([each.start - 1 for each in drawn])
    return ChunkSteps(table, steps, moments, offset, totals), np.searchsorted(sequence, np.arange(len(drawn)))


def _windows(drawn: list[DrawnWindow], first_steps: np.ndarray) -> Windows:
    lengths = np.array([each.length for each in drawn])
    warm_up = np.array([each.warm_up for each in drawn])
    return Windows(first_steps + 1, lengths, warm_up, np.arange(len(drawn)), int(lengths.max()))


def _fit(
    layout: Layout, read: ChunkSteps, windows: Windows, counts: TableCounts
) -> tuple[Layout, Features, tuple[str, ...]]:
    """The layout with encoders, clocks and the usual step, from the steps that belong to the windows."""
    own = np.zeros(len(read.steps.rows), dtype=bool)
    own[windows.index[windows.belongs]] = True
    rows = np.flatnonzero(own[read.steps.step_of_row])
    table = read.table.take(pa.array(rows))
    number = np.cumsum(own) - 1
    step_of_row = number[read.steps.step_of_row[rows]]
    first = np.searchsorted(step_of_row, np.arange(own.sum()))
    steps = replace(
        read.steps,
        rows=first,
        sequence=read.steps.sequence[own],
        times=read.steps.times[own],
        step_of_row=step_of_row,
        annotator_of_row=read.steps.annotator_of_row[rows],
    )
    labels = step_labels(layout, ChunkSteps(table, steps, None, 0, read.totals))
    columns = layout.columns
    tidy = layout.stream.tidy
    of_whole = counts.of_whole(tidy.as_numbers, tidy.in_text, len(windows.starts) < layout.size.windows)
    features = encode_features(table, columns.features, steps, labels, named=columns.features_named, of_whole=of_whole)
    moments = _take_moments(read.moments, rows)
    _, clocks, clocks_said = read_clocks(table, columns.clock, columns.time, moments, steps)
    prepared = layout.prepared
    trusted_said = [say_trusted(layout.survey.trusted, columns.trusted)] if columns.trusted else []
    if prepared is not None and prepared.decisions is not None and columns.trusted is not None:
        own = layout.survey.trusted - prepared.decisions["used"]
        trusted_said = [say_trusted(own, columns.trusted)] if prepared.shown.trusted else []
    times_said = moments.messages if moments else ()
    if prepared is not None and prepared.time_messages is not None:
        times_said = prepared.time_messages
    usual, gaps_said = _find_gaps(layout, read.steps, windows)
    said = [*times_said, *features.messages, *clocks_said, *trusted_said]
    said += [*_without_features(layout, features), *gaps_said]
    return replace(layout, encoders=features.encoders, clocks=clocks, usual=usual), features, tuple(said)


def _find_gaps(layout: Layout, steps: Steps, windows: Windows) -> tuple[float | None, list[str]]:
    """The usual step and a sentence about gaps: of all rows, or where these were not counted of the windows."""
    survey = layout.survey
    if layout.columns.time is None:
        return None, []
    if survey.n_gaps is not None and survey.usual is not None:
        return survey.usual, [say_gaps(survey.n_gaps, survey.usual, is_dated(layout))] if survey.n_gaps else []
    usual = _usual_step(layout, steps, windows)
    if usual is None:
        return None, []
    return usual, [
        f"Times between steps differ too much for gaps to be counted in parts. The usual step, "
        f"{written_length(usual, is_dated(layout))}, comes from the windows learned from: the longer the gap, the less "
        "the labels before it say of those after."
    ]


def _without_features(layout: Layout, features: Features) -> list[str]:
    if features.columns:
        return []
    if len(layout.annotator_names or ()) < 2:
        raise UnanswerableError(
            "With one annotator an audit needs features: nothing else can tell a wrong label from a right one. No "
            "column is left that can be one. Name some with the option features (--features COLUMN,...)."
        )
    return ["No column is left for features, so the audit rests on the annotators and the position in the sequence."]


def _take_moments(moments: Moments | None, rows: np.ndarray) -> Moments | None:
    if moments is None:
        return None
    local = None if moments.local is None else moments.local[rows]
    return replace(moments, order=moments.order.take(pa.array(rows)), local=local, texts=pa.nulls(0))


def _usual_step(layout: Layout, steps: Steps, windows: Windows) -> float | None:
    """The median time from one step to the next, in seconds or the unit of the column; None where there is none."""
    moments = steps.times.astype(np.int64) / 1e6 if is_dated(layout) else steps.times
    index, places = windows.index, np.arange(int(windows.lengths.max()))
    follows = windows.belongs & (places > 0)
    after = index[follows]
    with np.errstate(invalid="ignore", over="ignore"):
        spent = moments[after].astype(np.float64) - moments[after - 1].astype(np.float64)
    usual = float(np.median(spent)) if len(spent) else 0.0
    return usual if 0 < usual < np.inf else None


# They are written chunk by chunk, whole or not at all, with features as networks read them. What is read of them counts
# as the system's cache of files, which gives way where memory is short.


Shapes = dict[str, tuple[tuple[int, ...], type]]


def window_shapes(layout: Layout, places: np.ndarray, n_features: int) -> Shapes:
    """Shape and type of every array for windows at these places, (windows, 2): sequence and number."""
    longest = min(layout.plan.window, int(layout.plan.counts[places[:, 0]].max()))
    steps = (len(places), longest)
    several = (len(layout.clocks),) if len(layout.clocks) > 1 else ()
    shapes: Shapes = {
        "features": ((*steps, n_features), np.float32),
        "fit_labels": ((*steps, len(layout.annotator_names or " ")), np.int8),
        "lengths": (steps[:1], np.int64),
        "clock": ((*steps, *several), np.float64),
    }
    if layout.columns.trusted is not None:
        shapes["fit_trusted"] = (steps, np.int8)
    if has_gaps(layout):
        shapes["gaps"] = (steps, np.int32)
    return shapes


def shape_bytes(shapes: Shapes) -> int:
    """How much disk arrays of these shapes take."""
    return sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes.values())


def map_windows(
    layout: Layout,
    places: np.ndarray,
    n_features: int,
    work: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> TrainingWindows:
    """Write the windows at these places, unless an interrupted audit has, and map them into memory."""
    shapes, folder = window_shapes(layout, places, n_features), work / WINDOWS
    if not folder.exists():
        with write_folder_atomically(folder) as draft:
            _write(layout, places, shapes, draft, on_rows)
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in shapes}
    if any(arrays[name].shape != shape for name, (shape, _) in shapes.items()):
        raise ValueError(f"The kept work {folder} does not fit the table. Leave --resume out to start anew.")
    is_new = np.append(True, places[1:, 0] != places[:-1, 0])
    names = layout.survey.names.take(pa.array(places[is_new, 0])).to_pylist()
    return TrainingWindows(
        features=arrays["features"],
        fit_labels=arrays["fit_labels"],
        lengths=np.array(arrays["lengths"]),
        clock=arrays["clock"],
        fit_trusted=arrays.get("fit_trusted"),
        gaps=arrays.get("gaps"),
        groups=np.cumsum(is_new) - 1,
        sequence_names=tuple(map(str, names)),
        clocks=layout.clocks,
        n_all_steps=int(layout.plan.counts.sum()),
    )


def _write(layout: Layout, places: np.ndarray, shapes: Shapes, folder: Path, on_rows: Callable[[int], None]) -> None:
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, shape)
        for name, (shape, kind) in shapes.items()
    }
    row_of_window = _rows(layout.plan, places)
    first_windows = np.cumsum(layout.plan.n_windows) - layout.plan.n_windows
    for chunk in layout.plan.chunks:
        windows, numbers = layout.plan.windows(chunk), layout.plan.numbers(chunk)
        rows = row_of_window[first_windows[chunk.first_sequence + windows.groups] + numbers]
        if (rows >= 0).any():
            read = leave_out(read_chunk(layout, chunk)[0], layout.rare)
            for name, array in arrays.items():
                _put(array, rows, getattr(read, name), name)
        on_rows(chunk.last_row)
    for array in arrays.values():
        array.flush()


def _rows(plan: ChunkPlan, places: np.ndarray) -> np.ndarray:
    """The row of each window of the table, -1 for those that are not learned from: (all windows,)."""
    n_windows = plan.n_windows
    rows = np.full(int(n_windows.sum()), -1, dtype=np.int64)
    rows[(np.cumsum(n_windows) - n_windows)[places[:, 0]] + places[:, 1]] = np.arange(len(places))
    return rows


def _put(array: np.ndarray, rows: np.ndarray, values: np.ndarray, name: str) -> None:
    """Put the windows of a chunk in their rows; windows of a chunk may all be shorter than the longest of the table."""
    wanted = rows >= 0
    if array.ndim == 1:
        array[rows[wanted]] = values[wanted]
        return
    n_steps = values.shape[1]
    array[rows[wanted], :n_steps] = values[wanted]
    if n_steps < array.shape[1]:
        array[rows[wanted], n_steps:] = {"features": 0, "gaps": 1, "clock": 0}.get(name, -1)


MAX_STEPS_OF_GAP = np.iinfo(np.int32).max


@dataclass(frozen=True)
class ChunkSteps:
    """The rows of a chunk as steps."""

    table: pa.Table
    steps: Steps
    moments: Moments | None
    offset: np.ndarray | int  # the place in its sequence of the first step of each
    totals: np.ndarray  # (sequences of the chunk,), steps of each in the whole table

    @property
    def positions(self) -> np.ndarray:
        """From 0 at the start of each sequence to 1 at its end: shape (steps,)."""
        offset = np.broadcast_to(self.offset, self.totals.shape)[self.steps.sequence]
        place = np.arange(len(self.steps.sequence)) - self.steps.first + offset
        return place / np.maximum(self.totals - 1, 1)[self.steps.sequence]


def read_steps(layout: Layout, chunk: Chunk) -> ChunkSteps:
    """Read a chunk, and find the steps of its rows, which are sorted."""
    table = plain_table(layout.stream.read(chunk.first_row, chunk.last_row))
    survey, columns = layout.survey, layout.columns
    totals = survey.counts[chunk.first_sequence : chunk.last_sequence]
    starts = survey.first_rows[chunk.first_sequence : chunk.last_sequence] - chunk.first_row
    new_step = np.ones(len(table), dtype=bool)
    times = np.arange(len(table))
    if columns.time is not None:
        times = time_numbers(columns.time, table[columns.time])
        new_step[1:] = times[1:] != times[:-1]
    new_step[np.maximum(starts, 0)] = True
    rows = np.flatnonzero(new_step)
    step_of_row = np.cumsum(new_step) - 1
    sequence = np.searchsorted(starts, rows, side="right") - 1
    if not chunk.last_window and not np.array_equal(np.bincount(sequence), totals):
        raise ValueError("The files of the table changed while they were read. Start the audit again.")
    people = annotator_places(layout, table)
    names = survey.names.slice(chunk.first_sequence, len(totals)).to_pylist()
    step_times = times[rows].view("datetime64[us]") if is_dated(layout) else times[rows]
    steps = Steps(rows, np.maximum(sequence, 0), names, step_times, step_of_row, people, None)
    return ChunkSteps(table, steps, _moments(layout, table), chunk.first_step, totals)


def plain_table(table: pa.Table) -> pa.Table:
    """The table with columns of odd types as texts or numbers."""
    odd = [field.name for field in table.schema if not _is_simple(field.type)]
    if not odd:
        return table
    simple = load_table(open_table(table.select(odd)))
    for name in odd:
        table = table.set_column(table.column_names.index(name), name, simple[name])
    return table


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_dictionary(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_boolean(kind)
        or types.is_temporal(kind)
        or types.is_null(kind)
    )


def is_dated(layout: Layout) -> bool:
    """Whether the times are moments."""
    return layout.survey.earliest is not None


def annotator_places(layout: Layout, table: pa.Table) -> np.ndarray:
    """The annotator of every row: a place among their names, -1 where a row names none and holds no label."""
    name, known = layout.columns.annotator, layout.survey.annotators
    if name is None or known is None:
        return np.zeros(len(table), dtype=np.int64)
    column = table[name]
    if layout.survey.unnamed_hold_labels:
        column = pc.fill_null(column.cast(pa.string()), UNNAMED)
    return find_places(column, known).astype(np.int64)


def _moments(layout: Layout, table: pa.Table) -> Moments | None:
    name = layout.columns.time
    if name is None:
        return None
    column = table[name]
    nothing = pa.nulls(0)
    if not is_dated(layout):
        return Moments(nothing, None, False, nothing)
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    local = time_numbers(name, pc.local_timestamp(column) if zoned else column)
    return Moments(nothing, local, pa.types.is_timestamp(column.type), nothing)


def time_texts(layout: Layout, table: pa.Table) -> pa.DictionaryArray:
    """The texts of the times of all rows, each distinct one written once."""
    name = layout.columns.time
    if name is None:
        first = np.arange(len(table))
        return pa.array(first).cast(pa.string()).dictionary_encode()
    column = table[name].combine_chunks()
    kind = column.type
    encoded = column.dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    values = encoded.dictionary
    if pa.types.is_timestamp(kind):
        return _moment_texts(layout, encoded)
    elif pa.types.is_duration(kind):
        values = pc.divide(values.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
    texts = values.cast(pa.string()).dictionary_encode()  # two moments may read the same when clocks go back
    return pa.DictionaryArray.from_arrays(texts.indices.take(encoded.indices), texts.dictionary)


def _moment_texts(layout: Layout, encoded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Moments on the wall clock as texts, with their offsets from UTC where these change."""
    moments = encoded.dictionary
    local = moments if moments.type.tz is None else pc.local_timestamp(moments)
    texts = local.cast(pa.timestamp(layout.survey.unit), safe=False).cast(pa.string())
    if layout.survey.offsets_vary:
        name = layout.columns.time or ""
        ahead = (
            time_numbers(name, pa.chunked_array([local])) - time_numbers(name, pa.chunked_array([moments]))
        ) // MINUTE
        endings = pa.array([written_offset(minutes) for minutes in ahead.tolist()])
        texts = pc.binary_join_element_wise(texts, endings, "")
    texts = texts.dictionary_encode()  # two moments may read the same when clocks go back
    return pa.DictionaryArray.from_arrays(texts.indices.take(encoded.indices), texts.dictionary)


def read_chunk(layout: Layout, chunk: Chunk) -> tuple[AuditInput, np.ndarray]:
    """The arrays of a chunk with labels of all classes, and the number of each of its rows in the user's table."""
    read = read_steps(layout, chunk)
    windows = layout.plan.windows(chunk)
    shown = to_audit_input(layout, read, windows)
    if layout.row_column is None:
        numbers = np.arange(chunk.first_row, chunk.last_row)
    else:
        numbers = read.table[layout.row_column].to_numpy()
    return shown, numbers


def to_audit_input(layout: Layout, read: ChunkSteps, windows: Windows) -> AuditInput:
    """Cut the steps of a chunk into windows; steps that belong to none, and their rows, are left out."""
    index, belongs = windows.index, windows.belongs
    real = index >= 0
    filled = windows.filled_index()
    labels = step_labels(layout, read)
    features = chunk_features(layout, read)[filled]
    features[~real] = 0
    cut = np.where(real[..., None], labels[filled], np.int8(-1))
    trusted = step_trusted(layout, read)
    cut_trusted = None if trusted is None else np.where(real, trusted[filled], np.int8(-1))
    gaps = step_gaps(layout, read.steps)
    place = np.full(len(labels), -1, dtype=np.int64)
    place[index[belongs]] = np.flatnonzero(belongs)
    clock = read_known_clocks(layout.columns, layout.clocks, read, layout.survey.earliest)
    lines = _lines(layout, read, place)
    kept = place >= 0
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    lines["line_step"] = number[lines["line_step"]]
    return AuditInput(
        features=features,
        labels=cut,
        fit_labels=np.where(belongs[..., None], cut, np.int8(-1)),
        lengths=windows.lengths,
        clock=clock[filled],
        trusted=cut_trusted,
        fit_trusted=None if cut_trusted is None else np.where(belongs, cut_trusted, np.int8(-1)),
        gaps=None if gaps is None else np.where(real, gaps[filled], 1),
        groups=windows.groups,
        index=np.where(real, number[filled], -1),
        place=place[kept],
        **lines,
        ids=pa.DictionaryArray.from_arrays(
            pa.array(read.steps.sequence[read.steps.step_of_row].astype(np.int32)), pa.array(read.steps.ids)
        ),
        times=time_texts(layout, read.table),
        sequence_names=tuple(map(str, read.steps.ids)),
        class_names=layout.survey.class_names,
        annotator_names=layout.annotator_names,
        feature_names=tuple(unique_texts(name for each in layout.encoders for name in each.names))
        or ("position in the sequence",),
        clocks=layout.clocks,
        columns=layout.described_columns,
        window=layout.plan.window,
        encoders=layout.encoders,
        said=(),
    )


def chunk_features(layout: Layout, read: ChunkSteps) -> np.ndarray:
    """Features of every step: float32 of shape (steps, features)."""
    if not layout.encoders:
        return (read.positions * 2 - 1).astype(np.float32)[:, None]
    columns = apply_encoders(read.table, layout.encoders, read.steps).columns
    return np.stack(columns, axis=1)


def step_labels(layout: Layout, read: ChunkSteps) -> np.ndarray:
    """Recorded labels of every step: int8 of shape (steps, annotators)."""
    survey, names = layout.survey, layout.columns.label
    if not names:
        return np.full((len(read.steps.rows), len(layout.annotator_names or " ")), -1, dtype=np.int8)
    subject = f"The label column {quoted(names)}"
    codes = [encode_column(read.table[name], survey.classes, subject) for name in names]
    if len(codes) > 1:
        return np.stack(codes, axis=1)[read.steps.rows]
    return read.steps.spread(codes[0], read.steps.annotator_of_row, len(layout.annotator_names or " "))


def step_trusted(layout: Layout, read: ChunkSteps) -> np.ndarray | None:
    """Labels known to be right: int8 of shape (steps,), -1 elsewhere."""
    name = layout.columns.trusted
    if name is None:
        return None
    codes = encode_column(read.table[name], layout.survey.classes, f"The trusted column {quoted([name])}")
    merged = np.full(len(read.steps.rows), -1, dtype=np.int8)
    known = np.flatnonzero(codes >= 0)
    merged[read.steps.step_of_row[known]] = codes[known]
    return merged


def has_gaps(layout: Layout) -> bool:
    """Whether times between steps count."""
    return bool(layout.usual) and layout.survey.n_gaps != 0


def step_gaps(layout: Layout, steps: Steps) -> np.ndarray | None:
    """How many usual steps of time lie before each step: int64 of shape (steps,), or None where no step is missing."""
    if layout.usual is None or not has_gaps(layout):
        return None
    moments = steps.times
    if is_dated(layout):
        moments = moments.astype("datetime64[us]").astype(np.int64) / 1e6
    gaps = np.ones(len(moments), dtype=np.int64)
    follows = steps.sequence[1:] == steps.sequence[:-1]
    spent = np.diff(moments.astype(np.float64))
    gaps[1:] = np.where(follows, np.clip(np.rint(spent / layout.usual), 1, MAX_STEPS_OF_GAP), 1)
    return gaps


def _lines(layout: Layout, read: ChunkSteps, place: np.ndarray) -> dict[str, Any]:
    """Row, step and annotator of every line of the steps that belong to a window of the chunk."""
    n_columns = max(len(layout.columns.label), 1)
    rows = np.flatnonzero(place[read.steps.step_of_row] >= 0)
    rows = np.repeat(rows, n_columns)
    annotator = read.steps.annotator_of_row[rows]
    if n_columns > 1:
        annotator = np.tile(np.arange(n_columns), len(rows) // n_columns)
    return {"line_row": rows, "line_step": read.steps.step_of_row[rows], "line_annotator": annotator}
