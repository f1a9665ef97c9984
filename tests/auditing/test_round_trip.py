"""What a person decided is what is written: audit, issues.csv edited in a spreadsheet, apply, export, read back."""

import csv
import datetime
import io
import re
import unicodedata
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import labeltide as lt
from auditing.stub import use_stub
from labeltide.auditing.apply import apply_decisions, read_typed
from labeltide.exporting.spans import export_audit
from labeltide.recordings.spans.formats import read_spans

ROLES = {"sequence": "person", "time": "minute", "label": "label", "features": "signal"}
PEOPLE, STEPS = 4, 8
CLASSES = [
    ["rest", "walk"],
    ["01", "02"],
    ["NA", "3.50"],
    ["1e5", "2e5", "x"],
    ["=1+1", "@home", "-x"],
    ["ok", "right"],
    ["caf\u00e9", "the\u0301"],
    ["1", "01", "b"],
    ["2024-01-05", "2024-01-06T10:00"],
    [0.5, 1.0, 2.25],
    [1 / 3, 2 / 3],
    [-1, 0, 1],
    [1, 2, 10],
    [True, False],
    [datetime.date(2024, 1, 5), datetime.date(2024, 2, 6)],
    [Decimal("1.50"), Decimal("2.00")],
    [10**17, 10**17 + 1],
]
SEQUENCES = [
    "p0",
    "p1",
    "p2",
    "p0 ",
    " p1",
    "1e5",
    "100000",
    "2024-01-05T10:00",
    "007",
    "7",
    "-1",
    "NA",
    "=1+1",
    "3.50",
]


@pytest.fixture(autouse=True, scope="module")
def stub():
    with pytest.MonkeyPatch.context() as patch:
        use_stub(patch)
        yield


def make_study(classes, sequences, is_category=False, is_dated=False):
    """A small table whose labels alternate, so that the stub flags some of them."""
    labels = [classes[(row * 7 + row // 5) % len(classes)] for row in range(len(sequences) * STEPS)]
    kind = pa.decimal128(6, 2) if isinstance(classes[0], Decimal) else None
    label = pa.array(labels, kind)
    minutes = [step for _ in sequences for step in range(STEPS)]
    start = datetime.datetime(2024, 3, 2, 8)
    times = pa.array([start + datetime.timedelta(minutes=m) for m in minutes]) if is_dated else pa.array(minutes)
    return pa.table(
        {
            "person": pa.array([name for name in sequences for _ in range(STEPS)]),
            "minute": times,
            "signal": pa.array([float(row * 7 % 11) for row in range(len(labels))]),
            "label": label.dictionary_encode() if is_category else label,
        }
    )


def as_spreadsheet(text):
    """A cell as a spreadsheet program saves it after it took it for a number or a date."""
    if re.fullmatch(r"[+-]?\d+(\.\d+)?(e\d+)?", text):
        return f"{float(text):.6G}" if len(text) > 12 or "e" in text else f"{float(text):g}"
    moment = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d:\d\d)(?::00)?)?", text)
    if moment:
        return f"{moment[3]}.{moment[2]}.{moment[1]}" + (f" {moment[4]}" if moment[4] else "")
    return text


def edit(path, type_verdict, rewrites):
    """Type a verdict into every line; what was typed, by row."""
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline="")))
    typed = {}
    for line in rows[1:]:
        typed[int(line[rows[0].index("row")])] = line[-1] = type_verdict(dict(zip(rows[0], line, strict=True)))
    if rewrites:
        rows[1:] = [[as_spreadsheet(cell) for cell in line] for line in rows[1:]]
    sink = io.StringIO()
    csv.writer(sink, delimiter=";" if rewrites else ",").writerows(rows)
    path.write_text(sink.getvalue(), "utf-8-sig")
    return typed


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    classes=st.sampled_from(CLASSES),
    sequences=st.lists(st.sampled_from(SEQUENCES), min_size=2, max_size=PEOPLE, unique=True),
    is_category=st.booleans(),
    is_dated=st.booleans(),
    rewrites=st.booleans(),
    draws=st.data(),
)
def test_what_a_person_decided_is_what_is_written(
    tmp_path_factory, classes, sequences, is_category, is_dated, rewrites, draws
):
    folder = tmp_path_factory.mktemp("any")
    table = make_study(classes, sequences, is_category and not isinstance(classes[0], Decimal), is_dated)
    parquet.write_table(table, folder / "study.parquet")
    audit = lt.audit(folder / "study.parquet", out=folder / "audit", fdr=0.8, **ROLES)
    names = audit.summary["table"]["classes"]
    lines = {line["row"]: line for line in parquet.read_table(folder / "audit" / "labels.parquet").to_pylist()}
    # What is also a word, as a class called ok is, must be typed as a class.
    choices = st.sampled_from(
        ["", "keep", "suggested", *(f"class:{name}" if name in ("ok", "right") else name for name in names)]
    )
    typed = edit(folder / "audit" / "issues.csv", lambda line: draws.draw(choices), rewrites)
    expected = {}
    for row, verdict in typed.items():
        words = {"keep": lines[row]["recorded"], "suggested": lines[row]["suggested"], "": None}
        expected[row] = words.get(verdict, verdict.removeprefix("class:"))
    decided = {row: label for row, label in expected.items() if label is not None}
    if not decided:
        return
    # 1 may be what is left of 01, and six digits do not tell large numbers apart: an error then, never another label.
    done, error = apply_or_error(folder)
    if error:
        assert {"1", "01"} <= set(names) or max(map(len, names)) > 12
        assert re.search(r"in line \d+ \(row \d+\)", error)
        return
    values = dict(zip(names, sorted(classes, key=lambda value: names.index(name_of(value, names))), strict=True))
    written = parquet.read_table(folder / "new.parquet")["label"].to_pylist()
    assert {row: written[row] for row in decided} == {row: values[label] for row, label in decided.items()}
    kept = sum(label == lines[row]["recorded"] for row, label in decided.items())
    assert (done.kept_by_reviewers, done.changed_by_reviewers) == (kept, len(decided) - kept)
    exported = export_audit(folder / "audit", "csv", folder / "spans", "corrected")
    spans = read_spans(exported.files[0]).spans.to_pylist()
    recordings = {span["recording"] for span in spans}
    assert len(recordings) == len(sequences)
    for row, label in decided.items():
        name, onset = lines[row]["sequence"], 60.0 * (row % STEPS)
        name = name if name in recordings else name.strip()  # blanks stay where they tell two recordings apart
        at = [s for s in spans if s["recording"] == name and s["onset"] <= onset < s["onset"] + s["duration"]]
        assert [span["label"] for span in at] == [label], (name, onset)


