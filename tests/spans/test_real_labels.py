"""Labels of real studies go through every format and come back; skipped where the public data are not there."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from labeltide.recordings.recordings import Grid, RecordingRequest, lay_on_grid, read_epochs
from labeltide.recordings.spans.formats import read_spans
from labeltide.recordings.spans.table import by_annotator
from labeltide_bench.tables import grid_to_spans
from spans.test_round_trips import FORMATS


@pytest.fixture
def data():
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    return Path(folder)


def first(path, key):
    """The rows of the first recording of a table."""
    table = parquet.read_table(path)
    return table.filter(pc.equal(table[key], table[key][0]))


@pytest.mark.parametrize("name", FORMATS)
def test_a_night_that_five_people_scored(data, tmp_path, name):
    adapter, file, options, kind, _ = FORMATS[name]
    night = first(data / "dod_scorers" / "dod_hypnograms.parquet", "record")
    grid = Grid(0.0, 30.0, len(night))
    who = kind.get("annotators", (None,))
    columns = [
        [None if code is None else f"N{code}" for code in night[f"scorer_{k + 1}"].to_pylist()] for k in range(5)
    ]
    scored = dict(zip(who, columns, strict=False))
    adapter.write(
        pa.concat_tables([grid_to_spans(v, grid, k, "n") for k, v in scored.items()]), tmp_path / file, **options
    )
    found = by_annotator(read_spans(tmp_path / file).spans)
    assert {annotator: lay_on_grid(spans, grid).labels for annotator, spans in found.items()} == scored


def test_gaze_and_its_two_coders(data, tmp_path):
    trial = first(data / "lund2013" / "lund2013_two_coders_500hz.parquet", "trial")
    rate = float(trial["rate_hz"][0].as_py())
    grid = Grid(0.0, 1 / rate, len(trial))
    seconds = pa.array(grid.onsets)
    signals = pa.table({"time": seconds, "gaze_x": trial["x_px"], "gaze_y": trial["y_px"]})
    parquet.write_table(signals, tmp_path / "trial.parquet")
    coded = {who: [str(code) for code in trial[f"label_{who}"].to_pylist()] for who in ("MN", "RA")}
    spans = pa.concat_tables([grid_to_spans(labels, grid, who, "trial") for who, labels in coded.items()])
    FORMATS["csv"][0].write(spans, tmp_path / "coders.csv")
    found = read_epochs(tmp_path / "trial.parquet", RecordingRequest(tmp_path / "coders.csv", epoch=1 / rate))
    assert {who: found.table[who].to_pylist() for who in found.labels} == coded
