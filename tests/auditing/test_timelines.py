"""Timelines hold signals as a drawing needs them."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from auditing.stub import StubScorer
from labeltide.auditing.alignment import TableShifts
from labeltide.auditing.findings import Totals, describe_timelines, rounded, telling_features
from labeltide.auditing.judging import JudgeJob, find_flags, judge_all
from labeltide.auditing.survey import MemoryTable
from labeltide_bench.tables import read_audit_table


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.2e-8, 4.0, 2.0000001], [0.0, 4.0, 2.0]),  # what scaling there and back left of 0, 4 and 2
        ([101325.125, 101325.25, np.nan], [101325.125, 101325.25, None]),
        ([1234567.0, 7654321.0], [1234600.0, 7654300.0]),
        ([0.000123456, 0.000123456], [0.00012346, 0.00012346]),
        ([-1e-9, 5.0], [0.0, 5.0]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([np.nan, np.inf], [None, None]),
    ],
)
def test_signals_are_rounded_to_a_small_part_of_their_range(values, expected):
    found = rounded(np.array(values))
    assert found == expected
    assert "-0.0" not in map(str, found)


def test_signals_that_change_with_the_label_are_drawn_before_those_that_tell_sequences_apart():
    rng = np.random.default_rng(0)
    classes = np.arange(200).reshape(4, 50) // 10 % 2  # (sequences, steps)
    classes[2:] |= 1  # of the last two sequences one only
    whose = np.repeat([0.0, 0.0, 1.0, 1.0], 50).reshape(4, 50)
    moving = classes + rng.normal(0, 0.8, classes.shape)
    table = SimpleNamespace(
        features=np.stack([whose, moving], -1),
        index=np.arange(200).reshape(4, 50),
        flat_index=np.arange(200),
        groups=np.arange(4),
        from_steps=lambda values: values.reshape(-1),
    )
    judged = SimpleNamespace(probabilities=np.eye(2)[classes])
    assert telling_features(table, judged) == [1, 0]


def test_every_stretch_of_the_plan_has_a_timeline_once():
    steps = 300
    columns = {"person": ["a"] * steps + ["b"] * steps, "time": [*range(steps)] * 2, "label": ["x", "y"] * steps}
    read = read_audit_table(pa.table({**columns, "v": np.arange(2.0 * steps) % 7}), window=50)
    scorer = StubScorer(SimpleNamespace(classes_="xy"), read, "")
    shifts, may_name = TableShifts(np.zeros(1, int), {}, {}), np.ones((2, 2, 2), bool)
    job = JudgeJob(MemoryTable(read, np.zeros(2, bool)), scorer, None, [1, 1], shifts, may_name)
    judge_all(job, lambda rows: None)
    totals = Totals.of(job, read)
    plan = [{"sequence": "b", "first": "100", "last": "139"}, {"sequence": "a", "first": "0", "last": "49"}]
    plan.append({"sequence": "b", "first": "110", "last": "120"})  # lies within the first
    found, lines = describe_timelines(job, find_flags((), 0.1), totals, plan, [0])
    assert [(each["sequence"], each["planned"]) for each in found] == [("b", 1), ("a", 2)]
    assert (found[0]["times"][0], found[0]["times"][-1]) == ("90", "149")  # with a quarter on either side
    assert (found[1]["times"][0], found[1]["times"][-1]) == ("0", "61")
    assert sorted(lines["position"].to_pylist()) == sorted(found[0]["rows"] + found[1]["rows"])
    assert describe_timelines(job, find_flags((), 0.1), totals, [], [0])[0] == []
