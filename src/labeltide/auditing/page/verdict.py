"""The verdict in words: how many labels are wrong, when, whether that changes, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeltide.auditing.page.format import (
    Clock,
    View,
    change_words,
    clock_views,
    count,
    display_name,
    in_quotes,
    interval,
    is_known,
    join_words,
    number,
    numbers,
    p_value,
    percent,
    points,
    points_range,
    read_interval,
    read_numbers,
    terminal_text,
)
from labeltide.inference.conclusion import CANNOT_BE_TOLD, SHOWN, SURE, conclude
from labeltide.tables.tidy import LEFT_OUT
from labeltide.tables.times import written_length

LARGE_PART = 0.6  # of the clock between the best moment and the worst, for an annotator to get worse along it
MUCH = 0.05  # share of wrong labels that matters
NEITHER_KNOWN = "This cannot be answered as long as the share of wrong labels is unknown."
MIN_STEP = 0.75  # by hand: share of the variance of a curve that a single step explains
MIN_TURN = 0.3  # by hand: of the range of a curve, from which it turns
NOTHING_NAMED = "No label is named or corrected."
PLAN_LINK = ("plan", "The most informative stretches")
EXTREMES = ("worst_at", "worst_rate", "best_at", "best_rate")
MIN_UNCLEAR, MIN_UNCLEAR_PART = 0.005, 0.1  # by hand: of labels, and of wrong ones, from which a range is stated
MIN_SHOWN = 0.0005  # a smaller share would be shown as 0.0 %


@dataclass(frozen=True)
class Card:
    """One question with its answer in a few words, and what stands behind it."""

    question: str
    answer: str
    detail: str
    link: tuple[str, str] | None = None  # anchor on the page, words


@dataclass(frozen=True)
class AuditVerdict:
    """What a reader in a hurry takes away."""

    headline: str
    cards: list[Card]
    caution: str  # "" where no check raised a warning


def write_verdict(audit: Mapping[str, Any]) -> AuditVerdict:
    """Words computed from the numbers; nothing is claimed that a test does not support."""
    over = [card for view in clock_views(audit) for card in (_when(view), _changes(view))]
    cards = [_how_many(audit), *_timing(audit), *over, _next_card(audit)]
    warnings = [entry for entry in audit.get("diagnostics") or [] if entry.get("is_warning")]
    names = join_words([in_quotes(check_title(entry["name"])) for entry in warnings])
    verb = "raises a warning" if len(warnings) == 1 else "raise warnings"
    caution = f"{count(len(warnings), 'check')} {verb} ({names}): read the numbers with caution." if warnings else ""
    headline, late = _share_headline(audit), timing_words(audit)
    headline = " ".join([headline, *(each["sentence"] for each in warnings if each["name"] == "circular")])
    if late:  # labels at the wrong time come first
        headline = f"Apart from that, {headline[0].lower()}{headline[1:]}"
        headline = f"{late[0].upper()}{late[1:]} against the signals{misaligned(audit)}. {headline}"
    return AuditVerdict(headline, cards, caution)


def is_noisy(audit: Mapping[str, Any]) -> bool:
    """Whether the data show wrong labels at all."""
    return conclude(audit).noise.answer == SHOWN


def untold(audit: Mapping[str, Any]) -> str:
    """Why the share of wrong labels cannot be estimated; "" where it can."""
    noise = conclude(audit).noise
    return noise.reason if noise.answer == CANNOT_BE_TOLD else ""


def listed_runs(audit: Mapping[str, Any]) -> int:
    """How many labels are listed where runs, in which labels and signals disagree, leave the share unknown."""
    checks = audit.get("diagnostics") or []
    is_cause = any(each["name"] == "bursts" and each["sentence"] == untold(audit) for each in checks)
    return int((audit["issues"].get("by_kind") or {}).get("run") or 0) if is_cause else 0


def is_temporal(audit: Mapping[str, Any]) -> bool:
    """Whether the data show that the noise changes over the clock."""
    return conclude(audit).changes[0].answer == SHOWN


def size(audit: Mapping[str, Any]) -> str:
    """99,000 labels in 60 sequences, by 2 annotators."""
    table = audit["table"]
    annotators = table.get("annotators") or []
    by = f", by {count(len(annotators), 'annotator')}" if len(annotators) > 1 else ""
    return f"{count(table['labels'], 'label')} in {count(table['sequences'], 'sequence')}{by}"


def timing(audit: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What was found of late or early labels that were moved, for each annotator where there are several."""
    shifts = audit["table"].get("shifts") or {}
    return [each for each in shifts.get("by_annotator") or [shifts] if each.get("assumed") or each.get("recordings")]


