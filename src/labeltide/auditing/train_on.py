"""How many labels an audit learns from, where the user asks for other than the usual number."""

from __future__ import annotations

import math
from collections.abc import Callable

from labeltide._validation import UnanswerableError
from labeltide.auditing.memory import free_bytes, training_bytes

ALL = "all"
TrainOn = int | float | str | None


def read_train_on(value: TrainOn) -> float | None:
    """The number of labels: None for the usual one, infinite for all."""
    if value is None or value == ALL:
        return None if value is None else math.inf
    try:
        number = float(value)
        is_whole = not isinstance(value, bool) and number >= 1 and number.is_integer()
    except (TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise ValueError(
            f"train_on must be a whole number of labels, as 1e6, at least 1, or {ALL!r}. Got {value!r}. Leave it out "
            "for the usual number."
        )
    return number


def written(train_on: float | None) -> int | str | None:
    """The number of labels as audit.json holds it."""
    if train_on is None:
        return None
    return ALL if math.isinf(train_on) else int(train_on)


def windows_wanted(train_on: float, n_windows: int, n_labels: int) -> int:
    """How many windows hold about so many labels, two at least."""
    if math.isinf(train_on):
        return n_windows
    return min(n_windows, max(2, math.ceil(train_on * n_windows / max(n_labels, 1))))


def check_training_memory(
    wanted: tuple[int, int],
    labels: int,
    *sizes: *tuple[int | None, int, int],
    free: Callable[[], float] = free_bytes,
) -> None:
    """Refuse to learn from more than fits into memory.

    Parameters
    ----------
    wanted : windows to learn from, and steps of each
    labels : that they hold
    sizes : numbers of features (None where windows are on disk), classes and annotators
    """
    needed, least, there = training_bytes(wanted[0] * wanted[1], *sizes), training_bytes(0, *sizes), free()
    if needed > there:
        possible = labels * (there - least) / (needed - least)
        hint = f" (--train-on {_rounded_down(possible)} would do)" if possible >= 1 else " (--train-on N)"
        held = "their" if sizes[0] is None else "their windows and"
        raise UnanswerableError(
            f"Learning from {labels:,} labels needs about {needed / 2**30:.1f} GiB of memory, as {held} posteriors are "
            f"held there. {there / 2**30:.1f} GiB are free. Ask for fewer with train_on{hint}, or take a larger "
            "machine. Every label of the table is judged in any case."
        )


def _rounded_down(number: float) -> str:
    """One digit and a power of ten, as in 4e6."""
    power = math.floor(math.log10(number))
    return f"{math.floor(number / 10**power)}e{power}"
