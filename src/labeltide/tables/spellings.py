"""Labels that differ by capitals or blanks alone, or name one sleep stage in two ways, are spellings of one class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from labeltide.tables.intake import is_text, whole
from labeltide.tables.wording import quoted

EDF_STAGE = "sleep stage "
STAGES = {  # name in small letters → stage; the long names are those of the EDF+ specification
    f"{before}{name}": stage
    for stage, names in {"W": ("w", "wake"), "N1": ("n1",), "N2": ("n2",), "N3": ("n3",), "R": ("r", "rem")}.items()
    for name in names
    for before in ("", EDF_STAGE, "stage ")
}


def join_spellings(table: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """The table with one spelling for each class in the label columns, and what to say."""
    counts: Counter[str] = Counter()
    for name in columns:
        if is_text(table[name].type):
            counts += count_spellings(table[name])
    spelled, said = choose_spellings(counts)
    return respell(table, columns, spelled), said


def count_spellings(column: pa.ChunkedArray | pa.Array) -> Counter[str]:
    """How often each text stands in a column, in order of appearance."""
    entries = column.value_counts().to_pylist()
    return Counter({entry["values"]: entry["counts"] for entry in entries if entry["values"] is not None})


def choose_spellings(counts: Counter[str]) -> tuple[dict[str, str], list[str]]:
    """The spelling to take for each that is replaced, and a sentence for every class that has several.

    The most frequent spelling stands for all, without blanks around it. Single letters keep their capitals: among the
    codes of beats (MIT-BIH), A and a are two classes. Of several names of one sleep stage, that of
    EDF+ ("Sleep stage W") stands for all, so that all stages are named alike.
    """
    groups: dict[str, list[str]] = {}
    key = _stage_key if are_stages(counts) else _key
    for text in counts:
        if text.strip():
            groups.setdefault(key(text), []).append(text)
    spelled: dict[str, str] = {}
    said = []
    for texts in groups.values():
        if len(texts) < 2:
            continue
        bare: Counter[str] = Counter()
        for text in texts:
            bare[_bare(text)] += counts[text]
        alike = len({_key(text) for text in texts}) == 1
        best = max(sorted(bare), key=lambda text: (not alike and text.casefold().startswith(EDF_STAGE), bare[text]))
        others = sorted((text for text in texts if text != best), key=lambda text: (-counts[text], text))
        spelled |= dict.fromkeys(others, best)
        changed = sum(counts[text] for text in others)
        said.append(
            f"I took {quoted(others)} for {quoted([best])} ({changed:,} label{'s' if changed > 1 else ''}): they "
            f"{'differ by capitals or blanks alone' if alike else 'name one sleep stage'}. Rename them in the table "
            "where they are two classes."
        )
    return spelled, said


def are_stages(texts: Iterable[str]) -> bool:
    """Whether labels are sleep stages: two of N1, N2 and N3 are among them."""
    return len({STAGES.get(_key(text).casefold()) for text in texts} & {"N1", "N2", "N3"}) >= 2


def respell(table: pa.Table, columns: Sequence[str], spelled: Mapping[str, str]) -> pa.Table:
    """The table with other spellings in some columns, which may be dictionary-encoded."""
    for name in columns if spelled else ():
        if name in table.column_names and _holds_text(table[name].type):
            table = table.set_column(table.column_names.index(name), name, _respell(whole(table[name]), spelled))
    return table


def _bare(text: str) -> str:
    return " ".join(text.split())


def _key(text: str) -> str:
    bare = _bare(text)
    return bare if len(bare) == 1 else bare.casefold()


def _stage_key(text: str) -> str:
    return STAGES.get(_key(text).casefold(), _key(text))


def _holds_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _respell(array: pa.Array, spelled: Mapping[str, str]) -> pa.Array:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = [spelled.get(text, text) for text in encoded.dictionary.to_pylist()]
    known = pa.array(values, encoded.dictionary.type)
    return pa.DictionaryArray.from_arrays(encoded.indices, known) if encoded is array else known.take(encoded.indices)
