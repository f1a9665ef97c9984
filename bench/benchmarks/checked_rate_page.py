"""The page of the benchmark of checked error rates."""

from __future__ import annotations

from typing import Any

LOW, HIGH = 0.94, 0.98
RIGHT = ("right", "right, rare errors")
INTRODUCTION = """# Checked error rates

`python bench/benchmarks/checked_rate.py`: {studies} simulated studies in each row, of 40 people with 500 labels each.
Labels are drawn by `lt.review_sample` and reviewed without mistakes. `lt.checked_rate` gives the share of wrong labels
with a 95 % interval. Nothing is fitted: the model's probabilities are part of the simulation.

- **right**: a label is wrong with the probability that the model says; 9 % are wrong, or 1.5 % where errors are rare.
- **overconfident**: the same labels, but the model says 98 % or 0.05 % of most.
- **shared habits**: another 5 % of labels are wrong, and the model knows nothing of them.
- **near boundaries**: so are 60 % of the labels at boundaries, which are 8 % of all labels.
- **bursts**: so are runs of 20 labels, of which the model sees the first.
- **no information**: the model gives 10 % to every label.
- **adversarial**: only labels that the model believes in are wrong.

Without clusters the interval is for the labels of the study, with clusters for the labels of all people. Width is
relative to a simple random sample of the same size that is evaluated without a model. *planned* is one draw, *two
draws* are two of half the size. The standard error of a coverage is about 1 point. Values outside the goal are
**bold**: coverage from 94 to 98 %; width at most 70 % where the model is right, else at most 105 %. Two constants of
the library (`FLOOR` and `PRIOR_FOUND`) were chosen on studies of these kinds with other seeds.
"""
SMALL = """## Where few wrong labels are found

50 of 5,000 labels are reviewed, in {studies} studies. *bound* is the 95 % upper bound of `remaining_rate` on what is
wrong after the reviewed labels are corrected. Both are conservative by design here, so that values above 98 % are not
marked.
"""


def page(records: list[dict[str, Any]], n_studies: int) -> str:
    parts = [INTRODUCTION.format(studies=n_studies), _verdict(records)]
    overall = [record for record in records if record["table"] == "overall"]
    for clusters in (False, True):
        parts.append(f"## {'With people as clusters' if clusters else 'Without clusters'}\n")
        parts.append(_overall([record for record in overall if record["clusters"] == clusters]))
    parts.append(f"## Cells below the goal, again\n\n{4 * n_studies} other studies of each.\n")
    parts.append(_overall([record for record in records if record["table"] == "again"], with_clusters=True))
    parts.append(f"## In ten bins of the clock\n\nOne draw, spread over the bins; {n_studies // 5} studies.\n")
    parts.append(_clock([record for record in records if record["table"] == "clock"]))
    parts.append(SMALL.format(studies=4 * n_studies))
    parts.append(_small([record for record in records if record["table"] == "small counts"]))
    return "\n".join(parts)


def _verdict(records: list[dict[str, Any]]) -> str:
    overall = [record for record in records if record["table"] == "overall"]
    return "\n".join(_sentence(way, [r for r in overall if r["way"] == way]) for way in ("planned", "two draws")) + "\n"


def _sentence(way: str, cells: list[dict[str, Any]]) -> str:
    coverage = [record["coverage"] for record in cells]
    model_right, others = ([r for r in cells if (r["kind"] in RIGHT) == kind] for kind in (True, False))
    return (
        f"- **{way}**: coverage {100 * min(coverage):.1f} to {100 * max(coverage):.1f} %; below 94 % in "
        f"{sum(value < LOW for value in coverage)} of {len(cells)} cells, above 98 % in "
        f"{sum(value > HIGH for value in coverage)}. The width misses its goal in {sum(map(_wide, model_right))} of "
        f"{len(model_right)} cells where the model is right, and in {sum(map(_wide, others))} of {len(others)} others."
    )


def _overall(records: list[dict[str, Any]], with_clusters: bool = False) -> str:
    head = ["model", "reviewed", "simple: coverage", "planned: coverage", "width"]
    head += ["two draws: coverage", "width", "weight of the model"]
    lines = []
    for index in range(0, len(records), 3):
        simple, planned, two = records[index : index + 3]
        kind = f"{planned['kind']}, clusters" if with_clusters and planned["clusters"] else planned["kind"]
        cells = [kind, str(planned["n"]), _share(simple["coverage"])]
        for record in (planned, two):
            width = f"{record['relative_width']:.0%}".replace("%", " %")
            cells += [_share(record["coverage"]), f"**{width}**" if _wide(record) else width]
        lines.append([*cells, f"{planned['model_weight']:.2f}"])
    return _table(head, lines)


def _wide(record: dict[str, Any]) -> bool:
    return record["relative_width"] > (0.70 if record["kind"] in RIGHT else 1.05)


def _clock(records: list[dict[str, Any]]) -> str:
    lines = [[r["kind"], str(r["n"]), _share(r["coverage"]), f"{100 * r['width']:.1f} points"] for r in records]
    return _table(["model", "reviewed", "coverage", "mean width"], lines)


def _small(records: list[dict[str, Any]]) -> str:
    head = ["model", "wrong", "found 0", "found 1", "found 2", "interval covers", "bound holds", "mean bound"]
    lines = []
    for r in records:
        found = [f"{r[f'found_{count}']:.0%}".replace("%", " %") for count in range(3)]
        held = [_share(r[name], high=1.0) for name in ("coverage", "bound_held")]
        lines.append([r["kind"], f"{100 * r['rate']:g} %", *found, *held, f"{100 * r['mean_bound']:.1f} %"])
    return _table(head, lines)


def _share(value: float, high: float = HIGH) -> str:
    text = f"{100 * value:.1f} %"
    return text if LOW <= value <= high else f"**{text}**"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
