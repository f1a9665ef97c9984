"""Claims on made-up cells whose answer is known."""

import json
import math

import numpy as np
import pytest

from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.paper import claims as kinds
from labeltide_bench.pages.paper.claims import changes_over_time, check_claims, claims_table, compare_claims
from labeltide_bench.pages.paper.sources import Studies, published_studies
from labeltide_bench.pages.results import DatasetInfo, Run

INFO = DatasetInfo(classes=("a", "b"))


def make(errors, draws=4, shape="mixed", q=None, true_noise=None):
    """Cells from {(data set, rate): {method: error}}; every draw adds its own error to all methods alike."""
    runs = []
    for (dataset, rate), methods in errors.items():
        for method, error in methods.items():
            for draw in range(draws):
                metrics = {"test_error": error + 0.01 * draw}
                if q:
                    metrics["absolute"] = metrics["frobenius"] = q[method]
                level = json.dumps({"rate": rate})
                runs.append(
                    Run(dataset, INFO, shape, level, rate, "uniform", method, draw, metrics, true_noise=true_noise)
                )
    return make_cells(runs)


def rates(dataset, values):
    return {(dataset, 0.1 + 0.02 * index): value for index, value in enumerate(values)}


def test_a_method_that_is_better_everywhere_holds():
    cells = make(
        rates("moving", [{"plugin": 0.1, "anchor": 0.2}] * 6) | rates("senior", [{"plugin": 0.1, "anchor": 0.12}] * 6)
    )
    claim = kinds.beats("x", cells, [("plugin", "anchor")])
    assert claim.verdict == kinds.HOLDS
    assert (claim.cells, claim.draws) == (12, 48)
    assert claim.p_value == pytest.approx(0.5**12)
    assert "12 of 12 cells, 6.0 points lower on average" in claim.why


def test_one_data_set_against_the_claim_makes_it_partly():
    cells = make(
        rates("moving", [{"plugin": 0.1, "anchor": 0.2}] * 9) | rates("senior", [{"plugin": 0.3, "anchor": 0.2}] * 2)
    )
    claim = kinds.beats("x", cells, [("plugin", "anchor")])
    assert claim.verdict == kinds.PARTLY
    assert "not on senior: \N{MINUS SIGN}10.0" in claim.why


def test_a_method_that_is_worse_does_not_hold():
    cells = make(rates("moving", [{"plugin": 0.3, "anchor": 0.2}] * 9))
    claim = kinds.beats("x", cells, [("plugin", "anchor")])
    assert claim.verdict == kinds.FAILS
    assert claim.p_value == 1.0


def test_differences_are_paired_by_draw():
    cells = make(rates("moving", [{"plugin": 0.1, "anchor": 0.2}]))
    cells[0].runs["anchor"].pop()  # a draw that only one method has
    (effect,) = kinds.gains(cells, "plugin", "anchor")
    assert effect.draws == 3
    assert effect.value == pytest.approx(0.1)


def test_no_records_are_no_verdict():
    claim = kinds.beats("x", [], [("plugin", "anchor")])
    assert claim.verdict == kinds.UNTESTED
    assert all(c.verdict == kinds.UNTESTED for c in check_claims(Studies(), {}))


def test_the_lowest_of_six_must_be_lowest_on_every_data_set():
    best = {"ignore": 0.4, "anchor": 0.3, "volmin": 0.3, "plugin": 0.25, "discontinuous": 0.2, "continuous": 0.1}
    beaten = best | {"discontinuous": 0.05}
    cells = make(rates("moving", [best] * 8))
    assert kinds.lowest("x", cells, "test_error").verdict == kinds.HOLDS
    claim = kinds.lowest("x", make(rates("moving", [best] * 9) | rates("senior", [beaten])), "test_error")
    assert claim.verdict == kinds.PARTLY
    assert "It is lowest in 9 of 10 cells" in claim.why
    assert "senior (there discontinuous): \N{MINUS SIGN}5.0" in claim.why
    assert kinds.lowest("x", make(rates("senior", [beaten] * 8)), "test_error").verdict == kinds.FAILS


