"""Verdicts typed into issues.csv are read back as decisions."""

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import labeltide as lt
from auditing.reviewed import decide
from auditing.tables import make_table
from labeltide.auditing.apply import apply_decisions, is_same_text, read_decided, read_typed
from labeltide.auditing.decisions import audit_identity
from labeltide.auditing.findings import describe_table
from labeltide.tables import files
from labeltide.tables.columns import with_verdicts
from labeltide_bench.tables import read_audit_table

ROLES = {"sequence": "person", "time": "minute", "label": "label", "features": "signal"}
pytestmark = pytest.mark.usefixtures("quick_fit")


@pytest.fixture
def audited(tmp_path):
    """A table in a file, and the folder of its audit."""
    path, folder = tmp_path / "study.csv", tmp_path / "old"
    csv.write_csv(make_table(), path)
    lt.audit(path, out=folder, **ROLES)
    return path, folder


def type_into(folder, verdicts, separator=","):
    """Type verdicts into an issues.csv of the first labels, as a spreadsheet program saves it; these labels."""
    labels = parquet.read_table(folder / "labels.parquet").slice(0, len(verdicts))
    typed = with_verdicts(labels).drop_columns(["verdict"]).append_column("verdict", pa.array(verdicts, pa.string()))
    path = folder / "issues.csv"
    csv.write_csv(typed, path, csv.WriteOptions(delimiter=separator, quoting_style="needed"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return [(each["row"], each["recorded"], each["suggested"]) for each in labels.to_pylist()]


def test_classes_ok_and_suggested_are_verdicts_and_an_empty_cell_is_none(audited):
    _, folder = audited
    first, second, third, _ = type_into(folder, ["Ok", " WALK ", "suggested", "?"])
    found = {line["row"]: line["label"] for line in read_typed(folder)}
    assert found == {first[0]: first[1], second[0]: "walk", third[0]: third[2]}


def test_suggested_is_the_class_that_the_person_saw(audited):
    _, folder = audited
    ((row, _, suggested),) = type_into(folder, ["suggested"])
    lines = (folder / "issues.csv").read_text(encoding="utf-8-sig").splitlines()
    names, cells = lines[0].replace('"', "").split(","), lines[1].split(",")
    other = {"rest": "walk", "walk": "rest"}[suggested]
    cells[names.index("suggested")] = other
    (folder / "issues-edited-1.csv").write_text("\n".join([lines[0], ",".join(cells)]))
    (folder / "issues.csv").unlink()
    assert read_typed(folder)[0] | {"row": row, "label": other} == read_typed(folder)[0]


def test_nothing_typed_is_no_decision(audited):
    _, folder = audited
    assert read_typed(folder) == []
    with pytest.raises(ValueError, match=r"holds no decisions"):
        read_decided(folder)


def test_other_words_are_refused_with_the_words_there_are(audited):
    _, folder = audited
    type_into(folder, ["hm"])
    with pytest.raises(ValueError, match=r"A verdict must be a class .*'ok', 'keep' or 'right'.*Got 'hm' in line 2"):
        read_typed(folder)


def test_an_audit_trusts_typed_verdicts_also_from_a_file_with_semicolons(audited, tmp_path):
    path, folder = audited
    typed = type_into(folder, ["ok", "walk"], separator=";")
    result = lt.audit(path, decisions=folder, out=tmp_path / "new", **ROLES)
    assert result.summary["decisions"]["used"] == len(typed) == 2


def test_verdicts_survive_a_rerun_into_the_same_folder(audited):
    path, folder = audited
    ((row, _, _),) = type_into(folder, ["walk"])
    lt.audit(path, out=folder, **ROLES)
    assert (folder / "issues-edited-1.csv").is_file()
    assert read_typed(folder)[0]["row"] == row


def test_a_reviewer_and_a_typed_verdict_that_differ_are_disputed(audited):
    _, folder = audited
    ((row, _, _), (other, _, _)) = type_into(folder, ["walk", "walk"])
    decide(folder, [("Ada", row, "rest", None), ("Ada", other, "walk", None)])
    decided = read_decided(folder)
    assert decided.n_disputed == 1
    assert decided.lines["row"].to_pylist() == [other]


def test_verdicts_are_applied_to_the_table(audited, tmp_path):
    _, folder = audited
    ((row, _, _),) = type_into(folder, ["walk"])
    apply_decisions(folder, tmp_path / "corrected.csv")
    assert csv.read_csv(tmp_path / "corrected.csv")["label"].to_pylist()[row] == "walk"


def test_other_columns_of_a_csv_table_stay_as_written(audited, tmp_path):
    path, _ = audited
    lines = path.read_text().splitlines()
    texts = ["08:00", "TRUE", "007", "NA"]
    more = ["hour,wet,zip,note", *[",".join(texts)] * (len(lines) - 1)]
    path.write_text("\n".join(f"{line},{end}" for line, end in zip(lines, more, strict=True)) + "\n")
    folder = lt.audit(path, out=tmp_path / "second", **ROLES).folder
    type_into(folder, ["walk"])
    apply_decisions(folder, tmp_path / "corrected.csv")
    kept = files.read_as_written(tmp_path / "corrected.csv", more[0].split(","))
    assert kept.slice(0, 1).to_pylist() == [dict(zip(more[0].split(","), texts, strict=True))]


@pytest.mark.parametrize("heading", ["Verdict", "verdict (mine)", "sep=;", ""])
def test_a_file_without_its_column_of_verdicts_is_refused(tmp_path, heading):
    path = tmp_path / "issues.csv"
    path.write_text(f"row,recorded,{heading}\n1,rest,ok\n")
    with pytest.raises(ValueError, match="one column 'verdict'"):
        read_typed(tmp_path)


@pytest.mark.parametrize(
    ("typed", "written", "same"),
    [
        ("8:00", "08:00", True),
        ("08:00:00", "8:00", True),
        ("8:01", "08:00", False),
        ("WAHR", "True", True),
        ("FALSCH", "False", True),
        ("FAUX", "True", False),
        ("wahr", "Wahrheit", False),
    ],
)
def test_times_of_day_and_translated_truth_values_are_read_as_meant(typed, written, same):
    assert is_same_text(typed, written) is same


@pytest.mark.parametrize(
    ("typed", "written", "same"), [("1,000", "1", False), ("1.000", "1000", False), ("1.0", "1", True)]
)
def test_a_separator_of_thousands_is_never_guessed(typed, written, same):
    assert is_same_text(typed, written) is same


@pytest.mark.parametrize(
    ("typed", "written", "same"),
    [
        ("2024-05-01", "2024-01-05", False),
        ("01.05.2024", "2024-01-05", False),  # with dots the day comes first
        ("05.01.2024", "2024-01-05", True),
        ("05/01/2024", "2024-01-05", True),  # with slashes either may
        ("1/5/24", "2024-01-05", True),
        ("1/13/24", "2024-01-13", True),
        ("24.01.2005", "2005-01-24", True),
        ("05.01.2024", "2005-01-24", False),
        ("05.01.2024 10:00", "2024-01-05T10:00", True),
        ("05.01.2024 10:01", "2024-01-10T05:01", False),
        ("1/5/2024 1:30 PM", "2024-01-05T13:30:00", True),
        ("1/5/2024 12:30 AM", "2024-01-05T00:30:00", True),
        ("2024-01-05T10:00+01:00", "2024-01-05T10:00", False),
        ("13/13/2024", "13/13/2023", False),
    ],
)
def test_dates_are_compared_in_the_order_of_their_parts(typed, written, same):
    assert is_same_text(typed, written) is same


def test_a_date_that_may_mean_two_classes_is_refused(tmp_path):
    table = make_table()
    days = pa.array(["2024-01-05" if label == "rest" else "2024-05-01" for label in table["label"].to_pylist()])
    parquet.write_table(table.set_column(table.column_names.index("label"), "label", days), tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=tmp_path / "audit", **ROLES)
    type_into(tmp_path / "audit", ["05/01/2024"])
    with pytest.raises(ValueError, match="could mean the class '2024-0"):
        read_typed(tmp_path / "audit")


def test_two_frames_of_one_shape_are_two_audits():
    tables = [make_table(seed=seed).drop_columns("truth") for seed in (0, 1, 0)]
    described = [describe_table(table, read_audit_table(table), []) for table in tables]
    described = [{**each, "labels": 240} for each in described]
    first, other, again = (audit_identity({"table": each}) for each in described)
    assert first == again != other


@pytest.mark.parametrize(
    ("typed", "written", "same"),
    [
        ("0.333333333", "0.3333333333333333", True),
        ("0,6667", "0.6666666666666666", True),
        ("0.200000002980232", "0.20000000298023224", True),
        ("0.6666", "0.6666666666666666", False),
        ("2.26", "2.255", False),  # so few digits are never rounded
        ("100000000000000000", "100000000000000001", False),
    ],
)
def test_a_decimal_that_a_spreadsheet_program_rounded_is_recognised(typed, written, same):
    assert is_same_text(typed, written) is same


@pytest.mark.parametrize("column", ["row", "sequence", "recorded", "suggested", "kind", "verdict"])
def test_a_stray_quotation_mark_never_swallows_a_verdict(audited, column):
    _, folder = audited
    type_into(folder, ["walk", "rest", "walk"])
    path = folder / "issues.csv"
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    names, cells = lines[0].replace('"', "").split(","), lines[2].split(",")
    number = names.index(column)
    cells[number] = '"' + cells[number].replace('"', "")
    lines[2] = ",".join(cells)
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"not valid CSV.*quotation mark"):
        read_typed(folder)


def test_verdicts_are_applied_to_columns_of_string_views(tmp_path):
    table = make_table()
    number = table.column_names.index("label")
    table = table.set_column(number, "label", table["label"].cast(pa.string()).cast(pa.string_view()))
    parquet.write_table(table, tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=tmp_path / "audit", **ROLES)
    ((row, _, _),) = type_into(tmp_path / "audit", ["walk"])
    apply_decisions(tmp_path / "audit", tmp_path / "new.parquet")
    assert parquet.read_table(tmp_path / "new.parquet")["label"][row].as_py() == "walk"
