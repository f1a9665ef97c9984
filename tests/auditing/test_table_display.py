"""The audit of a table goes back to the user's own index, values and kind of frame."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import labeltide as lt
from auditing.stub import use_stub
from auditing.tables import make_table
from labeltide.auditing.run import TableAudit

mpl.use("Agg")
DESCRIBED = {"rows": 4, "columns": {"label": "stage", "annotator": None}, "annotators": None}


@pytest.fixture
def stub(monkeypatch):
    use_stub(monkeypatch)


def lines(recorded=("2", "3", "2", None), corrected=("3", "3", "2", None), annotator=None):
    who = pa.array([annotator] * 4, pa.string())
    return pa.table({"row": [0, 1, 2, 3], "annotator": who, "recorded": recorded, "corrected": corrected})


def correct_frame(frame, labels, described):
    return TableAudit({"table": described}, labels, noise=None, estimator=None).corrected(frame)


def test_corrected_labels_keep_index_type_and_values():
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "stage": pd.array([2, 3, 2, None], dtype="Int64")}, index=list("abcd"))
    fixed = correct_frame(frame, lines(), DESCRIBED)
    assert fixed["stage"].tolist()[:3] == [3, 3, 2]
    assert fixed["stage"].isna().tolist() == [False, False, False, True]
    assert fixed["stage"].dtype == frame["stage"].dtype
    assert fixed.index.tolist() == list("abcd")
    assert frame["stage"].iloc[0] == 2  # the user's own frame stays as it was


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_corrected_labels_come_in_the_kind_that_was_given(make):
    frame = make({"stage": ["2", "3", "2", "x"], "x": [1, 2, 3, 4]})
    fixed = correct_frame(frame, lines(("2", "3", "2", "x"), ("3", "3", "2", "x")), DESCRIBED)
    assert type(fixed) is type(frame)
    assert list(pa.table(fixed)["stage"].to_pylist() if make is pa.table else fixed["stage"]) == ["3", "3", "2", "x"]


def test_categories_stay_categories():
    frame = pd.DataFrame({"stage": pd.Categorical(["2", "3", "2", None])})
    assert correct_frame(frame, lines(), DESCRIBED)["stage"].dtype == "category"


def test_every_annotator_with_a_column_is_corrected_in_it():
    described = {"rows": 4, "columns": {"label": "Ada,Ben", "annotator": None}, "annotators": ["Ada", "Ben"]}
    both = pa.concat_tables([lines(annotator="Ada"), lines(corrected=("2", "3", "3", None), annotator="Ben")])
    frame = pl.DataFrame({"Ada": ["2", "3", "2", None], "Ben": ["2", "3", "2", None]})
    fixed = correct_frame(frame, both, described)
    assert fixed["Ada"].to_list() == ["3", "3", "2", None]
    assert fixed["Ben"].to_list() == ["2", "3", "3", None]


def test_another_frame_is_refused():
    with pytest.raises(ValueError, match=r"with 4 rows\. Got 1"):
        correct_frame(pd.DataFrame({"stage": ["2"]}), lines(), DESCRIBED)
    with pytest.raises(ValueError, match="label column 'stage'"):
        correct_frame(pd.DataFrame({"other": ["2"] * 4}), lines(), DESCRIBED)
    with pytest.raises(ValueError, match="Got list"):
        correct_frame(["2"] * 4, lines(), DESCRIBED)


def test_an_audit_of_a_frame_answers_on_its_index(stub):
    frame = make_table().to_pandas()
    frame.index = pd.Index(np.arange(len(frame)) * 10 + 7, name="mine")
    result = lt.audit(frame, sequence="person", time="minute")
    labels = result.to_frame()
    assert labels.index.name == "mine"
    assert (labels.index == labels["row"] * 10 + 7).all()
    assert result.to_frame(of="issues").index.isin(frame.index).all()
    assert isinstance(result.to_frame("polars", of="noise"), pl.DataFrame)
    fixed = result.corrected(frame)
    assert fixed.index.equals(frame.index)
    assert fixed.dtypes.equals(frame.dtypes)
    assert len(repr(result)) < 1000
    assert result.plot().get_ylabel() == "share of wrong labels"
    mpl.pyplot.close("all")
