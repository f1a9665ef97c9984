"""Which column plays which role, as the user named them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import MAX_CLASSES
from labeltide.tables import columns as read
from labeltide.tables import words
from labeltide.tables.columns import check_unique, is_moment, is_number, is_text, whole
from labeltide.tables.times import check_timezone, looks_written
from labeltide.tables.words import quoted

ROLES = ("sequence", "time", "label", "features", "annotator", "clock", "clean", "zscore")
OPTIONAL = ("annotator", "clock", "clean", "zscore")
SEVERAL = ("sequence", "features", "zscore")  # roles that several columns can share among them
SEVERAL_IN_AUDITS = ("sequence", "label", "features", "clock")
# A time may also be a clock or a feature. Any other column with two roles leaks a label or is a slip.
MAY_SHARE = [{"time", "clock"}, {"time", "features"}, {"clock", "features"}, {"sequence", "zscore"}]
DERIVED = ("hour_of_day", "day_of_week", "days", "position")  # clocks that need no column of their own
MAX_CLOCKS = 3  # at once; each more leaves fewer moments along every one
Names = str | Sequence[str] | None
Labels = Hashable | Sequence[Hashable] | None  # one or several


def columns_of_role(role: str, value: Names, there: list[str] | None = None) -> list[str]:
    """The columns that are named for a role of `Sequences.from_table` or, with `there`, of an audit.

    In an audit commas part the names, unless a column is `there` that has them in its name.
    """
    if value is None and (there is not None or role in OPTIONAL):
        return []
    several = role in (SEVERAL if there is None else SEVERAL_IN_AUDITS)
    names: list[Any] = list(value) if several and isinstance(value, list | tuple) else [value]
    if isinstance(value, str) and several and there is not None and value not in there:
        names = [part.strip() for part in value.split(",") if part.strip()]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        many = "the name of a column, or a list of such names without repeats"
        if there is not None:
            many = "columns by their names, with commas between and without repeats"
        raise ValueError(f"{role} must be {many if several else 'one column, by its name'}. Got {value!r}.")
    return names


def check_roles(roles: dict[str, list[str]], there: list[str]) -> None:
    """Columns that are there, once, each in one role or in two that may share it."""
    absent = [name for names in roles.values() for name in names if name not in there]
    if absent:
        raise ValueError(f"The table has no column {quoted(absent)}. It has: {quoted(there)}.")
    check_unique(name for name in there if any(name in names for names in roles.values()))
    for role, other in combinations(roles, 2):
        shared = set(roles[role]) & set(roles[other])
        if shared and {role, other} not in MAY_SHARE:
            raise ValueError(f"A column can play one role. Got {quoted(sorted(shared))} for both {role} and {other}.")


@dataclass(frozen=True)
class Reading:
    """How an audit reads a table, in addition to which columns it reads."""

    drop_bad_rows: bool = False  # leave out rows without a time or a sequence and exact repeats of an earlier row
    timezone: str | None = None  # (IANA) to whose wall clock times are converted; None keeps hours as written
    missing: Labels = None  # labels that stand for a missing one, as `tidy.choose_missing` takes them
    classes: Labels = None  # the only labels that are allowed; None finds them

    def __post_init__(self) -> None:
        check_timezone(self.timezone)


@dataclass(frozen=True)
class Request:
    """The columns that the user of an audit named; None is for us to find."""

    sequence: Names = None
    time: str | None = None
    label: Names = None
    features: Names = None
    annotator: str | None = None
    clock: Names = None
    trusted: str | None = None
    probabilities: bool = False  # whether the features are probabilities of the classes, one column for each

    def columns(self, there: list[str]) -> dict[str, list[str]]:
        """The columns named for each role, all of them there and none in two roles."""
        asked = {role: value for role, value in vars(self).items() if role != "probabilities"}
        named = {role: columns_of_role(role, value, there) for role, value in asked.items()}
        named["clock"] = [name for name in named["clock"] if name in there or name not in DERIVED]
        check_roles(named, there)
        if named["annotator"] and len(named["label"]) > 1:
            raise ValueError(
                "Several label columns hold one annotator each, so no column names annotators. Got label "
                f"{quoted(named['label'])} and annotator {quoted(named['annotator'])}. Leave one of the two out."
            )
        return named

    def clocks(self, there: list[str]) -> list[str]:
        """The clocks in the order asked for, columns or some of DERIVED."""
        names = columns_of_role("clock", self.clock, there)
        if len(names) > MAX_CLOCKS:
            raise ValueError(
                f"At most {MAX_CLOCKS} clocks can be distinguished at once. Got {len(names)}: {quoted(names)}. Name "
                "those that matter most."
            )
        return names


# The columns of an audit: as the user named them, or guessed from names and types, and every guess is reported.


@dataclass
class RoleColumns:
    """The columns of each role in an audit."""

    sequence: list[str]  # empty: the whole table is one sequence
    time: str | None  # None: the order of the rows
    label: list[str]  # one, or one for each annotator
    annotator: str | None
    clock: list[str]  # columns or some of DERIVED; empty: the position in the sequence
    trusted: str | None
    features: list[str]
    features_named: bool
    probabilities: bool = False
    messages: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # why a column is no feature

    def describe(self) -> dict[str, str | None]:
        """The columns of each role, as audit.json names them."""
        joined = {"sequence": ",".join(self.sequence) or None, "label": ",".join(self.label)}
        return {**joined, "time": self.time, "annotator": self.annotator, "trusted": self.trusted}


def find_columns(
    table: pa.Table, request: Request, *, labelled: bool = True, with_features: bool = True
) -> RoleColumns:
    """Fill the roles that the user left open, or say why it cannot be done; without labels, no features either."""
    named = request.columns(table.column_names)
    guess = _Guess(table, {name for names in named.values() for name in names})
    label = named["label"] or (guess.label(bool(named["annotator"])) if labelled else [])
    annotator = named["annotator"] or ([] if len(label) > 1 else guess.annotator())
    sequence = named["sequence"] or guess.sequence()
    time = named["time"] or guess.time(sequence)
    if annotator and not time:
        raise ValueError(
            f"With annotators ({quoted(annotator)}) the table needs a time column, which says whose rows belong to the "
            f"same step. None was found. {guess.way_out('time')}"
        )
    if not time:
        guess.messages.append("No column of times was found, so steps follow the order of the rows.")
    features = named["features"] or (guess.features(label) if labelled and with_features else [])
    for role, names in {**named, "label": label, "annotator": annotator, "sequence": sequence, "time": time}.items():
        nested = [name for name in names if pa.types.is_nested(table.schema.field(name).type)]
        if nested and role != "features":
            kind = table.schema.field(nested[0]).type
            raise ValueError(f"The {role} column {quoted(nested[:1])} must hold one value in each row. Got {kind}.")
    return RoleColumns(
        sequence=sequence,
        time=time[0] if time else None,
        label=label,
        annotator=annotator[0] if annotator else None,
        clock=request.clocks(table.column_names),
        trusted=named["trusted"][0] if named["trusted"] else None,
        features=features,
        features_named=bool(named["features"]),
        probabilities=request.probabilities,
        messages=guess.messages,
        left_out=guess.left_out,
    )


class _Guess:
    """Guesses role after role, never the same column twice, and remembers what to say."""

    def __init__(self, table: pa.Table, taken: set[str]) -> None:
        self.table, self.taken, self.messages = table, taken, list[str]()
        self.left_out: dict[str, str] = {}

    def way_out(self, role: str) -> str:
        several = {
            "sequence": ", or several columns with commas between",
            "label": ", or one column for each annotator with commas between",
        }.get(role, "")
        names = quoted(self.table.column_names, 20)
        return f"Name it with the option {role} (--{role} COLUMN{several}). The columns are: {names}."

    def free(self) -> list[str]:
        """Columns without a role so far that hold one value in each row."""
        names = [name for name in self.table.column_names if name not in self.taken]
        return [name for name in names if not pa.types.is_nested(self.kind(name))]

    def kind(self, name: str) -> pa.DataType:
        return self.table.schema.field(name).type

    def take(self, role: str, names: list[str], why: str = "") -> list[str]:
        self.taken |= set(names)
        self.messages.append(f"The {role} is read from {quoted(names)}{why}.")
        return names

    def not_plain(self, role: str, candidates: list[str]) -> ValueError:
        """The sentence for a role that several columns could play, or none."""
        why = f"it could be any of {quoted(candidates)}" if candidates else "no column name suggests it"
        return ValueError(f"Cannot tell which column holds the {role}: {why}. {self.way_out(role)}")

    def label(self, one_only: bool) -> list[str]:
        free = [name for name in self.free() if not words.holds(name, words.TRUTHS)]
        exact = [name for name in free if words.means(name, words.LABELS)]
        if len(exact) == 1:
            return self.take("label", exact)
        groups: dict[tuple[str, str], list[str]] = {}  # columns such as scorer_1 and scorer_2, of one kind
        for name in [] if one_only else free:
            parts = words.words(name)
            if len(parts) == 2 and parts[0] in words.ANNOTATORS:
                groups.setdefault((parts[0], str(self.kind(name))), []).append(name)
        wide = [names for names in groups.values() if len(names) > 1]
        if len(wide) == 1:
            return self.take("label", wide[0], ", one column for each annotator")
        every = words.LABELS | words.LESSER_LABELS
        lesser = exact or [name for name in free if words.means(name, words.LESSER_LABELS)]
        lesser = lesser or [name for name in free if words.holds(name, every) and not is_moment(self.kind(name))]
        bare = [name for name in lesser if words.stem(name) == "".join(words.words(name))]  # activity, not activity_id
        if len(lesser) == 1 or len(bare) == 1:
            return self.take("label", lesser if len(lesser) == 1 else bare)
        raise self.not_plain("label", lesser)

    def annotator(self) -> list[str]:
        candidates = [name for name in self.free() if words.means(name, words.ANNOTATORS)]
        if len(candidates) > 1:
            raise self.not_plain("annotator", candidates)
        return self.take("annotator", candidates) if candidates else []

    def sequence(self) -> list[str]:
        kinds = (is_text, pa.types.is_integer, pa.types.is_date)
        usable = [name for name in self.free() if any(fits(self.kind(name)) for fits in kinds)]
        usable = [name for name in usable if not self.table[name].null_count]
        candidates = [name for name in usable if words.means(name, words.SEQUENCES)]
        if not candidates:
            n_rows = len(self.table)
            ids = [name for name in usable if words.means(name, {"id"})]
            candidates = [name for name in ids if n_rows < 2 or pc.count_distinct(self.table[name]).as_py() < n_rows]
        candidates = candidates or [name for name in usable if words.ends_with(name, words.SEQUENCES)]
        if not candidates:
            self.messages.append("No column that names sequences was found, so the whole table is one sequence.")
            return []
        finest = [name for name in candidates if all(self._is_within(name, other) for other in candidates)]
        if not finest:
            raise self.not_plain("sequence", candidates)
        others = [name for name in candidates if name != finest[0]]
        return self.take("sequence", finest[:1], f": each lies within one {quoted(others)}" if others else "")

    def _is_within(self, name: str, other: str) -> bool:
        """Whether every value of one column comes with one value of the other."""
        if name == other:
            return True
        pairs = self.table.group_by([name, other]).aggregate([])
        return len(pairs) == pc.count_distinct(self.table[name]).as_py()

    def time(self, sequence: list[str]) -> list[str]:
        kinds = (is_number, is_moment, is_text, pa.types.is_duration)
        free = [name for name in self.free() if any(fits(self.kind(name)) for fits in kinds)]
        moments = [name for name in free if is_moment(self.kind(name))]
        written = [name for name in free if is_text(self.kind(name)) and looks_written(self.table[name])]
        moments = moments or written[: len(written) == 1]
        for known in (words.TIMES, words.LESSER_TIMES):
            candidates = [name for name in free if words.means(name, known)]
            if len(candidates) > 1:
                candidates = [name for name in candidates if name in moments] or candidates
            if len(candidates) == 1:
                return self.take("time", candidates)
            if candidates:
                raise self.not_plain("time", candidates)
        if len(moments) > 1:
            raise self.not_plain("time", moments)
        rising = [name for name in free if words.ends_with(name, words.TIMES | words.LESSER_TIMES)]
        candidates = moments or [name for name in rising if self._rises(name, sequence)]
        return self.take("time", candidates) if len(candidates) == 1 else []

    def _rises(self, name: str, sequence: list[str]) -> bool:
        """Whether the numbers of a column rise from row to row within each sequence."""
        if not is_number(self.kind(name)) or self.table[name].null_count:
            return False
        values = whole(self.table[name]).to_numpy(zero_copy_only=False)
        rises = values[1:] > values[:-1]
        for each in sequence:
            codes = whole(self.table[each]).dictionary_encode(null_encoding="encode").indices.to_numpy()
            rises |= codes[1:] != codes[:-1]
        return bool(rises.all())

    def features(self, labels: list[str]) -> list[str]:
        """All that is left, but for what names things, holds labels or counts rows."""
        kept = [name for name in self.table.column_names if name not in self.taken]
        known = {label: _levels(self.table[label]) for label in labels}
        rules = {
            **_NO_FEATURES,
            SECOND_LABELS: lambda name: any(
                _looks_like(name, _levels(self.table[name]), *each) for each in known.items()
            ),
        }
        for why, leaves_out in rules.items():
            out = [name for name in kept if leaves_out(name)]
            kept = [name for name in kept if name not in out]
            self.left_out |= dict.fromkeys(out, why)
            if out:
                self.messages.append(words.left_out(out, why))
        return kept


def _levels(column: pa.ChunkedArray) -> read.FactorizedLabels:
    """A column as labels; one that is nested or has very many values has none."""
    is_odd = pa.types.is_nested(column.type) or len(read.read_recorded(column[:1000]).distinct) > MAX_CLASSES
    return read.read_recorded(pa.nulls(len(column)) if is_odd else column)


def _looks_like(name: str, own: read.FactorizedLabels, label: str, known: read.FactorizedLabels) -> bool:
    """Whether a column is a second one of labels: the label's values as text, or codes under its name."""
    texts = [{str(value).strip().casefold() for value in each.distinct} for each in (own, known)]
    is_same = len(texts[0] & texts[1]) >= max(2, SAME_VALUES * len(texts[0]))
    stems = words.stem(name), words.stem(label)
    if is_same and (stems[0] == stems[1] or isinstance(own.distinct[0], str)):
        return True
    return stems[0].startswith(stems[1]) and read.agreement(own.codes, known.codes) >= read.SAME_LABELS


def _tells_labels(name: str) -> bool:
    return (
        words.holds(name, words.LABELS | words.TRUTHS | words.ANNOTATORS)
        or words.means(name, words.LESSER_LABELS)
        or not words.LABELS_WITH_MORE.isdisjoint(words.words(name)[:1])
    )


SAME_VALUES = 0.8  # share of a column's values that are labels, from which on it may hold labels itself; by hand
SECOND_LABELS = (
    "columns with the values or the name of the labels may hold labels too. Name those of several annotators with "
    "label (--label A,B), a measurement with features (--features)"
)
_NO_FEATURES: dict[str, Callable[[str], bool]] = {
    "a name or identifier is not a measurement": lambda name: words.means(name, words.SEQUENCES | {"id"}),
    "a column of labels or true labels would give the answer away": _tells_labels,
    "a row number is not a measurement": words.is_number_of_row,
}
