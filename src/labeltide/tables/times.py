"""The time column: the order of steps, the local time of day, the text of each time, and gaps between steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.columns import Steps, is_number, is_text
from labeltide.tables.words import quoted, words

DAY = 86_400_000_000  # microseconds
UNITS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}  # of time, longest first


@dataclass(frozen=True)
class Moments:
    """The times of all rows."""

    order: pa.Array  # numbers or timestamps by which steps are ordered
    local: np.ndarray | None  # (rows,) microseconds since 1970 on the wall clock; None where times are numbers
    has_hours: bool
    texts: pa.Array
    messages: tuple[str, ...] = ()


def read_moments(name: str, array: pa.Array, timezone: str | None = None) -> Moments:
    """Read a column of moments, or refuse it in a sentence; hours are those of a time zone where one is named."""
    try:
        messages: tuple[str, ...] = ()
        offset = None
        if is_text(array.type):
            array, offset, messages = _parse(name, array)
        kind = array.type
        if pa.types.is_duration(kind):
            array = pc.divide(array.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
            messages, kind = (f"Times in {quoted([name])} are in seconds.",), array.type
        if is_number(kind):
            return Moments(array, None, False, array.cast(pa.string()), messages)
        if pa.types.is_date(kind):
            local = array.cast(pa.timestamp("us"))
            return Moments(local, _microseconds(local), False, array.cast(pa.date32()).cast(pa.string()), messages)
        if pa.types.is_timestamp(kind):
            return _read_timestamps(name, array, list(messages), offset, timezone)
    except pa.ArrowException as error:
        raise ValueError(f"The time column {quoted([name])} cannot be read as moments: {error}. {WAY_OUT}") from None
    if pa.types.is_time(kind):
        raise ValueError(
            f"The time column {quoted([name])} holds hours of the day without a date, so what follows midnight has no "
            "place. Join date and time into one column, as in 2026-11-15 23:30."
        )
    if pa.types.is_null(kind):
        raise ValueError(f"The time column {quoted([name])} must be given in every row. It is empty.")
    raise ValueError(f"The time column {quoted([name])} must hold moments or numbers. Got {kind}. {WAY_OUT}")


def find_gaps(steps: Steps) -> tuple[np.ndarray | None, str]:
    """Gaps of shape (steps,), and a sentence about them; None where no step is missing.

    The usual step is the median over the whole table. A first step has a gap of one, which never counts.
    """
    _, spent = _spent(steps)
    usual = float(np.median(spent)) if len(spent) else 0.0
    gaps = count_gaps(steps, usual)
    count = int((gaps > 1).sum())
    return (gaps, say_gaps(count, usual, steps.times.dtype.kind == "M")) if count else (None, "")


def count_gaps(steps: Steps, usual: float) -> np.ndarray:
    """How many usual steps of time lie before each step: int64 of shape (steps,)."""
    follows, spent = _spent(steps)
    gaps = np.ones(len(steps.times), dtype=np.int64)
    if usual > 0:
        gaps[follows] = np.minimum(np.maximum(np.rint(spent / usual), 1), np.iinfo(np.int32).max)
    return gaps


def say_gaps(count: int, usual: float, dated: bool) -> str:
    """A sentence on steps before which more time lies than usual."""
    where = f"{count} place{'s' if count > 1 else ''}"
    return (
        f"In {where}, the time between two steps is longer than the usual {written_length(usual, dated)}. The longer "
        "the gap, the less weight the labels before it have for those after it."
    )


def _spent(steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Which steps follow another of their sequence, and the time from that, in seconds or the unit of the column."""
    moments = steps.times
    if moments.dtype.kind == "M":
        moments = moments.astype("datetime64[us]").astype(np.int64) / 1e6
    follows = np.append(False, steps.sequence[1:] == steps.sequence[:-1])
    with np.errstate(invalid="ignore", over="ignore"):  # times may be infinite
        return follows, np.append(0.0, np.diff(moments.astype(np.float64)))[follows]