def timing_words(audit: Mapping[str, Any]) -> str:
    """The labels are late by 4 steps."""
    parts = []
    for found in timing(audit):
        steps, own = int(found.get("assumed") or 0), len(found.get("recordings") or ())
        labels = f"the labels by {in_quotes(found['annotator'])}" if found.get("annotator") else "the labels"
        parts += [f"{labels} are {shift_words(steps, found)}"] if steps else []
        parts += [f"{labels} of {count(own, 'sequence')} are shifted by a lag of their own"] if own else []
    return join_words(parts)


def shift_words(steps: int, shifts: Mapping[str, Any]) -> str:
    """Late by 5 steps (2.5 min); without a time where the unit of the table's times is not known."""
    seconds = number(shifts.get("step_seconds"))
    time = f" ({written_length(abs(steps) * seconds, True)})" if is_known(seconds) else ""
    return f"{'late' if steps > 0 else 'early'} by {count(abs(steps), 'step')}{time}"


def misaligned(audit: Mapping[str, Any]) -> str:
    """About 24 % of the labels belong to another step, or the signals lag; empty where nothing is known."""
    if any(int(found.get("assumed") or 0) < 0 for found in timing(audit)):
        return ", unless the signals lag"
    share = number((audit["issues"].get("by_kind") or {}).get("misaligned")) / audit["table"]["labels"]
    return f": about {percent(share)} of them belong to another step" if share > 0 else ""


def _timing(audit: Mapping[str, Any]) -> list[Card]:
    answer, found = timing_words(audit), " ".join(found["sentence"] for found in timing(audit))
    detail = (
        f"{found} The audit moved the labels by this shift, so that each is compared with the signals of its own step. "
        "Where all labels seem early, the signals may lag instead, so that none is listed for its timing. "
        "labeltide apply --align writes the table with moved labels."
    )
    card = Card("Are labels late or early?", answer[:1].upper() + answer[1:], detail, ("timing", "Fit against shift"))
    return [card] if answer else []


def _share_headline(audit: Mapping[str, Any]) -> str:
    rate = number(audit["noise"].get("rate"))
    if untold(audit):
        reason = untold(audit).split(". ")[0].rstrip(".")
        return f"The share of wrong labels cannot be estimated from these data. {reason}."
    if not is_noisy(audit):
        words = following(audit)
        return f"There is no clear sign of random errors in these labels. {words[0].upper()}{words[1:]}."
    least, views = identified(audit), clock_views(audit)
    from_ = "About" if least is None else f"Between {100 * least:.0f} and"
    much = f"{from_} {_in_hundred(rate)} recorded labels are probably wrong{condition(audit)}"
    moving = [view for view in views if is_temporal(view.audit)]
    if not moving:
        return f"{much}. Whether the error rate changes {' or '.join(view.clock.over for view in views)} is not clear."
    changes = [f"{view.clock.over}: {words}" if (words := shape_words(view)) else view.clock.over for view in moving]
    still = [view.clock.over for view in views if view not in moving]
    end = f" No change is shown {' or '.join(still)}." if still else ""
    return f"{much}. The error rate changes {'; '.join(changes)}.{end}"


def following(audit: Mapping[str, Any]) -> str:
    """The errors that an audit without a clear sign of wrong labels does not see."""
    if not is_known(alone := number(audit["noise"].get("rate_alone"))):
        return "systematic errors would not show"
    share = f"{percent(alone)} of the labels differ from their neighbours as wrong ones do, but fit the signals"
    return f"{share}: they are right unless errors follow the signals"


def condition(audit: Mapping[str, Any]) -> str:
    """What the share of wrong labels rests on; empty where no label stands alone."""
    if any(each["name"] == "persistence" and each.get("is_warning") for each in audit.get("diagnostics") or []):
        return (
            ", judged by their neighbours alone: the signals support no suggestion, and short real events look the same"
        )
    alone = number((audit["issues"].get("by_kind") or {}).get("isolated"))
    return ", or fewer: short real events that leave no trace in the signals look the same" if alone > 0 else ""


