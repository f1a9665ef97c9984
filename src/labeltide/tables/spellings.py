"""Labels that differ by capitals or blanks alone are spellings of one class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from labeltide.tables.intake import is_text, whole
from labeltide.tables.wording import quoted


def join_spellings(table: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """The table with one spelling for each class in the label columns, and what to say.

    The most frequent spelling stands for all, without blanks around it. Single letters keep their capitals: among the
    codes of beats (MIT-BIH), A and a are two classes.
    """
    columns = [name for name in columns if is_text(table.schema.field(name).type)]
    counts: Counter[str] = Counter()
    for name in columns:
        for entry in table[name].value_counts().to_pylist():
            if entry["values"] is not None:
                counts[entry["values"]] += entry["counts"]
    spelled, said = _choose(counts)
    if spelled:
        for name in columns:
            place = table.column_names.index(name)
            table = table.set_column(place, name, _respell(whole(table[name]), spelled))
    return table, said


def _choose(counts: Counter[str]) -> tuple[dict[str, str], list[str]]:
    """The spelling to take for each that is replaced, and a sentence for every class that has several."""
    groups: dict[str, list[str]] = {}
    for text in counts:
        if text.strip():
            groups.setdefault(_key(text), []).append(text)
    spelled: dict[str, str] = {}
    said = []
    for texts in groups.values():
        if len(texts) < 2:
            continue
        bare: Counter[str] = Counter()
        for text in texts:
            bare[_bare(text)] += counts[text]
        best = max(sorted(bare), key=bare.__getitem__)
        others = sorted((text for text in texts if text != best), key=lambda text: (-counts[text], text))
        spelled |= dict.fromkeys(others, best)
        changed = sum(counts[text] for text in others)
        said.append(
            f"I took {quoted(others)} for {quoted([best])} ({changed:,} label{'s' if changed > 1 else ''}): they "
            "differ by capitals or blanks alone. Rename them in the table where they are two classes."
        )
    return spelled, said


def _bare(text: str) -> str:
    return " ".join(text.split())


def _key(text: str) -> str:
    bare = _bare(text)
    return bare if len(bare) == 1 else bare.casefold()


def _respell(array: pa.Array, spelled: dict[str, str]) -> pa.Array:
    encoded = array.dictionary_encode()
    values = [spelled.get(text, text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, array.type).take(encoded.indices)