def _read_timestamps(
    name: str, array: pa.Array, messages: list[str], written: np.ndarray | None, timezone: str | None
) -> Moments:
    """Moments of a column of timestamps; `written` are the offsets from UTC that its texts had, in minutes."""
    order = array.cast(pa.timestamp("us", array.type.tz), safe=array.type.unit != "ns")
    if timezone is not None:
        order, more = in_zone(name, order, timezone)
        messages, written = [*messages, *more], None
    zone, offset = order.type.tz, written
    local = _microseconds(order)
    if zone is not None and written is not None:
        local = local + written * MINUTE
    elif zone is not None:
        local = _microseconds(pc.local_timestamp(order))
        offset = (local - _microseconds(order)) // MINUTE
        messages.append(f"Hours of {quoted([name])} are those of its time zone, {zone}.")
    unit = "s" if not (local % 1_000_000).any() else "ms" if not (local % 1000).any() else "us"
    texts = pa.array(local).cast(pa.timestamp("us")).cast(pa.timestamp(unit), safe=False).cast(pa.string())
    if offset is not None:
        known = offset[array.is_valid().to_numpy(zero_copy_only=False)]
        if written is not None or len(np.unique(known)) > 1:
            messages.append(say_offsets(name, known, None if written is not None else zone))
        distinct = np.unique(offset)
        if len(distinct) > 1:
            endings = pa.array([written_offset(minutes) for minutes in distinct.tolist()])
            ending = endings.take(pa.array(np.searchsorted(distinct, offset)))
            texts = pc.binary_join_element_wise(texts, ending, "")
    texts = pc.if_else(array.is_null(), pa.scalar(None, pa.string()), texts)
    return Moments(order, local, True, texts, tuple(messages))


def _microseconds(array: pa.Array) -> np.ndarray:
    return array.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _parse(name: str, array: pa.Array) -> tuple[pa.Array, np.ndarray | None, tuple[str, ...]]:
    """Text as numbers or moments, in the first form that fits all of it; offsets from UTC where texts have them."""
    array = pc.if_else(pc.equal(pc.utf8_trim_whitespace(array), ""), pa.scalar(None, array.type), array)
    for kind in (pa.int64(), pa.float64(), pa.timestamp("us")):
        try:
            parsed = array.cast(kind)
        except pa.ArrowException:
            continue
        what = "numbers" if is_number(kind) else "moments"
        return parsed, None, (f"The texts of {quoted([name])} are read as {what}.",)
    written = _read_written(name, array)
    if written is not None:
        return written
    values = array.drop_null().unique()
    example = str(values[0]) if len(values) else ""
    for value in values[:1000]:
        try:
            value.cast(pa.timestamp("us"))
        except pa.ArrowException:
            example = str(value)
            break
    raise ValueError(
        f"The time column {quoted([name])} must hold moments or numbers. It holds texts that are read as neither, such "
        f"as {quoted([example])}. {WAY_OUT}"
    )


def written_length(usual: float, dated: bool) -> str:
    """A length of time in the largest unit of which it is at least one; a plain number where times are numbers."""
    if not dated:
        return f"{usual:g}"
    unit = next((name for name, seconds in UNITS.items() if usual >= seconds), "s")
    return f"{usual / UNITS[unit]:g} {'day' if usual == UNITS['days'] else unit}"


SECONDS = {  # of a unit, and the words for it in the name of a column; onsets are in seconds, as in BIDS
    0.001: {"ms", "msec", "millisecond", "milliseconds", "millis"},
    1.0: {"s", "sec", "secs", "second", "seconds", "onset"},
    60.0: {"min", "mins", "minute", "minutes"},
    3600.0: {"h", "hr", "hrs", "hour", "hours"},
    86400.0: {"d", "day", "days"},
}


