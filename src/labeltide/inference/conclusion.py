"""The conclusion about the noise, decided here for estimators, the page, audit.json and the labels.

Each question has one of three answers. Wrong labels are "shown" where the tests reject that there are none, and then
single labels may be named and corrected. They are "not shown" where the tests do not. They "cannot be told" where a
check finds that nothing identifies them (`labeltide.inference.checks`), whatever the tests say. If labels and signals
disagree in runs, these are listed all the same: either of the two is at fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

SHOWN, NOT_SHOWN, CANNOT_BE_TOLD = "shown", "not shown", "cannot be told"
UNSEEN = ("support", "recordings", "delay", "bursts", "planted")  # checks that find what the fit would not see
SURE = 0.05  # p-value below which a change, or noise at all, is shown


@dataclass(frozen=True)
class Finding:
    """One of the three answers, and the reason where it is not "shown"."""

    answer: str
    reason: str = ""


@dataclass(frozen=True)
class Conclusion:
    """Whether labels are wrong, whether that changes over each clock, and whether single labels may be named."""

    noise: Finding
    changes: tuple[Finding, ...]  # over each clock, in their order
    names_labels: bool

    def to_json(self) -> dict[str, Any]:
        """The part `conclusion` of audit.json."""
        return asdict(self)


def conclude(audit: Mapping[str, Any]) -> Conclusion:
    """The conclusion from the parts `noise`, `temporality`, `other_clocks` and `diagnostics` of audit.json."""
    known, empty = {each.name for each in fields(Diagnostic)}, {"name": "", "is_warning": False}
    found = [empty | {name: check[name] for name in known & check.keys()} for check in audit.get("diagnostics") or []]
    checks = [Diagnostic(**check) for check in found]
    rate, p_value = _number(audit["noise"].get("rate")), _number(audit["temporality"].get("is_noisy_p"))
    noise = conclude_noise(p_value if math.isfinite(rate) else math.nan, checks)
    others = audit.get("other_clocks") or []
    tests = [audit["temporality"], *(other["temporality"] for other in others)]
    return Conclusion(noise, tuple(_conclude_change(test, noise) for test in tests), noise.answer == SHOWN)


def conclude_noise(p_value: float, checks: Sequence[Diagnostic]) -> Finding:
    """Whether labels are wrong, from the p-value of the null hypothesis that none is (NaN: not known) and the checks.

    A check that denies overrides the test. If it finds nothing, labels that do not fit their signals leave it open.
    Runs in which labels and signals disagree are the reason before planted errors that are lost beside them.
    """
    warned = [check for check in checks if check.is_warning]
    denied = [check.sentence for check in warned if check.denies]
    unseen = [check.sentence for check in warned if check.name in UNSEEN]
    if {check.name for check in warned if check.denies or check.name == "support"} <= {"planted"}:
        unseen.sort(key=lambda sentence: sentence not in _runs(warned))
        denied = [*_runs(warned), *denied] if denied else []
    if denied:  # the others are among the checks
        return Finding(CANNOT_BE_TOLD, denied[0])
    if not math.isfinite(p_value):
        return Finding(CANNOT_BE_TOLD, "The share of wrong labels could not be estimated.")
    if p_value < SURE:
        return Finding(SHOWN)
    if unseen:
        return Finding(CANNOT_BE_TOLD, unseen[0])
    return Finding(NOT_SHOWN, "Labels without mistakes could also give this estimate.")


def _conclude_change(test: Mapping[str, Any], noise: Finding) -> Finding:
    if noise.answer == CANNOT_BE_TOLD:
        return noise
    p_value = _number(test.get("p_value"))
    if not math.isfinite(p_value):
        few = test.get("method") == "none"
        return Finding(CANNOT_BE_TOLD, "Too few people or recordings." if few else "The test could not be made.")
    if noise.answer == NOT_SHOWN:
        return Finding(NOT_SHOWN, "There is no evidence of noise, so a change cannot be shown either.")
    if p_value >= SURE:
        return Finding(NOT_SHOWN, "A constant error rate explains these labels equally well.")
    return Finding(SHOWN)


def _number(value: Any) -> float:
    """A number; NaN for whatever is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


# What a check of the estimated noise says.


class NoiseWarning(UserWarning):
    """A diagnostic of the estimated noise failed.

    Examples
    --------
    >>> import labeltide as lt
    >>> import warnings
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", lt.NoiseWarning)
    ...     estimate = clf.noise_estimate_  # else it says what twenty short sequences cannot tell
    """


