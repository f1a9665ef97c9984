"""Reasons of flags: what speaks for another label is kept in one whole number, and written in words at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from labeltide.inference.explanations import Support, explain

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
    shift = 0
    for name, bits in BITS.items():
        whole = np.minimum(np.asarray(parts[name]).astype(np.int64), 2**bits - 1)
        packed |= whole.astype(np.uint64) << np.uint64(shift)
        shift += bits
    return packed


def unpack_support(packed: np.ndarray) -> Support:
    """What `pack_support` packed; where the features speak for another label than the suggested one, it is -1."""
    parts, shift = {}, 0
    for name, bits in BITS.items():
        parts[name] = ((packed >> np.uint64(shift)) & np.uint64(2**bits - 1)).astype(np.int64)
        shift += bits
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


def write_reasons(packed: np.ndarray, flagged: np.ndarray, classes: Sequence[str]) -> pa.DictionaryArray:
    """A sentence for every flagged label, null for the others; each distinct sentence is written once.

    Nothing is packed, and zero unpacks to equal labels, where no other label is likelier.
    """
    distinct, place = np.unique(packed[flagged], return_inverse=True)
    # Parquet's writer leaves bytes of its memory in the file where a dictionary repeats a value.
    sentences = pa.array(explain(unpack_support(distinct), list(classes)), pa.string()).dictionary_encode()
    indices = np.full(len(packed), -1, dtype=np.int32)
    indices[flagged] = sentences.indices.to_numpy()[place.reshape(-1)]
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~flagged), sentences.dictionary)