def seconds_of_unit(name: str, dated: bool) -> float | None:
    """Seconds of one unit of the times in a column, None where its name does not tell."""
    named = [seconds for seconds, units in SECONDS.items() if set(words(name)) & units]
    return 1.0 if dated else named[0] if len(named) == 1 else None


# Moments as people write them: day or month first, AM and PM, and offsets from UTC.

FORM = (
    r"^\s*(?P<first>\d{1,4})(?P<mark>[/.-])(?P<second>\d{1,2})[/.-](?P<third>\d{1,4})"
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<seconds>\d{2}(?:\.\d{1,9})?))?"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?\s*(?P<zone>[Zz]|[+-]\d{2}:?\d{2})?)?\s*$"
)
WAY_OUT = "Write moments as in 2026-11-15 10:30, or as numbers."
MINUTE = 60_000_000  # microseconds
SHOWN = 4  # offsets that a sentence names


def looks_written(array: pa.Array | pa.ChunkedArray, most: int = 50) -> bool:
    """Whether the first texts of a column are all moments."""
    values = array.drop_null()[:most]
    return len(values) > 0 and bool(pc.all(pc.match_substring_regex(values, FORM)).as_py())


def _read_written(name: str, array: pa.Array) -> tuple[pa.Array, np.ndarray | None, tuple[str, ...]] | None:
    """Read texts that are all moments, as `_parse` gives them: dates, moments, or moments in UTC with their offsets.

    None where some are not; an error where day and month cannot be told apart.
    """
    found = pc.extract_regex(array.cast(pa.string()), FORM)
    if found.null_count != array.null_count or found.null_count == len(array):
        return None
    there = array.is_valid().to_numpy(zero_copy_only=False)
    part = {key: pc.struct_field(found, key).filter(pa.array(there)) for key in re.compile(FORM).groupindex}
    order = _order_of_date(name, part, array.filter(pa.array(there)))
    times = _times(part)
    zones = part["zone"].to_numpy(zero_copy_only=False).astype(str)
    if order is None or times is None or len(np.unique(zones == "")) > 1:  # some texts have an offset, others none
        return None
    (year, month, day), message = order
    if ((month < 1) | (month > 12) | (day < 1) | (year < 1000)).any():
        return None
    start = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = start.astype("datetime64[D]") + (day - 1)
    if (days.astype("datetime64[M]") != start).any():  # such as 30 February
        return None
    messages = [message] if message else []
    if pc.any(pc.not_equal(part["half"], "")).as_py():
        messages.append(f"AM and PM are read in {quoted([name])}: 1 PM is hour 13.")
    if not messages:
        messages.append(f"The texts of {quoted([name])} are read as times.")
    local = np.full(len(array), np.datetime64("NaT", "us"))
    local[there] = days.astype("datetime64[us]") + times.astype("timedelta64[us]")
    if not pc.any(pc.not_equal(part["hour"], "")).as_py():
        return pa.array(local).cast(pa.date32()), None, tuple(messages)
    if zones[0] == "":
        return pa.array(local), None, tuple(messages)
    distinct, index = np.unique(zones, return_inverse=True)
    minutes = [0 if text in "Zz" else int(f"{text[0]}{60 * int(text[1:3]) + int(text[-2:])}") for text in distinct]
    offset = np.zeros(len(array), dtype=np.int64)
    offset[there] = np.array(minutes, dtype=np.int64)[index.reshape(-1)]
    utc = local - (offset * MINUTE).astype("timedelta64[us]")
    return pa.array(utc).cast(pa.timestamp("us", "UTC")), offset, tuple(messages)


