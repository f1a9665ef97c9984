import math

import numpy as np
import pytest

from labeltide_bench.pages.cells import make_cells, summarise_draws
from labeltide_bench.pages.method_order import base_name, contenders, group_methods
from labeltide_bench.pages.published import headline, published
from labeltide_bench.pages.result_tables import percent, signed
from labeltide_bench.pages.results import read_results
from labeltide_bench.pages.summary import make_sections, slug, summarise
from labeltide_bench.pages.verdict import count_wins, critical_difference, mean_ranks, write_verdict

SIX = ["ignore", "anchor", "volmin", "plugin", "discontinuous", "continuous"]


@pytest.fixture
def cells(write):
    return lambda records: make_cells(read_results(write(records)).runs)


def test_methods_stand_in_the_groups_and_order_of_the_paper():
    labels = ["tide", "continuous (paper's code)", "known", "Plug-In", "VolMinNet", "ignore", "anchor", "continuous"]
    assert [(group.title, *group.methods) for group in group_methods(labels)] == [
        ("", "ignore"),
        ("Static", "anchor", "VolMinNet"),
        ("Temporal", "Plug-In", "continuous", "continuous (paper's code)"),
        ("Others", "tide"),
        ("Given the truth", "known"),
    ]


def test_a_label_names_the_method_before_its_bracket():
    assert {base_name(label) for label in ("continuous", "Continuous (penalised)", "continuous, long")} == {
        "continuous"
    }


def test_who_is_told_the_truth_cannot_win_unless_nobody_else_is_left():
    assert contenders(["ignore", "tide", "known"]) == ["ignore", "tide"]
    assert contenders(["ignore", "known (forward)", "known (backward)"]) == [
        "ignore",
        "known (forward)",
        "known (backward)",
    ]


def test_failed_draws_are_counted_and_left_out_of_the_mean():
    found = summarise_draws([0.1, math.nan, 0.3])
    assert (found.mean, found.n, found.failed) == (pytest.approx(0.2), 2, 1)
    assert found.spread == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert math.isnan(summarise_draws([0.1]).spread)
    assert summarise_draws([]).n == 0


def test_the_papers_numbers_stand_beside_the_papers_cells_only(cells, record):
    (cell,) = cells([record(level={"rate": 0.29})])
    assert published(cell, "continuous", "test_error") == pytest.approx((0.042, 0.022))
    assert published(cell, "continuous (paper's code)", "absolute") == pytest.approx((0.3 * 0.103, 0.3 * 0.039))
    assert published(cell, "ignore", "absolute") is None
    assert published(cell, "continuous", "frobenius") is None
    others = [
        {"variant": "class-conditional"},
        {"n_classes": 4},
        {"level": {"rate": 0.2}},
        {"shape": "periodic", "level": {"rate": 0.3}},
        {"shape": "decay"},
        {"shape": "source"},
        {"dataset": "moving, by subject"},
    ]
    for change in others:
        (cell,) = cells([record(**{"level": {"rate": 0.29}} | change)])
        assert published(cell, "continuous", "test_error") is None, change


def test_every_published_cell_is_there(cells, record):
    count = {"test_error": 0, "absolute": 0}
    for shape, rates in (("mixed", [0.29]), ("periodic", [0.27, 0.3, 0.34])):
        for dataset in ("moving", "senior", "blinking", "sleeping"):
            (cell,) = cells([record(shape=shape, dataset=dataset, level={"rates": rates})])
            for metric in count:
                count[metric] += sum(published(cell, method, metric) is not None for method in SIX)
    assert count == {"test_error": 48, "absolute": 40}


def test_the_headline_is_the_papers_level_or_else_the_nearest_to_thirty_percent(cells, record):
    near = [record(level={"rate": rate}, rate=rate) for rate in (0.1, 0.29, 0.4)]
    assert headline(cells(near)).rate == pytest.approx(0.29)
    papers = record(level={"constants": {"b": 0.02, "mix_c": 0.25}}, rate=0.33)
    assert headline(cells([*near, papers])).rate == pytest.approx(0.33)


def test_wins_and_ranks_equal_a_slow_count(cells, study):
    methods = ["ignore", "anchor", "tide"]
    made = cells([r for d in ("a", "b", "c", "d") for r in study(methods, draws=2, dataset=d)])
    means = [{m: np.mean([run.metrics["test_error"] for run in cell.runs[m]]) for m in methods} for cell in made]
    wins = count_wins(made)
    for row, left in enumerate(methods):
        assert wins.firsts[left] == sum(min(mean, key=mean.get) == left for mean in means)
        for column, right in enumerate(methods):
            if left != right:
                share = np.mean([mean[left] < mean[right] for mean in means])
                assert wins.shares[row, column] == pytest.approx(share)
    ranks = mean_ranks(made)
    slow = {m: np.mean([sorted(mean.values()).index(mean[m]) + 1 for mean in means]) for m in methods}
    assert dict(zip(ranks.methods, ranks.means, strict=True)) == pytest.approx(slow)
    assert ranks.means == sorted(ranks.means)


