"""How the columns of a table are tidied as it is read: decimal commas, and one spelling for each class."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import MAX_CLASSES
from labeltide.tables.columns import drop_values, is_text, short_floats, whole
from labeltide.tables.files import NULLS, FileSet, csv_batches, number_type, read_names
from labeltide.tables.roles import Labels, RoleColumns
from labeltide.tables.words import UNRECORDED, quoted

if TYPE_CHECKING:
    from labeltide.tables.features import Features


@dataclass(frozen=True)
class Tidying:
    """What is changed in a table, or in any part of it; done twice, it changes nothing more."""

    as_numbers: tuple[str, ...] = ()  # columns of numbers with decimal commas
    labels: tuple[str, ...] = ()  # columns
    missing: frozenset[Hashable] = frozenset()  # labels that stand for a missing one
    spelled: Mapping[str, str] = field(default_factory=dict)  # the spelling to take for each label that is replaced
    plain: tuple[str, ...] = ()  # columns that are read without dictionary encoding
    in_text: tuple[str, ...] = ()  # columns of text as numbers, other texts as gaps; of tables in parts alone
    zones: Mapping[str, str] = field(default_factory=dict)  # of columns of moments: sorting on disk does not keep them

    def __call__(self, table: pa.Table) -> pa.Table:
        """The table with these changes."""
        table = _change(table, self.plain, lambda array: array.cast(array.type.value_type), pa.types.is_dictionary)
        table = _change(table, self.in_text, text_numbers, is_text)
        for name, zone in self.zones.items():
            if name in table.column_names and pa.types.is_timestamp(table[name].type):
                kind = pa.timestamp(table[name].type.unit, zone)
                table = _change(table, [name], lambda array, kind=kind: array.cast(kind))  # type: ignore[misc]
        table = _change(table, self.as_numbers, comma_numbers, is_text)
        if not self.missing and not self.spelled:
            return table
        return _change(table, self.labels, lambda array: _relabel(array, self.missing, self.spelled))


def _change(
    table: pa.Table,
    names: Iterable[str],
    change: Callable[[pa.Array], pa.Array],
    is_type: Callable[[pa.DataType], bool] = lambda kind: True,
) -> pa.Table:
    """The table with those of some columns changed that are of a type; names of other columns are ignored."""
    for name in names:
        if name in table.column_names and is_type(table[name].type):
            table = table.set_column(table.column_names.index(name), name, change(whole(table[name])))
    return table


def _relabel(array: pa.Array, missing: Collection[Hashable], spelled: Mapping[str, str]) -> pa.Array:
    """Labels, perhaps dictionary-encoded, with nulls for missing ones and one spelling for each class."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = short_floats(encoded.dictionary).to_pylist()
    changed = [None if value in missing else spelled.get(value, value) for value in values]
    if changed == values:
        return array
    known = pa.array(changed, encoded.dictionary.type)
    return pa.DictionaryArray.from_arrays(encoded.indices, known) if encoded is array else known.take(encoded.indices)


NOTHING = Tidying()


def choose_tidying(
    counts: TableCounts, roles: RoleColumns, missing: Labels = None, classes: Labels = None
) -> tuple[Tidying, list[str]]:
    """What to change in a table whose columns were counted, and what to say; `missing` as in `choose_missing`.

    With `classes` no spelling is replaced, and any other label is an error.
    """
    by_name = {name: counts.commas[name] for name in number_columns(roles) if name in counts.commas}
    as_numbers, comma_messages = choose_commas(by_name)
    labels = label_columns(roles)
    found = sum((counts.labels.get(name, Counter()) for name in labels), Counter[Hashable]())
    dropped, missing_messages = choose_missing(found, missing)
    spelled: dict[str, str] = {}
    spelling_messages: list[str] = []
    if classes is None:
        left = {label: n for label, n in found.items() if isinstance(label, str) and label not in dropped}
        spelled, spelling_messages = choose_spellings(Counter(left))
    else:
        names = [classes] if isinstance(classes, str) or not isinstance(classes, Iterable) else list(classes)
        known = {part.strip() for text in map(str, names) for part in (text, *text.split(","))}
        other = {str(label).strip() for label in found if label not in dropped} - {""} - known
        if other:
            raise ValueError(
                f"Every label must be one of classes (--classes). Got {quoted(sorted(other))}. Add them to the list, "
                "correct them in the table, or name them with missing (--missing)."
            )
    plain = tuple(name for name in number_columns(roles) if name in counts.columns)
    tidying = Tidying(tuple(as_numbers), tuple(labels), dropped, spelled, plain)
    return tidying, [*comma_messages, *missing_messages, *spelling_messages]