def apply_or_error(folder):
    try:
        return apply_decisions(folder / "audit", folder / "new.parquet", above=0.5), ""
    except ValueError as error:
        return None, str(error)


def name_of(value, names):
    """The class of a value, among the names of the audit."""
    texts = {unicodedata.normalize("NFC", str(value)), str(float(value)) if isinstance(value, Decimal) else ""}
    return next(name for name in names if name in texts)


@pytest.mark.parametrize(
    ("verdict", "classes"), [("ok", ["ok", "wrong"]), ("suggested", ["suggested", "x"]), ("?", ["?", "x"])]
)
def test_a_class_that_is_called_like_a_word_is_never_guessed(tmp_path, verdict, classes):
    parquet.write_table(make_study(classes, ["p0", "p1"]), tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=tmp_path / "audit", fdr=0.8, **ROLES)
    edit(tmp_path / "audit" / "issues.csv", lambda line: verdict if line["recorded"] != verdict else "", rewrites=False)
    if verdict == "suggested":  # of two classes the suggested one is the class itself
        assert {line["label"] for line in read_typed(tmp_path / "audit")} == {"suggested"}
        return
    with pytest.raises(ValueError, match=rf"could mean the class .*Type class:{re.escape(verdict)} for the class"):
        read_typed(tmp_path / "audit")
    edit(tmp_path / "audit" / "issues.csv", lambda line: f"class:{verdict}", rewrites=False)
    assert {line["label"] for line in read_typed(tmp_path / "audit")} == {verdict}


@pytest.mark.parametrize(
    "classes", [["01", "02"], [0.5, 1.0, 2.25], ["NA", "3.50"], [1 / 3, 2 / 3], [-1, 0, 1]], ids=str
)
@pytest.mark.parametrize("rewrites", [False, True])
def test_labels_marked_ok_are_never_overridden_by_the_model(tmp_path, classes, rewrites):
    table = make_study(classes, ["1e5", "2024-01-05T10:00", "p0"])
    parquet.write_table(table, tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=tmp_path / "audit", fdr=0.8, **ROLES)
    typed = edit(tmp_path / "audit" / "issues.csv", lambda line: "ok", rewrites)
    done = apply_decisions(tmp_path / "audit", tmp_path / "new.parquet", above=0.5)
    assert done.kept_by_reviewers == len(typed) > 5
    written = parquet.read_table(tmp_path / "new.parquet")
    assert all(written["label"][row] == written["label_original"][row] for row in typed)


def audit_with_verdict(tmp_path, change):
    """The folder of an audit in whose issues.csv "ok" is typed, then something is changed in each line."""
    parquet.write_table(make_study(["rest", "walk"], ["p0", "p1"]), tmp_path / "study.parquet")
    folder = tmp_path / "audit"
    lt.audit(tmp_path / "study.parquet", out=folder, fdr=0.8, **ROLES)
    edit(folder / "issues.csv", lambda line: "ok", rewrites=False)
    rows = list(csv.DictReader(io.StringIO((folder / "issues.csv").read_text("utf-8-sig"))))
    sink = io.StringIO()
    writer = csv.DictWriter(sink, rows[0].keys())
    writer.writeheader()
    writer.writerows(row | change(row) for row in rows)
    (folder / "issues.csv").write_text(sink.getvalue(), "utf-8-sig")
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {"recorded": "swim"},
        lambda row: {"sequence": "p9"},
        lambda row: {"row": "999"},
        lambda row: {"annotator": "Ada"},
    ],
)
def test_a_verdict_that_matches_no_line_is_an_error_that_names_it(tmp_path, change):
    folder = audit_with_verdict(tmp_path, change)
    with pytest.raises(ValueError, match=r"in line 2 \(row \d+\) of .*belongs to no label of this audit"):
        read_typed(folder)


