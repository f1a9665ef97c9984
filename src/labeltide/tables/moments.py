"""The time column: the order of steps, the local time of day, the text of each time, and gaps between steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.intake import is_number, is_text
from labeltide.tables.steps import Steps
from labeltide.tables.time_zones import in_zone
from labeltide.tables.wording import quoted
from labeltide.tables.written_times import MINUTE, WAY_OUT, WrittenMoments, read_written, say_offsets, written_offset

DAY = 86_400_000_000  # microseconds
UNITS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}  # of time, longest first


@dataclass(frozen=True)
class Moments:
    """The times of all rows."""

    order: pa.Array  # numbers or timestamps by which steps are ordered
    local: np.ndarray | None  # (rows,) microseconds since 1970 on the wall clock; None where times are numbers
    has_hours: bool
    texts: pa.Array
    said: tuple[str, ...] = ()


def read_moments(name: str, array: pa.Array, timezone: str | None = None) -> Moments:
    """Read a column of moments, or refuse it in a sentence; hours are those of a time zone where one is named."""
    try:
        return _read_times(name, array, timezone)
    except pa.ArrowException as error:
        raise ValueError(f"The time column {quoted([name])} cannot be read as moments: {error}. {WAY_OUT}") from None


def find_gaps(steps: Steps) -> tuple[np.ndarray | None, str]:
    """Gaps of shape (steps,), and a sentence about them; None where no step is missing.

    The usual step is the median over the whole table. A first step has a gap of one, which never counts.
    """
    follows, spent = _spent(steps)
    usual = float(np.median(spent)) if len(spent) else 0.0
    gaps = np.ones(len(steps.times), dtype=np.int64)
    if usual > 0:
        gaps[follows] = np.minimum(np.maximum(np.rint(spent / usual), 1), np.iinfo(np.int32).max)
    count = int((gaps > 1).sum())
    return (gaps, say_gaps(count, usual, _dated(steps))) if count else (None, "")


def say_gaps(count: int, usual: float, dated: bool) -> str:
    """A sentence on steps before which more time lies than usual."""
    places = f"{count} place{'s' if count > 1 else ''}"
    return (
        f"In {places} more time lies between two steps than the usual {written_length(usual, dated)}: the longer the "
        "gap, the less the labels before it say of those after."
    )


def _spent(steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Which steps follow another of their sequence, and the time from that, in seconds or the unit of the column."""
    moments = steps.times.astype("datetime64[us]").astype(np.int64) / 1e6 if _dated(steps) else steps.times
    follows = np.append(False, steps.sequence[1:] == steps.sequence[:-1])
    with np.errstate(invalid="ignore", over="ignore"):  # times may be infinite
        return follows, np.append(0.0, np.diff(moments.astype(np.float64)))[follows]