def test_a_tie_is_half_a_win_for_each(cells, record):
    wins = count_wins(cells([record(method=method, error=0.1) for method in ("anchor", "tide")]))
    assert wins.shares[0, 1] == wins.shares[1, 0] == 0.5
    assert wins.firsts == {"anchor": 1, "tide": 1}


def test_a_method_whose_draws_all_failed_loses(cells, record):
    failed = record(method="tide") | {"metrics": {"test_error": None}}
    wins = count_wins(cells([record(method="anchor"), failed]))
    assert wins.firsts == {"anchor": 1, "tide": 0}


@pytest.mark.parametrize(("n_methods", "q"), [(2, 1.960), (3, 2.343), (6, 2.850), (10, 3.164)])
def test_the_critical_difference_uses_the_published_constants(n_methods, q):
    # Demsar (2006), table 5.
    assert critical_difference(n_methods, 10) == pytest.approx(
        q * math.sqrt(n_methods * (n_methods + 1) / 60), abs=2e-3
    )


def test_sections_part_classes_and_variants(cells, record):
    made = cells(
        [
            record(variant="class-conditional"),
            record(n_classes=4),
            record(),
            record(variant="class-conditional", n_classes=3, dataset="synthetic"),
        ]
    )
    assert [section.title for section in make_sections(made)] == [
        "Two classes",
        "More than two classes",
        "Two classes, class-conditional noise",
        "More than two classes, class-conditional noise",
    ]


def test_two_splits_of_one_data_set_are_told_apart(cells, record):
    other = record() | {"dataset_info": record()["dataset_info"] | {"split": "by time"}}
    assert {cell.name for cell in cells([record(), other])} == {"moving (official subjects)", "moving (by time)"}


def test_the_verdict_names_the_winner_and_the_margin(cells, record):
    made = cells(
        [
            record(method=m, error=e, dataset=d)
            for d in ("a", "b")
            for m, e in (("ignore", 0.3), ("anchor", 0.2), ("tide", 0.05))
        ]
    )
    words = " ".join(write_verdict(made, made))
    assert "tide has the lowest error on clean test labels in 2 of 2 cells (100 %), 5.0 % on average" in words
    assert "the best of the others has 20.0 %" in words
    assert "Ignoring the noise (ignore) has 30.0 % where tide has 5.0 %." in words


def test_the_verdict_says_100_percent_only_of_all_cells(cells, record):
    errors = {f"set {number:03}": 0.05 if number else 0.4 for number in range(300)}
    made = cells(
        [record(method=m, error=e, dataset=d) for d, own in errors.items() for m, e in (("tide", own), ("ignore", 0.3))]
    )
    assert "in 299 of 300 cells (99 %)" in " ".join(write_verdict(made, made))


def test_the_verdict_on_one_method_claims_no_win(cells, record):
    (sentence,) = write_verdict(cells([record(error=0.25)]), [])
    assert "Only one method was run, continuous" in sentence
    assert "25.0 % over 1 cell." in sentence


def test_the_verdict_counts_agreement_with_the_paper(cells, record):
    made = cells([record(method=name, error=0.05, level={"rate": 0.29}) for name in ("continuous", "ignore")])
    words = " ".join(write_verdict(made, made))
    # continuous: test error 5.0 near 4.2 ± 2.2, Q 2.5 near 10.3 ± 3.9 within two; ignore: 5.0 far from 29.4 ± 1.7.
    assert "2 of 3 on the paper's own data lie within two of its standard deviations" in words


def test_faithful_and_substitute_data_are_named_apart(write, record):
    substitute = record(dataset="senior")
    substitute["dataset_info"] = substitute["dataset_info"] | {"faithful": False}
    own = record(dataset="mine")
    own["dataset_info"] = own["dataset_info"] | {"faithful": None}
    words = summarise(read_results(write([record(), substitute, own]))).origins
    assert words[0] == "Data that are the paper's own: moving."
    assert words[1].startswith("Substitutes for the paper's data: senior.")
    assert words[2] == "Data that the paper does not have: mine."


@pytest.mark.parametrize(("fraction", "text"), [(0.123, "12.3"), (0.0004, "0.04"), (0, "0.0"), (-1e-9, "0.0")])
def test_percentages_have_one_decimal_unless_that_would_read_as_nothing(fraction, text):
    assert percent(fraction) == text


def test_differences_carry_their_sign():
    assert (signed(0.012), signed(-0.012), signed(0.0001)) == ("+1.2", "\N{MINUS SIGN}1.2", "0.0")


def test_slugs_are_safe_as_file_names():
    assert slug("../../etc/passwd <b>") == "etc-passwd-b"
    assert slug("°°°") == "unnamed"
