"""Sequences cut into windows: consecutive ones, or overlapping ones of which every step belongs to one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeltide._validation import check_number, steps_mask

WHOLE = 200  # sequences up to this long stay whole
USUAL = 100
SMALLEST = 16
OVERLAP = 0.25
MOST_PADDING = 4.0  # padded steps for each real one, before the window we choose shrinks


@dataclass(frozen=True)
class Windows:
    """Where windows lie among the steps, which are ordered by sequence, then time.

    Attributes
    ----------
    starts, lengths : int64 arrays of shape (n,)
    warm_up : int64 array of shape (n,)
        How many first steps a window shares with the one before it. A causal network knows little there, so
        these steps belong to the window before, in training and in results: every step belongs to one window.
    groups : int64 array of shape (n,)
        The sequence of each window.
    window : int
    """

    starts: np.ndarray
    lengths: np.ndarray
    warm_up: np.ndarray
    groups: np.ndarray
    window: int

    @property
    def index(self) -> np.ndarray:
        """The step at each place of each window, -1 on padding: int64 of shape (n, steps)."""
        n_steps = int(self.lengths.max())
        return np.where(steps_mask(self.lengths, n_steps), self.starts[:, None] + np.arange(n_steps), -1)

    def filled_index(self, n_steps: int | None = None) -> np.ndarray:
        """The step at each place of each window; padding repeats the last step: int64 of shape (n, n_steps)."""
        places = np.arange(n_steps or int(self.lengths.max()))
        return self.starts[:, None] + np.minimum(places, self.lengths[:, None] - 1)

    @property
    def belongs(self) -> np.ndarray:
        """True where a step belongs to the window: shape (n, steps); every step belongs to one."""
        places = np.arange(int(self.lengths.max()))
        return (places >= self.warm_up[:, None]) & (places < self.lengths[:, None])


def cut_consecutive(counts: np.ndarray, window: int | None, offset: int, keep_tail: bool) -> Windows:
    """Windows one after the other, as `Sequences.from_table` describes them; None keeps sequences whole."""
    first = np.cumsum(counts) - counts
    local = [_consecutive_starts(int(count), window, offset, keep_tail) for count in counts]
    groups = np.repeat(np.arange(len(counts)), [len(starts) for starts in local])
    if not len(groups):
        raise ValueError(
            f"No sequence is long enough: the longest has {counts.max()} steps, window={window} "
            f"and offset={offset}. Take a shorter window or offset, or keep_tail=True."
        )
    starts = first[groups] + np.concatenate(local).astype(np.int64)
    lengths = np.minimum(window or np.iinfo(np.int64).max, (first + counts)[groups] - starts)
    return Windows(starts, lengths, np.zeros_like(starts), groups, window or int(lengths.max()))


def _consecutive_starts(n_steps: int, window: int | None, offset: int, keep_tail: bool) -> np.ndarray:
    if window is None:
        return np.arange(offset, n_steps)[:1]
    if keep_tail:
        return np.arange(offset, n_steps, window)
    # With an offset we follow the paper's own cutting of its data, range(1, rows - 50, 50), so that its
    # windows come out the same: it leaves out a last window that would end exactly at the last row.
    return np.arange(offset, n_steps - window + (offset == 0), window)


def cut_windows(counts: np.ndarray, window: int | None = None) -> Windows:
    """Overlapping windows of sequences with these numbers of steps; None chooses the window from them."""
    if window is None:
        window = choose_window(counts)
    check_number("window", window, 1, whole=True)
    window = min(int(window), int(counts.max()))
    stride = window - int(window * OVERLAP)
    n_windows = 1 + np.ceil(np.maximum(counts - window, 0) / stride).astype(np.int64)
    groups = np.repeat(np.arange(len(counts)), n_windows)
    turn = np.arange(len(groups)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    # The last window ends with the sequence: as long as the others, it knows as much as they do.
    local = np.minimum(turn * stride, np.maximum(counts[groups] - window, 0))
    before = (turn - 1) * stride + window  # where the window before ends
    return Windows(
        starts=(np.cumsum(counts) - counts)[groups] + local,
        lengths=np.minimum(counts[groups], window),
        warm_up=np.where(turn > 0, before - local, 0),
        groups=groups,
        window=window,
    )


def choose_window(counts: np.ndarray) -> int:
    """Whole sequences up to 200 steps, else 100; less where most sequences are far shorter than a few."""
    longest = int(counts.max())
    window = longest if longest <= WHOLE else USUAL
    while window > SMALLEST and _padded_steps(counts, window) > MOST_PADDING * counts.sum():
        window //= 2
    return window


def _padded_steps(counts: np.ndarray, window: int) -> float:
    stride = window - int(window * OVERLAP)
    return float(window * (1 + np.ceil(np.maximum(counts - window, 0) / stride)).sum())


def say_windows(n_windows: int, window: int, counts: np.ndarray) -> str:
    """A sentence on how sequences of so many steps are cut."""
    if n_windows == len(counts):
        return f"Sequences have up to {counts.max()} steps and stay whole."
    long = int((counts > window).sum())
    subject, verb = ("sequences", "are") if long > 1 else ("sequence", "is")
    return (
        f"{long} {subject} longer than {window} steps {verb} cut "
        "into windows of that length, a quarter of which overlap; every row gets its result from one window."
    )
