"""Times of a column in a named time zone (IANA), across the hours that daylight saving time repeats or skips."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.wording import quoted


def check_timezone(timezone: str | None) -> None:
    """Refuse a name that is no time zone."""
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
    zoned = pc.if_else(pa.array(_second_pass(moments, shown_twice)), later, earlier)
    said = [f"Times of {quoted([name])} have no zone of their own and were taken for those of {timezone}."]
    n_twice = int(shown_twice.sum())
    n_never = int(pc.sum(pc.not_equal(pc.local_timestamp(zoned), moments)).as_py() or 0)
    if n_twice:
        said.append(
            f"{n_twice} of them lie in the hour that the clock shows twice when daylight saving time ends: the first "
            "pass until the times step back, the second from there."
        )
    if n_never:
        said.append(f"{n_never} of them lie in the hour that the clock skips when daylight saving time starts.")
    return zoned, tuple(said)


def _second_pass(moments: pa.Array, shown_twice: np.ndarray) -> np.ndarray:
    """Of consecutive rows in the hour that is shown twice, those from where the time steps back."""
    local = moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    before = np.append(False, shown_twice[:-1])
    steps_back = np.append(False, np.diff(local) < 0) & shown_twice & before
    counted = np.cumsum(steps_back)
    run_starts = shown_twice & ~before
    at_start = np.maximum.accumulate(np.where(run_starts, counted, 0))
    return shown_twice & (counted > at_start)