@pytest.mark.parametrize(("cost", "verdict"), [(0.0, kinds.HOLDS), (0.004, kinds.HOLDS), (0.03, kinds.FAILS)])
def test_a_cost_below_one_point_counts_as_none(cost, verdict):
    wobble = np.linspace(-0.001, 0.001, 8)
    cells = make(rates("moving", [{"plugin": 0.2 + cost + extra, "anchor": 0.2} for extra in wobble]))
    assert kinds.no_cost("x", cells, [("plugin", "anchor")]).verdict == verdict


def test_a_cost_on_one_data_set_is_named():
    cheap, dear = [{"plugin": 0.2, "anchor": 0.2}] * 20, [{"plugin": 0.23, "anchor": 0.2}] * 2
    claim = kinds.no_cost("x", make(rates("moving", cheap) | rates("senior", dear)), [("plugin", "anchor")])
    assert claim.verdict == kinds.PARTLY
    assert "plugin on senior: +3.0" in claim.why


@pytest.mark.parametrize(("sign", "verdict"), [(1, kinds.HOLDS), (-1, kinds.FAILS)])
def test_a_gain_that_grows_with_the_noise_has_a_positive_slope(sign, verdict):
    cells = []
    for shape in ("linear", "decay", "growth", "periodic", "mixed"):
        rising = {
            ("moving", rate): {"ignore": 0.3 + sign * rate / 2, "continuous": 0.3} for rate in (0.1, 0.2, 0.3, 0.4)
        }
        cells += make(rising, shape=shape)
    claim = kinds.grows("x", cells, "ignore")
    assert claim.verdict == verdict
    assert f"by {sign * 5:.1f} points for 10 points of noise" in claim.why


def test_gains_are_set_against_the_change_of_the_noise_given_its_rate():
    change, cells = {}, []
    random = np.random.default_rng(0)
    for dataset in "abcdef":
        for shape in ("static", "linear", "periodic"):
            for rate in (0.1, 0.2, 0.3, 0.4):
                level = json.dumps({"rate": rate})
                change[shape, level] = {"static": 0.0, "linear": 0.2, "periodic": 0.9}[shape]
                gain = 0.1 * change[shape, level] + 0.001 * random.normal()
                cells += make({(dataset, rate): {"volmin": 0.3 + gain, "continuous": 0.3}}, shape=shape)
    assert kinds.changes("x", cells, change).verdict == kinds.HOLDS
    assert kinds.changes("x", cells, {}).verdict == kinds.UNTESTED


def test_error_of_q_and_test_error_go_hand_in_hand_where_their_ranks_agree():
    errors = {"anchor": 0.3, "volmin": 0.25, "plugin": 0.2, "discontinuous": 0.15, "continuous": 0.1}
    same, opposite = dict(errors), {name: 1 - error for name, error in errors.items()}
    cells = make(rates("moving", [errors] * 6), q=same)
    claim = kinds.hand_in_hand("x", cells)
    assert claim.verdict == kinds.HOLDS
    assert "positive in 6 of 6 cells, 1.00 on average" in claim.why
    assert kinds.hand_in_hand("x", make(rates("moving", [errors] * 6), q=opposite)).verdict == kinds.FAILS


def test_ten_points_are_asked_for_on_moving():
    fine, poor = {"anchor": 0.3, "volmin": 0.2, "continuous": 0.05}, {"anchor": 0.3, "volmin": 0.2, "continuous": 0.12}
    assert kinds.ten_points(make({("moving", 0.3): fine})).verdict == kinds.HOLDS
    assert kinds.ten_points(make({("moving", 0.3): poor})).verdict == kinds.FAILS
    assert kinds.ten_points(make({("senior", 0.3): fine})).verdict == kinds.UNTESTED


def test_the_sign_test_leaves_ties_out():
    assert kinds.sign_test([1, 2, 3, 0, 0]) == pytest.approx(0.125)
    assert kinds.sign_test([-1, 1]) == pytest.approx(0.75)
    assert kinds.sign_test([0, math.nan]) == 1.0


