"""The kappa paradox: kappa is low though annotators agree, because one class rules (Feinstein and Cicchetti 1990)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labeltide.auditing.page.names import in_quotes
from labeltide.auditing.page.numbers import is_known, number, percent

RULES = 0.7  # share of the labels from which one class rules
LOW, APART = 0.8, 0.15  # kappa under which it is read as less than full; observed agreement above it by so much


def prevalence_caveat(agreement: Mapping[str, Any]) -> str:
    """A sentence where kappa falls because one class rules; empty elsewhere."""
    kappa, observed, share = (number(agreement.get(key)) for key in ("fleiss", "observed", "largest_share"))
    if not is_known(kappa, observed, share) or share < RULES or kappa > LOW or observed - kappa < APART:
        return ""
    return (
        f"Two annotators gave the same label in {percent(observed)} of cases, and yet kappa is {kappa:.2f}. One class, "
        f"{in_quotes(agreement.get('largest_class'))}, makes up {percent(share)} of the labels: chance alone would "
        "agree often, and few disagreements lower kappa much (the kappa paradox, Feinstein and Cicchetti 1990). Read "
        "it beside the observed agreement, and compare it only where classes are about as common."
    )
