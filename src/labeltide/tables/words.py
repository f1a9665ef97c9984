"""How columns, table rows and values are named in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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


# The vocabulary of column names: which role a column may play by its name.


def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(text.split())


# English, then German, French, Spanish, Italian and Dutch, without accents (see `words`).
SEQUENCES = _vocabulary(
    "sequence seq series person subject subj patient participant user individual animal mouse rat cow pig dog "
    "recording record night session trial visit case volunteer child neonate proband rec pid uid sid track song video "
    "probandin versuchsperson versuchstier vp tier patientin teilnehmer teilnehmerin kuh maus ratte aufnahme nacht "
    "sujet participante souris enregistrement nuit seance sujeto paciente grabacion noche sesion "
    "soggetto paziente partecipante registrazione notte proefpersoon deelnemer dier opname nacht"
)
TIMES = _vocabulary(
    "time timestamp datetime when t ts moment datetimestamp timestep zeit zeitpunkt zeitstempel zeitschritt "
    "temps horodatage tiempo tijd tijdstip"
)
LESSER_TIMES = _vocabulary(
    "date epoch step sample second seconds sec minute minutes frame window bin tick position utc "
    "datum schritt sekunde sekunden minuten epoche seconde secondes fecha segundo minuto secondo"
)
LABELS = _vocabulary("label labels etikett etiquette etiqueta etichetta")
LESSER_LABELS = _vocabulary(
    "stage activity class state annotation behaviour behavior category target phase hypnogram "
    "aktivitat aktivitaet verhalten stadium schlafstadium schlafphase zustand klasse kategorie hypnogramm "
    "stade activite comportement etat classe categorie actividad comportamiento etapa fase estado clase "
    "attivita comportamento stadio stato activiteit gedrag toestand"
)
LABELS_WITH_MORE = _vocabulary("stage class annotation hypnogram stadium klasse stade classe")  # also stage_rk
ANNOTATORS = _vocabulary(
    "annotator scorer rater coder expert labeller labeler reviewer observer judge annotatedby labelledby "
    "beobachter beobachterin kodierer bewerter annotateur codeur observateur codificador observador beoordelaar"
)
# Never guessed for a label or a feature: whoever has the truth says so with `trusted`, or keeps it for a comparison.
TRUTHS = _vocabulary(
    "true truth gold clean correct reference trusted verified consensus groundtruth actual "
    "wahr wahrheit referenz konsens verite verdad referencia verita waarheid"
)
UNRECORDED = _vocabulary(
    "? nan n/a na null #n/a #na unknown unscored unlabelled unlabeled "
    "unbekannt inconnu desconocido sconosciuto onbekend"
)  # stand for a missing label
UNRECORDED |= {"not scored", "sleep stage ?"}
NUMBERS_OF_ROWS = _vocabulary("index row rowid rownumber unnamed indexlevel")
_IDS = _vocabulary("id ids name code number num nr no key")


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
    bare = "".join(word for word in words(name) if not word.isdigit())
    return bare in NUMBERS_OF_ROWS or not name.strip()