# An overview of the columns of a table: type, missing values, levels, role, and why a column is not used.

LEFT_OUT = "left out"
TYPES: dict[str, Callable[[pa.DataType], bool]] = {  # the type of a column in words
    "whole number": pa.types.is_integer,
    "number": pa.types.is_floating,
    "yes or no": pa.types.is_boolean,
    "text": is_text,
    "date": pa.types.is_date,
    "date and time": pa.types.is_timestamp,
    "time of day": pa.types.is_time,
    "duration": pa.types.is_duration,
    "empty": pa.types.is_null,
    "nested": pa.types.is_nested,
}


@dataclass(frozen=True)
class ColumnOverview:
    """What is known of one column."""

    name: str
    type: str  # in words; "" where the column was not read
    missing: int | None  # rows in which nothing stands; None where the column was not read
    levels: int | None  # distinct values; None where there are very many, or where the column was not read
    role: str  # sequence, time, label, annotator, clock, trusted, feature, or left out; several with commas
    why: str = ""  # it is left out, or how it was read


def describe_overview(
    counts: TableCounts,
    tidying: Tidying,
    names: Sequence[str],
    columns: RoleColumns,
    features: Features,
) -> tuple[ColumnOverview, ...]:
    """The overview of a table, once it is tidied; `counts` are of the columns that were read, `names` of all."""
    why = {**columns.left_out, **features.left_out}
    roles: dict[str, Sequence[str | None]] = {
        "sequence": columns.sequence,
        "time": [columns.time],
        "label": columns.label,
        "annotator": [columns.annotator],
        "clock": columns.clock,
        "trusted": [columns.trusted],
        "feature": [encoder.column for encoder in features.encoders],
    }
    rows = []
    for name in map(str, names):
        role = ", ".join(role for role, named in roles.items() if name in named) or LEFT_OUT
        if name not in counts.columns:
            rows.append(ColumnOverview(name, "", None, None, role, "not named among the features, so not read"))
            continue
        count = counts.columns[name]
        kind, levels, dropped = count.kind, count.levels, 0
        reason = why.get(name) or "not named among the features" if role == LEFT_OUT else ""
        if name in tidying.as_numbers:
            kind, reason = pa.float64(), "numbers with decimal commas"
            levels = None if levels is None else len(comma_numbers(count.values).unique())
        if name in tidying.labels and levels is not None and count.values is not None:
            kept = [value for value in count.values.to_pylist() if value not in tidying.missing]
            levels = len({tidying.spelled.get(value, value) for value in kept})
            dropped = sum(counts.labels.get(name, Counter())[value] for value in tidying.missing)
        written = next((words for words, is_type in TYPES.items() if is_type(kind)), str(kind))
        rows.append(ColumnOverview(name, written, count.missing + dropped, levels, role, reason))
    return tuple(rows)


# What the columns of a table hold, counted in one pass and bounded memory: of the whole table, or part by part.

MANY, SAMPLE = 1000, 20_000  # distinct values among the first that are not counted further
MAX_COUNTED = 20_000  # distinct values of any column that are


