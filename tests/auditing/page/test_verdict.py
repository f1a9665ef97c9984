import json

import numpy as np
import pytest

from auditing.page.fake import write_audit
from labeltide.auditing.page.format import Clock, terminal_text
from labeltide.auditing.page.verdict import change_sentence, write_verdict


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    def make(**changes):
        folder = write_audit(tmp_path_factory.mktemp("audit"), sequences=4, steps=60, **changes)
        return json.loads((folder / "audit.json").read_text())

    return {
        "temporal": make(),
        "constant": make(is_temporal=False),
        "clean": make(is_noisy=False, is_temporal=False),
    }


def words(audit):
    verdict = write_verdict(audit)
    return [
        terminal_text(text)
        for text in (verdict.headline, *(f"{c.answer}. {c.detail}" for c in verdict.cards), verdict.caution)
    ]


def test_a_sure_change_names_its_moment_its_size_and_its_sureness(audits):
    headline, many, when, changes, then, caution = words(audits["temporal"])
    assert headline.startswith(
        "About 28 in 100 recorded labels are probably wrong. The error rate changes over the day"
    )
    assert headline.endswith("over the day: highest near 21:30 (48 %), lowest near 09:30 (8.2 %).")
    assert "An estimated 28 % of 480 recorded labels (95 % interval 27 to 30 %)" in many
    assert when == "Near 21:30. The error rate changes: highest near 21:30 (48 %), lowest near 09:30 (8.2 %)."
    assert changes.startswith(
        "Yes, almost certainly. The error rate varies by 40 percentage points (95 % interval 34 to 47)"
    )
    assert "less than once in 1,000 such studies (p < 0.001)" in changes
    assert then.startswith(
        "Check the listed labels. Start at the top of the list, where mistakes are most certain. Then "
    )
    assert 'Then annotate 4 stretches again, "p01" first. They have 200 steps in all' in then
    assert '"Bursts of mistakes"' in caution


def test_the_plan_comes_first_only_where_no_label_is_listed(audits):
    audit = audits["temporal"]
    without_list = audit | {"issues": audit["issues"] | {"count": 0, "corrected": 0}}
    assert words(without_list)[4].startswith('Annotate 4 stretches again, "p01" first. They have 200 steps')
    assert words(without_list)[4].endswith("No label is certain enough to be listed.")
    without_plan = words(audit | {"plan": []})[4]
    assert without_plan.startswith("Check the listed labels. Start at the top")
    assert "stretches" not in without_plan


@pytest.mark.parametrize(
    ("in_runs", "expected"), [(1, "listed labels lies in a run of"), (1200, "labels lie in runs of")]
)
def test_listed_labels_in_runs_are_said_not_to_be_corrected(audits, in_runs, expected):
    audit = audits["temporal"]
    many = words({**audit, "issues": audit["issues"] | {"by_kind": {"isolated": 40, "run": in_runs}}})[1]
    assert f"{in_runs:,} of the {audit['issues']['count']:,} listed" in many
    assert expected in many
    assert "listed but not corrected" in many


def test_without_labels_in_runs_the_verdict_does_not_mention_them(audits):
    audit = audits["temporal"]
    for by_kind in ({"isolated": 40, "run": 0}, None):
        assert "in runs" not in words({**audit, "issues": audit["issues"] | {"by_kind": by_kind}})[1]


def test_where_no_label_may_be_named_no_list_is_advised(audits):
    clean = audits["clean"]
    unsure = clean | {"noise": clean["noise"] | {"rate_lower": 0.0, "rate_upper": 0.3}}
    check = {"name": "identifiability", "is_warning": True, "sentence": "No.", "advice": "", "denies": True}
    for audit in (unsure, audits["temporal"] | {"diagnostics": [check]}):
        card = write_verdict(audit).cards[-1]
        assert card.answer.startswith("Check some stretches by hand")
        assert card.link[0] == "plan"


