"""The tables of the ablation: paired differences, the rule, and both forms of the study."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from labeltide_bench.pages.results import DatasetInfo, Run, read_results

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "tide_ablation.py"
SETS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("tide_ablation", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_run(
    method, dataset="a", *, rate=0.3, variant="uniform", shape="static", draw=0, seconds=1.0, fleet=4, **metrics
):
    level = json.dumps({"rate": rate})
    numbers = {"test_error": 0.1, "left": 0.1, "false_alarms": 0.0, "stated": rate, "wrong_labels": rate, **metrics}
    return Run(dataset, DatasetInfo(), shape, level, rate, variant, method, draw, numbers, seconds, fleet)


def ablation(base, less, seconds=1.0, **changes):
    """Runs of a base, and of the same without a part, with metrics that are higher by about `changes` on all labels."""
    runs = []
    for dataset in SETS:
        for draw in range(4):
            for rate, variant in ((0, "uniform"), (0.3, "uniform"), (0.3, "bursts 0.5"), (0.3, "bursts 0.9")):
                index = {"dataset": dataset, "rate": rate, "variant": variant, "draw": draw}
                hard = 0.1 + 0.2 * draw  # the same for both methods: pairs cancel it
                runs.append(make_run(base, **index, seconds=seconds, **dict.fromkeys(changes, hard)))
                higher = {name: hard + value * (1 + draw / 10) for name, value in changes.items()}
                runs.append(make_run(less, **index, **higher))
    return runs


@pytest.mark.parametrize(
    ("rate", "variant", "kind"),
    [
        (0, "uniform", "clean"),
        (0.03, "uniform", "3 %"),
        (0.29, "uniform", "30 %"),
        (0.31, "uniform", "30 %"),
        (0.4, "uniform", "40 %"),
        (0.3, "bursts 0.9", "bursts 0.9"),
        (0, "late 4", "late 4"),
    ],
)
def test_the_kind_of_noise_is_its_variant_or_its_rate(script, rate, variant, kind):
    assert script.kind_of(make_run("tide", rate=rate, variant=variant)) == kind


def test_differences_are_taken_on_the_same_labels_and_in_points(script):
    first = [make_run("x", draw=draw, left=0.2 + draw) for draw in range(3)]
    second = [make_run("y", draw=draw, left=0.1 + draw) for draw in (2, 1)]  # draw 0 has no partner
    found = script.differences(script.by_method(first + second), ("x", "y"), script.METRICS["left"], ["30 %"])
    np.testing.assert_allclose(found["a"], [10, 10])


def test_the_error_of_a_mean_over_data_sets_is_that_of_their_means(script):
    gain = script.over_datasets({"a": np.array([1.0, 3.0]), "b": np.array([4.0]), "c": np.array([6.0])})
    assert gain.mean == pytest.approx(4)
    assert gain.error == pytest.approx(np.std([2, 4, 6], ddof=1) / np.sqrt(3))


def verdict(script, runs, name="bursts"):
    part = next(part for part in script.PARTS if part.name == name)
    row = script.judge(script.by_method(runs), part)
    return dict(zip(script.rule_table({}).heads, row, strict=True))


@pytest.mark.parametrize(("base", "less"), [("core", "core, no bursts"), ("tide", "tide, no bursts")])
def test_a_part_that_gains_everywhere_and_costs_nothing_stays(script, base, less):
    row = verdict(script, ablation(base, less, left=0.05))
    assert row["sets that gain"] == "4 of 4"
    assert row["sets that lose"] == "0"
    assert row["by the rule"] == "stays"


def test_a_part_that_gains_nothing_goes(script):
    assert verdict(script, ablation("tide", "tide, no bursts", left=0.0))["by the rule"] == "goes: gain"
    row = verdict(script, ablation("tide", "tide, no bursts", left=-0.05))
    assert row["sets that lose"] == "4"


def test_a_part_that_costs_test_error_false_alarms_or_time_goes(script):
    costs = ablation("tide", "tide, no bursts", left=0.05, test_error=-0.01)
    assert verdict(script, costs)["by the rule"] == "goes: test error"
    costs = ablation("tide", "tide, no bursts", left=0.05, false_alarms=-0.01)
    assert verdict(script, costs)["by the rule"] == "goes: false alarms"
    slow = ablation("tide", "tide, no bursts", seconds=1.3, left=0.05)
    assert verdict(script, slow)["by the rule"] == "goes: time"


def test_fleets_of_another_size_say_nothing_about_time(script):
    runs = [
        make_run(method, dataset, variant="near boundaries", draw=draw, left=left, seconds=seconds, fleet=fleet)
        for dataset in SETS
        for draw in range(2)
        for method, left, seconds, fleet in (("core and levels of difficulty", 0.1, 9.0, 2), ("core", 0.2, 1.0, 8))
    ]
    row = verdict(script, runs, "levels of difficulty")
    assert row["seconds"] == "not comparable"
    assert row["by the rule"] == "stays, if its time allows"


def test_a_gain_of_one_pair_is_not_clear(script):
    runs = [
        make_run(m, s, variant="late 4", left=v) for s in SETS for m, v in (("core and timing", 0.1), ("core", 0.3))
    ]
    assert verdict(script, runs, "timing")["sets that gain"] == "0 of 4"


@pytest.mark.parametrize(("base", "less"), [("core", "core, no bursts"), ("tide", "tide, no bursts")])
def test_both_forms_of_the_study_have_all_tables(script, base, less):
    runs = ablation(base, less, left=0.05)
    runs += [make_run("clean labels", dataset, rate=0, draw=draw) for dataset in SETS for draw in range(4)]
    text = script.write_tables(runs)
    titles = (
        "The rule",
        "Test error",
        "Seconds per run",
        f"Clean labels: {base}",
        f"Rules for corrected labels: {base}",
    )
    assert all(f"\n## {title}" in text for title in titles)
    assert f"| **{base}** |" in text
    assert "nan" not in text


def test_records_without_a_base_are_refused(script):
    with pytest.raises(ValueError, match="none of the methods tide, core"):
        script.write_tables([make_run("ignore")])


def test_the_kept_tables_are_those_of_the_kept_records(script):
    for folder in script.FOLDER.parent.glob("ablation*"):
        text = script.write_tables(script.in_study_order(read_results(folder).runs, folder))
        assert text == (folder / "ablation.md").read_text(encoding="utf-8")