@dataclass(frozen=True)
class Diagnostic:
    """The result of one check."""

    name: str
    is_warning: bool
    sentence: str
    advice: str = "Nothing to do."
    denies: bool = False  # whether the warning means that the share of wrong labels cannot be estimated at all
    unnamed: tuple[int, ...] = ()  # codes of classes; labels recorded as one of them are not named
    unsuggested: tuple[int, ...] = ()  # codes of classes; labels for which one of them is likelier are not named


def named_pairs(noise: Finding, checks: Sequence[Diagnostic], n_classes: int) -> np.ndarray:
    """Which labels may be named, first others, then those in runs, by recorded and likeliest class.

    Bool of shape (2, classes, classes). Where wrong labels cannot be told because of runs, only these are named.
    """
    shown = noise.answer == SHOWN
    pairs = np.full((2, n_classes, n_classes), shown)
    pairs[1] = shown or noise.reason in _runs(checks)
    for check in checks:
        if check.is_warning:
            pairs[:, list(check.unnamed)] = False
            pairs[..., list(check.unsuggested)] = False
    return pairs


def _runs(checks: Sequence[Diagnostic]) -> list[str]:
    return [check.sentence for check in checks if check.is_warning and check.name == "bursts"]


# Explanations of flagged labels: neighbours, other annotators and features that support another label, in words.

NO_OTHER_LIKELIER = "no other label is more likely than the recorded one, but it is worth checking"
NEIGHBOUR_STEPS = 5  # steps on either side of a label whose labels are its neighbours


class Support(NamedTuple):
    """Support for the suggested label, for every flagged label: arrays of shape (flagged,)."""

    recorded: np.ndarray  # codes
    suggested: np.ndarray  # codes
    agreeing: np.ndarray  # neighbours recorded with the suggested label
    neighbours: np.ndarray  # all neighbours
    signal: np.ndarray  # codes: the most likely label from the features alone
    signal_probability: np.ndarray
    others: np.ndarray  # other annotators who recorded the suggested label at this step
    wrong: np.ndarray  # error rate at this moment


def find_support(
    labels: np.ndarray, flagged: np.ndarray, suggested: np.ndarray, signal: np.ndarray, wrong: np.ndarray
) -> Support:
    """Count neighbours and other annotators, and look up the features' label, for flagged labels only.

    Shapes: labels and flags (n, steps, annotators), suggested codes (n, steps), signal (n, steps, classes), wrong
    (n, steps[, annotators]).
    """
    row, step, annotator = np.nonzero(flagged)
    other = suggested[row, step]
    near = np.array([shift for shift in range(-NEIGHBOUR_STEPS, NEIGHBOUR_STEPS + 1) if shift])
    padded = np.pad(labels, ((0, 0), (NEIGHBOUR_STEPS, NEIGHBOUR_STEPS), (0, 0)), constant_values=-1)
    seen = padded[row[:, None], NEIGHBOUR_STEPS + step[:, None] + near]  # (flagged, shifts, annotators)
    probabilities = signal[row, step]  # (flagged, classes)
    same_step = (labels[row, step] == other[:, None]).sum(1)  # without the flagged label, which differs
    return Support(
        recorded=labels[row, step, annotator],
        suggested=other,
        agreeing=(seen == other[:, None, None]).sum((1, 2)),
        neighbours=(seen >= 0).sum((1, 2)),
        signal=probabilities.argmax(1),
        signal_probability=probabilities.max(1),
        others=same_step,
        wrong=wrong[row, step] if wrong.ndim == 2 else wrong[row, step, annotator],
    )


def explain(support: Support, classes: Sequence[Any]) -> list[str]:
    """One sentence for every flagged label."""
    names = [str(name) for name in classes]
    return [_sentence(names, Support(*values)) for values in zip(*(each.tolist() for each in support), strict=True)]


def _sentence(names: Sequence[str], label: Support) -> str:
    """The sentence of one flagged label, from its numbers in place of arrays."""
    if label.recorded == label.suggested:
        return NO_OTHER_LIKELIER
    was, other = names[int(label.recorded)], names[int(label.suggested)]
    supporters = []
    if neighbours := 2 * label.agreeing > label.neighbours:
        supporters.append(f"{label.agreeing} of {label.neighbours} neighbours")
    if label.others:
        supporters.append(f"{label.others} other annotator{'s' if label.others > 1 else ''}")
    if label.signal == label.suggested:
        supporters.append(f"the signal ({100 * label.signal_probability:.0f} %)")
    share = f"at this time {100 * label.wrong:.0f} % of labels are wrong"
    if not supporters:
        return f"recorded {was}, but {other} is more likely given everything around it; {share}"
    says = "say" if neighbours or len(supporters) > 1 or label.others > 1 else "says"
    *first, last = supporters
    together = f"{', '.join(first)} and {last}" if first else last
    return f"recorded {was}, but {together} {says} {other}; {share}"