def test_a_partial_rank_correlation_takes_the_third_variable_out():
    random = np.random.default_rng(1)
    given = random.normal(size=400)
    x, y = given + 0.3 * random.normal(size=400), given + 0.3 * random.normal(size=400)
    assert kinds.rank_correlation(x, y) > 0.8
    assert abs(kinds.partial_rank_correlation(x, y, given)) < 0.15
    assert kinds.partial_rank_correlation(x, x + 0.1 * y, given) > 0.7


def test_total_variation_counts_every_rise_and_fall():
    wrong = np.array([0.1, 0.4, 0.2])
    matrices = np.stack([np.stack([1 - wrong, wrong], -1), np.stack([wrong, 1 - wrong], -1)], -2)
    assert kinds.total_variation(matrices) == pytest.approx(0.5)
    cells = make({("moving", 0.2): {"tide": 0.1}}, true_noise=matrices)
    assert changes_over_time(cells) == {("mixed", cells[0].level): pytest.approx(0.5)}


def test_the_papers_own_means_bear_out_its_main_claims():
    claims = {claim.text: claim for claim in check_claims(published_studies(), {})}
    assert claims["Continuous beats its static counterpart VolMinNet"].verdict == kinds.HOLDS
    assert claims["Continuous has the lowest error of Q on all data sets (tables 2 and 3)"].verdict == kinds.HOLDS
    assert claims["With the true Q, forward correction by Q(t) beats its average over time"].verdict == kinds.HOLDS


def test_the_table_names_cells_draws_and_both_verdicts():
    cells = make(rates("moving", [{"plugin": 0.1, "anchor": 0.2}] * 6))
    claim = kinds.beats("Plug-In beats Anchor", cells, [("plugin", "anchor")])
    (made,) = compare_claims([claim], [kinds.beats("x", [], [])], [claim])
    assert made.in_code == "holds, 1 of 1 data sets"
    assert made.in_paper == ""
    (row,) = claims_table([claim]).rows
    assert row[:4] == ["1", "Plug-In beats Anchor", "holds", "1 of 1 data sets"]
    assert row[7:10] == ["6", "24", "0.0156"]
    (made,) = compare_claims([claim], [claim], [claim])
    assert made.in_paper == "holds, 1 of 1 data sets"


@pytest.mark.parametrize(
    ("p_value", "in_favour", "verdict"),
    [
        (0.01, 3, kinds.HOLDS),
        (0.01, 1, kinds.PARTLY),
        (0.3, 3, kinds.FAILS),
        (0.3, 2, kinds.FAILS),
        (math.nan, 3, kinds.FAILS),
    ],
)
def test_no_verdict_but_does_not_hold_without_significance(p_value, in_favour, verdict):
    assert kinds.judge(p_value, kinds.Support(in_favour, 3)) == verdict


def test_a_data_set_counts_if_every_comparison_goes_the_claimed_way():
    support = kinds.count_support([("moving", True), ("moving", False), ("senior", True)])
    assert str(support) == "1 of 2 data sets"


def test_a_cost_that_the_test_does_not_reject_does_not_hold_however_many_data_sets_are_cheap():
    errors = [{"plugin": 0.2, "anchor": 0.2}] * 7 + [{"plugin": 0.4, "anchor": 0.2}]
    cells = make({(f"data {index}", 0.0): error for index, error in enumerate(errors)})
    claim = kinds.no_cost("x", cells, [("plugin", "anchor")])
    assert (claim.verdict, claim.support) == (kinds.FAILS, "7 of 8 data sets")


def test_all_costs_are_listed_and_the_largest_comes_first():
    cells = make({(f"data {index}", 0.0): {"plugin": 0.2 + index / 50, "anchor": 0.2} for index in range(1, 8)})
    claim = kinds.no_cost("x", cells, [("plugin", "anchor")])
    named = [f"plugin on data {index}: +{2 * index:.1f}" for index in range(7, 0, -1)]
    assert f"one point or more for {', '.join(named)}." in claim.why
