"""How columns, table rows and values are named in sentences."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from unicodedata import combining, normalize

import numpy as np

_LONGEST = 60


def quoted(names: Sequence[object], most: int = 12) -> str:
    """Names for a sentence, each in quotes and not too long, the first of them where there are many."""
    shown = [repr(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...") for text in map(str, names[:most])]
    if len(names) > most:
        return ", ".join(shown) + f", ... ({len(names)} in all)"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def left_out(names: Sequence[object], why: str) -> str:
    """Which columns are no features, as a sentence."""
    return f"{quoted(names)} {'were' if len(names) > 1 else 'was'} left out of the features: {why}."


def name_rows(rows: np.ndarray, most: int = 5) -> str:
    """Table rows by their number, counted from 0."""
    shown = ", ".join(str(row) for row in rows[:most])
    more = f", ... ({len(rows)} in all)" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def unique_texts(values: Iterable[object]) -> list[str]:
    """A distinct text for every value, valid as UTF-8."""
    values = list(values)
    unique = [_text(value) for value in values]
    if len(set(unique)) < len(unique):
        unique = [_text(repr(value)) for value in values]
    seen: dict[str, int] = {}
    for index, text in enumerate(unique):
        while unique[index] in seen:
            seen[text] += 1
            unique[index] = f"{text} ({seen[text]})"
        seen[unique[index]] = 1
    return unique


def _text(value: object) -> str:
    text = " / ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text.encode("utf-8", "replace").decode()


# The vocabulary of column names: which role a column may play by its name, and which texts are no labels.

_VOCABULARY = tomllib.loads((Path(__file__).parent / "vocabulary.toml").read_text("utf-8"))


def _words_of(role: str) -> frozenset[str]:
    return frozenset(word for text in _VOCABULARY[role].values() for word in text.split())


SEQUENCES, TIMES, LESSER_TIMES = map(_words_of, ("sequences", "times", "lesser_times"))
LABELS, LESSER_LABELS, LABELS_WITH_MORE = map(_words_of, ("labels", "lesser_labels", "labels_with_more"))
ANNOTATORS, TRUTHS = map(_words_of, ("annotators", "truths"))
UNRECORDED = frozenset(text for line in _VOCABULARY["unrecorded"].values() for text in line.split(", "))
NUMBERS_OF_ROWS, _IDS = map(_words_of, ("numbers_of_rows", "ids"))


def words(name: str) -> list[str]:
    """The words of a name, in small letters without accents: "PersonenID_2" gives personen, id and 2."""
    plain = "".join(letter for letter in normalize("NFKD", name) if not combining(letter))
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", plain)
    return re.findall(r"[^\W\d_]+|\d+", parts.casefold())


def means(name: str, vocabulary: Iterable[str]) -> bool:
    """Whether the whole name is one of the words, also with "id", "name" or the like beside it."""
    spelled = words(name)
    bare = [word for word in spelled if word not in _IDS] or spelled
    return any("".join(part) in vocabulary for part in (spelled, bare))


def holds(name: str, vocabulary: Iterable[str]) -> bool:
    """Whether any word of the name is one of the words."""
    return means(name, vocabulary) or bool(set(words(name)) & set(vocabulary))


def ends_with(name: str, vocabulary: Iterable[str]) -> bool:
    """Whether the last word of the name, but for "id" and numbers, is one of the words."""
    bare = [word for word in words(name) if word not in _IDS and not word.isdigit()]
    return bool(bare) and bare[-1] in vocabulary


def stem(name: str) -> str:
    """The name without numbers and words such as "code"."""
    bare = [word for word in words(name) if not word.isdigit()]
    return "".join([word for word in bare if word not in _IDS] or bare)


def is_number_of_row(name: str) -> bool:
    """Whether the column only counts rows, as an index that was saved beside the data does."""
    return stem(name) in NUMBERS_OF_ROWS or not name.strip()
