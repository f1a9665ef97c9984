"""What may be said of the noise: the one place that decides, for estimators, the page, audit.json and the labels.

Each question has one of three answers. Wrong labels are "shown" where the tests reject that there are none, and then
single labels may be named and corrected. They are "not shown" where the tests do not. They "cannot be told" where a
check finds that nothing identifies them (`labeltide.inference.identification`), whatever the tests say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SHOWN, NOT_SHOWN, CANNOT_BE_TOLD = "shown", "not shown", "cannot be told"
SURE = 0.05  # below this p-value a change, or noise at all, is said to be there


@dataclass(frozen=True)
class Finding:
    """One of the three answers, and the reason where it is not "shown"."""

    answer: str
    reason: str = ""


@dataclass(frozen=True)
class Conclusion:
    """What may be said: whether labels are wrong, whether that changes over each clock, whether labels may be named."""

    noise: Finding
    changes: tuple[Finding, ...]  # over each clock, in their order
    names_labels: bool

    def to_json(self) -> dict[str, Any]:
        """The part `conclusion` of audit.json."""
        return asdict(self)


def conclude(audit: Mapping[str, Any]) -> Conclusion:
    """The conclusion from the parts `noise`, `temporality`, `other_clocks` and `diagnostics` of audit.json."""
    checks = audit.get("diagnostics") or []
    denied = [str(check["sentence"]) for check in checks if check.get("is_warning") and check.get("denies")]
    rate, p_value = _number(audit["noise"].get("rate")), _number(audit["temporality"].get("is_noisy_p"))
    noise = conclude_noise(p_value if math.isfinite(rate) else math.nan, denied)
    others = audit.get("other_clocks") or []
    tests = [audit["temporality"], *(other["temporality"] for other in others)]
    return Conclusion(noise, tuple(_conclude_change(test, noise) for test in tests), noise.answer == SHOWN)


def conclude_noise(p_value: float, denied: Sequence[str]) -> Finding:
    """Whether labels are wrong.

    Parameters
    ----------
    p_value : of the null hypothesis that none is wrong; NaN where that or the share could not be estimated
    denied : sentences of the checks that find nothing to identify wrong labels by
    """
    if denied:  # the others are among the checks
        return Finding(CANNOT_BE_TOLD, denied[0])
    if not math.isfinite(p_value):
        return Finding(CANNOT_BE_TOLD, "The share of wrong labels could not be estimated.")
    if p_value >= SURE:
        return Finding(NOT_SHOWN, "Labels without mistakes could also give this estimate.")
    return Finding(SHOWN)


def _conclude_change(test: Mapping[str, Any], noise: Finding) -> Finding:
    if noise.answer == CANNOT_BE_TOLD:
        return noise
    p_value = _number(test.get("p_value"))
    if not math.isfinite(p_value):
        few = test.get("method") == "none"
        return Finding(CANNOT_BE_TOLD, "Too few people or recordings." if few else "The test could not be made.")
    if noise.answer == NOT_SHOWN:
        return Finding(NOT_SHOWN, "No noise is shown that could change.")
    if p_value >= SURE:
        return Finding(NOT_SHOWN, "An error rate that does not change explains these labels as well.")
    return Finding(SHOWN)


def _number(value: Any) -> float:
    """A number; NaN for whatever is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
