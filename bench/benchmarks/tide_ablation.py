"""What each part of `tide` buys: the records of an ablation as tables.

    python bench/benchmarks/tide_ablation.py [FOLDER ...]

reads the records of every FOLDER, bench/results/tide/ablation-parts by default, and writes FOLDER/ablation.md. All
comparisons are paired: two methods are compared on the same recorded labels of the same data set. The base is the
method that a part is switched off from, "core" in the study before parts were removed and "tide" after it.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labeltide_bench.pages.result_tables import PlainTable, as_markdown
from labeltide_bench.pages.results import Run, read_results

FOLDER = Path(__file__).parents[1] / "results" / "tide" / "ablation-parts"
BASES = ("tide", "core")  # the first of them that has records
CLEAN_LABELS = "clean labels"  # the same networks, trained on clean labels
CLOSEST = "simple, wary first"  # of the first study: the method that is closest to `tide` after parts were removed

CLEAN, THIRTY = "clean", "30 %"
BURSTS, BOUNDARIES, LATE = ("bursts 0.5", "bursts 0.9"), "near boundaries", ("late 2", "late 4", "late 8")
KINDS = (CLEAN, "3 %", THIRTY, "40 %", *BURSTS, BOUNDARIES, *LATE)

# What a part must gain and may cost.
CLEAR = 2.0  # standard errors
MAX_ERROR, MAX_FALSE_ALARMS, MAX_SECONDS = 0.1, 0.5, 1.2  # points, points, ratio
MAX_CLEAN_LOSS = 0.2  # points of test error by which `tide` may differ from clean labels where the labels are clean

Cell = tuple[str, str, str, str, int]  # data set, shape, level, variant, draw
Fits = Mapping[str, Mapping[Cell, Run]]  # method -> cell -> run


class Metric(NamedTuple):
    """A number of a run, in points."""

    title: str
    value: Callable[[Run], float]
    decimals: int = 1
    kinds: Sequence[str] = KINDS  # those for which it means something


class Part(NamedTuple):
    """A part of `tide`, what it is made for, and methods with and without it: the first pair that has records."""

    name: str
    metric: str
    kinds: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]


class Gain(NamedTuple):
    """A mean difference and its standard error."""

    mean: float
    error: float

    def text(self, decimals: int = 1) -> str:
        if not np.isfinite(self.mean):
            return "-"
        mean = round(self.mean, decimals) + 0.0  # no minus sign before a zero
        return f"{mean:+.{decimals}f}" + (f" ± {self.error:.{decimals}f}" if np.isfinite(self.error) else "")


def _share(name: str) -> Callable[[Run], float]:
    return lambda run: 100 * run.metrics.get(name, np.nan)


def _overstated(run: Run) -> float:
    return _share("stated")(run) - _share("wrong_labels")(run)


METRICS = {
    "test error": Metric("Test error", _share("test_error"), 2),
    "left": Metric("Wrong labels left if every suggestion is taken", _share("left")),
    "false alarms": Metric("False alarms: right labels that are flagged", _share("false_alarms")),
    "recall": Metric("Recall: wrong labels that are flagged", _share("recall"), 1, [k for k in KINDS if k != CLEAN]),
    # Late labels have no Q of their own: the records compare with the identity.
    "distance of Q": Metric("Distance of Q", _share("frobenius"), 1, [k for k in KINDS if k not in LATE]),
    "stated minus true": Metric("Stated minus true share of wrong labels", _overstated),
    "stated minus true, absolute": Metric(
        "Stated minus true share of wrong labels, absolute", lambda run: abs(_overstated(run))
    ),
}
SHOWN = [name for name in METRICS if name != "stated minus true, absolute"]

PARTS = (
    Part("bursts", "left", BURSTS, (("tide", "tide, no bursts"), ("core", "core, no bursts"))),
    Part(
        "both directions of time",
        "left",
        (THIRTY,),
        (("tide", "tide, no second direction of time"), ("core", "core, one direction of time")),
    ),
    Part("second network", "test error", (THIRTY,), (("core", "core, one network a fold"),)),
    Part("wary round", "left", BURSTS[1:], (("core", "core, no wary round"),)),
    Part("wary training", "left", BURSTS[1:], (("tide", "tide, no wary training"), (CLOSEST, "simple"))),
    Part("second cross-fit", "left", (THIRTY,), (("core", "core, no second cross-fit"),)),
    Part(
        "averaging over families",
        "distance of Q",
        (THIRTY,),
        (("tide", "tide, no averaging over families"), ("core", "core, one spline")),
    ),
    Part(
        "long training",
        "test error",
        (THIRTY,),
        (("tide", "tide, no long training"), ("core", "core, early stopping only")),
    ),
    Part("early stopping", "test error", (THIRTY,), (("tide", "tide, no early stopping"),)),
    Part("trial of long training", "test error", (CLEAN, THIRTY), (("core", "core, no trial of long training"),)),
    Part("levels of difficulty", "left", (BOUNDARIES,), (("core and levels of difficulty", "core"),)),
    Part("timing", "left", ("late 4",), (("core and timing", "core"),)),
    Part(
        "prior of k",
        "stated minus true, absolute",
        (THIRTY,),
        (("tide", "tide, no prior of k"), ("core", "core, no prior of k")),
    ),
)


def kind_of(run: Run) -> str:
    """The column of a run: its variant, or its rate where labels are wrong independently of each other."""
    if run.variant != "uniform":
        return run.variant
    rate = float(json.loads(run.level)["rate"])
    return CLEAN if rate == 0 else f"{100 * rate:.0f} %" if rate in (0.03, 0.4) else THIRTY


def by_method(runs: Iterable[Run]) -> dict[str, dict[Cell, Run]]:
    """Runs by method and by the labels they were fitted to."""
    fits: dict[str, dict[Cell, Run]] = defaultdict(dict)
    for run in runs:
        fits[run.method][run.dataset, run.shape, run.level, run.variant, run.draw] = run
    return dict(fits)


def differences(fits: Fits, methods: tuple[str, str], metric: Metric, kinds: Iterable[str]) -> dict[str, np.ndarray]:
    """First method less second on the same labels, one array of differences for each data set."""
    first, second = (fits.get(method, {}) for method in methods)
    wanted, found = set(kinds) & set(metric.kinds), defaultdict(list)
    for cell, run in first.items():
        if cell in second and kind_of(run) in wanted:
            found[run.dataset].append(metric.value(run) - metric.value(second[cell]))
    every = {dataset: np.array(values) for dataset, values in found.items()}
    return {dataset: values[np.isfinite(values)] for dataset, values in every.items() if np.isfinite(values).any()}


def mean_and_error(values: Iterable[float]) -> Gain:
    """Mean and its standard error; without two values there is no error."""
    every = np.array(list(values), dtype=float)
    if not every.size:
        return Gain(np.nan, np.nan)
    return Gain(float(every.mean()), float(every.std(ddof=1) / np.sqrt(len(every))) if len(every) > 1 else np.nan)


def over_datasets(differences: Mapping[str, np.ndarray]) -> Gain:
    """Mean over data sets of the mean difference of each, with the standard error over data sets."""
    return mean_and_error(values.mean() for values in differences.values())


def level(fits: Fits, method: str, metric: Metric, kind: str) -> float:
    """Mean over data sets of a metric."""
    values = defaultdict(list)
    for run in fits.get(method, {}).values():
        if kind_of(run) == kind and kind in metric.kinds and np.isfinite(metric.value(run)):
            values[run.dataset].append(metric.value(run))
    return float(np.mean([np.mean(v) for v in values.values()])) if values else np.nan


def seconds_ratio(fits: Fits, methods: tuple[str, str]) -> tuple[float, int, int]:
    """Geometric mean over data sets of the ratio of seconds per run, and the sizes of the fleets of both methods."""
    first, second = (fits.get(method, {}) for method in methods)
    ratios = defaultdict(list)
    for cell in first.keys() & second.keys():
        ratios[cell[0]].append(np.log(first[cell].seconds / second[cell].seconds))
    sizes = [max((run.fleet for run in fits.get(method, {}).values()), default=0) for method in methods]
    return float(np.exp(np.mean([np.mean(v) for v in ratios.values()]))) if ratios else np.nan, sizes[0], sizes[1]


def metric_table(fits: Fits, base: str, metric: Metric) -> PlainTable:
    """Rows are methods, columns kinds of noise: levels of the base, then differences to it."""
    kinds = [kind for kind in KINDS if kind in metric.kinds]
    levels = [level(fits, base, metric, kind) for kind in kinds]
    rows = [[f"**{base}**", *("-" if np.isnan(v) else f"{v:.{metric.decimals}f}" for v in levels)]]
    for method in fits:
        gains = [over_datasets(differences(fits, (method, base), metric, [kind])) for kind in kinds]
        if method != base and any(np.isfinite(gain.mean) for gain in gains):
            rows.append([method, *(gain.text(metric.decimals) for gain in gains)])
    return PlainTable(metric.title, "", ["", *kinds], rows)


def seconds_table(fits: Fits, base: str) -> PlainTable:
    """Seconds per run relative to the base."""
    rows = []
    for method in fits:
        ratio, size, base_size = seconds_ratio(fits, (method, base))
        if method != base and np.isfinite(ratio):
            rows.append([method, f"{ratio:.2f}", str(size) if size != base_size else f"{size}, as {base}"])
    caption = (
        "Geometric mean over data sets. A fleet is timed as a whole, so there is one number for all kinds of noise. "
        f"Fleets of another size than those of {base} are not comparable: small fleets take longer per run."
    )
    return PlainTable("Seconds per run, relative to the base", caption, ["", "ratio", "runs in a fleet"], rows)


def judge(fits: Fits, part: Part) -> list[str] | None:
    """The row of a part in the table of the rule, or None where this study does not have it."""
    methods = next((pair for pair in part.pairs if all(method in fits for method in pair)), None)
    if methods is None:
        return None
    pairs = differences(fits, methods, METRICS[part.metric], part.kinds)
    gains = [mean_and_error(-values) for values in pairs.values()]  # metrics of the rule are better when lower
    n_pairs = sorted({len(values) for values in pairs.values()})
    # Without a second pair there is no standard error, and nothing is clear.
    better, worse = (sum(turn * gain.mean > CLEAR * gain.error for gain in gains) for turn in (1, -1))
    costs = {kind: over_datasets(differences(fits, methods, METRICS["test error"], [kind])) for kind in KINDS}
    worst = max((kind for kind in KINDS if np.isfinite(costs[kind].mean)), key=lambda kind: costs[kind].mean)
    alarms = over_datasets(differences(fits, methods, METRICS["false alarms"], [CLEAN]))
    ratio, *sizes = seconds_ratio(fits, methods)
    is_timed = sizes[0] == sizes[1]
    reasons = ["gain"] if 2 * better < len(gains) else []
    for name, cost, limit in (("test error", costs[worst], MAX_ERROR), ("false alarms", alarms, MAX_FALSE_ALARMS)):
        if cost.mean > limit:
            reasons.append(name if cost.mean > CLEAR * cost.error else f"{name} (not clear)")
    if is_timed and ratio > MAX_SECONDS:
        reasons.append("time")
    stays = "stays" if is_timed else "stays, if its time allows"
    return [
        part.name,
        f"{part.metric}, {' and '.join(part.kinds)}",
        mean_and_error(gain.mean for gain in gains).text(2),
        f"{better} of {len(gains)}",
        str(worse),
        " or ".join(map(str, n_pairs)),
        f"{costs[worst].text(2)} ({worst})",
        alarms.text(2),
        f"{ratio:.2f}" if is_timed else "not comparable",
        f"goes: {', '.join(reasons)}" if reasons else stays,
    ]


def rule_table(fits: Fits) -> PlainTable:
    caption = (
        "A part stays if it gains on at least half of the data sets, and costs nowhere more than "
        f"{MAX_ERROR} points of test error, {MAX_FALSE_ALARMS} points of right labels flagged on clean labels, or a "
        "fifth of the time. Gain: mean over data sets ± standard error over data sets, in points, positive where the "
        "part helps. A data set counts as a gain where the mean of its pairs is more than "
        f"{CLEAR:g} of their standard errors above zero, and as a loss where it is as far below. Where a part has no "
        "effect, the mean of two pairs is that far above zero 15 times in 100, that of four 7 times, that of twelve 4 "
        "times. Cost in test error: mean over data sets, for the kind of noise where it is largest; negative where the "
        "part costs nothing. Seconds: with the part relative to without it, of processes that shared one GPU. The last "
        'column is the arithmetic of the rule and names the conditions that fail. "Not clear": a cost above the limit, '
        f"but less than {CLEAR:g} standard errors above zero."
    )
    heads = ["part", "made for", "gain", "sets that gain", "sets that lose", "pairs a set"]
    heads += ["largest cost in test error", "false alarms, clean", "seconds", "by the rule"]
    rows = [row for part in PARTS if (row := judge(fits, part)) is not None]
    return PlainTable("The rule", caption, heads, rows)


def clean_table(fits: Fits, method: str) -> PlainTable:
    """By data set: a method on clean labels against the same networks that know the labels to be clean."""
    known = differences(fits, (method, CLEAN_LABELS), METRICS["test error"], [CLEAN])
    rows = []
    for dataset, values in known.items():
        gain = mean_and_error(values)
        reference, own, stated, flagged = (
            np.mean([value(run) for run in fits[name].values() if run.dataset == dataset and kind_of(run) == CLEAN])
            for name, value in (
                (CLEAN_LABELS, _share("test_error")),
                (method, _share("test_error")),
                (method, _share("stated")),
                (method, _share("false_alarms")),
            )
        )
        is_within = "yes" if abs(gain.mean) <= MAX_CLEAN_LOSS else "better" if gain.mean < 0 else "**no**"
        rows.append(
            [dataset, f"{reference:.2f}", f"{own:.2f}", gain.text(2), is_within, f"{stated:.2f}", f"{flagged:.2f}"]
        )
    heads = [
        "data set",
        CLEAN_LABELS,
        method,
        "difference",
        f"within {MAX_CLEAN_LOSS}",
        "stated share wrong",
        "flagged",
    ]
    caption = (
        f"Test error in % where no label is wrong: {CLEAN_LABELS} are networks that are told so, {method} is not told. "
        "Differences ± standard error over draws. The last two columns are the share of labels that the audit states "
        "to be wrong and the share that it flags, in %. Both should be zero."
    )
    return PlainTable(f"Clean labels: {method}", caption, heads, rows)


def corrected_table(fits: Fits, method: str) -> PlainTable:
    """Wrong labels left by three ways to correct them."""
    ways = ("wrong_labels", "left", "left_flagged", "left_corrected")
    rows = []
    for kind in KINDS:
        values = [level(fits, method, Metric(way, _share(way)), kind) for way in ways]
        if np.isfinite(values).all():
            rows.append([kind, *(f"{value:.1f}" for value in values)])
    heads = ["noise", "recorded", "every suggestion taken", "flagged labels replaced", "`corrected_labels`"]
    caption = (
        f"Wrong labels in %, mean over data sets, with {method}: as recorded, and after three rules of correction."
    )
    return PlainTable(f"Rules for corrected labels: {method}", caption, heads, rows)


def in_study_order(runs: Iterable[Run], folder: Path) -> list[Run]:
    """Runs in the order of methods and data sets of the study; what it does not name comes last."""
    path = folder / "study.toml"
    study = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    methods, datasets = (list(study.get(key, {})) for key in ("methods", "datasets"))

    def number(names: list[str], name: str) -> int:
        return names.index(name) if name in names else len(names)

    return sorted(runs, key=lambda run: (number(methods, run.method), number(datasets, run.dataset)))


def write_tables(runs: Sequence[Run]) -> str:
    """All tables in Markdown."""
    fits = by_method(runs)
    base = next((name for name in BASES if name in fits), None)
    if base is None:
        raise ValueError(f"The records have none of the methods {', '.join(BASES)} to compare with.")
    first = fits[base]
    draws, datasets = {cell[-1] for cell in first}, {cell[0] for cell in first}
    origin = {(run.commit[:7], run.device, run.finished[:10]) for run in runs}
    where = "; ".join(f"commit {commit}, {device}, {date}" for commit, device, date in sorted(origin))
    head = (
        "# What each part of tide buys\n\n"
        f"Made by `python bench/benchmarks/tide_ablation.py` from {len(runs):,} records: {len(datasets)} data sets, "
        f"{len(draws)} draws ({where}).\n\n"
        f"The row of **{base}** has levels. Other rows are differences to it on the same labels, in points: mean over "
        "data sets ± standard error over data sets. Distance of Q is the mean Frobenius norm x 100. "
        '"30 %" is six shapes of noise, "40 %" two; "late N" are labels whose transitions are recorded N ± 2 steps '
        "late. Methods that a study limits to some noise are compared on what they have. A dash: not run, or without "
        "meaning.\n"
    )
    candidates = [name for name in (base, CLOSEST) if name in fits]
    tables = [rule_table(fits), *(metric_table(fits, base, METRICS[name]) for name in SHOWN), seconds_table(fits, base)]
    if CLEAN_LABELS in fits:
        tables += [clean_table(fits, name) for name in candidates]
    tables += [corrected_table(fits, name) for name in candidates]
    return head + "".join(f"\n#{as_markdown(table)}".replace("\n\n\n", "\n") for table in tables)


def main() -> None:
    parser = argparse.ArgumentParser(description="What each part of tide buys, as tables.")
    parser.add_argument("folders", nargs="*", type=Path, default=[FOLDER], help="folders with records")
    for folder in parser.parse_args().folders:
        text = write_tables(in_study_order(read_results(folder).runs, folder))
        (folder / "ablation.md").write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
