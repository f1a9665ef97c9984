"""Tables and figure of annotators.py, from its records."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
WAYS = ("own Q(t)", "own Q, static", "Dawid-Skene")
PEOPLE = ("steady .10", "steady .20", "steady .15", "tires .05-.45", "learns .40-.10")
SIGNIFICANCE = 0.05  # of the tests
GOAL = 0.5  # of Dawid-Skene's error
LIMITS = """## Limits

- Agreement is not truth. Without trusted labels or features, "true" means the hidden state that makes all labels
  likeliest. Mistakes that annotators share are invisible, and raise every annotator's quality.
- Q takes annotators to err independently given the truth. On hard steps real people err together; the likelihood
  then moves the meaning of a class (on Dreem: N3 comes to mean "anyone saw deep sleep") instead of saying so. Labels of
  the consensus allow for it by a pool with the votes ([contested.md](contested.md)); Q does not.
- The common Q(t) weighs each annotator alike, however many labels they gave.
- Whether Q moves is chosen by predictions of annotators who are left out; that is no test.
- The Dreem nights of the consensus are the first twelve of DOD-O, at which we also looked while building.
- What a person records where the others give a class is no Q of that person: it holds the others' mistakes too."""
CLOCKS = {"gaze (Lund 2013)": "s", "sleep (Dreem)": "h"}


