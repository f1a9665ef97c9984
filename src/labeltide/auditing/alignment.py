"""Late and early labels of a table: found before windows are cut, moved to the signals, and described."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from labeltide.auditing.page.payload import read_times
from labeltide.auditing.reading import AuditInput
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.shifts import MAX_SHIFT, RECORDING_LEVEL, Shifts, move_labels, search_shifts, settle_changes
from labeltide.tables.times import seconds_of_unit, written_length
from labeltide.tables.words import quoted

MAX_STEPS = 400_000  # by hand: of the sequences that are searched; the others get the lag of these
MAX_CURVE = 121  # points of the curve that the page draws
MAX_LISTED = 50  # recordings with a shift of their own in audit.json
CONTRADICTED = 0.1  # by hand: probability below which a label makes its stretch count
PATTERN_PART = 0.2  # by hand: of the stretches, that a pattern must concern
PATTERN_LEVEL = 0.01  # of the tests of all patterns together
TIMED_STEPS = 1000  # whose times give the usual seconds between steps
LONGEST_STEP = 180.0  # seconds, so that at most one shift in twenty is a whole number of hours by chance


class TableShifts(NamedTuple):
    """The shifts that an audit assumes, and what audit.json says of them."""

    common: np.ndarray  # int64 (annotators,), of sequences that are not named below
    own: dict[str, np.ndarray]  # of sequences, (annotators,)
    described: dict[str, Any]

    def apply(self, table: AuditInput) -> AuditInput:
        """The table with its labels moved; the same where none is shifted."""
        if not self.own and not self.common.any():
            return table
        shift = np.stack([self.own.get(name, self.common) for name in table.sequence_names])
        codes = _split(table, table.labels)
        codes = [move_labels(row[None], steps[None])[0] for row, steps in zip(codes, shift, strict=True)]
        labels, _ = settle_changes(_split(table, table.features), codes, self.common)
        moved = np.where((table.index >= 0)[..., None], labels[table.index], np.int8(-1))
        return replace(table, moved=moved, shift=shift, ahead=np.where(shift == self.common, -shift, 0).clip(0))

    def check(self) -> tuple[Diagnostic, ...]:
        """A warning where labels are late or early, but by no common number of steps."""
        each = self.described["by_annotator"] or [self.described]
        found = " ".join(described["sentence"] for described in each if described["varies"])
        sentence = f"{found} These labels were left where they are."
        return (Diagnostic("delay", True, sentence, "Check how changes of class were recorded."),) if found else ()


def find_table_shifts(table: AuditInput) -> TableShifts:
    """Search the sequences of a table for labels that are late or early."""
    rows, codes = _split(table, table.features), _split(table, table.labels)
    searched = np.random.default_rng(0).permutation(len(rows))
    searched = np.sort(searched[: max(1, int((np.cumsum([len(rows[i]) for i in searched]) <= MAX_STEPS).sum()))])
    found = search_shifts([rows[i] for i in searched], [codes[i] for i in searched], limit=MAX_SHIFT)
    shift = np.stack([each.assumed for each in found.annotators or (found,)], axis=1)  # (searched, annotators)
    common = np.median(shift, axis=0).astype(np.int64)
    names = [table.sequence_names[i] for i in searched]
    seconds = _step_seconds(table)
    described = _describe(found, names, seconds)
    people = zip(table.annotator_names or (), found.annotators, strict=False)  # none where there is one
    described["by_annotator"] = [{"annotator": who, **_describe(each, names, seconds, who)} for who, each in people]
    own = {name: steps for name, steps in zip(names, shift, strict=True) if (steps != common).any()}
    return TableShifts(common, own, described)


def _split(table: AuditInput, values: np.ndarray) -> list[np.ndarray]:
    """Values of windows, (n, steps, ...), by sequence."""
    bounds = np.searchsorted(table.sequence_of_step, np.arange(1, len(table.sequence_names)))
    return np.split(table.from_steps(values), bounds)


def _step_seconds(table: AuditInput) -> float | None:
    """The usual seconds between steps; None where the unit of the times is not known."""
    rows = table.line_row[table.first_lines()[:TIMED_STEPS]]
    times, dated = read_times(pa.chunked_array([table.times.take(pa.array(rows)).cast(pa.string())]))
    steps, unit = np.diff(times), seconds_of_unit(table.columns.get("time") or "", dated)
    return float(np.median(steps[steps > 0])) * unit if unit and (steps > 0).any() else None


def _say_hours(steps: np.ndarray, seconds: float | None) -> str:
    """What shifts by whole hours suggest; empty for other shifts, and where steps are so long that many are whole."""
    hours = np.abs(steps) * (seconds or 0.0) / 3600
    whole = hours[(hours > 0.5) & (np.abs(hours - hours.round()) * 3600 <= (seconds or 0.0) / 2)].round()
    if not seconds or seconds > LONGEST_STEP or not len(whole):
        return ""
    days = whole % 24 == 0
    cause = "dates" if days.all() else "time zones and daylight saving time" + " as well as dates" * bool(days.any())
    amounts = [written_length(3600 * each, True) for each in np.unique(whole).tolist()]
    return f" Shifts by whole hours ({', '.join(amounts[:3])}) suggest a wrong clock: check {cause}."


def _describe(found: Shifts, names: list[str], seconds: float | None, who: str = "") -> dict[str, Any]:
    own = np.flatnonzero(found.own_p_value < RECORDING_LEVEL)
    own = own[np.argsort(found.own_p_value[own], kind="stable")][:MAX_LISTED]
    near = np.abs(found.shifts - (found.lag or 0)) <= MAX_CURVE // 2
    return {
        "lag": found.lag,
        "interval": found.interval,
        "p_value": found.p_value,
        "spread": found.spread,
        "reason": found.reason,
        "is_shifted": found.is_shifted,
        "varies": found.varies,
        "assumed": int(np.median(found.assumed)),
        "sentence": f"{quoted([who])}: " * bool(who) + str(found) + _say_hours(np.unique(found.assumed), seconds),
        "step_seconds": seconds,
        "recordings": [
            {"sequence": names[i], "shift": int(found.own_shift[i]), "p_value": float(found.own_p_value[i])}
            | {"interval": found.own_interval[i].astype(int).tolist()}
            for i in own
        ],
        "curve": {"shift": found.shifts[near].tolist(), "fit": found.fit[near].round(6).tolist()},
    }


def find_patterns(table: AuditInput, recorded: np.ndarray, posterior: np.ndarray) -> list[str]:
    """Sentences on one-sided errors: on one side of events, at midnight, or at the ends of sequences.

    Stretches in which signals contradict the labels are compared with chance. Errors at random follow an event, a run
    of the rarer label, as often as they precede one (sign test). They begin or end at midnight, and at the first or
    last step of a sequence, as often as any runs of their length (binomial test).

    Parameters
    ----------
    recorded : codes of labels, (all steps, annotators)
    posterior : probabilities of the true labels, (all steps, classes)
    """
    n_steps, n_classes = len(recorded), len(table.class_names)
    first = np.r_[True, np.diff(table.sequence_of_step) != 0]
    last, size = np.append(first[1:], True), np.bincount(table.sequence_of_step)[table.sequence_of_step]
    midnight = np.append(_is_midnight(table) & ~first, False)
    at_midnight = 1 - (1 - midnight.sum() / max(1, (~first).sum())) ** 2  # the chance that either end of a run is there
    counts, suggested = np.bincount(recorded[recorded >= 0], minlength=n_classes), posterior.argmax(1)
    runs = []
    for labels in recorded.T.astype(np.int64):
        is_sure = posterior[np.arange(n_steps), labels] < CONTRADICTED
        errors = np.where((labels >= 0) & (labels != suggested), labels * n_classes + suggested, -1)
        starts = np.flatnonzero(first | (np.diff(errors, prepend=-1) != 0))
        kept = (errors[starts] >= 0) & (np.add.reduceat(is_sure.astype(np.int64), starts) > 0)
        start, end = starts[kept], np.append(starts[1:], n_steps)[kept]
        wrong, right, length = labels[start], suggested[start], end - start
        follows = ~first[start] & (labels[start - 1] == right)
        precedes = ~last[end - 1] & (labels[np.minimum(end, n_steps - 1)] == right)
        since = np.maximum.accumulate(np.where(first | (np.diff(labels, prepend=-2) != 0), np.arange(n_steps), 0))
        labelled = start - since[start - 1]  # steps of the event that the run follows
        is_short = counts[right] < counts[wrong]
        beside = follows & ~precedes, precedes & ~follows, labelled / (labelled + length)
        touching = midnight[start] | midnight[end], first[start] | last[end - 1]
        chance = np.minimum(1, 2 / (size[start] - length + 1))
        runs.append(np.stack([np.where(is_short, right, wrong), is_short, *beside, *touching, chance], axis=1))
    event, short, after, before, covered, is_cut, is_outer, outer_chance = np.concatenate(runs).T
    kinds = np.unique(np.stack([event, short], axis=1), axis=0)
    level = PATTERN_LEVEL / (len(kinds) + 2)
    found, touches = [], np.zeros(len(event), bool)
    for touching, chance, where in (
        (is_cut, at_midnight, "begin or end at midnight"),
        (is_outer, outer_chance.mean() if len(event) else 0.0, "lie at the beginning or end of a sequence"),
    ):
        n = int(touching.sum())
        if n > PATTERN_PART * len(event) and stats.binomtest(n, len(event), chance, "greater").pvalue <= level:
            text = f"{n} of {len(event)} stretches that the signals contradict {where}"
            found.append(f"{text} ({100 * chance:.0f} % by chance).")
            touches |= touching > 0
    of_event: dict[int, dict[str, int]] = {}
    for code, is_short in kinds:
        own = (event == code) & (short == is_short) & ~touches
        n_after, n_before = int(after[own].sum()), int(before[own].sum())
        n, is_after = n_after + n_before, n_after > n_before
        if n > PATTERN_PART * len(event) and stats.binomtest(n_after, n).pvalue <= level:
            how = {(1, 1): "end too early", (1, 0): "begin too late", (0, 1): "begin too early", (0, 0): "end too late"}
            what = f"Labels of {quoted([table.class_names[int(code)]])} seem to {how[int(is_short), int(is_after)]}"
            share = np.median(covered[own & (after > 0)]) if is_short and is_after else 1.0
            part = f" About {share:.0%} of such an event, its beginning, is labelled." if share < 0.5 else ""
            sides = f"signals contradict {max(n_after, n_before)} there and {min(n_after, n_before)} at the other end"
            of_event.setdefault(int(code), {})[f"{what}: {sides}.{part}"] = max(n_after, n_before)
    least = 0 if table.moved is None else 3  # by hand; a common lag explains two patterns that are alike
    for each in of_event.values():
        found += [text for text, n in each.items() if n > least * (sum(each.values()) - n)]
    return found


def _is_midnight(table: AuditInput) -> np.ndarray:
    """Which steps are the first of a day, by the dates of their times; none where times are numbers."""
    times = table.times.take(pa.array(table.line_row[table.first_lines()]))
    if not pc.match_substring_regex(times.dictionary, r"^\d{4}-\d\d-\d\d[ T]").to_numpy(zero_copy_only=False).any():
        return np.zeros(len(times), bool)
    dates = pc.utf8_slice_codeunits(times.dictionary, 0, 10).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.diff(dates[times.indices.to_numpy(zero_copy_only=False)], prepend=-1) != 0