def test_nothing_is_claimed_that_no_test_carries(audits):
    headline, _, when, changes, _, _ = words(audits["constant"])
    assert headline.endswith("Whether the error rate changes over the day is not clear.")
    assert when.startswith("No moment stands out.")
    assert changes.startswith("Not shown. A constant error rate explains these labels equally well (p = 0.41).")
    headline, many, _, _, then, _ = words(audits["clean"])
    assert headline.startswith("There is no clear sign of random errors in these labels. Systematic errors")
    assert many.startswith("No clear sign of random errors.")
    alone = {**audits["clean"], "noise": audits["clean"]["noise"] | {"rate_alone": 0.06, "rate_upper": 0.07}}
    headline = words(alone)[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "6.0 % of the labels differ from their neighbours as wrong ones do, but fit the signals" in headline
    assert then.startswith("Nothing urgent.")


@pytest.mark.parametrize(
    ("p", "answer", "often"),
    [
        (0.0004, "Yes, almost certainly", "less than once in 1,000"),
        (0.0012, "Yes, very likely", "about once in 1,000"),
        (0.004, "Yes, very likely", "about 4 times in 1,000"),
        (0.015, "Probably", "about 15 times in 1,000"),
        (0.03, "Probably", "about 3 times in 100"),
    ],
)
def test_sureness_follows_p(audits, p, answer, often):
    audit = {**audits["temporal"], "temporality": audits["temporal"]["temporality"] | {"p_value": p}}
    card = write_verdict(audit).cards[2]
    assert card.answer == answer
    assert often in card.detail


def test_too_few_people_are_said_to_be_too_few(audits):
    test = audits["temporal"]["temporality"] | {"p_value": None, "method": "none", "n_units": 3}
    card = write_verdict({**audits["temporal"], "temporality": test}).cards[2]
    assert card.answer == "Cannot be tested"
    assert card.detail.startswith("These labels come from only 3 people or recordings.")
    sentence = change_sentence(test, Clock("column", "hours", "", None), (0.0, 8.0))
    assert (
        terminal_text(sentence) == "Whether this changes over hours cannot be tested with only 3 people or recordings."
    )


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("people", "The units of the test are 30 people or recordings."),
        ("permutations", "The times of 30 windows were permuted"),
        ("bootstrap", ""),
    ],
)
@pytest.mark.parametrize("p", [0.004, 0.4])
def test_it_is_said_what_stands_behind_the_test(audits, method, message, p):
    test = audits["temporal"]["temporality"] | {"p_value": p, "method": method, "n_units": 30}
    assert message in write_verdict({**audits["temporal"], "temporality": test}).cards[2].detail


def test_unknown_numbers_are_said_to_be_unknown(audits):
    audit = audits["temporal"]
    unknown = {
        **audit,
        "noise": audit["noise"] | {"rate": None},
        "temporality": {**dict.fromkeys(audit["temporality"]), "per_class": [], "per_annotator": []},
    }
    text = " ".join(words(unknown))
    assert "could not be estimated" in text
    assert "nan" not in text.lower()


def test_only_the_classes_that_change_are_named(audits):
    test = audits["temporal"]["temporality"]
    per_class = [entry | {"p_value": 0.3} for entry in test["per_class"][:2]] + test["per_class"][2:]
    audit = {**audits["temporal"], "temporality": test | {"per_class": per_class}}
    assert terminal_text(write_verdict(audit).cards[2].detail).endswith('The change is clear for "sleep".')


def test_only_the_annotators_who_change_are_named(audits):
    test = audits["temporal"]["temporality"]
    first, second = test["per_annotator"]
    audit = {**audits["temporal"], "temporality": test | {"per_annotator": [first, second | {"p_value": 0.3}]}}
    assert terminal_text(write_verdict(audit).cards[2].detail).endswith('The change is clear for labels by "Ada".')


@pytest.mark.parametrize(
    ("period", "worst", "best", "p", "messages"),
    [
        (None, 7.5, 1.0, 0.01, "Gets worse over hours: 10 % wrong at best, where hours is near 1"),
        (None, 1.0, 7.5, 0.01, "Gets better over hours: 10 % wrong at best, where hours is near 7.5"),
        (None, 4.0, 7.5, 0.01, "Changes over hours: 10 % wrong at best"),
        (8.0, 7.5, 1.0, 0.01, "Changes over hours: 10 % wrong at best"),
        (None, 7.5, 1.0, 0.2, "Not shown to change over hours (p = 0.20)."),
        (None, 7.5, 1.0, None, "It is not known whether this changes"),
    ],
)
def test_an_annotator_gets_worse_only_where_the_test_and_the_curve_say_so(period, worst, best, p, messages):
    entry = {"p_value": p, "worst_at": worst, "best_at": best, "worst_rate": 0.3, "best_rate": 0.1}
    found = change_sentence(entry, Clock("column", "hours", "", period), (0.0, 8.0))
    assert terminal_text(found).replace("\N{NO-BREAK SPACE}", " ").startswith(messages)


def with_second(audit, **test):
    """The same audit with a second clock of its own test."""
    second = {"name": "since", "kind": "column", "unit": "", "period": None}
    other = {"clock": second, "noise": audit["noise"], "temporality": {**audit["temporality"], **test}}
    return {**audit, "other_clocks": [other]}