def write_page(records: list[Record], path: Path) -> None:
    """Simulation with the goal, then what real annotators show."""
    simulated = [record for record in records if record["study"] == "simulation"]
    (neonates,) = (record for record in records if record["study"] == "neonates")
    (sleepers,) = (record for record in records if record["study"] == "sleepers")
    left_out = [record for record in records if record["study"] == "left out"]
    parts = [
        "# Annotators: each one's Q(t), and the consensus",
        "`python bench/benchmarks/annotators.py`. Labels only, no features, but for the last two sections. How methods "
        "compare when one person's labels are all there is is in [report.html](report.html), from "
        "`bench/studies/annotators.toml`.",
        *_simulation(simulated),
        *_neonates(neonates),
        *_sleepers(sleepers, left_out),
        *(text for record in records if record["study"] == "coders" for text in _coders(record)),
        *_alone([record for record in records if record["study"] == "alone"]),
        LIMITS,
        "![Quality over the clock](annotators.png)",
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _simulation(records: list[Record]) -> list[str]:
    errors, people, wrong = [], [], []
    for setting, group in groupby(records, key=lambda record: record["setting"]):
        cell = list(group)
        of_way = {way: np.array([record["error"][way] for record in cell]) for way in WAYS}  # (draws, annotators)
        means = {way: values.mean(1) for way, values in of_way.items()}
        ratio = means["own Q(t)"] / means["Dawid-Skene"]
        verdict = "met" if ratio.mean() <= GOAL else "missed"
        errors.append([setting, *(_spread(means[way]) for way in WAYS), _spread(ratio), verdict])
        people += [[setting, way, *(f"{value:.3f}" for value in of_way[way].mean(0))] for way in WAYS]
        wrong.append([setting, *(f"{np.mean([record['wrong'][way] for record in cell]):.3f}" for way in WAYS)])
    draws = len({record["draw"] for record in records})
    return [
        "## Simulation: five annotators of whom two drift",
        f"150 sequences of 50 steps, {draws} draws. Error: mean Frobenius distance of Q_a(t) from the truth over the "
        "clock, averaged over annotators; ± is one standard error over draws. With gaps, everyone labels a random half "
        "of the sequences and the third annotator 3 of the first 6 on average.",
        _table(["setting", *WAYS, "own Q(t) / Dawid-Skene", f"goal: at most {GOAL}"], errors),
        "By annotator. For those who do not drift a static chain is as good or better, save the one with few labels:",
        _table(["setting", "way", *PEOPLE], people),
        "Share of steps at which the consensus is wrong (a majority is not shown: with gaps it often has one vote):",
        _table(["setting", *WAYS], wrong),
    ]


def _neonates(record: Record) -> list[str]:
    missed, invented = np.array(record["missed"]), np.array(record["invented"])
    common = np.array(record["common"])
    middle = missed.shape[1] // 2

    def over(values: np.ndarray) -> list[str]:
        return [f"{values[0]:.3f} → {values[middle]:.3f} → {values[-1]:.3f}"]

    rows = [[f"expert {name}", *over(missed[a]), *over(invented[a])] for a, name in enumerate("ABC")]
    rows.append(["common", *over(common[:, 0]), *over(common[:, 1])])
    kappas = ", ".join(f"{value:.2f}" for value in record["fleiss_over_clock"])
    pairs = record["cohen"]
    return [
        "## Helsinki neonates: three experts, labels only",
        f"{record['recordings']} whole recordings, one step every ten seconds ({record['steps']} steps); clock: share "
        f"of the recording. Fleiss' kappa {record['fleiss']:.3f}; over tenths of the recording: {kappas}. Cohen's: A-B "
        f"{pairs[0][1]:.3f}, A-C {pairs[0][2]:.3f}, B-C {pairs[1][2]:.3f}. Chosen: {_chosen(record)}. Seizure in "
        f"{record['share']:.1%} of steps by the consensus, {record['share_of_votes']:.1%} by majority.",
        _table(["", "misses a seizure: begin → middle → end", "sees one where there is none"], rows),
        _moves(record),
    ]


def _sleepers(record: Record, left_out: list[Record]) -> list[str]:
    rows = [[f"scorer {a + 1}", *(f"{value:.2f}" for value in shares)] for a, shares in enumerate(record["right"])]
    ways = list(left_out[0]["label_same"])
    against = []
    for way in ways:
        cells = [np.mean([left[key][way] for left in left_out]) for key in ("label_same", "vote_same", "vote_loss")]
        against.append([way, *(f"{value:.3f}" for value in cells)])
    return [
        "## Dreem: five scorers",
        f"{record['nights']} nights of DOD-O, {record['steps']} steps; clock: hours. Fleiss' kappa "
        f"{record['fleiss']:.3f}. Chosen: {_chosen(record)}. The consensus of all five is the majority's label at "
        f"{record['like_majority']:.1%} of steps. How likely a scorer gives the true label, by that label:",
        _table(["", "W", "N1", "N2", "N3", "REM"], rows),
        _moves(record),
        "The other four against the fifth, whom they have not seen (means over who is left out): is their label the "
        "fifth's; is the label they would expect of a fifth, the fifth's; "
        "and the log-loss of that expectation (for the majority: shares of votes, half a vote added for each label).",
        _table(["way", "label is the fifth's", "expected label is", "log-loss"], against),
        _verdict(left_out),
    ]


def _coders(record: Record) -> list[str]:
    """Each coder's mistakes with both at hand, beside what they record where the other gives a class."""
    rows = []
    for index, person in enumerate(record["people"]):
        for true, name in enumerate(record["classes"]):
            ways = [record[way][index][true] for way in ("labels alone", "tide", "counted")]
            rows.append([person, name, *(" / ".join(f"{value:.3f}" for value in way) for way in ways)])
    kappas, runs = ", ".join(f"{value:.2f}" for value in record["fleiss_over_clock"]), record["runs"]
    return [
        "## Gaze (Lund 2013): both coders together",
        f"{record['steps']} steps of 10 ms. Kappa {record['fleiss']:.3f}; over tenths of the clock: {kappas}. Rows of "
        f"Q, on average over the clock: how often the class is recorded as {' / '.join(record['classes'])}. Labels "
        f"alone: `consensus` ({_chosen(record)}); tide: with features; counted: where the other coder gives the class.",
        _table(["coder", "class", "labels alone", "tide", "counted against the other"], rows),
        f"The coders differ at {runs['steps']} steps, in {runs['runs']} runs of {10 * runs['mean']:.0f} ms on average; "
        f"{runs['long']:.0%} of these steps lie in runs of 100 ms and more, and {runs['whole'][0]:.0%} and "
        f"{runs['whole'][1]:.0%} in events, stretches of one label by MN and by RA, of which at least half is "
        "disputed. So they mostly give whole events another name; they seldom err step by step.",
    ]


def _alone(records: list[Record]) -> list[str]:
    """Whose noise changes over the clock, by tide with this person's labels only."""
    if not records:
        return []
    rows = []
    for record in records:
        unit, (change, low, high) = CLOCKS[record["dataset"]], record["change"]
        unlike = record["unlike"]
        classes = ", ".join(name for name, p in record["per_class"].items() if p < SIGNIFICANCE) or "none"
        rows.append(
            [
                f"{record['dataset']}, {record['person']}",
                f"{record['p_value']:.3f} ({record['drawn']})",
                "cannot be told" if record["by_design"] is None else f"{record['by_design']:.2f} ({record['method']})",
                f"{change:.3f} ({low:.3f} to {high:.3f})",
                f"{record['worst'][1]:.3f} at {record['worst'][0]:g} {unit}",
                f"{record['best'][1]:.3f} at {record['best'][0]:g} {unit}",
                classes,
                f"{unlike[0]:.3f} → {unlike[len(unlike) // 2]:.3f} → {unlike[-1]:.3f}",
            ]
        )
    return [
        "## Does the noise change over the clock, and whose? Each person alone",
        "tide on all sequences with this person's labels only (no fold held out). p: how often noise that does not "
        "change looks as if it did, in brackets of how many drawn studies; it cannot be below one in that many and "
        "one. By design: the test that `temporality_` takes for recordings as clusters (people: signs of recordings "
        "are flipped; swapped: records of an earlier version, which swapped moments between the windows of each "
        "recording, not below 0.01). Change: largest change of the error rate over the clock, "
        f"with a 95 % interval. Classes: those with p below {SIGNIFICANCE}, not corrected for their number. "
        "Last column: how often the person departs from the majority of the others in the first, a middle and the last "
        "tenth of the steps, which no fit sees.",
        _table(
            ["labels of", "p", "by design", "change", "worst", "best", "classes that change", "unlike the others"], rows
        ),
        "Without any model: how much more often each person departs from the majority of the others in the second half "
        "of recordings than in their first, with a 95 % interval over recordings; the same if classes were as frequent "
        "in both halves; and the classes of the others for which the interval leaves out zero, not corrected for their "
        "number. A class that becomes rare is departed from more often even if nobody changes, because more of the "
        "others' votes for it are mistakes.",
        _table(["labels of", "all steps", "classes alike", "by class"], [_later(record) for record in records]),
    ]


def _later(record: Record) -> list[str]:
    intervals = {name: "{:+.3f} ({:+.3f} to {:+.3f})".format(*values) for name, values in record["later"].items()}
    classes = [name for name in record["per_class"] if record["later"][name][1] > 0 or record["later"][name][2] < 0]
    by_class = "; ".join(f"{name} {intervals[name]}" for name in classes) or "none"
    return [f"{record['dataset']}, {record['person']}", intervals["all"], intervals["classes alike"], by_class]


def _moves(record: Record) -> str:
    """Whether Q moves, by predictions of left-out annotators, and the test of each annotator's change."""
    best: dict[bool, float] = {}
    for candidate in record["tried"]:
        if candidate["sequential"] == record["chosen"]["sequential"]:
            moves = candidate["bandwidth"] is not None
            best[moves] = max(best.get(moves, -np.inf), candidate["held_out"])
    drifts = [
        f"{100 * change:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}), p = {p_value:.3f}"
        for change, low, high, p_value in record["drift"]
    ]
    return (
        "Mean log-probability of a label given those of the others, best moving Q(t) less static: "
        f"{best[True] - best[False]:+.4f}. Change of each one's error rate from the first to the last moment in points "
        f"(95 % interval; test with recordings as clusters): {'; '.join(drifts)}."
    )


def _verdict(left_out: list[Record]) -> str:
    def mean(key: str, way: str) -> float:
        return float(np.mean([record[key][way] for record in left_out]))

    label = mean("label_same", "consensus") - mean("label_same", "majority")
    loss = mean("vote_loss", "consensus") - mean("vote_loss", "majority")
    return (
        f"The label of the consensus is the fifth's {abs(label):.1%} {'more' if label > 0 else 'less'} often than "
        f"the majority's; what it expects is {abs(loss):.3f} {'better' if loss < 0 else 'worse'} in log-loss. "
        + ("On these nights the majority is the better guess at another scorer's label." if label < 0 else "")
    )


def _chosen(record: Record) -> str:
    chosen = record["chosen"]
    shape = "static" if chosen["bandwidth"] is None else f"moving, bandwidth {chosen['bandwidth']:g}"
    return f"{shape}, {'depends on the step before' if chosen['sequential'] else 'steps independent'}"


def _spread(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.3f} ± {error:.3f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw_picture(records: list[Record], truth: np.ndarray, path: Path) -> None:
    """Found and true quality of simulated annotators; what the three experts miss."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    first = next(record for record in records if record["study"] == "simulation" and record["found"])
    (experts,) = (record for record in records if record["study"] == "neonates")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    clock, points = (np.linspace(0, 1, count) for count in (truth.shape[1], len(first["found"][0])))
    for index, name in enumerate(PEOPLE):
        axes[0].plot(points, first["found"][index], color=f"C{index}", label=name)
        axes[0].plot(clock, truth[index], color=f"C{index}", linestyle=":")
    axes[0].set(title="Simulation: labels right (dotted: truth)", xlabel="clock", ylim=(0.5, 1))
    axes[0].legend(fontsize=7)
    for axis, key, title in ((axes[1], "missed", "seizures missed"), (axes[2], "invented", "seizures seen in error")):
        for rates, name in zip(experts[key], "ABC", strict=True):
            axis.plot(experts["clock"], rates, label=f"expert {name}")
        axis.set(title=f"Neonates: {title}", xlabel="share of the recording", ylim=(0, None))
    axes[1].legend(fontsize=7)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