@dataclass
class ColumnCount:
    """Type, missing values and distinct values of a column."""

    kind: pa.DataType
    missing: int = 0  # rows in which nothing stands, blank texts among them
    blank: int = 0  # rows with a text of blanks alone
    present: int = 0  # rows in which something stands
    values: pa.Array | None = None  # distinct values without blank texts; None where there are very many
    blanks: set[str] = field(default_factory=set)  # distinct blank texts
    numbers: int = 0  # texts that are numbers, in columns that may be features
    is_many: bool = False  # whether the first values differ so much that their number says nothing

    def __post_init__(self) -> None:
        if not pa.types.is_nested(self.kind):
            self.values = pa.array([], self.kind)

    def add(self, array: pa.Array) -> None:
        """Count more rows."""
        missing = array.is_null(nan_is_null=pa.types.is_floating(array.type))
        if is_text(array.type):
            blank = pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False)
            self.blank += int(pc.sum(blank).as_py() or 0)
            self.blanks |= set(array.filter(blank).unique()[:MANY].to_pylist())
            missing = pc.or_(missing, blank)
        count = int(pc.sum(missing).as_py() or 0)
        present = array.filter(pc.invert(missing)) if count else array
        first = present[: max(0, SAMPLE - self.present)]
        self._join(first)
        self.is_many |= self.values is not None and len(first) > 0 and len(self.values) > MANY
        if self.is_many and not is_text(self.kind):
            self.values = None
        self._join(present[len(first) :])
        self.missing += count
        self.present += len(present)

    @property
    def levels(self) -> int | None:
        """How many distinct values there are; None where there are very many."""
        return None if self.is_many or self.values is None else len(self.values)

    @property
    def texts(self) -> list[str] | None:
        """The distinct texts of a column, blank ones among them; None where there are very many."""
        return None if self.values is None else [*self.values.to_pylist(), *self.blanks]

    def _join(self, array: pa.Array) -> None:
        if self.values is not None and len(array):
            joined = pa.concat_arrays([self.values, array.unique()]).unique()
            self.values = joined if len(joined) <= MAX_COUNTED else None


@dataclass
class TableCounts:
    """What is known of the columns of a table, as it was given."""

    columns: dict[str, ColumnCount] = field(default_factory=dict)
    commas: dict[str, CommaCount] = field(default_factory=dict)  # of columns of text that may have decimal commas
    labels: dict[str, Counter[Hashable]] = field(default_factory=dict)  # how often each value stands in a column

    def add(self, table: pa.Table, roles: RoleColumns) -> None:
        """Count more rows: Arrow arrays of simple types (`intake.load_table`)."""
        numeric, labels = number_columns(roles), label_columns(roles)
        for name in table.column_names:
            array = whole(table[name])
            self.columns.setdefault(name, ColumnCount(array.type)).add(array)
            if is_text(array.type) and name in numeric:
                self.commas.setdefault(name, CommaCount()).add(array)
                self.columns[name].numbers += count_numbers(array)
            if name in labels and not pa.types.is_nested(array.type):
                counts = self.labels.setdefault(name, Counter())
                if len(counts) <= MAX_COUNTED:  # with more, the labels are refused
                    counts += count_label_values(array)

    def numbers_in_text(self, roles: RoleColumns) -> list[str]:
        """The features of many texts, nearly all of which are numbers."""
        found = []
        for name in roles.features:
            count = self.columns[name]
            is_many = is_text(count.kind) and (count.texts is None or len(count.texts) > MAX_LEVELS)
            if is_many and count.numbers >= MIN_NUMBERS * (count.present + count.blank):
                found.append(name)
        return found

    def of_whole(self, as_numbers: Sequence[str], in_text: Sequence[str], is_drawn: bool) -> WholeColumns:
        """What a part of the table is to know; some columns of text are read as numbers."""
        known = self.columns.items()
        texts = {name: count.texts for name, count in known if is_text(count.kind) and name not in as_numbers}
        still = {name for name, count in known if count.levels == 0 or (count.levels == 1 and not count.missing)}
        return WholeColumns(texts, set(self.columns) - still, in_text, is_drawn)


@dataclass(frozen=True)
class WholeColumns:
    """What is known of the columns of a whole table, of which a part is encoded."""

    texts: Mapping[str, Sequence[str] | None] = field(default_factory=dict)  # distinct ones; None for very many
    varying: Collection[str] = ()  # columns that hold several values
    in_text: Collection[str] = ()  # columns of text that are read as numbers, with gaps in place of other texts
    is_drawn: bool = False  # whether the part is a sample of the table


