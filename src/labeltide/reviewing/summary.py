"""What a review has shown: the checked share of wrong labels, the model's, and what is still wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from labeltide import __version__
from labeltide._files import to_json, write_json
from labeltide.auditing.decisions import DecisionStore, Item, audit_identity, disputed_items
from labeltide.auditing.page import write_page
from labeltide.auditing.page.format import count, display_name, interval, percent
from labeltide.auditing.results import AUDIT
from labeltide.inference.review import CheckedRate, CheckedRates, checked_rate, clock_bins, remaining_rate
from labeltide.reviewing.folder import OTHER_AUDIT, AuditFolder, Lines
from labeltide.reviewing.queue import Outcomes, check_same_audit, sample_outcomes

REVIEW = "review.json"
FORMAT = 1
MAX_CLASSES = 50  # for which a rate is given, the most frequent ones
TARGETS = (0.1, 0.05, 0.02, 0.01)
GROUPS = {"class": "recorded as", "annotator": "by", "clock": "at clock"}
FEW_PEOPLE = 4  # sequences under which no interval for more people like these is given


def summarise(audit: AuditFolder, store: DecisionStore) -> dict[str, Any]:
    """All that the review of an audit has shown, as review.json holds it."""
    check_same_audit(store, audit)
    lines, items, standing = audit.lines, store.items(), store.standing()
    outcomes = sample_outcomes(store, items, lines)
    rates = _checked(lines, outcomes) if outcomes.sample is not None else None
    remaining, suspects = None, _suspects(items, lines, outcomes.decided)
    if rates is not None:  # what is still wrong with the decisions alone, and after the audit's corrections as well
        corrected = np.where(lines.corrected == lines.suggested, 1 - np.clip(lines.sure, 0, 1), lines.wrong)
        corrected = np.where(lines.recorded >= 0, corrected, np.nan)
        remaining = {
            "decisions": _still_wrong(lines.wrong, lines.recorded, outcomes),
            "corrections": _still_wrong(corrected, lines.corrected, outcomes),
        }
    return to_json(
        {
            "format": FORMAT,
            "labeltide": __version__,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "audit": audit.identity,
            "items": sum(item.position is not None for item in items),
            "decisions": {
                "standing": len(standing),
                "undone": sum(decision.undone_at is not None for decision in store.all()),
                "by_action": dict(Counter(decision.action for decision in standing)),
                "by_reviewer": dict(Counter(decision.reviewer for decision in standing)),
            },
            "disputed": len(disputed_items(standing)),
            "sample": {
                "drawn": outcomes.n_drawn,
                "reviewed": len(outcomes.truth),
                "untold": int(outcomes.untold.sum()),
                "waiting": outcomes.n_waiting,
            },
            "suspects": suspects,
            "model_rate": float(np.nanmean(lines.wrong)) if np.isfinite(lines.wrong).any() else None,
            "checked": rates,
            "remaining": remaining,
            "sentences": [*_sentences(rates, outcomes), *(_say_suspects(**each) for each in suspects)],
        }
    )


def _checked(lines: Lines, outcomes: Outcomes) -> dict[str, Any]:
    """Checked rates overall, for more people like these, and by group."""
    groups, names = _groups(lines)
    fair = _both_ways(lines.wrong, lines.recorded, outcomes, by=groups)
    found: dict[str, Any] = {"overall": _describe(*(rates.overall for rates in fair))}
    if len(lines.sequence_names) >= FEW_PEOPLE:
        people = _both_ways(lines.wrong, lines.recorded, outcomes, clusters=lines.sequence)
        found["people"], these = _describe(*(rates.overall for rates in people)), found["overall"]
        for end, widest in (("lower", min), ("upper", max)):  # they add to the uncertainty about these labels
            found["people"][end] = widest(found["people"][end], these[end])
    for name in groups:
        entries = zip(*(rates.groups[name] for rates in fair), strict=True)
        found[name] = [
            {"name": names[name][low.group], **_describe(low, high)} for low, high in entries if low.group >= 0
        ]
    return found


def _both_ways(
    probabilities: np.ndarray, labels: np.ndarray, outcomes: Outcomes, **how: Any
) -> tuple[CheckedRates, CheckedRates]:
    """The rates with every untold label taken as right, and with every one taken as wrong."""
    assert outcomes.sample is not None
    wrong = (outcomes.truth != labels[outcomes.sample.items]) & ~outcomes.untold
    low = checked_rate(probabilities, outcomes.sample, wrong, **how)
    if not outcomes.untold.any():
        return low, low
    return low, checked_rate(probabilities, outcomes.sample, wrong | outcomes.untold, **how)


def _describe(low: CheckedRate, high: CheckedRate) -> dict[str, Any]:
    """A rate whose interval holds whatever is true of the labels that nobody could tell."""
    lower, upper = np.fmin(low.anytime_lower, low.lower), np.fmax(high.anytime_upper, high.upper)  # NaN: more people
    return {
        "rate": (low.rate + high.rate) / 2,
        "lower": lower,  # may be watched
        "upper": upper,
        "fixed_lower": low.lower,  # for a number of items that was fixed beforehand
        "fixed_upper": high.upper,
        "model": low.model_rate,
        "disagrees": not lower <= low.model_rate <= upper,
        "labels": low.n_labels,
        "reviewed": low.n_reviewed,
        "wrong": low.n_wrong,
    }


def _groups(lines: Lines) -> tuple[dict[str, np.ndarray], dict[str, dict[int, str]]]:
    """The group of each label, -1 for none, and the names of the groups."""
    counts = np.bincount(lines.recorded[lines.recorded >= 0], minlength=len(lines.classes))
    common = np.argsort(-counts, kind="stable")[:MAX_CLASSES]
    groups = {"class": np.where(np.isin(lines.recorded, common), lines.recorded, -1)}
    names = {"class": dict(enumerate(lines.classes))}
    known = np.isfinite(lines.clock)
    if known.any():
        bins = np.where(known, clock_bins(np.nan_to_num(lines.clock), known), -1)
        groups["clock"] = bins
        names["clock"] = {
            int(part): f"{lines.clock[bins == part].min():.4g} to {lines.clock[bins == part].max():.4g}"
            for part in np.unique(bins[known])
        }
    if len(lines.annotator_names) > 1:
        groups["annotator"] = lines.annotator
        names["annotator"] = dict(enumerate(lines.annotator_names))
    return groups, names


def _suspects(items: Sequence[Item], lines: Lines, decided: np.ndarray) -> list[dict[str, Any]]:
    """How many of the decided suspects of each kind are wrong, and how many the model expected."""
    targets = [lines.find(int(item.target or 0), item.annotator) for item in items if item.kind == "suspect"]
    indices = np.array([index for index in targets if index is not None and decided[index] >= 0], np.int64)
    kinds = lines.texts(indices, ["kind"]).get("kind") or []
    wrong = Counter(kind for kind, i in zip(kinds, indices, strict=False) if decided[i] != lines.recorded[i])
    found = []
    for kind, n in Counter(kinds).items():
        of_kind = indices[np.array(kinds) == kind]
        lower, upper = beta.ppf((0.025, 0.975), 0.5 + wrong[kind], 0.5 + n - wrong[kind])  # Jeffreys
        counts = {"decided": n, "wrong": wrong[kind], "expected": float(lines.wrong[of_kind].sum())}
        found.append({"kind": str(kind), **counts, "lower": float(lower), "upper": float(upper)})
    return found


def _say_suspects(kind: str, decided: int, wrong: int, expected: float, lower: float, upper: float) -> str:
    holds = "holds" if lower <= expected / decided <= upper else "does not hold for this kind"
    if kind == "run" and not lower <= 0.5 <= upper:
        holds += f", and {'labels' if lower > 0.5 else 'signals'} are at fault in most of these runs"
    return (
        f"Of {decided} suspects of the kind {kind} that were decided, {wrong} are wrong ({interval(lower, upper)} of "
        f"labels like these). The model expected {expected:.0f}, which {holds}. The surest came first."
    )


def _still_wrong(probabilities: np.ndarray, labels: np.ndarray, outcomes: Outcomes) -> dict[str, Any]:
    """Labels that decisions on suspects settled are right from now on; one that nobody could tell counts as wrong."""
    assert outcomes.sample is not None
    settled = outcomes.settled & np.isfinite(probabilities)
    left = np.where(settled, 0.0, probabilities)
    indices = outcomes.sample.items
    wrong = ((outcomes.truth != labels[indices]) | outcomes.untold) & ~settled[indices]
    rest = remaining_rate(left, outcomes.sample, wrong)
    return {
        "rate": rest.rate,
        "bound": rest.anytime_bound,  # may be watched
        "fixed_bound": rest.bound,
        "level": rest.level,
        "sentence": (
            f"With {percent(rest.level)} confidence at most {percent(rest.anytime_bound)} of the labels are now wrong, "
            "whenever you look."
        ),
        "curve": dict(zip(("more", "bound"), rest.curve(), strict=True)),
        "needed": [rest.forecast(target) for target in TARGETS if target < rest.bound],
        "settled": int(settled.sum()),
    }


WEIGHTED = (
    "Shares are not the counts: labels of which the model is unsure are drawn more often and count less, and the "
    "model's probabilities of all labels are used. Intervals may be watched: they hold whenever you stop."
)


def _sentences(rates: dict[str, Any] | None, outcomes: Outcomes) -> list[str]:
    if rates is None:
        return ["None of the sample has been reviewed yet, so only the estimate of the model is available."]
    sentences = [_compare("all labels", rates["overall"]), WEIGHTED]
    for kind, words in GROUPS.items():
        differing = [entry for entry in rates.get(kind, ()) if entry["reviewed"] and entry["disagrees"]]
        sentences += [_compare(f"labels {words} {display_name(entry['name'])}", entry) for entry in differing]
    if outcomes.untold.any():
        untold = count(int(outcomes.untold.sum()), "reviewed label")
        sentences.append(f"{untold} skipped or disputed: the intervals hold whichever label is right.")
    if outcomes.n_waiting:
        waiting = count(outcomes.n_waiting, "answer")
        sentences.append(f"{waiting} of the sample will count once the items before them in the queue are decided.")
    return sentences


def _compare(what: str, entry: dict[str, Any]) -> str:
    ends = interval(entry["lower"], entry["upper"])
    checked = f"Of {what}, {percent(entry['rate'])} are wrong by the review (95 % interval {ends})"
    where = "outside the interval, so they disagree" if entry["disagrees"] else "within the interval"
    return f"{checked}. The model says {percent(entry['model'])}, which is {where}."


# Put what a review has shown beside the model's estimate: review.json, audit.json and the page of the audit.


def publish(folder: Path, found: Mapping[str, Any]) -> None:
    """Write review.json and, once some of the sample was reviewed, the checked rates into audit.json and its page."""
    audit = json.loads((folder / AUDIT).read_bytes())
    if audit_identity(audit) != found["audit"]:
        raise ValueError(OTHER_AUDIT.format(str(folder)))
    write_json(folder / REVIEW, found)
    if found["checked"] is None:
        return
    checked, remaining = found["checked"], found["remaining"] or {}
    rows = [{"of": "all labels", "name": None, **checked["overall"]}]
    rows += [
        {"of": words, **entry} for kind, words in GROUPS.items() for entry in checked.get(kind, ()) if entry["reviewed"]
    ]
    audit["checked"] = {
        "written": found["written"],
        "reviewed": found["sample"]["reviewed"],
        "rows": rows,
        "sentences": found["sentences"],
        "remaining": {name: {"bound": each["bound"], "sentence": each["sentence"]} for name, each in remaining.items()},
    }
    write_json(folder / AUDIT, audit)
    write_page(folder)
