"""Names of columns are read as a person reads them."""

import pytest

from labeltide.tables import words


@pytest.mark.parametrize(
    ("name", "expected"),
    [("personID_2", ["person", "id", "2"]), ("Sleep stage", ["sleep", "stage"]), ("<b>", ["b"]), ("", []), ("😀", [])],
)
def test_a_name_is_cut_into_words(name, expected):
    assert words.words(name) == expected


@pytest.mark.parametrize("name", ["person", "Person", "person_id", "personId", "PERSON NAME", "subject_no", "pid"])
def test_names_of_sequences_are_known_in_any_spelling(name):
    assert words.means(name, words.SEQUENCES)


@pytest.mark.parametrize("name", ["personality", "record_length", "", "😀", "id"])
def test_other_names_are_not(name):
    assert not words.means(name, words.SEQUENCES)


@pytest.mark.parametrize("name", ["", " ", "index", "Unnamed: 0", "__index_level_0__", "row"])
def test_saved_indices_count_rows(name):
    assert words.is_number_of_row(name)


@pytest.mark.parametrize("name", ["😀", "12", "glycaemic_index", "level_0", "=@"])
def test_other_columns_do_not_count_rows(name):
    assert not words.is_number_of_row(name)
