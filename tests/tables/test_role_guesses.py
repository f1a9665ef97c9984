"""Roles are guessed where they are plain, every guess is said, and what is not plain names the way out."""

import datetime

import pyarrow as pa
import pytest

from labeltide.tables.roles import Request, find_columns

START = datetime.datetime(2026, 3, 2)


def table(**columns):
    """A table of four rows: names give the kind of column, None takes a number that changes."""
    kinds = {
        "number": [0.5, 1.5, 0.25, 9.0],
        "whole": [3, 1, 2, 5],
        "rising": [0, 1, 2, 3],
        "text": ["a", "b", "a", "b"],
        "two": ["p", "p", "q", "q"],
        "four": ["1", "2", "3", "4"],
        "moment": [START + datetime.timedelta(hours=k) for k in range(4)],
        "list": [[1], [2], [3], [4]],
    }
    return pa.table({name: kinds[kind] for name, kind in columns.items()})


PLAIN = {"person": "two", "when": "rising", "label": "text", "v": "number"}


def found(columns, **asked):
    return find_columns(table(**columns), Request(**asked))


def test_a_plain_table_needs_no_options():
    roles = found(PLAIN)
    assert (roles.sequence, roles.time, roles.label, roles.features) == (["person"], "when", ["label"], ["v"])
    assert roles.messages == [
        "The label is read from 'label'.",
        "The sequence is read from 'person'.",
        "The time is read from 'when'.",
    ]


def test_what_is_asked_for_is_not_guessed():
    roles = found(PLAIN, sequence="person", time="when", label="label", features="v")
    assert roles.messages == []
    assert roles.features_named


@pytest.mark.parametrize(
    ("columns", "role", "expected"),
    [
        ({"subject_id": "two", "stage": "text"}, "sequence", ["subject_id"]),
        ({"night": "four", "subject": "two", "stage": "text"}, "sequence", ["night"]),
        ({"study_patient": "two", "stage": "text"}, "sequence", ["study_patient"]),
        ({"id": "two", "stage": "text"}, "sequence", ["id"]),
        ({"id": "four", "stage": "text"}, "sequence", []),  # counts rows
        ({"stage": "text", "x": "number"}, "sequence", []),
        ({"stage": "text", "state_of_mind": "text"}, "label", ["stage"]),
        ({"sleep_stage": "text", "true_label": "text"}, "label", ["sleep_stage"]),
        ({"label": "text", "stage": "text"}, "label", ["label"]),
        ({"scorer_1": "text", "scorer_2": "text"}, "label", ["scorer_1", "scorer_2"]),
        ({"label": "text", "rater": "two", "t": "rising"}, "annotator", "rater"),
        ({"label": "text", "scored": "moment"}, "time", "scored"),
        ({"label": "text", "timestamp": "moment", "epoch": "rising"}, "time", "timestamp"),
        ({"label": "text", "time": "moment", "t": "rising"}, "time", "time"),
        ({"label": "text", "elapsed_time": "rising"}, "time", "elapsed_time"),
        ({"label": "text", "reaction_time": "number"}, "time", None),  # it does not rise
    ],
)
def test_guesses(columns, role, expected):
    assert getattr(found(columns), role) == expected


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (
            {"a": "number"},
            r"Cannot tell which column holds the label: no column name suggests it\. .*option label .*are: 'a'\.",
        ),
        ({"label_a": "text", "label_b": "text"}, r"it could be any of 'label_a' and 'label_b'.*with commas between"),
        ({"stage": "text", "activity": "text"}, r"it could be any of 'stage' and 'activity'"),
        ({"label": "text", "night": "two", "person": "text"}, r"it could be any of 'night' and 'person'.*--sequence"),
        ({"label": "text", "epoch": "rising", "step": "whole"}, r"holds the time: .*--time"),
        (
            {"label": "text", "begin": "moment", "end": "moment"},
            r"holds the time: it could be any of 'begin' and 'end'",
        ),
        ({"label": "text", "t": "rising", "rater": "two", "coder": "two"}, r"which column holds the annotator"),
        ({"label": "text", "rater": "two"}, r"With annotators \('rater'\) the table needs a time column"),
    ],
)
def test_what_is_not_plain_is_refused_with_the_way_out(columns, match):
    with pytest.raises(ValueError, match=match):
        found(columns)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"label": "nowhere"}, r"no column 'nowhere'. It has: 'person', 'when', 'label' and 'v'"),
        ({"label": "v", "features": "v"}, r"A column can play one role. Got 'v' for both label and features"),
        ({"label": "label,v", "annotator": "person"}, r"Several label columns hold one annotator each"),
        ({"features": ""}, r"features must be columns by their names"),
        ({"features": ["v", "v"]}, r"without repeats"),
        ({"time": ["when"]}, r"time must be one column, by its name"),
        ({"label": 3}, r"label must be columns by their names"),
    ],
)
def test_impossible_requests_are_refused(asked, match):
    with pytest.raises(ValueError, match=match):
        found(PLAIN, **asked)


