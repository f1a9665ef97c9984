"""Whatever the table, an audit gets its arrays or a sentence, and every row comes back once."""

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from auditing.lines import lines_of, of_lines
from auditing.tables import HOSTILE, studies, tables
from labeltide_bench.tables import read_audit_table

OPTIONS = ["sequence", "time", "label", "features", "annotator", "clock", "trusted"]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def read_or_sentence(table, **options):
    """What was read, or the sentence that says why not."""
    try:
        return read_audit_table(table, **options), ""
    except ValueError as error:
        messages = str(error)
        assert messages[-1] in ".?", messages
        assert messages[0].isupper() or messages.split()[0] in OPTIONS, messages
        assert len(messages) < 3000
        return None, messages


def assert_whole(audit):
    """The laws of every audit table."""
    n, n_steps = audit.index.shape
    assert audit.features.shape[:2] == audit.clock.shape == (n, n_steps)
    assert audit.features.dtype == np.float32
    assert audit.labels.dtype == audit.fit_labels.dtype == np.int8
    assert np.isfinite(audit.features).all()
    assert np.isfinite(audit.clock).all()
    assert len(audit.feature_names) == len(set(audit.feature_names)) == audit.features.shape[2]
    padding = audit.index < 0
    assert (padding == (np.arange(n_steps) >= audit.lengths[:, None])).all()
    assert (audit.features[padding] == 0).all()
    assert (audit.labels[padding] == -1).all()
    # Every step belongs to one place, and what is put on places comes back on rows.
    assert (audit.index.reshape(-1)[audit.flat_index] == np.arange(len(audit.flat_index))).all()
    assert (of_lines(audit, audit.index) == audit.line_step).all()
    counted = np.bincount(audit.index[~padding], minlength=len(audit.flat_index))
    assert counted.min() >= 1
    # No label counts twice in training, and none is lost.
    lines = lines_of(audit)
    n_recorded = len(lines) - lines["recorded"].null_count
    assert (audit.fit_labels >= 0).sum() == n_recorded == audit.n_labels
    assert len(lines) == len(audit.line_row)
    assert (np.unique(audit.line_row) == np.arange(audit.n_rows)).all()
    assert lines["row"].to_pylist() == sorted(lines["row"].to_pylist())


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(table=tables(), data=st.data())
def test_any_table_gives_arrays_or_a_sentence(table, data):
    there = list(getattr(table, "column_names", getattr(table, "columns", [])))
    roles = data.draw(st.lists(st.sampled_from(OPTIONS), unique=True))
    choices = st.sampled_from([*there, *HOSTILE, "day_of_week", "days"])
    options = {role: data.draw(choices) for role in roles}
    audit, _ = read_or_sentence(table, **options, window=data.draw(st.sampled_from([None, 1, 3])))
    if audit is not None:
        assert_whole(audit)
        assert audit.n_rows == len(table)


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(
    table=studies(),
    window=st.none() | st.integers(1, 10),
    annotator=st.booleans(),
    features=st.sampled_from([None, "v", "v,t"]),
    clock=st.sampled_from([None, "t"]),
)
def test_a_study_comes_back_row_by_row(table, window, annotator, features, clock):
    options = {"annotator": "who"} if annotator else {"annotator": None}
    audit, messages = read_or_sentence(
        table, sequence="s", time="t", label="y", features=features, clock=clock, window=window, **options
    )
    if audit is None:
        excuses = (
            "two classes",
            "must hold labels",
            "may occur once",
            "cannot be used",
            "one annotator, an audit",
            "NUL",
        )
        assert any(part in messages for part in excuses), messages
        return
    assert_whole(audit)
    assert lines_of(audit)["recorded"].to_pylist() == table["y"].to_pylist()
    assert lines_of(audit)["sequence"].to_pylist() == table["s"].to_pylist()
    assert lines_of(audit)["time"].to_pylist() == [str(cell) for cell in table["t"].to_pylist()]
    if annotator:
        assert lines_of(audit)["annotator"].to_pylist() == table["who"].to_pylist()
    if "v" in audit.feature_names:
        signal = audit.signal(audit.feature_names.index("v"))[audit.line_step]
        np.testing.assert_allclose(signal, table["v"].to_numpy(), atol=1e-4)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(table=studies(), end=st.sampled_from(["parquet", "csv", "csv.gz", "tsv", "feather"]))
def test_any_file_gives_arrays_or_a_sentence(tmp_path_factory, table, end):
    path = tmp_path_factory.mktemp("file") / f"study.{end}"
    try:
        write(table, path)
    except (pa.ArrowException, ValueError):
        return  # this kind of file cannot hold such a table
    audit, _ = read_or_sentence(path, sequence="s", time="t", label="y", annotator="who")
    if audit is not None:
        assert_whole(audit)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=80) | st.text("ab,;\t\n\"'0123456789-=\r", max_size=80).map(str.encode))
def test_any_bytes_called_a_table_give_arrays_or_a_sentence(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("bytes")
    for end in ("parquet", "csv", "csv.gz", "tsv", "arrow"):
        path = folder / f"study.{end}"
        path.write_bytes(content)
        read_or_sentence(path, label="a")


def write(table, path):
    """Write a table in the format that the name of the file says."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, path)
    else:
        with pa.output_stream(path) as sink:
            csv.write_csv(table, sink, csv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ","))
