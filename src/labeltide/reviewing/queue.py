"""The queue of a review: suspects in their rank, mixed by chance with a probability sample of all labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labeltide import _validation
from labeltide.decisions import DecisionStore, Item
from labeltide.inference.review_sample import ReviewSample, review_sample
from labeltide.inference.wrong_probabilities import clock_bins
from labeltide.reviewing.audit_folder import AuditFolder
from labeltide.reviewing.lines import Lines
from labeltide.reviewing.suspects import rank_suspects

SUSPECTS, SAMPLE = 100, 100
DRAWS = "smallest inclusion probability of each draw"
AUDIT_KEY = "audit"


def prepare_queue(store: DecisionStore, audit: AuditFolder, n_suspects: int | None, n_sample: int | None) -> list[Item]:
    """The queue in its order: made once, kept in the database, and made longer where more items are asked for.

    Parameters
    ----------
    n_suspects : stretches that are likely wrong; None for 100, or for those that are queued already
    n_sample : labels of the probability sample; likewise
    """
    for name, value in (("items", n_suspects), ("sample", n_sample)):
        if value is not None:
            _validation.check_number(name, value, 0, 1_000_000, whole=True)
    check_same_audit(store, audit)
    queued = [item for item in store.items() if item.position is not None]
    counts = {kind: sum(item.kind == kind for item in queued) for kind in ("suspect", "sample")}
    more_suspects = max((n_suspects if n_suspects is not None else 0 if queued else SUSPECTS) - counts["suspect"], 0)
    more_sample = max((n_sample if n_sample is not None else 0 if queued else SAMPLE) - counts["sample"], 0)
    if more_suspects or more_sample:
        new = _suspect_items(audit, counts["suspect"], more_suspects)
        drawn = _sample_items(store, audit, queued, more_sample)
        store.add_items(_mix(new, drawn, len(queued), _seed(audit)))
        queued = [item for item in store.items() if item.position is not None]
    if not queued:
        raise ValueError("There is nothing to review: no label of this audit was recorded, or none was asked for.")
    return queued


def check_same_audit(store: DecisionStore, audit: AuditFolder) -> None:
    """Refuse decisions of another audit: its rows may be other rows."""
    kept = store.setting(AUDIT_KEY)
    if kept is None:
        store.keep_setting(AUDIT_KEY, audit.identity)
    elif kept != audit.identity:
        raise ValueError(
            f"{str(store.path)!r} belongs to another audit, of another table or with other settings. Review the "
            "folder of that audit, or move the file away to start anew."
        )


def kept_sample(store: DecisionStore, items: Sequence[Item], lines: Lines) -> ReviewSample | None:
    """The probability sample as it was drawn, from the items in the database."""
    sample = [item for item in items if item.kind == "sample" and item.position is not None]
    sample.sort(key=lambda item: (item.draw, item.position))
    if not sample:
        return None
    places = [lines.find(int(item.target or 0), item.annotator) for item in sample]
    if None in places:
        raise ValueError(f"{str(store.path)!r} holds items that are no labels of this audit. Move it away.")
    return ReviewSample(
        items=np.array(places, np.int64),
        inclusion=np.array([item.probability for item in sample], float),
        draws=np.array([item.draw for item in sample], np.int64),
        smallest=_smallest(store, 1 + max(int(item.draw or 0) for item in sample)),
        shape=(len(lines),),
    )


def _smallest(store: DecisionStore, n_draws: int) -> np.ndarray:
    """The smallest inclusion probability of each draw, as it was kept."""
    kept = store.setting(DRAWS)
    is_sound = isinstance(kept, list) and len(kept) >= n_draws and all(type(each) in (int, float) for each in kept)
    if not is_sound or not all(0 < each <= 1 for each in kept):
        raise ValueError(f"{str(store.path)!r} does not say how its sample was drawn. Move it away to start anew.")
    return np.array(kept[:n_draws], float)


def _suspect_items(audit: AuditFolder, start: int, more: int) -> list[Item]:
    lines = audit.lines
    ranked = rank_suspects(lines, audit.summary.get("plan") or ())[start : start + more]
    return [
        _item(audit, "suspect", place, {"first_row": first, "last_row": last}, start + number)
        for number, (first, last, place, _) in enumerate(ranked)
    ]


def _sample_items(store: DecisionStore, audit: AuditFolder, queued: Sequence[Item], more: int) -> list[Item]:
    lines, earlier = audit.lines, kept_sample(store, queued, audit.lines)
    free = int(np.isfinite(lines.wrong).sum()) - (0 if earlier is None else len(earlier))
    more = min(more, free)
    if not more:
        return []
    sample = review_sample(
        lines.wrong,
        more,
        clusters=lines.sequence,
        strata=clock_bins(np.nan_to_num(lines.clock), np.isfinite(lines.clock))
        if np.isfinite(lines.clock).any()
        else None,
        earlier=earlier,
        random_state=_seed(audit),
    )
    store.keep_setting(DRAWS, sample.smallest.tolist())
    start = 0 if earlier is None else len(earlier)
    return [
        _item(
            audit,
            "sample",
            int(sample.items[number]),
            {"probability": float(sample.inclusion[number]), "draws": 1, "draw": int(sample.draws[number])},
            number,
        )
        for number in range(start, len(sample))
    ]


def _item(audit: AuditFolder, kind: str, place: int, fields: Mapping[str, Any], number: int) -> Item:
    lines, row = audit.lines, int(audit.lines.row[place])
    name = hashlib.sha256(f"{audit.identity} {_seed(audit)} {kind} {number}".encode()).hexdigest()[:16]
    who = int(lines.annotator[place])
    return Item(
        **{
            "item_id": name,
            "audit": audit.identity,
            "kind": kind,
            "sequence": lines.sequence_names[lines.sequence[place]],
            "annotator": lines.annotator_names[who] if who >= 0 else None,
            "first_row": row,
            "last_row": row,
            "target": row,
            **fields,
        }
    )


def _mix(suspects: list[Item], sample: list[Item], start: int, seed: int) -> list[Item]:
    """Both kinds in one queue: each keeps its own order, and which comes next is left to chance."""
    kinds = np.random.default_rng((seed, start, 1)).permutation([0] * len(suspects) + [1] * len(sample))
    waiting = (iter(suspects), iter(sample))
    order = [next(waiting[kind]) for kind in kinds]
    return [Item(**{**vars(item), "position": start + place}) for place, item in enumerate(order)]


def _seed(audit: AuditFolder) -> int:
    """The seed of the audit; with the same audit and the same numbers the queue is the same."""
    return int((audit.summary.get("settings") or {}).get("seed") or 0)