def test_a_column_that_holds_lists_plays_no_role():
    with pytest.raises(ValueError, match=r"The label column 'v' must hold one value in each row. Got list"):
        found({**PLAIN, "v": "list"}, label="v")


def test_commas_part_columns_unless_a_column_has_that_name():
    assert found({**PLAIN, "w": "number"}, features=" v , w ").features == ["v", "w"]
    assert found({**PLAIN, "v,w": "number", "w": "number"}, features="v,w").features == ["v,w"]
    assert found({**PLAIN, "b": "text"}, label="label,b").label == ["label", "b"]
    assert found(PLAIN, sequence="person,v").sequence == ["person", "v"]


def test_what_names_counts_or_tells_is_no_feature():
    columns = {**PLAIN, "patient": "two", "label_fixed": "text", "true_state": "text", "index": "rising", "y": "number"}
    roles = found(columns, sequence="person")
    assert roles.features == ["v", "y"]
    left_out = [sentence for sentence in roles.messages if "left" in sentence]
    assert left_out == [
        "'patient' was left out of the features: a name or identifier is not a measurement.",
        "'label_fixed' and 'true_state' were left out of the features: a column of labels or true labels would give "
        "the answer away.",
        "'index' was left out of the features: a row number is not a measurement.",
    ]


def test_other_annotators_are_no_features():
    columns = {"person": "two", "t": "rising", "scorer_1": "text", "scorer_2": "text", "v": "number"}
    assert found(columns, label="scorer_1").features == ["v"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Aktivität_2", ["Gehen", "liegen ", "Gehen", "Liegen"]),
        ("zweite", ["Gehen", "Liegen", None, "Gehen"]),
        ("Vorher", ["Liegen", "Gehen", "Gehen", "Liegen"]),
        ("Aktivität_Code", [2, 1, 2, 1]),
        ("Aktivität (Anna)", [2.0, 1.0, None, 1.0]),
        ("dritte", pa.array(["Gehen", "Liegen", None, "Gehen"]).dictionary_encode()),
    ],
)
def test_a_second_column_of_labels_never_becomes_a_feature(name, values):
    table = pa.table({"Aktivität": ["Gehen", "Liegen", "Gehen", "Liegen"], name: values, "v": [0.1, 0.2, 0.3, 0.4]})
    roles = find_columns(table, Request(label="Aktivität"))
    assert roles.features == ["v"]
    assert any(f"{name!r} was left out of the features" in each for each in roles.messages)
    assert find_columns(table, Request(label="Aktivität", features=f"{name},v")).features == [name, "v"]


@pytest.mark.parametrize(
    ("sequence", "time", "label"),
    [
        ("Versuchstier", "Zeit", "Aktivität"),
        ("Proband_Nr", "Zeitstempel", "Verhalten"),
        ("sujet", "horodatage", "état"),
        ("Participante", "tiempo", "clase"),
        ("soggetto", "secondo", "attivita\N{COMBINING GRAVE ACCENT}"),
        ("proefpersoon", "tijd", "gedrag"),
        ("track", "second", "label"),
    ],
)
def test_other_languages_name_roles_too(sequence, time, label):
    roles = found({sequence: "two", time: "rising", label: "text", f"{label}_code": "whole", "v": "number"})
    assert (roles.sequence, roles.time, roles.label, roles.features) == ([sequence], time, [label], ["v"])


def test_flags_and_codes_that_share_values_with_numeric_labels_stay_features():
    table = pa.table({"code": [0, 1, 0, 1], "code_2": [0, 1, 1, 1], "wet": [0, 1, 1, 0], "v": [0.1, 0.2, 0.3, 0.4]})
    assert find_columns(table, Request(label="code")).features == ["wet", "v"]
