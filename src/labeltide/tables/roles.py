"""Which column plays which role, as the user named them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from labeltide.tables.intake import check_unique
from labeltide.tables.time_zones import check_timezone
from labeltide.tables.wording import listed, quoted

ROLES = ("sequence", "time", "label", "features", "annotator", "clock", "clean", "zscore")
OPTIONAL = ("annotator", "clock", "clean", "zscore")
SEVERAL = ("sequence", "features", "zscore")  # roles that several columns can share among them
# A time may also be a clock or a feature. Any other column with two roles leaks a label or is a slip.
MAY_SHARE = [{"time", "clock"}, {"time", "features"}, {"clock", "features"}, {"sequence", "zscore"}]
DERIVED = ("hour_of_day", "day_of_week", "days", "position")  # clocks that need no column of their own
MOST_CLOCKS = 3  # at once; each more leaves fewer moments along every one
Names = str | Sequence[str] | None


def columns_of_role(role: str, value: str | Sequence[str] | None) -> list[str]:
    """The columns of a role of `Sequences.from_table`, after a check that they are named as they should be."""
    if value is None and role in OPTIONAL:
        return []
    names = list(value) if isinstance(value, list | tuple) and role in SEVERAL else [value]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        rule = (
            "the name of a column, or a list of such names without repeats"
            if role in SEVERAL
            else "one column, by its name"
        )
        raise ValueError(f"{role} must be {rule}. Got {value!r}.")
    return [str(name) for name in names]


def check_roles(roles: dict[str, list[str]], there: list[str]) -> None:
    """Columns that are there, once, each in one role or in two that may share it."""
    absent = [name for names in roles.values() for name in names if name not in there]
    if absent:
        raise ValueError(f"The table has no column {listed(absent)}. It has: {listed(there)}.")
    check_unique(name for name in there if any(name in names for names in roles.values()))
    for role, other in combinations(roles, 2):
        shared = set(roles[role]) & set(roles[other])
        if shared and {role, other} not in MAY_SHARE:
            raise ValueError(f"A column can play one role. Got {listed(sorted(shared))} for both {role} and {other}.")


@dataclass(frozen=True)
class Reading:
    """How an audit reads a table, beside which columns it reads.

    Attributes
    ----------
    drop_bad_rows : leave out rows without a time or a sequence and exact repeats of an earlier row
    timezone : name of a time zone (IANA), to whose wall clock times are converted; None keeps hours as written
    """

    drop_bad_rows: bool = False
    timezone: str | None = None

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

    def columns(self, there: list[str]) -> dict[str, list[str]]:
        """The columns named for each role, all of them there and none in two roles."""
        named = {role: _split(role, value, there) for role, value in vars(self).items()}
        named["clock"] = [name for name in named["clock"] if name in there or name not in DERIVED]
        owners: dict[str, str] = {}
        for role, names in named.items():
            missing = [name for name in names if name not in there]
            if missing:
                raise ValueError(f"The table has no column {quoted(missing)}. It has: {quoted(there)}.")
            for name in names:
                other = owners.setdefault(name, role)
                if other != role and {role, other} not in MAY_SHARE:
                    raise ValueError(f"A column can play one role. Got {quoted([name])} for both {other} and {role}.")
        if named["annotator"] and len(named["label"]) > 1:
            raise ValueError(
                "Several label columns hold one annotator each, so no column names annotators. Got label "
                f"{quoted(named['label'])} and annotator {quoted(named['annotator'])}. Leave one of the two out."
            )
        return named

    def clocks(self, there: list[str]) -> list[str]:
        """The clocks in the order asked for, columns or some of DERIVED."""
        names = _split("clock", self.clock, there)
        if len(names) > MOST_CLOCKS:
            raise ValueError(
                f"At most {MOST_CLOCKS} clocks can be told apart at once. Got {len(names)}: {quoted(names)}. Name the "
                "ones that matter most."
            )
        return names


def _split(role: str, value: Names, there: list[str]) -> list[str]:
    """The columns that an option names; commas part them, unless a column has that very name."""
    if value is None:
        return []
    several = role in ("sequence", "label", "features", "clock")
    if isinstance(value, str):
        parts = [value] if value in there or not several else [part.strip() for part in value.split(",")]
        names = [part for part in parts if part or part in there]
    else:
        names = list(value) if several and isinstance(value, list | tuple) else [value]  # type: ignore[list-item]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        rule = (
            "columns by their names, with commas between and without repeats" if several else "one column, by its name"
        )
        raise ValueError(f"{role} must be {rule}. Got {value!r}.")
    return names