def test_a_kept_verdict_that_was_carried_out_in_the_table_is_accepted(tmp_path):
    folder = audit_with_verdict(tmp_path, lambda row: {"verdict": row["suggested"]})
    apply_decisions(folder, tmp_path / "new.parquet")
    table = parquet.read_table(tmp_path / "new.parquet").select(make_study(["a"], ["p"]).column_names)
    parquet.write_table(table, tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=folder, fdr=0.8, **ROLES)
    assert (folder / "issues-edited-1.csv").is_file()
    typed = read_typed(folder)
    assert typed
    assert all(line["label"] == line["recorded"] for line in typed)


def test_two_verdicts_on_one_label_that_differ_are_refused(tmp_path):
    folder = audit_with_verdict(tmp_path, lambda row: {})
    lines = (folder / "issues.csv").read_text("utf-8-sig").splitlines()
    first = next(csv.DictReader(lines[:2]))
    again = lines[1].removesuffix("ok") + ("walk" if first["recorded"] == "rest" else "rest")
    (folder / "issues.csv").write_text("\n".join([*lines, again]), "utf-8-sig")
    with pytest.raises(ValueError, match="Two verdicts on the same label differ"):
        read_typed(folder)


def test_sequences_that_differ_by_blanks_are_two_recordings(tmp_path):
    parquet.write_table(make_study(["rest", "walk"], ["p0", "p0 "]), tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=tmp_path / "audit", **ROLES)
    for to, count in (("csv", 1), ("textgrid", 2), ("edf", 2)):
        done = export_audit(tmp_path / "audit", to, tmp_path / to, "corrected")
        assert len(done.files) == count
        assert all(path.is_file() for path in done.files)
    spans = read_spans(tmp_path / "csv" / "corrected.csv").spans
    assert set(spans["recording"].to_pylist()) == {"p0", "p0 "}


def test_classes_that_differ_by_blanks_stay_two(tmp_path):
    table = make_study(["rest", "walk", "walk "], ["p0", "p1"], is_category=True)
    audit = lt.audit(table, out=tmp_path / "audit", **ROLES)
    if len(audit.summary["table"]["classes"]) == 3:  # where spellings of categories are not joined
        done = export_audit(tmp_path / "audit", "csv", tmp_path / "csv", "corrected")
        assert done.messages == ("The class 'walk ' is written as 'walk (2)'.",)


def test_a_name_with_blanks_around_it_is_exported(tmp_path):
    parquet.write_table(make_study(["rest", "walk"], [" p0", "p1"]), tmp_path / "study.parquet")
    lt.audit(tmp_path / "study.parquet", out=tmp_path / "audit", **ROLES)
    done = export_audit(tmp_path / "audit", "textgrid", tmp_path / "grid", "corrected")
    assert len([path for path in done.files if path.is_file()]) == 2


@pytest.mark.parametrize(("name", "unit"), [("minute", 60), ("t_ms", 0.001), ("hours", 3600), ("step", None)])
def test_numbers_are_exported_in_the_unit_that_their_column_names(tmp_path, name, unit):
    table = make_study(["rest", "walk"], ["p0", "p1"]).rename_columns(["person", name, "signal", "label"])
    lt.audit(table, out=tmp_path / "audit", **{**ROLES, "time": name})
    done = export_audit(tmp_path / "audit", "csv", tmp_path / "csv", "corrected")
    spans = read_spans(done.files[0]).spans.to_pylist()
    last = max(span["onset"] + span["duration"] for span in spans)
    assert last == pytest.approx(STEPS * (unit or 1))
    assert any("unit of the times" in sentence for sentence in done.messages) == (unit is None)


def test_applying_decisions_to_a_csv_file_keeps_names_as_written(tmp_path):
    study = make_study(["01", "1", "b"], ["007", "7", "1e5", "NA"])
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([study.column_names, *zip(*study.to_pydict().values(), strict=True)])
    lt.audit(path, **ROLES, fdr=0.8, out=tmp_path / "audit")
    edit(tmp_path / "audit" / "issues.csv", lambda line: "01", rewrites=False)
    applied = apply_decisions(tmp_path / "audit", tmp_path / "new.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "new.csv").read_text("utf-8-sig"))))
    assert applied.rows == len(rows) == len(study)
    assert [row["person"] for row in rows] == study["person"].to_pylist()
    assert [row["label_original"] for row in rows] == study["label"].to_pylist()
    assert {row["label"] for row in rows} <= {"01", "1", "b"}