def shape_words(view: View) -> str:
    """The form of a change over the clock: a step, a trend, a bump or waves, with its moments and rates."""
    noise, test, moment = view.audit["noise"], view.audit["temporality"], view.clock.moment
    curves, at = noise.get("curves") or [], numbers(noise.get("clock"))
    rate = numbers(curves[0].get("rate")) if curves else np.zeros(0)
    if len(rate) < 3 or not np.isfinite(rate).all():
        worst = number(test.get("worst_at"))
        return f"highest {moment(worst)}" if is_known(worst) else ""
    at = at if view.clock.period else at.round(2 - round(float(np.log10(np.ptp(at) or 1.0))))  # about 1 % of the range
    if number(noise.get("steps")) >= 0.5:
        (split, explained), who, of_step = best_split(rate), "", rate
        if number(test.get("classes_differ_p")) < SURE:  # the class that changes most; its share may change, too
            of_classes = numbers(curves[0].get("class_rate"))
            name = int(np.ptp(of_classes, axis=1).argmax())
            who, of_step = f"{in_quotes(view.audit['table']['classes'][name])} ", of_classes[name]
            split, explained = max((split, explained), best_split(of_step), key=lambda found: found[1])
        if explained >= MIN_STEP:
            before, after = (percent(float(part.mean())) for part in (of_step[:split], of_step[split:]))
            return f"a step {moment(float(at[split]))}, {who}{before} → {after}"
    turns = turning_points(rate)
    low, high = int(rate.argmin()), int(rate.argmax())
    if view.clock.period:
        ends = [f"{moment(float(at[end]))} ({percent(rate[end])})" for end in (high, low)]
        return f"highest {ends[0]}, lowest {ends[1]}"
    if len(turns) > 3:
        peak = moment(float(at[turns[1 if rate[turns[1]] > rate[0] else 2]]))
        return f"{len(turns) // 2} waves of {percent(rate[low])} to {percent(rate[high])}, the first highest {peak}"
    path = " → ".join(f"{percent(rate[turn])} {moment(float(at[turn]))}" for turn in turns)
    return f"{'a trend' if len(turns) == 2 else 'a bump' if rate[turns[1]] > rate[0] else 'a dip'}, {path}"


def best_split(rate: np.ndarray) -> tuple[int, float]:
    """The first point after the best single change point of a curve, and the share of the variance it explains."""
    left, size = np.cumsum(rate)[:-1], np.arange(1, len(rate))
    between = (left / size - (rate.sum() - left) / (len(rate) - size)) ** 2 * size * (len(rate) - size) / len(rate)
    return int(between.argmax()) + 1, float(between.max() / max(len(rate) * rate.var(), 1e-300))


def turning_points(rate: np.ndarray) -> list[int]:
    """Both ends of a curve and its turns between them, without wiggles of less than `MIN_TURN` of its range."""
    turns, extreme, sign = [0], 0, 0
    for point, value in enumerate(rate):
        moved = value - rate[extreme]
        if sign and moved * sign >= 0:
            extreme = point
        elif abs(moved) >= MIN_TURN * np.ptp(rate) > 0:
            turns += [extreme] if sign else []
            extreme, sign = point, int(np.sign(moved))
    return [*turns, len(rate) - 1]


def identified(audit: Mapping[str, Any]) -> float | None:
    """The share of labels that are identified as wrong, where it is clearly less than the estimate; else None."""
    rate, unclear, least = read_numbers(audit["noise"], "rate", "rate_unclear", "rate_least")
    if not is_known(rate, unclear) or unclear <= max(MIN_UNCLEAR, MIN_UNCLEAR_PART * rate):
        return None
    return min(max(rate - unclear, least if is_known(least) else 0.0), rate)


def _in_hundred(rate: float) -> str:
    return f"{100 * rate:.0f} in 100" if rate >= 0.015 else f"{1000 * rate:.0f} in 1,000"


