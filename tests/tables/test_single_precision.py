"""Labels in single precision have the name that people gave them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import labeltide as lt
from labeltide.tables.tidy import choose_missing, count_label_values

ROWS = 40
TABLE = {
    "person": np.repeat([1, 2], ROWS // 2),
    "time": np.tile(np.arange(ROWS // 2), 2),
    "label": np.array([0.2, 0.7, 0.2, 0.1] * (ROWS // 4), np.float32),
    "v": np.linspace(0, 1, ROWS),
}


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame])
def test_classes_have_short_names(frame):
    data = lt.Sequences.from_table(frame(TABLE), sequence="person", time="time", label="label", features="v")
    assert data.classes == (0.1, 0.2, 0.7)


def test_missing_labels_are_known_by_their_short_name():
    counts = count_label_values(pa.array(TABLE["label"]))
    assert choose_missing(counts, "0.2")[0] == {0.2}
