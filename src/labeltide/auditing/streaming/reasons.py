"""Reasons of flags: what speaks for another label is kept in one whole number, and written in words at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from labeltide.inference.explanations import Support, explain

MOST_KEPT = 200_000  # sentences

# Bits of each part, the first of which marks a label from which the suggested one differs.
BITS = {
    "marked": 1,
    "recorded": 8,
    "suggested": 8,
    "agreeing": 10,
    "neighbours": 10,
    "same": 1,
    "signal_percent": 7,
    "others": 7,
    "wrong_percent": 7,
}
SHIFTS = dict(zip(BITS, accumulate(BITS.values(), initial=0), strict=False))  # bits before each part


def pack_support(support: Support) -> np.ndarray:
    """One number for every label: uint64 of shape (labels,); shares are whole percents, as they are shown."""
    parts = {
        "marked": np.ones(len(support.recorded)),
        "recorded": support.recorded,
        "suggested": support.suggested,
        "agreeing": support.agreeing,
        "neighbours": support.neighbours,
        "same": support.signal == support.suggested,
        "signal_percent": np.rint(100 * support.signal_probability.astype(np.float64)),
        "others": support.others,
        "wrong_percent": np.rint(100 * support.wrong.astype(np.float64)),
    }
    packed = np.zeros(len(support.recorded), dtype=np.uint64)
    for name, bits in BITS.items():
        whole = np.minimum(np.asarray(parts[name]).astype(np.int64), 2**bits - 1)
        packed |= whole.astype(np.uint64) << np.uint64(SHIFTS[name])
    return packed


def unpack_support(packed: np.ndarray) -> Support:
    """What `pack_support` packed; where the features speak for another label than the suggested one, it is -1."""
    parts = {name: _part(packed, name).astype(np.int64) for name in BITS}
    return Support(
        recorded=parts["recorded"],
        suggested=parts["suggested"],
        agreeing=parts["agreeing"],
        neighbours=parts["neighbours"],
        signal=np.where(parts["same"] > 0, parts["suggested"], -1),
        signal_probability=parts["signal_percent"] / 100,
        others=parts["others"],
        wrong=parts["wrong_percent"] / 100,
    )


@dataclass
class Reasons:
    """Writes sentences; those of earlier parts are kept, because Python writes a million of them in two seconds.

    Attributes
    ----------
    _known : what sentences are written from, rising, and the sentences; replaced as a whole, as several threads write
    """

    classes: Sequence[str]
    _known: tuple[np.ndarray, pa.Array] = (np.zeros(0, dtype=np.uint64), pa.array([], pa.string()))

    def write(self, packed: np.ndarray, flagged: np.ndarray) -> pa.DictionaryArray:
        """A sentence for every flagged label, null for the others; each distinct sentence is written once.

        Nothing is packed, and zero unpacks to equal labels, where no other label is likelier.
        """
        coded = pa.array(_shown(packed[flagged])).dictionary_encode()  # several times faster than np.unique
        # Parquet's writer leaves bytes of its memory in the file where a dictionary repeats a value.
        sentences = self._sentences(coded.dictionary.to_numpy()).dictionary_encode()
        indices = np.full(len(packed), -1, dtype=np.int32)
        indices[flagged] = sentences.indices.to_numpy()[coded.indices.to_numpy()]
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~flagged), sentences.dictionary)

    def _sentences(self, packed: np.ndarray) -> pa.Array:
        """A sentence for each of some distinct numbers."""
        numbers, texts = self._known if len(self._known[0]) < MOST_KEPT else Reasons._known
        new = np.setdiff1d(packed, numbers, assume_unique=True)
        if len(new):
            merged = np.concatenate([numbers, new])
            order = np.argsort(merged, kind="stable")
            written = pa.array(explain(unpack_support(new), list(self.classes)), pa.string())
            numbers, texts = merged[order], pa.concat_arrays([texts, written]).take(pa.array(order))
            self._known = numbers, texts
        return texts.take(pa.array(np.searchsorted(numbers, packed)))


def _shown(packed: np.ndarray) -> np.ndarray:
    """Without what a sentence does not say: neighbours where fewer than half agree, a signal for another label."""
    agreeing, neighbours = _part(packed, "agreeing"), _part(packed, "neighbours")
    silent = np.where(2 * agreeing > neighbours, np.uint64(0), _mask("agreeing") | _mask("neighbours"))
    silent |= np.where(_part(packed, "same") > 0, np.uint64(0), _mask("signal_percent"))
    return packed & ~silent


def _part(packed: np.ndarray, name: str) -> np.ndarray:
    return (packed >> np.uint64(SHIFTS[name])) & np.uint64(2 ** BITS[name] - 1)


def _mask(name: str) -> np.uint64:
    return np.uint64((2 ** BITS[name] - 1) << SHIFTS[name])
