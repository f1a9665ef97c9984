"""Put what a review has shown beside the model's estimate: review.json, audit.json and the page of the audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeltide._files import write_json
from labeltide.auditing.folder import AUDIT
from labeltide.auditing.page import write_page
from labeltide.reviewing.summary import REVIEW

GROUPS = {"class": "recorded as", "annotator": "by", "clock": "at clock"}


def publish(folder: Path, found: Mapping[str, Any]) -> None:
    """Write review.json and, once some of the sample was reviewed, the checked rates into audit.json and its page."""
    write_json(folder / REVIEW, found)
    if found["checked"] is None:
        return
    audit = json.loads((folder / AUDIT).read_bytes())
    audit["checked"] = describe_checked(found)
    write_json(folder / AUDIT, audit)
    write_page(folder)


def describe_checked(found: Mapping[str, Any]) -> dict[str, Any]:
    """The part `checked` of audit.json: rows of rates, and sentences."""
    checked, remaining = found["checked"], found["remaining"] or {}
    rows = [{"of": "all labels", "name": None, **checked["overall"]}]
    rows += [
        {"of": words, **entry} for kind, words in GROUPS.items() for entry in checked.get(kind, ()) if entry["reviewed"]
    ]
    return {
        "written": found["written"],
        "reviewed": found["sample"]["reviewed"],
        "rows": rows,
        "sentences": found["sentences"],
        "remaining": {name: {"bound": each["bound"], "sentence": each["sentence"]} for name, each in remaining.items()},
    }
