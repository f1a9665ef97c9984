"""`Sequences`: features, recorded labels (or gaps) and a clock for every step, with names and lengths."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._display import ShortRepr


@dataclass(frozen=True, repr=False)
class Sequences(ShortRepr):
    """Sequences of equal or unequal length, with recorded labels and a clock.

    Build one with `from_arrays`, `from_table` or `labeltide.make_sequences`, which check what they are given.

    Attributes
    ----------
    features : float32 array of shape (n, steps, features)
        Zero on padding, which stands at the end of short sequences.
    labels : int8 array of shape (n, steps, annotators)
        Codes into `classes`; -1 where nothing was recorded.
    lengths : int64 array of shape (n,)
    clock : float64 array of shape (n, steps)
        The moment to which each step belongs, on which the noise depends.
    ids : tuple of n hashable names
        The recording, person or night a sequence was cut from; several windows may share one. They are the
        `clusters` of `fit`.
    classes : tuple of hashable names
    clean_labels : int8 array of shape (n, steps), optional
        Kept aside for simulations and benchmarks. No `fit` ever sees them.
    times : array of shape (n, steps), optional
        The user's own time stamps.
    annotators : tuple of hashable names, optional
        Who stands where along the annotator axis of `labels`.

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> data = lt.Sequences.from_arrays(np.zeros((1, 3, 2)), [["rest", "walk", None]], ids=["p1"])
    >>> data.classes, data.labels[..., 0].tolist()
    (('rest', 'walk'), [[0, 1, -1]])
    """

    features: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    clock: np.ndarray
    ids: tuple[Hashable, ...]
    classes: tuple[Hashable, ...]
    clean_labels: np.ndarray | None = None
    times: np.ndarray | None = None
    annotators: tuple[Hashable, ...] | None = None

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        clock: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        ids: Sequence[Hashable] | None = None,
        classes: Sequence[Hashable] | None = None,
    ) -> Self:
        """Check arrays and name the classes.

        Parameters
        ----------
        X : array of shape (n, steps, features)
        y : array of shape (n, steps) or (n, steps, annotators)
            Labels of any hashable type; missing = -1 for whole numbers, None or NaN otherwise.
        clock : array of shape (n, steps) or (steps,), optional
            When left out, 0 at the first step and 1 at the last of the longest sequence.
        lengths : array of shape (n,), optional
        ids : n names, optional
        classes : 2 to 127 different names in the order of their codes, optional
            The distinct labels of `y`, sorted, when left out.
        """
        features, counts = _validation.check_features(X, lengths)
        n, n_steps = features.shape[:2]
        labels = _validation.check_labels(y, n, n_steps)
        present = _validation.steps_mask(counts, n_steps)[..., None] & ~_validation.missing_labels(labels)
        if classes is None:
            names = _validation.find_classes(labels, present)
        else:
            names = _validation.check_classes(classes, "The list of classes")
        if ids is not None and len(ids) != n:
            raise ValueError(f"ids must be {n} names, one per sequence. Got {len(ids)}.")
        return cls(
            features=features,
            labels=_validation.encode_labels(labels, present, names),
            lengths=counts,
            clock=_validation.check_clock(clock, counts, n_steps),
            ids=tuple(range(n)) if ids is None else tuple(ids),
            classes=names,
        )

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        sequence: str | Sequence[str],
        time: str,
        label: str,
        features: str | Sequence[str],
        annotator: str | None = None,
        clock: str | None = None,
        clean: str | None = None,
        zscore: str | Sequence[str] | None = None,
        window: int | None = None,
        offset: int = 0,
        keep_tail: bool = True,
        missing: Hashable | Sequence[Hashable] | None = None,
    ) -> Self:
        """Read a table with one row per step, in any order of rows.

        Sequences keep their order of first appearance. The classes are the distinct labels of the whole
        table, also of rows that no window keeps.

        Parameters
        ----------
        table : data frame or path
            pandas, polars, pyarrow or anything else narwhals reads; or a file: .parquet, .csv,
            .tsv (both also with .gz), .arrow, .feather or .ipc.
        sequence : column, or several columns
            The recording, person or night. Several columns give ids that are tuples.
        time : column of numbers, datetimes or strings
            Orders the steps of a sequence. Datetimes with a time zone are kept in UTC.
        label : column of any hashable type
            Null or NaN where nothing was recorded; see also `missing`.
        features : column, or several columns, of finite numbers
        annotator : column, optional
            Who gave the label, where rows of the same sequence and time hold the labels of several people.
            The annotator axis follows their sorted names, kept as `annotators`.
        clock : column of numbers or datetimes, optional
            Datetimes become days since the earliest in the table. When left out: the position in the
            sequence or window, in [0, 1].
        clean : column, optional
            Labels known to be right, kept aside as `clean_labels`.
        zscore : column, or several columns, optional
            Centre and scale each feature (population standard deviation) within each group of these columns,
            over all steps before windows are cut; what is constant in a group becomes zero there.
            "sequence" stands for the columns of `sequence`.
        window : int, optional
            Cut sequences into consecutive windows of this many steps. Whole sequences when left out.
        offset : int
            The number of first steps to leave out of each sequence.
        keep_tail : bool
            Keep the rest of a sequence as a shorter window. When False only full windows are kept, and a
            positive offset follows the paper's rule, ``range(offset, rows - window, window)``, so that its
            windows come out the same: it leaves out a last window that would end exactly at the last row.
        missing : label, or several labels, optional
            Labels that stand for a missing one, such as -1; "none" where no label does. When left out, texts such as
            "?" and "unknown" do, and -1 among whole numbers where it is rare and stands apart from the others; a
            warning says so.
        """
        from labeltide.tables.windows import read_sequences  # here, so that arrays need no table library

        fields = read_sequences(
            table,
            sequence=sequence,
            time=time,
            label=label,
            features=features,
            annotator=annotator,
            clock=clock,
            clean=clean,
            zscore=zscore,
            window=window,
            offset=offset,
            keep_tail=keep_tail,
            missing=missing,
        )
        return cls(**fields)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def mask(self) -> np.ndarray:
        """True on real steps, False on padding: shape (n, steps)."""
        return _validation.steps_mask(self.lengths, self.features.shape[1])

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Class names in place of codes; None where nothing was recorded."""
        names = (*self.classes, None)
        return np.fromiter(names, dtype=object, count=len(names))[codes]  # np.array would unpack tuples

    def take(self, rows: ArrayLike) -> Self:
        """The given sequences, by position or by a mask."""
        index = np.arange(len(self))[np.asarray(rows)]
        taken: dict[str, Any] = {name: v[index] for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **taken, ids=tuple(self.ids[i] for i in index))