WHOLE = WholeColumns()  # the table is not a part


def number_columns(roles: RoleColumns) -> Sequence[str]:
    """The columns that can hold numbers: features, clocks and the time, in this order."""
    return list(dict.fromkeys([*roles.features, *roles.clock, *([roles.time] if roles.time else [])]))


def label_columns(roles: RoleColumns) -> Sequence[str]:
    """The columns that hold labels: recorded ones and trusted ones."""
    return [*roles.label, *([roles.trusted] if roles.trusted else [])]


# Columns of names in CSV files: labels, sequences and annotators are kept as written, unless all are plain numbers.


def name_table(
    table: pa.Table, written: Callable[[list[str]], pa.Table] | None, roles: RoleColumns, missing: Labels = None
) -> pa.Table:
    """A table with the names of its CSV file (`OpenTable.written`); any other stays as it is."""
    labels = label_columns(roles)
    others = [name for name in (*roles.sequence, roles.annotator) if name]
    columns, messages = read_written_names(written, labels, others, missing)
    roles.messages += messages
    for name, array in columns.items():
        table = table.set_column(table.column_names.index(name), name, array)
    return table


def read_written_names(
    written: Callable[[list[str]], pa.Table] | None, labels: Sequence[str], others: Sequence[str], missing: Labels
) -> tuple[dict[str, pa.ChunkedArray], list[str]]:
    """The columns of labels and of other names of a CSV file, and what to say."""
    if written is None or not (labels or others):
        return {}, []
    texts = written(list(dict.fromkeys([*others, *labels])))
    counts = {name: count_label_values(texts[name]) for name in texts.column_names}
    kinds, gaps, messages = _choose_name_types(counts, labels, missing)
    return {name: read_names(texts[name], kind, gaps) for name, kind in kinds.items()}, messages


def name_files(files: FileSet, roles: RoleColumns, missing: Labels = None) -> FileSet:
    """CSV files with the types of their names, found in a pass over all rows; other files stay as they are."""
    labels = label_columns(roles)
    names = list(dict.fromkeys(name for name in (*roles.sequence, roles.annotator, *labels) if name))
    if files.kind != "csv" or not names:
        return files
    counts: dict[str, Counter[Hashable]] = {name: Counter() for name in names}
    for batch in csv_batches(files.with_names(dict.fromkeys(names, pa.string())), names):
        for name in names:
            counts[name].update(count_label_values(batch[name]))
    kinds, gaps, messages = _choose_name_types(counts, labels, missing)
    roles.messages += messages
    return files.with_names(kinds, gaps)


def _choose_name_types(
    counts: Mapping[str, Counter[Hashable]], labels: Sequence[str], missing: Labels
) -> tuple[dict[str, pa.DataType], frozenset[str], list[str]]:
    """The type of every column of names, texts that are missing labels among numbers, and what to say of these.

    Columns of labels are numbers together or texts together.
    """
    found = sum((counts[name] for name in labels), Counter[Hashable]())
    dropped, messages = choose_missing(found, missing)
    kinds = {}
    for name, values in counts.items():
        texts = [str(text) for text in values if name not in labels or text not in dropped]
        kinds[name] = number_type(texts) or pa.string()
    if pa.string() in [kinds[name] for name in labels]:
        return kinds | dict.fromkeys(labels, pa.string()), frozenset(), []
    gaps = frozenset(str(text) for text in dropped if number_type([str(text)]) is None)
    return kinds, gaps, messages if gaps else []


# Labels that differ by capitals or blanks alone, or name one sleep stage in two ways, are spellings of one class.

FREQUENT = 0.1  # share of the labels; by hand
EDF_STAGE = "sleep stage "
STAGES = {  # name in small letters → stage; the long names are those of the EDF+ specification
    f"{before}{name}": stage
    for stage, names in {"W": ("w", "wake"), "N1": ("n1",), "N2": ("n2",), "N3": ("n3",), "R": ("r", "rem")}.items()
    for name in names
    for before in ("", EDF_STAGE, "stage ")
}


