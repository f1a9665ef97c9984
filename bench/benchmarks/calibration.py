r"""Simulation-based calibration of the inference, and how wrong each promise becomes where an assumption is broken.

    python bench/benchmarks/calibration.py --studies 1000 --broken 60
    python bench/benchmarks/calibration.py --studies 0 --broken 0            # only the page, from the records

Studies are drawn from the model itself: evidence P, true labels from the chain :math:`p(y_t = j \mid y_{t-1} = i, P)
\propto A_{ij} P_{tj}^k`, recorded labels through Q(t). Their parameters are drawn from proper priors
(`draw_parameters`), that of k from its prior in `chain/em.py`. Each study is fitted as `tide` does after its networks
(`fit_studies`). No network is trained. Labels are named where the test of the share shows that some are wrong; the
second test and the checks of an audit are not made. Ranks of what is true among what the fit holds possible are uniform
if it is calibrated (Talts and others 2018):

- *wrong labels, true parameters*: the number of wrong labels of the study among those of paths drawn from the posterior
  with the true A, k and Q. It checks the forward-backward pass, and must be uniform whatever the estimate does.
- *wrong labels, estimated*: the same with the estimated parameters as if they were known. No statement of an audit
  rests on this: it leaves out that the parameters are estimated, so its ranks are too wide.
- *wrong labels, profile*: the same with parameters drawn from the points of the profile likelihood, weighted as an
  audit weights them for its false alarms (`profile_weights`).
- *share*: the expected share of wrong labels in the confidence distribution of the profile likelihood.
- *error rate at five moments*: the same of the band of the error rate of all labels, read as normal on either side.

Estimates are maxima of a penalised likelihood, so the last two are confidence distributions and no posteriors. The
interval of the share is stated of the labels that were audited, so the table of broken assumptions also counts how
often it holds the share of them that is wrong. Tests of
uniformity are chi-square over ten bins and simultaneous bands of the empirical distribution function (Säilynoja,
Bürkner and Vehtari 2022), the level of which is simulated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit, log_softmax, logit
from scipy.stats import chisquare, norm

import labeltide as lt
from labeltide.chain.em import POWER_CENTRE, POWER_SCALE
from labeltide.chain.passes import ChainData, TrainingEvidence, posteriors, same_data
from labeltide.inference.audit import LabelAudit, profile_weights
from labeltide.inference.bands import ROOT_MEAN, Profile, critical_root, estimate_annotators, profile_share, share_test
from labeltide.inference.conclusion import SURE
from labeltide_bench.simulated import fit_studies

RESULTS = Path(__file__).parents[1] / "results" / "inference"
FILE = "calibration.jsonl.gz"
ROWS, STEPS, FIRST_SEED = 80, 40, 930_000
AT_ONCE = 10  # studies that are fitted together, of two and three classes in turn
REPLICATES = 100  # of the bootstrap behind bands
MOMENTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the clock
PATHS = 99  # drawn from the posterior
MANY = 2000  # sequences from which the true error rates are computed where an assumption is broken
PROMISED = 0.10  # false alarms
BINS = 10


class Parameters(NamedTuple):
    """One draw from the prior."""

    transition: np.ndarray  # (classes, classes)
    power: float
    matrices: np.ndarray  # (steps, classes, classes), Q
    sharpness: float  # of the evidence


class Drawn(NamedTuple):
    """Sequences of a study."""

    evidence: np.ndarray  # (rows, steps, classes), log-probabilities
    true: np.ndarray  # (rows, steps)
    recorded: np.ndarray  # (rows, steps)


def draw_parameters(random: np.random.Generator, classes: int) -> Parameters:
    """Classes that persist, with an error rate that is constant or rises or falls smoothly.

    A label stays with a probability from .7 to .97. The mean error rate lies between 1 and 25 %, on the logit scale
    normal around 8 %; its trend over the clock is normal with standard deviation 1, and its classes differ by .4.
    """
    stay = random.uniform(0.7, 0.97, classes)
    leave = random.dirichlet(np.full(classes - 1, 5.0), classes)
    transition = np.diag(stay)
    transition[~np.eye(classes, dtype=bool)] = ((1 - stay)[:, None] * leave).ravel()
    clock = np.linspace(-0.5, 0.5, STEPS)
    centre = np.clip(logit(0.08) + 0.7 * random.standard_normal(), logit(0.01), logit(0.25))
    height = centre + 0.4 * random.standard_normal(classes) + random.standard_normal() * clock[:, None]
    error = np.minimum(expit(height), 0.45)  # (steps, classes)
    where = random.dirichlet(np.full(classes - 1, 5.0), classes)
    matrices = np.zeros((STEPS, classes, classes))
    matrices[:, ~np.eye(classes, dtype=bool)] = (error[:, :, None] * where).reshape(STEPS, -1)
    matrices += np.eye(classes) * (1 - error)[:, :, None]
    power = 0.0
    while not 0.4 < power < 3:
        power = POWER_CENTRE + POWER_SCALE * random.standard_cauchy()
    return Parameters(transition, power, matrices, random.uniform(0.5, 2.5))


def draw_evidence(random: np.random.Generator, of: Parameters, rows: int) -> np.ndarray:
    """Log-probabilities of a model, whose features are correlated from step to step."""
    features = random.standard_normal((rows, STEPS, len(of.transition)))
    for step in range(1, STEPS):
        features[:, step] = 0.8 * features[:, step - 1] + 0.6 * features[:, step]
    return log_softmax(of.sharpness * features, -1)


def pick(random: np.random.Generator, chances: np.ndarray) -> np.ndarray:
    """One class for each distribution along the last axis."""
    return (random.random(chances.shape[:-1])[..., None] > chances.cumsum(-1)[..., :-1]).sum(-1)


def moves(evidence: np.ndarray, of: Parameters) -> np.ndarray:
    """Transition probabilities of every step: (rows, steps, from, to); at the first step all rows are the start."""
    ratio = np.exp(of.power * evidence)[:, :, None]
    base = np.repeat(of.transition[None], STEPS, 0)
    base[0] = 1 / len(of.transition)
    chances = base * ratio
    return chances / chances.sum(-1, keepdims=True)


def draw_labels(random: np.random.Generator, evidence: np.ndarray, of: Parameters) -> np.ndarray:
    chances, row = moves(evidence, of), np.arange(len(evidence))
    labels = np.zeros(evidence.shape[:2], int)
    for step in range(STEPS):
        labels[:, step] = pick(random, chances[row, step, labels[:, step - 1] if step else 0])
    return labels


def record(random: np.random.Generator, true: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    return pick(random, matrices[np.arange(STEPS), true])


def draw_study(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """The model itself: all its assumptions hold."""
    evidence = draw_evidence(random, of, rows)
    true = draw_labels(random, evidence, of)
    return Drawn(evidence, true, record(random, true, of.matrices))


# Assumptions broken one at a time. Each leaves the mean error rate at every moment about as it was, where it can.


def not_geometric(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """True labels last at least five steps, and the evidence points to them as that of the model does."""
    classes = len(of.transition)
    true = np.zeros((rows, STEPS), int)
    for row in range(rows):
        step = -int(random.integers(0, 5))
        label = int(random.integers(classes))
        while step < STEPS:
            end = step + 5 + int(random.geometric(0.3))
            true[row, max(step, 0) : max(end, 0)] = label
            label, step = (label + int(random.integers(1, classes))) % classes, end
    return Drawn(point_to(random, true, of), true, record(random, true, of.matrices))


def point_to(random: np.random.Generator, true: np.ndarray, of: Parameters) -> np.ndarray:
    """Calibrated evidence of given labels: Gaussian features of each step."""
    classes, distance = len(of.transition), of.sharpness
    features = random.standard_normal((*true.shape, classes)) + distance * np.eye(classes)[true]
    return log_softmax(distance * features, -1)


def brief_events(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """In 3 % of the steps the true label changes for one step, with no trace in the evidence."""
    drawn = draw_study(random, of, rows)
    classes = len(of.transition)
    event = random.random(drawn.true.shape) < 0.03
    true = np.where(event, (drawn.true + random.integers(1, classes, event.shape)) % classes, drawn.true)
    return Drawn(drawn.evidence, true, record(random, true, of.matrices))


def in_runs(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """Errors in runs: the draw that decides a label is kept for the next one with probability .8."""
    drawn = draw_study(random, of, rows)
    return drawn._replace(recorded=lt.corrupt(drawn.true.astype(np.int8), of.matrices, random, bursts=0.8).astype(int))


def where_unclear(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """Errors where the evidence is unclear: the error rate is proportional to one less the larger probability."""
    drawn = draw_study(random, of, rows)
    doubt = 1 - np.exp(drawn.evidence.max(-1))
    error = 1 - np.diagonal(of.matrices, axis1=1, axis2=2)[np.arange(STEPS), drawn.true]
    wrong = random.random(error.shape) < np.minimum(error * doubt / doubt.mean(), 0.9)
    return drawn._replace(recorded=other_label(random, drawn.true, wrong, of))


def follow_signal(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """Wrong labels are what the evidence says, where it says another class than the true one."""
    drawn = draw_study(random, of, rows)
    says, error = drawn.evidence.argmax(-1), 1 - np.diagonal(of.matrices, axis1=1, axis2=2).mean(1)  # (steps,)
    differs = says != drawn.true
    wrong = differs & (random.random(differs.shape) < np.minimum(error / max(differs.mean(), 1e-6), 0.9))
    return drawn._replace(recorded=np.where(wrong, says, drawn.true))


def other_label(random: np.random.Generator, true: np.ndarray, wrong: np.ndarray, of: Parameters) -> np.ndarray:
    classes = len(of.transition)
    return np.where(wrong, (true + random.integers(1, classes, true.shape)) % classes, true)


def too_sure(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """The evidence is too sure: its logarithms are doubled after the labels were drawn."""
    drawn = draw_study(random, of, rows)
    return drawn._replace(evidence=log_softmax(2 * drawn.evidence, -1))


def partly_too_sure(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """The evidence of half of the sequences is three times as sure as it should be, which no one power mends."""
    drawn = draw_study(random, of, rows)
    factor = np.where(np.arange(rows) % 2, 3.0, 1.0)[:, None, None]
    return drawn._replace(evidence=log_softmax(factor * drawn.evidence, -1))


def lasting_mistakes(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """The evidence makes mistakes that last: for six steps on end, in 6 % of the steps, it is that of another class."""
    drawn = draw_study(random, of, rows)
    begins = random.random(drawn.true.shape) < 0.01
    inside = np.zeros_like(begins)
    for lag in range(6):
        inside[:, lag:] |= begins[:, : STEPS - lag]
    rolled = np.roll(point_to(random, drawn.true, of), 1, -1)  # clearly another class
    return drawn._replace(evidence=np.where(inside[..., None], rolled, drawn.evidence))


def merged(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """Two of four true classes have one name: the last is recorded, and counted, as the first."""
    four = np.full((4, 4), 0.02) + 0.92 * np.eye(4)
    wide = of._replace(transition=four, matrices=make_square(of, 4))
    drawn = draw_study(random, wide, rows)
    joined = np.exp(drawn.evidence)
    joined[..., 0] += joined[..., 3]
    true, recorded = (np.where(labels == 3, 0, labels) for labels in (drawn.true, drawn.recorded))
    return Drawn(np.log(joined[..., :3]), true, recorded)


def make_square(of: Parameters, classes: int) -> np.ndarray:
    """The mean error rate of a study for another number of classes, all errors alike."""
    error = 1 - np.diagonal(of.matrices, axis1=1, axis2=2).mean(1)[:, None, None]
    return np.asarray(error / (classes - 1) * (1 - np.eye(classes)) + (1 - error) * np.eye(classes))


def late(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """Labels are two steps late, besides the errors of the model."""
    drawn = draw_study(random, of, rows)
    moved = np.concatenate([drawn.true[:, :1], drawn.true[:, :1], drawn.true[:, :-2]], 1)
    return drawn._replace(recorded=record(random, moved, of.matrices))


def people_differ(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """Sequences differ in their error rate, by a standard deviation of 1 on the logit scale; the audit is not told."""
    drawn = draw_study(random, of, rows)
    error = 1 - np.diagonal(of.matrices, axis1=1, axis2=2)[np.arange(STEPS), drawn.true]
    wrong = random.random(error.shape) < expit(logit(error) + random.standard_normal((rows, 1)))
    return drawn._replace(recorded=other_label(random, drawn.true, wrong, of))


def depend_on_last(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """The annotator forgets to change: a label is that of the step before in 30 % of the steps, errors and all."""
    drawn = draw_study(random, of, rows)
    recorded = drawn.recorded.copy()
    for step in range(1, STEPS):
        same = random.random(rows) < 0.3
        recorded[same, step] = recorded[same, step - 1]
    return drawn._replace(recorded=recorded)


def jump(random: np.random.Generator, of: Parameters, rows: int) -> Drawn:
    """The error rate jumps from none to twice its mean in the middle of the clock; the families of Q are smooth."""
    drawn = draw_study(random, of, rows)
    square = make_square(of, len(of.transition))
    after = np.eye(len(square[0])) + 2 * (square.mean(0) - np.eye(len(square[0])))
    matrices = np.where(np.arange(STEPS)[:, None, None] < STEPS // 2, np.eye(len(after)), after)
    return drawn._replace(recorded=record(random, drawn.true, matrices))


Kind = Callable[[np.random.Generator, Parameters, int], Drawn]
KINDS: dict[str, Kind] = {
    "nothing (the model itself)": draw_study,
    "durations are not geometric (at least five steps)": not_geometric,
    "brief true events without a trace": brief_events,
    "errors in runs": in_runs,
    "errors where the signal is unclear": where_unclear,
    "errors that follow the signal": follow_signal,
    "evidence twice too sure": too_sure,
    "evidence three times too sure in half of the sequences": partly_too_sure,
    "evidence whose mistakes last (6 %)": lasting_mistakes,
    "two of four classes merged": merged,
    "labels two steps late": late,
    "people differ, not told": people_differ,
    "annotator keeps the last label (30 %)": depend_on_last,
    "error rate jumps": jump,
}


# One study.


def measure(job: tuple[str, int]) -> list[dict[str, Any]]:
    """Draw and fit a batch of studies; ranks of what is true, and what became of each promise."""
    torch.set_num_threads(1)
    kind, batch = job
    random = np.random.default_rng((FIRST_SEED, list(KINDS).index(kind), batch))
    parameters = [draw_parameters(random, 2 + batch % 2) for _ in range(AT_ONCE)]
    studies = [KINDS[kind](random, of, ROWS) for of in parameters]
    labels = torch.from_numpy(np.stack([drawn.recorded for drawn in studies]).astype(np.int8))[..., None]
    evidence = torch.from_numpy(np.stack([drawn.evidence for drawn in studies])).float()
    mask = torch.ones(ROWS, STEPS, dtype=torch.bool)
    fits = fit_studies(ChainData(labels, mask, None, STEPS, evidence.shape[-1], evidence), batch)
    found = zip(parameters, studies, fits, strict=True)
    return [
        {"kind": kind, "number": AT_ONCE * batch + number, **rounded(measure_study(random, kind, of, drawn, training))}
        for number, (of, drawn, (training, _)) in enumerate(found)
    ]


def measure_study(
    random: np.random.Generator, kind: str, of: Parameters, drawn: Drawn, training: TrainingEvidence
) -> dict[str, Any]:
    """The record of one study."""
    wrong, clusters = drawn.recorded != drawn.true, np.arange(ROWS)
    profile = profile_share(training)
    estimate = estimate_annotators(training, share_test(training, profile), n_replicates=REPLICATES)[0]
    rates = true_rates(random, kind, of)  # (steps,)
    share = float(rates.mean())
    asked = share - (estimate.total - profile.estimate)  # on the scale of the profile, from which the interval is moved
    root = float(np.interp(asked, profile.shares, profile.signed_roots()))
    critical = critical_root(profile, clusters, wrong.size * profile.estimate)
    ranks = {"share": float(norm.cdf((root - ROOT_MEAN * profile.estimate) * norm.ppf(0.975) / critical))}
    for moment in MOMENTS:
        step = round(moment * (STEPS - 1))
        gap, centre = rates[step] - estimate.rate[step], estimate.rate[step]
        width = estimate.rate_upper[step] - centre if gap > 0 else centre - estimate.rate_lower[step]
        ranks[f"error rate at {moment}"] = float(norm.cdf(norm.ppf(0.975) * gap / max(width, 1e-9)))
    if kind == next(iter(KINDS)):
        chain = training.parameters
        estimated = Parameters(chain.transition[0].double().numpy(), float(chain.power[0]), estimate.mean, 0.0)
        for name, parameters in (("true parameters", of), ("estimated", estimated)):
            ranks[f"wrong labels, {name}"] = rank(random, count_wrong(random, drawn, parameters), wrong.sum())
        counts = count_over_profile(random, drawn, profile, critical)
        ranks["wrong labels, profile"] = rank(random, counts, wrong.sum())
    posterior = posteriors(training.data, same_data(torch.ones(1, ROWS)), training.parameters)[0].double().numpy()
    unused = np.empty(0)
    audit = LabelAudit(
        classes=np.arange(posterior.shape[-1]),
        labels=training.data.labels[0].numpy(),
        clock=unused,
        mask=training.data.mask.numpy(),
        probabilities=posterior,
        signal=unused,
        error_rates=unused,
        fdr=PROMISED,
        may_name=estimate.total_p < SURE,
        false_alarms=estimate.false_alarms,
    )
    flags = audit.is_issue
    return {
        "share": share,
        "wrong": float(wrong.mean()),
        "stated": estimate.total,
        "lower": estimate.total_lower,
        "upper": estimate.total_upper,
        "shown": bool(estimate.total_p < SURE),
        "ranks": {name: round(rank, 4) for name, rank in ranks.items()},
        "rate covered": float(((estimate.rate_lower <= rates) & (rates <= estimate.rate_upper)).mean()),
        "flags": int(flags.sum()),
        "false flags": int((flags & ~wrong).sum()),
        "errors": int(wrong.sum()),
        # Labels, expected and true wrong ones, by the probability of being right, in ten bins.
        "reliability": reliability(audit.quality, wrong),
    }


def rounded(record: dict[str, Any]) -> dict[str, Any]:
    """Five digits of every number."""
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in record.items()}


def true_rates(random: np.random.Generator, kind: str, of: Parameters) -> np.ndarray:
    """The error rate at each step, from many more sequences of the same parameters, over three neighbouring steps."""
    many = KINDS[kind](random, of, MANY)
    rates = (many.true != many.recorded).mean(0)
    padded = np.concatenate([rates[:1], rates, rates[-1:]])
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    return rates if kind in ("error rate jumps", "labels two steps late") else np.asarray(smooth)


def rank(random: np.random.Generator, counts: np.ndarray, truth: int) -> float:
    """The rank of a number among draws, ties at random."""
    below, equal = (counts < truth).sum(), (counts == truth).sum()
    return float((below + random.uniform() * (equal + 1)) / (len(counts) + 1))


def count_over_profile(random: np.random.Generator, drawn: Drawn, profile: Profile, critical: float) -> np.ndarray:
    """Wrong labels of paths, each with the parameters of a point of the profile likelihood drawn by its weight."""
    chains = profile.parameters
    assert chains is not None
    weights = profile_weights(profile.shares, profile.signed_roots(), critical, float(norm.ppf(0.975)))
    counts = []
    for point, paths in enumerate(random.multinomial(PATHS, weights)):
        if paths:
            noise = chains.matrices[point].mean(0).double().numpy()
            of = Parameters(chains.transition[point].double().numpy(), float(chains.power[point]), noise, 0.0)
            counts.append(count_wrong(random, drawn, of, int(paths)))
    return np.concatenate(counts)


def count_wrong(random: np.random.Generator, drawn: Drawn, of: Parameters, paths: int = PATHS) -> np.ndarray:
    """Wrong labels of paths drawn from the posterior: forward filtering of likelihoods backwards, then sampling."""
    chances = moves(drawn.evidence, of)
    likelihood = of.matrices[np.arange(STEPS)[None], :, drawn.recorded]  # (rows, steps, true)
    back = np.ones((ROWS, STEPS, likelihood.shape[-1]))
    for step in range(STEPS - 1, 0, -1):
        ahead = (chances[:, step] * (likelihood[:, step] * back[:, step])[:, None]).sum(-1)
        back[:, step - 1] = ahead / ahead.sum(-1, keepdims=True)
    row, counts = np.arange(ROWS)[:, None], np.zeros(paths, int)
    label = np.zeros((ROWS, paths), int)
    for step in range(STEPS):
        joint = chances[row, step, label] * (likelihood[:, step] * back[:, step])[:, None]  # (rows, paths, to)
        label = pick(random, joint / joint.sum(-1, keepdims=True))
        counts += (label != drawn.recorded[:, step, None]).sum(0)
    return counts


def reliability(quality: np.ndarray, wrong: np.ndarray) -> list[list[float]]:
    """Labels, those expected to be wrong, and wrong ones in ten bins of quality."""
    part = np.minimum((quality * BINS).astype(int), BINS - 1).ravel()
    sums = [np.bincount(part, values.ravel(), BINS) for values in (np.ones(wrong.shape), 1 - quality, wrong)]
    return [[round(float(value), 1) for value in each] for each in sums]


# The page.


def page(records: list[dict[str, Any]]) -> str:
    """Uniformity of the ranks, reliability, and the table of broken assumptions."""
    own = [record for record in records if record["kind"] == next(iter(KINDS))]
    critical = band_level(len(own))
    lines = [
        "# Simulation-based calibration",
        "",
        "Made by `python bench/benchmarks/calibration.py --studies 1000 --broken 60`, which says how",
        f"studies are drawn. {len(own):,} studies from the model itself, of {ROWS} sequences of {STEPS} steps of two",
        "or three classes.",
        "",
        "Ranks are uniform if the audit is calibrated. *Out of band*: the largest distance of their empirical",
        "distribution function from the diagonal, in units of the 95 % simultaneous band; above 1 they are not",
        "uniform. *Covers*: ranks between 2.5 and 97.5 %. *Wrong labels, estimated* takes the estimated parameters as",
        "known, on which no statement of an audit rests; *profile* draws them from the profile likelihood, as the",
        "expected false alarms of an audit do.",
        "",
        "| quantity | mean rank | covers 50 % | covers 95 % | chi-square p | out of band |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in own[0]["ranks"]:
        ranks = np.array([record["ranks"][name] for record in own])
        p_value = chisquare(np.histogram(ranks, BINS, (0, 1))[0]).pvalue
        inner = (np.abs(ranks - 0.5) < 0.25).mean()
        covers = (np.abs(ranks - 0.5) < 0.475).mean()
        ratio = furthest(ranks[None])[0] / critical
        lines.append(f"| {name} | {ranks.mean():.3f} | {inner:.1%} | {covers:.1%} | {p_value:.3g} | {ratio:.2f} |")
    total = np.array([record["reliability"] for record in own]).sum(0)
    lines += ["", "Probability that a label is wrong, against how many were, over all labels of these studies:", ""]
    lines += ["| stated | labels | expected wrong | wrong |", "|---|--:|--:|--:|"]
    for k in range(BINS - 1, -1, -1):
        n, expected, wrong = total[:, k]
        if n:
            message = f"{1 - (k + 1) / BINS:.0%} to {1 - k / BINS:.0%}"
            lines.append(f"| {message} | {n:,.0f} | {expected / n:.1%} | {wrong / n:.1%} |")
    lines += [
        "",
        "## How wrong each promise becomes",
        "",
        "One assumption broken at a time, in studies with the same priors. *Bias*: stated less true share. *Interval*",
        "(95 %) and *band* of the error rate over the clock: how often they hold the truth; *of these labels*: how",
        "often the interval holds the share of these very labels that is wrong. *False alarms*: of labels named at a",
        f"promised {PROMISED:.0%}, mean over studies and, in brackets, pooled. *Step by step*: mean absolute gap",
        "between the stated probability of ten bins and the share that was wrong, over labels stated to be wrong with",
        "more than 10 %. The checks of an audit, which deny an answer in some of these studies, are not made here.",
        "",
        "| broken | studies | wrong | stated | bias, points | interval covers | of these labels | band covers | shown "
        "| named | false alarms | errors found | step by step |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [broken_line(kind, [r for r in records if r["kind"] == kind]) for kind in KINDS]
    return "\n".join(lines) + "\n"


def broken_line(kind: str, records: list[dict[str, Any]]) -> str:
    def of(key: str) -> np.ndarray:
        return np.array([record[key] for record in records], float)

    if not records:
        return f"| {kind} |" + " |" * 12
    covers = (of("lower") <= of("share")) & (of("share") <= of("upper"))
    flags, false = of("flags"), of("false flags")
    each = np.where(flags > 0, false / np.maximum(flags, 1), 0.0)
    n, expected, wrong = np.array([record["reliability"] for record in records]).sum(0)[:, : BINS - 1]
    gap = np.abs(expected - wrong).sum() / max(n.sum(), 1)
    cells = [
        kind,
        f"{len(records)}",
        f"{of('share').mean():.1%}",
        f"{of('stated').mean():.1%}",
        f"{100 * (of('stated') - of('share')).mean():+.1f}",
        f"{covers.mean():.1%}",
        f"{((of('lower') <= of('wrong')) & (of('wrong') <= of('upper'))).mean():.1%}",
        f"{of('rate covered').mean():.1%}",
        f"{of('shown').mean():.0%}",
        f"{int(flags.sum()):,}",
        f"{each.mean():.1%} ({false.sum() / max(flags.sum(), 1):.1%})",
        f"{(flags - false).sum() / of('errors').sum():.0%}",
        f"{100 * gap:.1f} points",
    ]
    return f"| {' | '.join(cells)} |"


def furthest(ranks: np.ndarray) -> np.ndarray:
    """The largest standardised distance of empirical distribution functions from the diagonal: (sets,)."""
    points = np.linspace(0.01, 0.99, 99)
    n = ranks.shape[1]
    below = (ranks[:, :, None] <= points).mean(1) if n < 50 else np.stack([(ranks <= p).mean(1) for p in points], 1)
    return np.asarray((np.abs(below - points) / np.sqrt(points * (1 - points) / n)).max(1))


def band_level(n: int) -> float:
    """The distance that uniform ranks stay below in 95 % of 2,000 simulations."""
    return float(np.quantile(furthest(np.random.default_rng(0).random((2000, n))), 0.95))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000, help="from the model itself")
    parser.add_argument("--broken", type=int, default=200, help="of each kind with a broken assumption")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long, with what there is")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    records = {(each["kind"], each["number"]): each for each in read_records(chosen.out)}
    first, *others = KINDS
    jobs = [(kind, batch) for batch in range(-(-chosen.broken // AT_ONCE)) for kind in others]
    jobs += [(first, batch) for batch in range(-(-chosen.studies // AT_ONCE))]
    jobs = [job for job in jobs if (job[0], AT_ONCE * job[1]) not in records]
    if jobs:
        began = time.monotonic()
        with get_context("spawn").Pool(chosen.processes) as pool:
            for found in pool.imap_unordered(measure, jobs):
                records |= {(each["kind"], each["number"]): each for each in found}
                ordered = sorted(records.values(), key=lambda each: (list(KINDS).index(each["kind"]), each["number"]))
                text = "".join(json.dumps(record) + "\n" for record in ordered)
                (chosen.out / FILE).write_bytes(gzip.compress(text.encode(), mtime=0))
                if time.monotonic() - began > chosen.seconds:
                    break
    (chosen.out / "calibration.md").write_text(page(read_records(chosen.out)))


def read_records(folder: Path) -> list[dict[str, Any]]:
    file = folder / FILE
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()] if file.exists() else []


if __name__ == "__main__":
    main()
