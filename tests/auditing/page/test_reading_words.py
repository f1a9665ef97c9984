"""What was read and decided is said in a few aligned lines."""

from labeltide.auditing.page.verdict import reading_line, reading_text

COLUMN = {"name": "pulse", "type": "number", "missing": 3, "levels": None, "role": "feature", "why": ""}
TABLE = {
    "name": "study.csv",
    "rows": 2000,
    "labels": 1990,
    "sequences": 4,
    "overview": [COLUMN, {**COLUMN, "name": "id\x1b[31m", "role": "left out", "why": "names someone"}],
    "messages": ["The sequence is read from 'person'."],
}


def test_every_column_and_every_decision_is_said():
    lines = reading_text(TABLE).splitlines()
    assert lines[0] == "Read       study.csv: 2,000 rows, 1,990 labels, 4 sequences, 2 columns."
    assert lines[2].split() == ["pulse", "number", "3", "many", "feature"]
    assert lines[3].endswith("left out  names someone")
    assert lines[-1] == "  - The sequence is read from 'person'."
    assert "\x1b" not in reading_text(TABLE)
    assert reading_line(TABLE) == "2 columns, 1 of them used; 1 decision"


def test_many_columns_are_cut():
    text = reading_text({**TABLE, "overview": [COLUMN] * 100})
    assert "... and 60 more" in text