def count_label_values(column: pa.ChunkedArray | pa.Array) -> Counter[Hashable]:
    """How often each value stands in a column, in order of appearance; whole floats are counted as whole numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    counts: Counter[Hashable] = Counter()
    values, numbers = column.value_counts().flatten()
    for value, number in zip(short_floats(values).to_pylist(), numbers.to_pylist(), strict=True):
        if value is not None and value == value:
            counts[_as_whole(value)] += number
    return counts


def _as_whole(value: Any) -> Hashable:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def choose_missing(counts: Counter[Hashable], asked: Labels = None) -> tuple[frozenset[Hashable], list[str]]:
    """The labels that stand for a missing one, and what to say.

    They are those that the user named, with commas between; "none" names no label. Without a name they are texts such
    as "?" and "unknown", and -1 among whole numbers from 0 or 1 where it is rare (hypnograms write it for epochs that
    are not scored). Among -1, 0 and 1, with other negative numbers, or with a share of `FREQUENT` it is a class. At
    least two classes must remain.
    """
    if asked is not None:
        given = [str(each) for each in (asked if isinstance(asked, list | tuple | set | frozenset) else [asked])]
        names = {part.strip() for text in given for part in (text, *text.split(","))} - {"", "none"}
        names |= {str(int(float(name))) for name in names if _is_whole_text(name)}
        found = frozenset(label for label in counts if str(label).strip() in names)
        known = {str(label).strip() for label in found} | NULLS  # in numbers of a CSV file these are missing already
        unknown = sorted(name for name in names - known if not _is_whole_text(name) and not {*name.split(",")} & known)
        messages = [f"Read as missing labels: {quoted(sorted(map(str, found)))}."] if found else []
        return found, messages + ([f"No label is {quoted(unknown)}, although missing names it."] if unknown else [])
    unrecorded = UNRECORDED - {"-"} if "+" in counts else UNRECORDED
    texts = {label for label in counts if isinstance(label, str) and _bare(label).casefold() in unrecorded}
    present = {label for label in counts if not isinstance(label, str) or label.strip()}
    way_out = "To change this, list the labels that mean 'not recorded' with missing (--missing), or pass none."
    if texts and len(present - texts) >= 2:
        n_labels = sum(counts[label] for label in texts)
        which = quoted(sorted(map(str, texts)))
        return frozenset(texts), [f"Read as missing labels: {which} ({n_labels:,}). {way_out}"]
    whole_labels = [label for label in present if type(label) is int]
    if -1 not in counts or len(whole_labels) < len(present):
        return frozenset(), []
    is_signed = min(whole_labels) < -1 or max(whole_labels) <= 1
    share = counts[-1] / counts.total()
    if len(present) > 2 and not is_signed and share < FREQUENT:
        return frozenset({-1}), [f"Read as missing labels: -1 ({counts[-1]:,}). {way_out}"]
    why = f": {share:.0%} of the labels are -1" if not is_signed else ""
    return frozenset(), [f"Read as a class: -1{why}. {way_out}"]


def drop_missing(
    parts: Sequence[tuple[np.ndarray, np.ndarray]], asked: Labels = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Factorised label columns without missing labels; those that were not asked for are named in a warning."""
    counts: Counter[Hashable] = Counter()
    for codes, distinct in parts:
        for value, count in zip(distinct, np.bincount(codes[codes >= 0], minlength=len(distinct)), strict=True):
            counts[_as_whole(value)] += int(count)
    dropped, messages = choose_missing(counts, asked)
    if asked is None and messages:
        warnings.warn(" ".join(messages), UserWarning, stacklevel=4)
    return [
        (drop_values(*part, np.array([v in dropped for v in part[1]], dtype=bool)) if dropped else part)
        for part in parts
    ]


def _is_whole_text(name: str) -> bool:
    try:
        return float(name).is_integer()
    except (ValueError, OverflowError):
        return False