def _how_many(audit: Mapping[str, Any]) -> Card:
    question, noise, issues = "How many labels are wrong?", audit["noise"], audit["issues"]
    rate, *ends = read_interval(noise, "rate")
    surely = f" (95 % interval {range_})" if (range_ := interval(*ends)) else ""
    if untold(audit):
        runs = f"{count(listed_runs(audit), 'label')} in such runs are listed to be looked at; none is corrected."
        detail = f"{untold(audit)} {runs if listed_runs(audit) else NOTHING_NAMED}"
        return Card(question, "Cannot be estimated", detail, ("diagnostics", "What the checks mean"))
    if not is_noisy(audit):
        detail = f"The estimate is {percent(rate)}{surely}, which labels without mistakes could also produce."
        late = (
            f"{count(issues['count'], 'label')} at the wrong time are listed." if issues.get("count") else NOTHING_NAMED
        )
        return Card(question, "No clear sign of random errors", f"{detail} {late}")
    labels, wrong = audit["table"]["labels"], rate * audit["table"]["labels"]
    some = count(round(wrong), "label")
    if wrong >= 100:  # two figures are as many as the estimate bears: about 31,000
        some = f"{round(wrong, -max(0, len(str(int(wrong))) - 2)):,.0f} labels"
    about = f"An estimated {percent(rate)} of {count(labels, 'recorded label')}{surely}: about {some}."
    named = "No individual label can be listed with enough certainty."
    if issues.get("count"):
        false = number(issues.get("expected_false_alarms"))
        price = f"; about {_in_hundred(false)} of them are expected to be right" if is_known(false) else ""
        named = f"{count(issues['count'], 'label')} are listed as probably wrong{price}."
        in_runs = number((issues.get("by_kind") or {}).get("run"))
        if in_runs > 0:
            lie = "lies in a run" if in_runs == 1 else "lie in runs"
            named += (
                f" {in_runs:,.0f} of the {issues['count']:,} listed labels {lie} of three or more steps in which "
                "labels and signals disagree: either may be at fault. Such labels are listed but not corrected."
            )
    least = identified(audit)
    if condition(audit):
        about += " Short real events that leave no trace in the signals count as wrong here. If there are such events, "
        about += f"anything from 0 to {percent(ends[1])} may be wrong; only a review can tell."
    if least:  # zero where persistence alone speaks against the labels
        about += (
            f" In {percent(rate - least)} of the labels, labels and signals disagree in runs or about a class whose "
            "name is in doubt. Either may be at fault, so the range begins without them."
        )
    detail = " ".join(filter(None, [about, named, _worst_class(audit)]))
    answer = f"About {percent(rate)}" if least is None else f"Between {percent(least)} and {percent(rate)}"
    return Card(question, answer, detail, ("issues", "The labels to check"))


def _worst_class(audit: Mapping[str, Any]) -> str:
    p = number(audit["temporality"].get("classes_differ_p"))
    curves = audit["noise"].get("curves") or []
    if not (is_known(p) and p < SURE and curves):
        return ""
    rates = numbers(curves[0].get("class_rate"))
    if rates.ndim != 2 or not np.isfinite(rates).any(axis=1).all():
        return ""
    mean = np.nanmean(rates, axis=1)
    worst = int(mean.argmax())
    name, rate = in_quotes(audit["table"]["classes"][worst]), percent(float(mean[worst]))
    return f"True {name} is mislabelled most often ({rate} over the clock)."


def _when(view: View) -> Card:
    test, clock = view.audit["temporality"], view.clock
    question = f"When is it worst {clock.over}?" if view.others else "When is it worst?"
    worst, high, *_ = read_numbers(test, *EXTREMES)
    link = (view.anchor, "The error rate over the clock")
    if not is_known(worst, high):
        return Card(question, "Not known", "The error rate over the clock could not be estimated.")
    if untold(view.audit):
        return Card(question, "Cannot be estimated", NEITHER_KNOWN, link)
    if not is_temporal(view.audit):
        detail = f"The highest estimate is {percent(high)}, {clock.moment(worst)}, but this may be due to chance."
        if high < MIN_SHOWN:
            detail = f"The estimate is {percent(high)} throughout."
        return Card(question, "No moment stands out", detail, link)
    answer = clock.moment(worst)
    return Card(question, answer[0].upper() + answer[1:], f"The error rate changes: {shape_words(view)}.", link)