def test_of_several_clocks_each_has_its_own_words(audits):
    headline, _, _, _, when, changes, _, _ = words(with_second(audits["temporal"], p_value=0.7))
    assert headline.endswith("lowest near 09:30 (8.2 %). No change is shown over since.")
    assert when.startswith("No moment stands out.")
    assert changes.startswith(
        "Not shown. An error rate that follows the other clock alone explains these labels equally w"
    )
    headline, *_, changes, _, _ = words(with_second(audits["temporal"], p_value=0.004, worst_at=3.0))
    assert "The error rate changes over the day: highest near 21:30 (48 %), lowest near 09:30" in headline
    assert "; over since: " in headline
    assert "If it did not follow this clock, a change this large would appear about 4 times in 1,000" in changes
    headline, *_ = words(with_second(audits["constant"]))
    assert headline.endswith("Whether the error rate changes over the day or over since is not clear.")
    questions = [card.question for card in write_verdict(with_second(audits["constant"])).cards]
    assert terminal_text(questions[4]) == "Does it change over since?"
    assert len(set(questions)) == 6


HOURS = np.arange(101) / 9.98  # moments are named to a hundredth of the range
SHAPES = {
    "a step where hours is near 4 h, 2.0 % → 20 %": np.where(HOURS < 4, 0.02, 0.2),
    "a trend, 2.0 % where hours is near 0 h → 20 % where hours is near 10 h": 0.02 + 0.018 * HOURS,
    "a bump, 2.0 % where hours is near 0 h → 20 % where hours is near 5 h → 2.0 % where hours is near 10 h": (
        0.02 + 0.18 * np.exp(-((HOURS - 5) ** 2))
    ),
    "3 waves of 2.0 % to 20 %, the first highest where hours is near 1.7 h": (
        0.11 - 0.09 * np.cos(0.6 * np.pi * HOURS)
    ),
}


@pytest.mark.parametrize(("expected", "rate"), SHAPES.items())
def test_the_headline_names_the_form_of_the_change_with_two_digits_and_the_unit(audits, expected, rate):
    noise = {"clock": HOURS.tolist(), "steps": float("step" in expected), "curves": [{"rate": rate.tolist()}]}
    clock = {"name": "hours", "kind": "column", "unit": "h", "period": None}
    test = {**audits["temporal"]["temporality"], "classes_differ_p": None}
    audit = {**audits["temporal"], "noise": audits["temporal"]["noise"] | noise, "clock": clock, "temporality": test}
    headline = words(audit)[0].replace("\N{NO-BREAK SPACE}", " ")
    assert headline.endswith(f"The error rate changes over hours: {expected}.")


@pytest.mark.parametrize("share", [np.full(101, 1 / 3), np.exp(-HOURS / 2)], ids=["constant", "fades"])
def test_a_step_of_one_class_names_the_class(audits, share):
    step = np.where(HOURS < 4, 0.02, 0.2)
    curve = {"rate": (step * share).tolist(), "class_rate": [[0.01] * 101, step.tolist(), [0.01] * 101]}
    noise = audits["temporal"]["noise"] | {"clock": HOURS.tolist(), "steps": 0.9, "curves": [curve]}
    test = {**audits["temporal"]["temporality"], "classes_differ_p": 0.01}
    headline = words({**audits["temporal"], "noise": noise, "temporality": test})[0]
    assert '"walk" 2.0 % → 20 %' in headline.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("steps", "end"), [(3, ": about 10 % of them belong to another step."), (-3, ", unless the signals lag.")]
)
def test_labels_that_seem_early_may_be_those_of_signals_that_lag(audits, steps, end):
    shifts = {"assumed": steps, "recordings": [], "sentence": "", "step_seconds": None}
    moved = audits["temporal"]["issues"] | {"by_kind": {"misaligned": 48}}
    audit = {**audits["temporal"], "issues": moved, "table": audits["temporal"]["table"] | {"shifts": shifts}}
    first = words(audit)[0].replace("\N{NO-BREAK SPACE}", " ")
    assert f"by 3 steps against the signals{end}" in first


def test_the_first_line_says_what_the_share_rests_on(audits):
    alone = audits["temporal"]["issues"] | {"by_kind": {"isolated": 40}}
    headline = words({**audits["temporal"], "issues": alone})[0]
    assert "probably wrong, or fewer: short real events that leave no trace in the signals look the same." in headline
    check = {"name": "persistence", "is_warning": True, "sentence": "Alone.", "advice": ""}
    noise = audits["temporal"]["noise"] | {"rate": 0.2, "rate_lower": 0.0, "rate_unclear": 0.2}
    headline = words({**audits["temporal"], "issues": alone, "noise": noise, "diagnostics": [check]})[0]
    assert headline.startswith(
        "Between 0 and 20 in 100 recorded labels are probably wrong, judged by their neighbours alone"
    )
    noise |= {"rate_least": 0.08}  # as two annotators contradict each other
    headline = words({**audits["temporal"], "issues": alone, "noise": noise, "diagnostics": [check]})[0]
    assert headline.startswith("Between 8 and 20 in 100 recorded labels are probably wrong")
