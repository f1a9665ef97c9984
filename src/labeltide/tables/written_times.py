"""Moments as people write them: day or month first, AM and PM, and offsets from UTC."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.wording import quoted

FORM = (
    r"^\s*(?P<first>\d{1,4})(?P<mark>[/.-])(?P<second>\d{1,2})[/.-](?P<third>\d{1,4})"
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<seconds>\d{2}(?:\.\d{1,9})?))?"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?\s*(?P<zone>[Zz]|[+-]\d{2}:?\d{2})?)?\s*$"
)
WAY_OUT = "Write moments as in 2026-11-15 10:30, or as numbers."
MINUTE = 60_000_000  # microseconds
SHOWN = 4  # offsets that a sentence names


class WrittenMoments(NamedTuple):
    """Moments read from texts.

    Attributes
    ----------
    local : datetime64[us] array of shape (rows,)
        As written, on the wall clock; NaT where nothing is.
    offset : int64 array of shape (rows,), or None
        Minutes by which the wall clock is ahead of UTC; None where the texts do not say.
    has_hours : whether the texts have hours, not dates alone
    said : sentences about what was read
    """

    local: np.ndarray
    offset: np.ndarray | None
    has_hours: bool
    said: tuple[str, ...]


def looks_written(array: pa.Array | pa.ChunkedArray, most: int = 50) -> bool:
    """Whether the first texts of a column are all moments."""
    values = array.drop_null()[:most]
    return len(values) > 0 and bool(pc.all(pc.match_substring_regex(values, FORM)).as_py())


def read_written(name: str, array: pa.Array) -> WrittenMoments | None:
    """Read texts that are all moments; None where some are none, an error where the order of day and month is open."""
    found = pc.extract_regex(array.cast(pa.string()), FORM)
    if found.null_count != array.null_count or found.null_count == len(array):
        return None
    there = array.is_valid().to_numpy(zero_copy_only=False)
    part = {key: pc.struct_field(found, key).filter(pa.array(there)) for key in _NAMES}
    texts = array.filter(pa.array(there))
    order = _order_of_date(name, part, texts)
    days = None if order is None else _days(*order[0])
    times = _times(part)
    offset = _offsets(part["zone"])
    if order is None or days is None or times is None or offset is False:
        return None
    local = np.full(len(array), np.datetime64("NaT", "us"))
    local[there] = days.astype("datetime64[us]") + times.astype("timedelta64[us]")
    has_hours = bool(pc.any(pc.not_equal(part["hour"], "")).as_py())
    said = [order[1]] if order[1] else []
    if pc.any(pc.not_equal(part["half"], "")).as_py():
        said.append(f"I read AM and PM in {quoted([name])}: 1 PM is hour 13.")
    if not said:
        said.append(f"I read the texts of {quoted([name])} as moments.")
    return WrittenMoments(local, _spread(offset, there), has_hours, tuple(said))


_NAMES = ("first", "mark", "second", "third", "hour", "minute", "seconds", "half", "zone")


def _order_of_date(
    name: str, part: dict[str, pa.Array], texts: pa.Array
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], str] | None:
    """Year, month and day, and a sentence where the day or the month comes first; None where they are mixed."""
    first, second, third = (_whole(part[key]) for key in ("first", "second", "third"))
    lengths = {key: np.unique(pc.utf8_length(part[key]).to_numpy(zero_copy_only=False)) for key in ("first", "third")}
    if lengths["first"].tolist() == [4] and lengths["third"].max() <= 2:
        return (first, second, third), ""
    if lengths["third"].tolist() != [4] or lengths["first"].max() > 2:
        return None
    if pc.all(pc.equal(part["mark"], ".")).as_py():  # 30.03.2024: with dots the day always comes first
        return (third, second, first), f"I read the texts of {quoted([name])} as moments with the day first."
    is_day_first = _day_first(name, first, second, texts)
    day, month = (first, second) if is_day_first else (second, first)
    example = texts[int(np.flatnonzero(day > 12)[0])].as_py()
    which = "day" if is_day_first else "month"
    said = f"I read the texts of {quoted([name])} as moments with the {which} first, because of {quoted([example])}."
    return (third, month, day), said


def _day_first(name: str, first: np.ndarray, second: np.ndarray, texts: pa.Array) -> bool:
    """Decide by the whole column: a number above 12 is a day."""
    days, others = np.flatnonzero(first > 12), np.flatnonzero(second > 12)
    if len(days) and len(others):
        examples = quoted([texts[int(days[0])].as_py(), texts[int(others[0])].as_py()])
        raise ValueError(
            f"The time column {quoted([name])} must write all dates alike. It holds dates with the day first and with "
            f"the month first: {examples}. {WAY_OUT}"
        )
    if not len(days) and not len(others):
        differ = np.flatnonzero(first != second)
        example = texts[int(differ[0]) if len(differ) else 0].as_py()
        raise ValueError(
            f"The time column {quoted([name])} must say which number is the day. {quoted([example])} is day "
            f"{int(example.strip()[:2].strip('/-'))} of a month with the day first, and month "
            f"{int(example.strip()[:2].strip('/-'))} with the month first; no date of the column has a number above "
            f"12, which would tell. {WAY_OUT}"
        )
    return bool(len(days))


def _days(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray | None:
    """Dates as datetime64[D]; None where one does not exist."""
    if ((month < 1) | (month > 12) | (day < 1) | (year < 1000)).any():
        return None
    start = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = start.astype("datetime64[D]") + (day - 1)
    return days if (days.astype("datetime64[M]") == start).all() else None


def _times(part: dict[str, pa.Array]) -> np.ndarray | None:
    """Microseconds since midnight; None where a time does not exist, or where AM and PM stand at some alone."""
    hour, minute = _whole(part["hour"]), _whole(part["minute"])
    seconds = pc.if_else(pc.equal(part["seconds"], ""), "0", part["seconds"]).cast(pa.float64()).to_numpy()
    half = pc.utf8_lower(pc.utf8_slice_codeunits(part["half"], 0, 1)).to_numpy(zero_copy_only=False)
    if (half != "").any():
        if (half == "").any() or ((hour < 1) | (hour > 12)).any():
            return None
        hour = hour % 12 + 12 * (half == "p")
    if ((hour > 23) | (minute > 59) | (seconds >= 60)).any():
        return None
    return hour * 60 * MINUTE + minute * MINUTE + np.rint(seconds * 1e6).astype(np.int64)


def _offsets(zone: pa.Array) -> np.ndarray | bool | None:
    """Minutes ahead of UTC; None where no text has an offset, False where only some do."""
    texts = zone.to_numpy(zero_copy_only=False).astype(str)
    if (texts == "").all():
        return None
    if (texts == "").any():
        return False
    distinct, place = np.unique(texts, return_inverse=True)
    minutes = [0 if text in "Zz" else _minutes(text) for text in distinct.tolist()]
    return np.array(minutes, dtype=np.int64)[place.reshape(-1)]


def _minutes(text: str) -> int:
    digits = text[1:].replace(":", "")
    return (1 if text[0] == "+" else -1) * (60 * int(digits[:2]) + int(digits[2:]))


def written_offset(minutes: int) -> str:
    """An offset from UTC as it is written: +01:00."""
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


def say_offsets(name: str, offset: np.ndarray, zone: str | None) -> str:
    """A sentence about the offsets from UTC of a time column; `zone` names a time zone where one is known."""
    distinct = np.unique(offset).tolist()
    named = f" in {zone}" if zone else ""
    way = "" if zone else " The option timezone (--timezone Europe/Berlin) converts them to another place."
    if len(distinct) == 1:
        one = written_offset(distinct[0])
        return f"Hours of {quoted([name])} are those on the wall clock{named}, {one} from UTC.{way}"
    offsets = ", ".join(written_offset(minutes) for minutes in distinct[:SHOWN])
    return (
        f"Hours of {quoted([name])} are those on the wall clock{named}, whose offsets from UTC are {offsets}: it "
        f"changes, as with daylight saving time. Steps are ordered by the moment itself.{way}"
    )


def _spread(values: np.ndarray | bool | None, there: np.ndarray) -> np.ndarray | None:
    if not isinstance(values, np.ndarray):
        return None
    spread = np.zeros(len(there), dtype=np.int64)
    spread[there] = values
    return spread


def _whole(texts: pa.Array) -> np.ndarray:
    return pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.int64()).to_numpy(zero_copy_only=False)