def _changes(view: View) -> Card:
    test, clock = view.audit["temporality"], view.clock
    p, high = read_numbers(test, "p_value", "change_upper")
    question = f"Does it change {clock.over}?" if view.others else "Does it change over time?"
    if untold(view.audit):
        return Card(question, "Cannot be tested", NEITHER_KNOWN)
    if not is_known(p):
        if test.get("method") == "none":
            few = f"These labels come from only {units(test)}."
            other = "Anything that affects many of their windows would look like a change over the clock."
            return Card(question, "Cannot be tested", f"{few} {other}")
        return Card(question, "Not known", "The test for a change over the clock could not be run.")
    if not is_temporal(view.audit) and not is_noisy(view.audit) and p < SURE:
        return Card(question, "Not shown", "There is no evidence of wrong labels, so a change cannot be shown either.")
    if not is_temporal(view.audit):
        still = f" A change of up to {points(high)} cannot be ruled out." if high >= MIN_SHOWN else ""
        constant = f"An error rate that follows the other clock{'s' * (view.others > 1)} alone"
        constant = constant if view.others else "A constant error rate"
        as_well = f"{constant} explains these labels equally well ({p_value(p)})."
        return Card(question, "Not shown", f"{as_well}{still}{units_behind(test)}")
    change = change_words(test, "95 % interval ")
    moves = f"The error rate varies by {change} {clock.over}. " if change else ""
    clear = ""  # the classes and the annotators whose change is clear, where it is not clear for all
    for part, key, noun in (("per_class", "class", ""), ("per_annotator", "annotator", "labels by ")):
        entries = test.get(part) or []
        sure = [entry for entry in entries if is_known(number(entry.get("p_value"))) and entry["p_value"] < SURE]
        if len(entries) > 1 and 0 < len(sure) < len(entries):
            clear += f" The change is clear for {noun}{join_words([in_quotes(entry[key]) for entry in sure])}."
    many = 1000 if p < 0.0195 else 100
    times = max(1, round(many * p))
    often = "less than once" if p < 0.001 else "about once" if times == 1 else f"about {times} times"
    constant = "it did not follow this clock" if view.others else "it were constant"
    chance = f"If {constant}, a change this large would appear {often} in {many:,} such studies ({p_value(p)})."
    sureness = "Yes, almost certainly" if p < 0.001 else "Yes, very likely" if p < 0.01 else "Probably"
    return Card(question, sureness, f"{moves}{chance}{units_behind(test)}{clear}")


def change_sentence(entry: Mapping[str, Any], clock: Clock, ends: tuple[float, float]) -> str:
    """Does it get worse from one end of the clock to the other? Said as surely as the test carries it."""
    p, worst, high, best, low = read_numbers(entry, "p_value", *EXTREMES)
    if not is_known(p):
        if entry.get("method") == "none":
            return f"Whether this changes {clock.over} cannot be tested with only {units(entry)}."
        return "It is not known whether this changes over the clock."
    if p >= SURE or not is_known(worst, high, best, low):
        return f"Not shown to change {clock.over} ({p_value(p)})."
    through = (worst - best) / (ends[1] - ends[0]) if ends[1] > ends[0] and not clock.period else 0.0
    how = "Gets worse" if through > LARGE_PART else "Gets better" if through < -LARGE_PART else "Changes"
    rates = f"{percent(low)} wrong at best, {clock.moment(best)}; {percent(high)} at worst, {clock.moment(worst)}"
    return f"{how} {clock.over}: {rates} ({p_value(p)})."


def _next_card(audit: Mapping[str, Any]) -> Card:
    """The listed labels come before the plan, which gains for rare classes alone (`bench/results/flags/plan.md`)."""
    plan, issues, question = audit.get("plan") or [], audit["issues"], "What should I do next?"
    by_hand = "Check some stretches by hand"
    if listed := listed_runs(audit):
        some = "some 20 of them" if listed > 20 else "them"
        detail = f"Review {some}: then it is known whether labels or signals are at fault in such runs."
        return Card(question, "Look at the listed runs", detail, ("issues", "The labels to check"))
    if untold(audit):
        named = f", {in_quotes(plan[0]['sequence'])} first" if plan else ""
        detail = (
            "Follow the advice of the checks, or check some stretches by hand and pass the result as trusted labels "
            "(--trusted). Until then, assume neither that the labels are right nor that they are wrong."
        )
        return Card(question, f"{by_hand}{named}", detail, PLAN_LINK)
    if not plan and not issues.get("count"):
        return Card(question, "Nothing urgent", "Use the labels as they are, and audit again when there are more.")
    if timing(audit) and not is_noisy(audit):
        detail = "labeltide apply --align moves them. Where starts or ends alone are late, --above 0.95 fits better."
        return Card(question, "Move the labels to their time", detail, ("timing", "Fit against shift"))
    if not is_noisy(audit):
        upper = number(audit["noise"].get("rate_upper"))
        if not is_known(upper) or upper < MUCH:
            return Card(question, "Nothing urgent", "The labels can be used as they are.")
        detail = f"No label is listed, but it cannot be ruled out that up to {percent(upper)} of the labels are wrong."
        return Card(question, by_hand, detail, PLAN_LINK)
    steps = sum(entry.get("steps") or 0 for entry in plan)
    gain = f"They have {count(steps, 'step')} in all and mainly help to estimate the error rates of rare classes."
    if not issues.get("count"):
        answer = f"Annotate {again_words(plan)}"
        return Card(question, answer, f"{gain} No label is certain enough to be listed.", PLAN_LINK)
    corrected = issues.get("corrected") or 0
    parts = [
        "Start at the top of the list, where mistakes are most certain.",
        f"Then annotate {again_words(plan)}. {gain}" if plan else "",
        f"For training, the column “corrected” has the suggested class in place of {count(corrected, 'listed label')}."
        if corrected
        else "",
    ]
    return Card(question, "Check the listed labels", " ".join(filter(None, parts)), ("issues", "The labels to check"))