def choose_spellings(counts: Counter[str]) -> tuple[dict[str, str], list[str]]:
    """The spelling to take for each that is replaced, and a sentence for every class that has several.

    The most frequent spelling stands for all, without blanks around it. Single letters keep their capitals: among the
    codes of beats (MIT-BIH), A and a are two classes. Of several names of one sleep stage, that of
    EDF+ ("Sleep stage W") stands for all, so that all stages are named alike.
    """
    groups: dict[str, list[str]] = {}
    stages = {text: STAGES.get(_key(text).casefold()) for text in counts}
    are_stages = len({*stages.values()} & {"N1", "N2", "N3"}) >= 2
    for text in counts:
        if text.strip():
            key = (are_stages and stages[text]) or _key(text)
            groups.setdefault(key, []).append(text)
    spelled: dict[str, str] = {}
    messages = []
    for texts in groups.values():
        if len(texts) < 2:
            continue
        bare: Counter[str] = Counter()
        for text in texts:
            bare[_bare(text)] += counts[text]
        alike = len({_key(text) for text in texts}) == 1
        differ = (
            "in their Unicode form" if len({normalize("NFC", text) for text in texts}) == 1 else "in capitals or blanks"
        )
        best = max(sorted(bare), key=lambda text: (not alike and text.casefold().startswith(EDF_STAGE), bare[text]))
        others = sorted((text for text in texts if text != best), key=lambda text: (-counts[text], text))
        spelled |= dict.fromkeys(others, best)
        changed = sum(counts[text] for text in others)
        messages.append(
            f"Read as {quoted([best])}: {quoted(others)} ({changed:,} label{'s' if changed > 1 else ''}): "
            f"they {f'differ only {differ}' if alike else 'name the same sleep stage'}. Rename them in the table "
            "if they are different classes."
        )
    totals: Counter[str] = Counter()
    for text, count in counts.items():
        totals[spelled.get(text, text)] += count
    ranked = sorted(totals.items(), key=lambda item: item[1])
    of_any_share = len(ranked) <= MAX_CLASSES  # else too many pairs
    for place, (rare, count) in enumerate(ranked, 1):
        frequent = [name for name, total in ranked[place:] if of_any_share or count < MISSPELLED * total]
        near = [name for name in frequent if _may_be_typo(rare, name)]
        similar = [name for name in near if count < MISSPELLED * totals[name]]
        both = " and ".join(f"{quoted([name])} ({totals[name]:,})" for name in [rare, *near])
        if len(similar) == 1:
            spelled |= {text: similar[0] for text in counts if spelled.get(text, text) == rare}
            messages.append(
                f"Read as a misspelling of {quoted(similar)} ({totals[similar[0]]:,}): {quoted([rare])} ({count:,} "
                f"label{'s' if count > 1 else ''}). If both exist, list all classes with classes (--classes A,B)."
            )
        elif near:
            messages.append(
                f"Read as different classes, although their names are nearly the same: {both} labels. If one is a "
                "misspelling, correct it in the table: otherwise its labels will look wrong."
            )
    return spelled, messages


MISSPELLED = 0.02  # share of a class's labels below which a similar name is taken for a misspelling of it; by hand
UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
LONG = 9  # letters of a name, from which on two of its words may differ


def _may_be_typo(rare: str, frequent: str) -> bool:
    """Whether two names are nearly the same: with the same digits, and differing in words of three letters or more."""
    first, second = (normalize("NFC", text).casefold().translate(UMLAUTS) for text in (rare, frequent))
    digits = [[letter for letter in text if letter.isdigit()] for text in (first, second)]
    words = first.split(), second.split()
    if digits[0] != digits[1] or len(words[0]) != len(words[1]):
        return False
    differ = [pair for pair in zip(*words, strict=True) if pair[0] != pair[1]]
    if any(len(word) < 3 or not word.isalpha() for pair in differ for word in pair):
        return False
    most = 2 if min(len(first), len(second)) >= LONG else 1
    return len(differ) <= most and all(_is_one_edit(*pair) for pair in differ)


