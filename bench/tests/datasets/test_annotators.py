"""Data sets of several annotators: archives in the published format are converted, or refused with a sentence."""

import os
from pathlib import Path

import pandas as pd
import pytest

from datasets import annotator_archives as made_of
from datasets import archives
from labeltide_bench import datasets as public
from labeltide_bench.datasets import dod_scorers, lund2013, neonatal_seizure

MAKE = {
    "dod_scorers": (made_of.make_dreem, dod_scorers.FILE),
    "lund2013": (made_of.make_lund, lund2013.FILE),
    "neonatal_seizure": (made_of.make_neonates, neonatal_seizure.FILE),
}


@pytest.mark.parametrize("name", MAKE)
def test_the_shared_copy_comes_out_of_an_archive_in_the_published_format(tmp_path, name):
    shared = os.environ.get("LABELTIDE_DATA")
    if not shared:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    make, file = MAKE[name]
    table = pd.read_parquet(Path(shared, name, file))
    archive = make(tmp_path / "archive", table)
    made = pd.read_parquet(public.fetch(name, tmp_path / "data", archives=archive) / file)
    pd.testing.assert_frame_equal(made, table[list(made)], check_dtype=False)
    assert [str(made[column].dtype) for column in made if made[column].dtype != object] == [
        str(table[column].dtype) for column in made if made[column].dtype != object
    ]


# What is refused


@pytest.mark.usefixtures("small")
def test_the_scored_window_ends_where_the_first_scorer_ends(tmp_path):
    archive = made_of.make_dreem(tmp_path / "a.zip", made_of.few_stages())
    made = pd.read_parquet(public.fetch("dod_scorers", tmp_path / "data", archives=archive) / dod_scorers.FILE)
    assert made["in_scored_window"].tolist() == [False, True, True, False]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop("scorers/dodh/scorer_3/n1.json"), "must have scorer_1, .* It has"),
        (lambda files: files.update({"scorers/dodh/scorer_3/n1.json": "[0]"}), "stages of one length"),
        (lambda files: files.update({"scorers/dodh/scorer_3/n1.json": "[0, 1, 2, 7]"}), "stages from -1 to 4"),
        (lambda files: files.clear(), "must hold 4 epochs"),
    ],
)
def test_another_archive_of_scorers_is_refused(tmp_path, change, message):
    files = {f"scorers/dodh/{scorer}/n1.json": "[0, 1, 2, 3]" for scorer in dod_scorers.SCORERS}
    change(files)
    with pytest.raises(ValueError, match=message):
        dod_scorers.convert(archives.make_zip(tmp_path / "a.zip", files), tmp_path)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n0,1\n0,1\n,0\n", None),
        ("1,2\n0,1\n,1\n,0\n", "same seconds of the same records"),
        ("1,2\n0,2\n0,1\n,0\n", "Record 2 .* 0 or 1"),
        ("a,2\n0,1\n", "numbers of records"),
    ],
)
def test_marks_of_neonates_are_read_or_refused(tmp_path, text, message):
    for name in neonatal_seizure.NAMES.values():
        (tmp_path / name).write_text("1,2\n0,1\n0,1\n,0\n")
    (tmp_path / "annotations_2017_B.csv").write_text(text)
    if message is not None:
        with pytest.raises(ValueError, match=message):
            neonatal_seizure.convert([tmp_path], tmp_path)
        return
    neonatal_seizure.convert([tmp_path], tmp_path)
    made = pd.read_parquet(tmp_path / neonatal_seizure.FILE)
    assert made["expert_B"].tolist() == [0, 0, 1, 1, 0]
    assert made["record"].tolist() == [1, 1, 2, 2, 2]


def test_a_missing_file_of_an_expert_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"annotations_2017_A_fixed\.csv is not among them"):
        neonatal_seizure.convert([tmp_path], tmp_path)


def test_another_archive_of_gaze_is_refused(tmp_path):
    path = "data used in the article/img/a_labelled_{}.mat"
    for content, message in ((b"words", "must be a MATLAB file"), (None, "Got 0 of 0")):
        files = {path.format(coder): content for coder in lund2013.CODERS} if content else {"readme": "words"}
        with pytest.raises(ValueError, match=message):
            lund2013.convert(archives.make_zip(tmp_path / "a.zip", files), tmp_path)