def again_words(plan: Sequence[Mapping[str, Any]]) -> str:
    """10 stretches again, "p04" first."""
    return f"{count(len(plan), 'stretch', 'stretches')} again, {in_quotes(plan[0]['sequence'])} first"


def units(test: Mapping[str, Any]) -> str:
    """What stands behind a test: 5 people or recordings."""
    return count(number(test.get("n_units")), "person or recording", "people or recordings")


def units_behind(test: Mapping[str, Any]) -> str:
    """How a test was made, by its method."""
    windows = count(number(test.get("n_units")), "window")
    return {
        "people": f" The units of the test are {units(test)}.",
        "permutations": f" The times of {windows} were permuted, assuming independent windows.",
    }.get(str(test.get("method")), "")


TITLES = {  # of diagnostics, by a part of their names; audit_parts.html says what they mean
    "burst": "Bursts of mistakes",
    "identif": "Identifiability",
    "support": "Signals and labels",
    "recordings": "Single recordings",
    "persistence": "Persistence alone",
    "delay": "Varying delays",
    "planted class": "Planted errors of a class",
    "planted": "Planted errors",
    "mostly_right": "Right more often than not",
    "confounding": "Clock and class",
    "circular": "Corrected by a model",
    "copies": "Copies",
    "leak": "Leaking column",
    "drift": "Drift",
    "balance": "Class balance",
    "together": "Shared mistakes",
}


def check_title(name: str) -> str:
    """The heading of a check; an unknown one keeps its own name."""
    return next((title for key, title in TITLES.items() if key in str(name).lower()), str(name).replace("_", " "))


# The kappa paradox: kappa is low though annotators agree, because one class rules (Feinstein and Cicchetti 1990).

RULES = 0.7  # share of the labels from which one class rules
LOW, APART = 0.8, 0.15  # kappa under which it is read as less than full; observed agreement above it by so much


def prevalence_caveat(agreement: Mapping[str, Any]) -> str:
    """A sentence where kappa falls because one class rules; empty elsewhere."""
    kappa, observed, share = read_numbers(agreement, "fleiss", "observed", "largest_share")
    if not is_known(kappa, observed, share) or share < RULES or kappa > LOW or observed - kappa < APART:
        return ""
    return (
        f"Two annotators gave the same label in {percent(observed)} of cases, and yet kappa is {kappa:.2f}. One class, "
        f"{in_quotes(agreement.get('largest_class'))}, makes up {percent(share)} of the labels: agreement by "
        "chance is high, and a few disagreements lower kappa a lot (the kappa paradox, Feinstein and Cicchetti 1990). "
        "Read it together with the observed agreement, and compare it only between data with similar class shares."
    )


# What was read of a table and what was decided about it, stated before anything is fitted.

COLUMNS = 40  # lines of the overview on a terminal
HEADS = ("column", "type", "missing", "levels", "role", "")


