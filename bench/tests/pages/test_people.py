"""The section about labels of real people."""

import numpy as np
import pytest

from labeltide_bench.pages import write_report
from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.people import (
    CLEAN_LIMITS,
    EXPERT_HEADS,
    LIMITS,
    PEOPLE_HEADS,
    make_people,
    mean_over_people,
)
from labeltide_bench.pages.results import read_results


@pytest.fixture
def people(record, study):
    """A function that makes records of two people; each method's errors stand around the one it is given."""

    def make(errors, folds=3, names=("ann", "bob"), **changes):
        info = record()["dataset_info"] | {
            "reference": "majority",
            "clock": "hours",
            "split": f"{folds} folds by night",
        }
        random = np.random.default_rng(0)
        return [
            record(
                dataset="nights",
                dataset_info=info,
                shape="recorded",
                variant="recorded",
                level={"annotator": name},
                rate=0.1,
                method=method,
                draw=fold,
                error=round(error + random.uniform(0, 0.001), 5),
                observed_change=0.02,
                referenced=0.9,
                **changes,
            )
            for name in names
            for method, error in errors.items()
            for fold in range(folds)
        ]

    return make


@pytest.fixture
def section(write):
    """A function from records to the section."""
    return lambda records: make_people(make_cells(read_results(write(records)).runs))


def test_numbers_equal_a_slow_computation(people, section):
    records = people({"ignore": 0.3, "static": 0.2, "tide": 0.1})
    (table,) = section(records).tables
    assert [block.name for block in table.blocks] == ["all, on average", "ann", "bob"]
    for block in table.blocks:
        assert [line.method for line in block.lines] == ["ignore", "static", "tide"]
        for line in block.lines:
            for metric, entry in zip(PEOPLE_HEADS, line.entries, strict=True):
                values = [
                    np.mean(
                        [
                            one["metrics"][metric]
                            for one in records
                            if (one["method"], one["draw"]) == (line.method, fold)
                            and (one["level"]["annotator"] == block.name or block.name.startswith("all"))
                        ]
                    )
                    for fold in range(3)
                ]
                assert entry.mean == f"{100 * np.mean(values):.1f}"
                assert entry.is_best == (line.method == "tide")
    assert "10.0 % unlike the others" in table.blocks[1].details


def test_what_tide_reaches_is_said_for_each_data_set_and_person(people, section):
    won = section(people({"ignore": 0.3, "tide": 0.1}))
    assert [goal.answer for goal in won.goals] == ["Met", "Met"]
    assert "At or below every other method for 2 of 2 people." in won.goals[0].words
    lost = section(people({"ignore": 0.1, "tide": 0.3}, names=["ann"]))
    assert [goal.answer for goal in lost.goals] == ["Missed", "Missed"]
    assert "for 0 of 1 person. Not for ann (ignore is 20.0 ± 0.0 points lower)." in lost.goals[0].words
    assert lost.verdict[0].startswith("nights, test error: missed.")


def test_folds_that_have_not_run_are_told(people, section):
    records = people({"ignore": 0.3, "tide": 0.1})
    assert "3 folds by night. The" in section(records).tables[0].caption
    assert "3 folds by night, of which only 2 have run" in section(records[:-1]).tables[0].caption


def test_a_clean_column_is_named_as_what_measures(people, section):
    records = people({"ignore": 0.3, "tide": 0.1}, names=["reported"])
    for one in records:
        one["dataset_info"]["reference"] = "clean"
    found = section(records)
    assert found.limits == CLEAN_LIMITS
    assert "measured against the clean labels" in found.tables[0].caption
    assert "10.0 % unlike the clean labels" in found.tables[0].blocks[0].details


def test_without_tide_nothing_is_asked(people, section):
    found = section(people({"ignore": 0.3, "static": 0.2}))
    assert found.goals == []
    assert found.verdict


def test_counted_noise_is_averaged_over_folds_and_gaps(people, section, record):
    records = people({"ignore": 0.3}, folds=2, names=["ann"])
    first, second = (np.array(one["true_noise"]) for one in records)
    records[0]["true_noise"][0] = [[None] * 2] * 2
    records[1]["true_noise"] = (second / 2).tolist()
    (cell,) = section(records).cells
    np.testing.assert_allclose(cell.true_noise[0], second[0] / 2, rtol=1e-6)
    np.testing.assert_allclose(cell.true_noise[1:], 0.75 * first[1:], rtol=1e-6)
    assert mean_over_people([cell], "tide", "frobenius").n == 0


def test_predicted_disagreement_has_columns_where_a_record_has_it(people, section, write):
    records = people({"ignore": 0.3, "tide": 0.1})
    old = section(records)
    assert old.expert_heads == []
    assert all(len(line.entries) == len(PEOPLE_HEADS) for block in old.tables[0].blocks for line in block.lines)
    for one in records:
        if one["method"] == "tide":
            one["metrics"] |= dict.fromkeys((*EXPERT_HEADS, "slips"), 0.25)  # older records have slips, too
    found = section(records)
    assert found.expert_heads == list(EXPERT_HEADS.values())
    ignored, tide = (line.entries[len(PEOPLE_HEADS) :] for line in found.tables[0].blocks[0].lines)
    assert [entry.mean for entry in ignored] == [""] * len(EXPERT_HEADS)
    assert [(entry.mean, entry.is_best) for entry in tide] == [("25.0", False)] * len(EXPERT_HEADS)
    page = write_report(write(records))
    texts = [path.read_text(encoding="utf-8") for path in (page, page.with_name("people.md"))]
    assert all(head in text for head in EXPERT_HEADS.values() for text in texts)


def test_the_page_holds_table_limits_and_pictures(people, write, tmp_path):
    page = write_report(write(people({"ignore": 0.3, "tide": 0.1}))).read_text(encoding="utf-8")
    assert 'id="people"' in page
    assert "takes every label as right" in page
    for limit in LIMITS:
        assert limit.replace("'", "&#39;") in page
    assert "on clean test labels" not in page
    assert "Data sets of this study" in page
    names = {path.name for path in (tmp_path / "figures").glob("*.svg")}
    assert {"recorded-1-nights-q-ann.svg", "recorded-1-nights-q-bob.svg", "recorded-1-nights-over-time.svg"} <= names
    assert "hours" in (tmp_path / "figures" / "recorded-1-nights-q-ann.svg").read_text()


def test_drawn_and_recorded_noise_share_a_page(people, study, write):
    records = people({"ignore": 0.3, "tide": 0.1}) + study(["ignore", "tide"])
    page = write_report(write(records)).read_text(encoding="utf-8")
    assert 'id="people"' in page
    assert 'id="two-classes"' in page
    assert "lowest error on clean test labels" in page