def _read_times(name: str, array: pa.Array, timezone: str | None) -> Moments:
    said: tuple[str, ...] = ()
    offset = None
    if is_text(array.type):
        array, offset, said = _parse(name, array)
    kind = array.type
    if pa.types.is_duration(kind):
        array = pc.divide(array.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
        return Moments(array, None, False, array.cast(pa.string()), (f"Times in {quoted([name])} are in seconds.",))
    if is_number(kind):
        return Moments(array, None, False, array.cast(pa.string()), said)
    if pa.types.is_date(kind):
        local = array.cast(pa.timestamp("us"))
        return Moments(local, _microseconds(local), False, array.cast(pa.date32()).cast(pa.string()), said)
    if pa.types.is_timestamp(kind):
        return _read_timestamps(name, array, said, offset, timezone)
    if pa.types.is_time(kind):
        raise ValueError(
            f"The time column {quoted([name])} holds hours of the day without a date, so what follows midnight has no "
            "place. Join date and time into one column, as in 2026-11-15 23:30."
        )
    if pa.types.is_null(kind):
        raise ValueError(f"The time column {quoted([name])} must be given in every row. It is empty.")
    raise ValueError(f"The time column {quoted([name])} must hold moments or numbers. Got {kind}. {WAY_OUT}")


def _read_timestamps(
    name: str, array: pa.Array, said: tuple[str, ...], written: np.ndarray | None, timezone: str | None
) -> Moments:
    """Moments of a column of timestamps; `written` are the offsets from UTC that its texts had, in minutes."""
    order = array.cast(pa.timestamp("us", array.type.tz), safe=array.type.unit != "ns")
    if timezone is not None:
        order, more = in_zone(name, order, timezone)
        said, written = (*said, *more), None
    zone = order.type.tz
    if zone is None:
        local, offset = _microseconds(order), None
    elif written is not None:
        local, offset = _microseconds(order) + written * MINUTE, written
    else:
        local = _microseconds(pc.local_timestamp(order))
        offset = (local - _microseconds(order)) // MINUTE
    if offset is not None:
        said = (*said, *_say_zone(name, offset[array.is_valid().to_numpy(zero_copy_only=False)], zone, written))
    return Moments(order, local, True, _texts(local, offset, array.is_null()), said)


def _say_zone(name: str, offset: np.ndarray, zone: str, written: np.ndarray | None) -> tuple[str, ...]:
    if written is not None:
        return (say_offsets(name, offset, None),)
    said = (f"Hours of {quoted([name])} are those of its time zone, {zone}.",)
    return (*said, say_offsets(name, offset, zone)) if len(np.unique(offset)) > 1 else said


def _texts(local: np.ndarray, offset: np.ndarray | None, missing: pa.Array) -> pa.Array:
    """Moments on the wall clock as texts, with their offsets from UTC where these change."""
    unit = "s" if not (local % 1_000_000).any() else "ms" if not (local % 1000).any() else "us"
    moments = pa.array(local).cast(pa.timestamp("us")).cast(pa.timestamp(unit), safe=False).cast(pa.string())
    if offset is not None and len(distinct := np.unique(offset)) > 1:
        endings = pa.array([written_offset(minutes) for minutes in distinct.tolist()])
        ending = endings.take(pa.array(np.searchsorted(distinct, offset)))
        moments = pc.binary_join_element_wise(moments, ending, "")
    return pc.if_else(missing, pa.scalar(None, pa.string()), moments)


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
        return parsed, None, (f"I read the texts of {quoted([name])} as {what}.",)
    written = read_written(name, array)
    if written is not None:
        return _from_written(written)
    raise ValueError(
        f"The time column {quoted([name])} must hold moments or numbers. It holds texts that are read as neither, such "
        f"as {quoted([_first_misfit(array)])}. {WAY_OUT}"
    )


def _from_written(written: WrittenMoments) -> tuple[pa.Array, np.ndarray | None, tuple[str, ...]]:
    """Moments in UTC where the texts have offsets, dates where they have no hours."""
    if not written.has_hours:
        return pa.array(written.local).cast(pa.date32()), None, written.said
    if written.offset is None:
        return pa.array(written.local), None, written.said
    utc = written.local - (written.offset * MINUTE).astype("timedelta64[us]")
    return pa.array(utc).cast(pa.timestamp("us", "UTC")), written.offset, written.said


def _first_misfit(array: pa.Array, most: int = 1000) -> str:
    """A text that is no moment: of those with which a column of good ones was spoilt, the first."""
    values = array.drop_null().unique()
    for value in values[:most]:
        try:
            value.cast(pa.timestamp("us"))
        except pa.ArrowException:
            return str(value)
    return str(values[0]) if len(values) else ""


def _dated(steps: Steps) -> bool:
    return bool(np.issubdtype(steps.times.dtype, np.datetime64))


def written_length(usual: float, dated: bool) -> str:
    """A length of time in the largest unit of which it is at least one; a plain number where times are numbers."""
    if not dated:
        return f"{usual:g}"
    unit = next((name for name, seconds in UNITS.items() if usual >= seconds), "s")
    return f"{usual / UNITS[unit]:g} {unit}"