def reading_text(table: Mapping[str, Any]) -> str:
    """The part `table` of an audit for a terminal: size, one line for each column, every decision."""
    overview = table.get("overview") or []
    size = ", ".join(count(table[f"{each}s"], each) for each in ("row", "label", "sequence"))
    lines = [f"Read       {display_name(table['name'], 60)}: {size}, {count(len(overview), 'column')}."]
    rows = [HEADS]
    for column in overview[:COLUMNS]:
        unknown, why = "many" if column["type"] else "", terminal_text(column["why"])
        counts = (unknown if column[key] is None else f"{column[key]:,}" for key in ("missing", "levels"))
        rows.append((display_name(column["name"], 30), column["type"], *counts, column["role"], why))
    widths = [max(len(row[index]) for row in rows) for index in range(len(HEADS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        cells[2:4] = [cell.rjust(width) for cell, width in zip(row[2:4], widths[2:4], strict=True)]  # numbers
        lines.append("  ".join(["", *cells, *([row[-1]] if row[-1] else [])]))
    if len(overview) > COLUMNS:
        lines.append(f"  ... and {len(overview) - COLUMNS} more, which audit.json and the page list")
    return "\n".join(
        [*lines, "Decided", *(f"  - {terminal_text(sentence)}" for sentence in table.get("messages") or [])]
    )


def reading_line(table: Mapping[str, Any]) -> str:
    """Columns, used columns and decisions in half a sentence."""
    overview, messages = table.get("overview") or [], table.get("messages") or []
    used = sum(column["role"] != LEFT_OUT for column in overview)
    parts = [f"{count(len(overview), 'column')}, {used:,} of them used"] if overview else []
    return "; ".join([*parts, count(len(messages), "decision")])


# A comparison of two audits in words: for a terminal, and for the page.

HEAD = 11  # letters before each line's words


def comparison_text(compare: Mapping[str, Any]) -> str:
    """The comparison in a few lines, for a terminal."""
    titles = []
    for side in (compare["old"], compare["new"]):
        made = f" of {str(side['created'])[:10]}" if side.get("created") else ""
        size = f"{count(side['labels'], 'label')}, {count(side['issues'] or 0, 'issue')}"
        titles.append(f"{display_name(side['name'], 60)}{made} ({size})")
    return f"{', then '.join(titles)}.\n{baseline_text(compare, 'Wrong')}"


def baseline_text(compare: Mapping[str, Any], first: str = "Baseline") -> str:
    """What changed since the baseline, as further lines below the summary of an audit."""
    lines = {
        first: rate_sentence(compare["rate"]),
        "Issues": issues_sentence(compare),
        "Classes": classes_sentence(compare),
        "Careful": " ".join(compare["messages"]),
    }
    return "\n".join(f"{head:<{HEAD}}{terminal_text(text)}" for head, text in lines.items() if text)


def rate_sentence(rate: Mapping[str, Any]) -> str:
    """Then 19 %, now 10 %: 9.0 percentage points lower (8.1 to 10), p < 0.001."""
    then, now = number(rate["then"]["value"]), number(rate["now"]["value"])
    if not is_known(then, now):
        return "The share of wrong labels is not known in both audits."
    p, difference = number(rate["p_value"]), number(rate["difference"])
    rates = f"{percent(then)} then, {percent(now)} now"
    if not is_known(p):
        return f"{rates}. The difference cannot be tested, because an interval is missing."
    low, high, method = number(rate["lower"]), number(rate["upper"]), "z-test of two independent estimates"
    if rate["method"] == "people":
        paired = f", {rate['n_paired']} of them in both audits and paired" if rate["n_paired"] else ""
        method = f"t-test with sequences as the unit{paired}"
    if p < SURE:
        ends = (low, high) if difference > 0 else (-high, -low)
        more = "higher" if difference > 0 else "lower"
        moved = f"{points(abs(difference))} {more} (95 % interval {points_range(*ends)})"
        return f"{rates}: {moved}, {p_value(p)}; {method}."
    test = f"(95 % interval {points_range(low, high)}, {p_value(p)}); {method}"
    return f"{rates}. There is no evidence of a difference {test}."


def issues_sentence(compare: Mapping[str, Any]) -> str:
    """12 new, 40 resolved (38 relabelled), 900 persisting; 4,958 labels matched by sequence and time."""
    found, matched = compare["issues"], compare["matched"]
    if found is None:
        return "No label could be matched, so new, resolved and persisting issues are unknown."
    parts = []
    for kind, elsewhere in (("new", "not there before"), ("resolved", "gone"), ("persisting", "")):
        reasons = {"relabelled": "relabelled", "not_in_the_other": elsewhere} if elsewhere else {}
        counts = [f"{found[kind][key]:,} {words}" for key, words in reasons.items() if found[kind].get(key)]
        why = f" ({', '.join(counts)})" if counts else ""
        parts.append(f"{found[kind]['count']:,} {kind}{why}")
    alone = {which: matched[f"only_{which}"] for which in ("old", "new")}
    others = [f"{labels:,} in the {which} audit alone" for which, labels in alone.items() if labels]
    rest = f" ({join_words(others)})" if others else ""
    return f"{join_words(parts)}. {count(matched['labels'], 'label')} matched by {matched['by']}{rest}."


def classes_sentence(compare: Mapping[str, Any]) -> str:
    """The true classes whose error rate over the clock differs."""
    if not compare["classes"]:
        return ""
    clock = Clock.read(compare["clock"])
    sure = [entry for entry in compare["classes"] if entry["p_corrected"] < SURE]
    if not sure:
        return "No true class shows a different error rate over the clock."
    parts = [
        f"{in_quotes(entry['class'])} ({percent(entry['then'])} then, {percent(entry['now'])} now "
        f"{clock.moment(entry['at'])}, {p_value(entry['p_corrected'])})"
        for entry in sorted(sure, key=lambda entry: entry["p_corrected"])
    ]
    return f"The error rate over the clock differs for true {join_words(parts)}."


# The comparison of annotators without signals.


NOBODY = "Nobody, as far as these labels show"
CONSENSUS_LINES = ("Agreement", "Differs", "Changes", "Contested")  # of the cards, in a terminal


def consensus_cards(found: Mapping[str, Any]) -> list[Card]:
    """Whether annotators agree, who differs, whether anyone changes, and what is contested."""
    agreement, people, contested = found["agreement"], found["annotators"], found["contested"]
    if agreement is None:
        return [Card("Do they agree?", "Unknown", "No step was labelled by two annotators.")]
    worst = min(agreement["cohen"], key=lambda pair: number(pair["kappa"]))
    pair = f"{in_quotes(worst['a'])} and {in_quotes(worst['b'])} agree least (kappa {number(worst['kappa']):.2f})."
    answer, kappa = f"{percent(agreement['observed'])} of pairs of labels agree", number(agreement["fleiss"])
    cards = [Card("Do they agree?", answer, f"Fleiss' kappa is {kappa:.2f}. {pair}", ("agreement", "Every pair"))]
    more = [each for each in people if number(each["against_p"]) < SURE and number(each["against"]) > 0]
    more.sort(key=lambda each: -each["against"])
    why = "No annotator was shown to differ more often than the others on the same recordings."
    if len(people) < 3:
        why = "Two annotators differ equally from each other: only a third or trusted labels can show who is right."
    elif more:
        why = f"{in_quotes(more[0]['annotator'])} differs more often than the others on the same recordings, by "
        why += f"{change_words(more[0], of='against')}, {p_value(more[0]['against_p'])}."
    names = join_words([in_quotes(each["annotator"]) for each in more])
    cards.append(Card("Who differs more?", names or NOBODY, why, ("who", "Who differs how")))
    moved = sorted((each for each in people if number(each["change_p"]) < SURE), key=lambda each: each["change_p"])
    over = Clock.read(found["clock"]).over
    changes = [
        f"{in_quotes(each['annotator'])} differs {'more' if each['change'] > 0 else 'less'} often towards the end: a "
        f"change of {change_words(each)} {over}, {p_value(each['change_p'])}."
        for each in moved[:3]
    ]
    names = join_words([in_quotes(each["annotator"]) for each in moved])
    why = " ".join(changes) or f"No change {over} was shown."
    if not any(is_known(number(each["change_p"])) for each in people):
        why = "This needs at least five recordings by one annotator."
    cards.append(Card(f"Who changes {over}?", names or NOBODY, why, ("when", "The curves")))
    share = percent(contested["disputed"] / max(found["steps"], 1))
    why = f"One more annotator is expected to differ from the consensus at {percent(contested['differs'])} of steps."
    answer = f"They disagree at {share} of {count(found['steps'], 'step')}"
    cards.append(Card("What is contested?", answer, why, ("contested", "The most contested stretches")))
    return cards


def consensus_text(found: Mapping[str, Any]) -> str:
    """The cards as lines for a terminal."""
    lines = [
        f"{count(found['labels'], 'label')} of {len(found['annotators'])} annotators, "
        f"{count(found['steps'], 'step')} in {count(found['sequences'], 'sequence')}."
    ]
    for name, card in zip(CONSENSUS_LINES, consensus_cards(found), strict=False):
        answer = "" if card.detail.startswith(card.answer) else f"{card.answer}. "
        lines.append(f"{name:<{HEAD}}{terminal_text(answer + card.detail)}")
    return "\n".join(lines)