def _is_one_edit(first: str, second: str) -> bool:
    """Whether one letter was added, dropped or changed, or two neighbours were swapped (Damerau 1964)."""
    shorter = min(len(first), len(second))
    at = next((k for k in range(shorter) if first[k] != second[k]), shorter)
    a, b = first[at:], second[at:]
    return a[1:] in (b, b[1:]) or a == b[1:] or (a[:2] == b[:2][::-1] and a[2:] == b[2:])


def _bare(text: str) -> str:
    return normalize("NFC", " ".join(text.split()))


def _key(text: str) -> str:
    bare = _bare(text)
    return bare if len(bare) == 1 else bare.casefold()


# Columns of numbers with decimal commas, as most of Europe writes them: "3,14" is 3.14.

COMMAS = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?\s*$|^[\s\p{Z}]*$"  # or a blank text
THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*$"  # also a number with commas between thousands
FIRST = 100  # texts that are looked at before all


@dataclass
class CommaCount:
    """Whether the texts of a column, which may come part by part, are numbers with decimal commas."""

    are_numbers: bool = True  # all texts so far are numbers or blank
    are_thousands: bool = True  # all texts with a comma so far may be numbers with commas between thousands
    example: str = ""  # the first text with a comma

    def add(self, array: pa.Array) -> None:
        """Look at more texts."""
        if self.are_numbers:
            texts = array.drop_null()
            self.are_numbers = _match(texts[:FIRST], COMMAS) and _match(texts, COMMAS)
        if self.are_numbers:
            with_comma = texts.filter(pc.match_substring(texts, ","))
            if len(with_comma):
                self.example = self.example or with_comma[0].as_py().strip()
                self.are_thousands &= _match(with_comma, THOUSANDS)


def choose_commas(counts: Mapping[str, CommaCount]) -> tuple[list[str], list[str]]:
    """The columns of numbers with decimal commas, and what to say.

    A column whose numbers all have three digits behind the comma, as 1,234, may be of thousands: it stays text.
    """
    found = {name: count for name, count in counts.items() if count.are_numbers and count.example}
    read = [name for name, count in found.items() if not count.are_thousands]
    open_ = [name for name in found if name not in read]
    messages = [f'Read as numbers with decimal commas: {quoted(read)} ("3,14" is 3.14).'] if read else []
    if open_:
        example = counts[open_[0]].example
        messages.append(
            f"It is unclear whether {quoted([example])} in {quoted(open_)} is {example.replace(',', '.')} or "
            f"{example.replace(',', '')}, so the column stays text. Write such numbers without commas."
        )
    return read, messages


def read_decimal_commas(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with those of some columns as numbers whose texts have decimal commas."""
    counts = {name: CommaCount() for name in names if name in table.column_names and is_text(table[name].type)}
    for name, count in counts.items():
        count.add(whole(table[name]))
    return _change(table, choose_commas(counts)[0], comma_numbers)


def comma_numbers(array: pa.Array) -> pa.Array:
    """Texts with decimal commas as numbers, null where nothing stands."""
    plain = pc.replace_substring(pc.replace_substring(pc.utf8_trim_whitespace(array), ".", ""), ",", ".")
    return pc.if_else(pc.equal(plain, ""), pa.scalar(None, plain.type), plain).cast(pa.float64())


def _match(texts: pa.Array, pattern: str) -> bool:
    """Whether all texts, if there are any, match a pattern."""
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


# Columns of text that are nearly all numbers: they are read as numbers, texts among them as gaps.

NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
MIN_NUMBERS = 0.9  # share of the texts
MAX_LEVELS = 20  # texts with fewer are encoded by their levels
NOTE = "read as numbers, texts among them as gaps"


def count_numbers(array: pa.Array) -> int:
    """How many texts are numbers."""
    return int(pc.sum(pc.match_substring_regex(array, NUMBER)).as_py() or 0)


def text_numbers(array: pa.Array) -> pa.Array:
    """The numbers among texts, null elsewhere."""
    kept = pc.if_else(pc.match_substring_regex(array, NUMBER), array, pa.scalar(None, array.type))
    return pc.utf8_trim_whitespace(kept).cast(pa.float64())