def _order_of_date(
    name: str, part: dict[str, pa.Array], texts: pa.Array
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], str] | None:
    """Year, month and day, and a sentence where the day or the month comes first; None where they are mixed.

    The whole column decides which comes first: a number above 12 is a day.
    """
    first, second, third = (_whole(part[key]) for key in ("first", "second", "third"))
    lengths = {key: np.unique(pc.utf8_length(part[key]).to_numpy(zero_copy_only=False)) for key in ("first", "third")}
    if lengths["first"].tolist() == [4] and lengths["third"].max() <= 2:
        return (first, second, third), ""
    if lengths["third"].tolist() != [4] or lengths["first"].max() > 2:
        return None
    if pc.all(pc.equal(part["mark"], ".")).as_py():  # 30.03.2024: with dots the day always comes first
        return (third, second, first), f"The texts of {quoted([name])} are read as times with the day first."
    days, others = np.flatnonzero(first > 12), np.flatnonzero(second > 12)
    if len(days) and len(others):
        examples = quoted([texts[int(days[0])].as_py(), texts[int(others[0])].as_py()])
        raise ValueError(
            f"The time column {quoted([name])} must write all dates in the same way. It holds dates with the day "
            f"first and with the month first: {examples}. {WAY_OUT}"
        )
    if not len(days) and not len(others):
        differ = np.flatnonzero(first != second)
        example = texts[int(differ[0]) if len(differ) else 0].as_py()
        number = int(example.strip()[:2].strip("/-"))
        raise ValueError(
            f"The time column {quoted([name])} must say which number is the day. {quoted([example])} is day {number} "
            f"of a month with the day first, and month {number} with the month first; no date of the column has a "
            f"number above 12, which would decide it. {WAY_OUT}"
        )
    day, month, which = (first, second, "day") if len(days) else (second, first, "month")
    example = texts[int(np.flatnonzero(day > 12)[0])].as_py()
    message = f"The texts of {quoted([name])} are read as times with the {which} first, because of {quoted([example])}."
    return (third, month, day), message


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


def _whole(texts: pa.Array) -> np.ndarray:
    return pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.int64()).to_numpy(zero_copy_only=False)


# Times of a column in a named time zone (IANA), across the hours that daylight saving time repeats or skips.


def check_timezone(timezone: str | None) -> None:
    """Refuse a name that is not a time zone."""
    if timezone is None:
        return
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise ValueError(
            f"timezone must be the name of a time zone, such as Europe/Berlin. Got {timezone!r}."
        ) from None


def in_zone(name: str, moments: pa.Array, timezone: str) -> tuple[pa.Array, tuple[str, ...]]:
    """The same moments in a time zone; times without a zone of their own are taken as shown on its wall clocks."""
    if moments.type.tz is not None:
        return moments.cast(pa.timestamp("us", timezone)), ()
    options = {"timezone": timezone, "nonexistent": "latest"}
    earlier = pc.assume_timezone(moments, ambiguous="earliest", **options)
    later = pc.assume_timezone(moments, ambiguous="latest", **options)
    shown_twice = pc.not_equal(earlier, later).fill_null(False).to_numpy(zero_copy_only=False)
    # Of consecutive rows in the hour that is shown twice, those from where the time steps back are its second pass.
    local = moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    before = np.append(False, shown_twice[:-1])
    counted = np.cumsum(np.append(False, np.diff(local) < 0) & shown_twice & before)
    at_start = np.maximum.accumulate(np.where(shown_twice & ~before, counted, 0))
    zoned = pc.if_else(pa.array(shown_twice & (counted > at_start)), later, earlier)
    messages = [f"Times of {quoted([name])} have no zone of their own and were taken for those of {timezone}."]
    n_twice = int(shown_twice.sum())
    n_never = int(pc.sum(pc.not_equal(pc.local_timestamp(zoned), moments)).as_py() or 0)
    if n_twice:
        messages.append(
            f"{n_twice} of them lie in the hour that the clock shows twice when daylight saving time ends: the first "
            "pass until the times step back, the second from there."
        )
    if n_never:
        messages.append(f"{n_never} of them lie in the hour that the clock skips when daylight saving time starts.")
    return zoned, tuple(messages)
