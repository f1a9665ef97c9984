"""The time column: the order of steps, the local time of day, the text of each time, and gaps between steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.intake import is_number, is_text
from labeltide.tables.steps import Steps
from labeltide.tables.wording import quoted

DAY = 86_400_000_000  # microseconds
FORMATS = ("%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y")
UNITS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}  # of time, longest first
WAY_OUT = "Write moments as in 2026-11-15 10:30, or as numbers."


@dataclass(frozen=True)
class Moments:
    """The times of all rows."""

    order: pa.Array  # numbers or timestamps by which steps are ordered
    local: np.ndarray | None  # (rows,) microseconds since 1970 on the wall clock; None where times are numbers
    has_hours: bool
    texts: pa.Array
    said: tuple[str, ...] = ()


def read_moments(name: str, array: pa.Array) -> Moments:
    """Read a column of moments, or refuse it in a sentence."""
    try:
        return _read_times(name, array)
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
    if not count:
        return None, ""
    places = f"{count} place{'s' if count > 1 else ''}"
    return gaps, (
        f"In {places} more time lies between two steps than the usual {_written(usual, _dated(steps))}: the longer the "
        "gap, the less the labels before it say of those after."
    )


def step_length(steps: Steps) -> tuple[float, str] | None:
    """The usual time between two steps and its unit, "" where times are plain numbers; None where there is none."""
    _, spent = _spent(steps)
    usual = float(np.median(spent)) if len(spent) else 0.0
    if not (0 < usual < np.inf):
        return None
    return usual, "s" if _dated(steps) else ""


def _spent(steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Which steps follow another of their sequence, and the time from that, in seconds or the unit of the column."""
    moments = steps.times.astype("datetime64[us]").astype(np.int64) / 1e6 if _dated(steps) else steps.times
    follows = np.append(False, steps.sequence[1:] == steps.sequence[:-1])
    with np.errstate(invalid="ignore", over="ignore"):  # times may be infinite
        return follows, np.append(0.0, np.diff(moments.astype(np.float64)))[follows]


def _read_times(name: str, array: pa.Array) -> Moments:
    said: tuple[str, ...] = ()
    if is_text(array.type):
        array, said = _parse(name, array)
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
        return _read_timestamps(name, array, said)
    if pa.types.is_time(kind):
        raise ValueError(
            f"The time column {quoted([name])} holds hours of the day without a date, so what follows midnight has no "
            "place. Join date and time into one column, as in 2026-11-15 23:30."
        )
    if pa.types.is_null(kind):
        raise ValueError(f"The time column {quoted([name])} must be given in every row. It is empty.")
    raise ValueError(f"The time column {quoted([name])} must hold moments or numbers. Got {kind}. {WAY_OUT}")


def _read_timestamps(name: str, array: pa.Array, said: tuple[str, ...]) -> Moments:
    zone = array.type.tz
    order = array.cast(pa.timestamp("us", zone), safe=array.type.unit != "ns")
    if zone is None:
        local = order
    else:
        local = pc.local_timestamp(order)
        said = (*said, f"Hours of {quoted([name])} are those of its time zone, {zone}.")
    micro = _microseconds(local)
    unit = "s" if not (micro % 1_000_000).any() else "ms" if not (micro % 1000).any() else "us"
    return Moments(order, micro, True, local.cast(pa.timestamp(unit), safe=False).cast(pa.string()), said)


def _microseconds(array: pa.Array) -> np.ndarray:
    return array.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _parse(name: str, array: pa.Array) -> tuple[pa.Array, tuple[str, ...]]:
    """Text as numbers or moments, in the first form that fits all of it."""
    for kind in (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            parsed = array.cast(kind)
        except pa.ArrowException:
            continue
        what = "numbers" if is_number(kind) else "moments"
        return parsed, (f"I read the texts of {quoted([name])} as {what}.",)
    for form in FORMATS:
        parsed = pc.strptime(array, format=form, unit="s", error_is_null=True)
        if parsed.null_count == array.null_count:
            return parsed, (f"I read the texts of {quoted([name])} as moments of the form {form}.",)
    raise ValueError(
        f"The time column {quoted([name])} must hold moments or numbers. It holds texts that are read as neither, such "
        f"as {quoted([_first_misfit(array)])}. {WAY_OUT}"
    )


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


def _written(usual: float, dated: bool) -> str:
    """A length of time in the largest unit of which it is at least one; a plain number where times are numbers."""
    if not dated:
        return f"{usual:g}"
    unit = next((name for name, seconds in UNITS.items() if usual >= seconds), "s")
    return f"{usual / UNITS[unit]:g} {unit}"
