"""When not to believe the noise: checks of a fit, each a sentence and what to do.

The thresholds come from `benchmarks/inference.py`: each check speaks up on the simulation built to trigger it and
keeps silent where nothing is amiss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import f_oneway

from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.families import constant_shape, family, pooled
from labeltide.chain.foretell import judge_rows
from labeltide.chain.passes import expect
from labeltide.chain.start import POOLING
from labeltide.inference.bands import logit
from labeltide.inference.refit import refit, same_data
from labeltide.inference.resample import resample_labels

PERSISTENCE = 0.3  # second eigenvalue of the transitions under which labels do not persist
CONFIDENT, FEW_CONFIDENT = 0.9, 0.05  # a confident example, and the share of them under which there are too few
BURSTS = 0.1  # share of labels whose draw is kept from the step before
TENTHS = 10
FEW_LABELS = 30.0  # of a class in a tenth of the clock; with fewer, bands are wider than 15 points either way
BALANCE_CHANGE = 0.15
MARGIN, MARGIN_CHANGE = 20.0, 0.5  # log-odds beyond which all is clear, and standard deviations by which they may move
BEYOND_CHANCE = 3.5  # standard deviations
FOLD_PARTS = 4
DISAGREE_P, DISAGREE_CHANGE = 0.001, 0.1
DRAWS, TOGETHER = 20, 2.5  # of labels, and standard deviations of what they foretell of each other


class NoiseWarning(UserWarning):
    """Something in the data makes the estimated noise doubtful."""


@dataclass(frozen=True)
class Diagnostic:
    """One check: whether it warns, what it found in a sentence, and what to do about it."""

    name: str
    is_warning: bool
    sentence: str
    advice: str


class Swing(NamedTuple):
    """How far an average moves between tenths of the clock, and how many standard deviations that is."""

    change: float
    deviations: float
    highest: int  # tenth
    lowest: int


def diagnose(training: TrainingEvidence, class_names: list[str]) -> tuple[Diagnostic, ...]:
    """Run all checks on one fit."""
    data = training.data
    rows = torch.ones(1, data.labels.shape[1])
    posterior = expect(data, same_data(1, rows), training.parameters, posterior=True).posterior
    assert posterior is not None
    true = posterior[0].double().numpy()  # (rows, steps, classes)
    return (
        check_identifiability(training, true),
        check_bursts(training),
        check_balance(data, true, class_names),
        check_drift(data),
        check_few(data, true, class_names),
        check_members(training),
        *check_together(training),
    )


def check_identifiability(training: TrainingEvidence, true: np.ndarray) -> Diagnostic:
    """Q needs labels that persist, or examples of every class of which the network is sure."""
    data, parameters = training.data, training.parameters
    persistence = float(np.sort(np.abs(np.linalg.eigvals(parameters.transition[0].double().numpy())))[-2])
    share = 0.0
    if data.evidence is not None:
        sure = (parameters.power[0] * data.evidence[0].double()).softmax(-1).numpy() >= CONFIDENT
        shown = data.mask.numpy()[..., None]
        share = float(((sure & shown).sum((0, 1)) / (true * shown).sum((0, 1)).clip(1.0)).min())
    trusted = data.trusted is not None and bool((data.trusted >= 0).any())
    bad = persistence < PERSISTENCE and share < FEW_CONFIDENT and not trusted
    known = "hardly persist" if persistence < PERSISTENCE else "persist"
    found = f"Beyond what features say, labels {known} from step to step, and the "
    found += f"features leave no doubt about {100 * min(share, 1):.0f} % of the steps of the hardest class"
    found += ": noise and real ambiguity cannot be told apart." if bad else "."
    advice = "Give better features or a few trusted labels." if bad else "Nothing to do."
    return Diagnostic("identifiability", bad, found, advice)


def check_bursts(training: TrainingEvidence) -> Diagnostic:
    """Errors in runs look like the truth where only persistence speaks."""
    kept = training.parameters.bursts
    share = 0.0 if kept is None else float(kept[0])
    if share <= BURSTS:
        return Diagnostic("bursts", False, "Mistakes come one by one, not in runs.", "Nothing to do.")
    sentence = f"Mistakes come in runs: {100 * share:.0f} % of labels repeat what went right or wrong just before."
    advice = "Runs without support from the features may be taken for the truth. Check some flagged stretches whole."
    return Diagnostic("bursts", True, sentence, advice)


def check_balance(data: ChainData, true: np.ndarray, class_names: list[str]) -> Diagnostic:
    """A class that is common at some times only can be taken for noise that changes."""
    swings = [find_swing(data, true[..., i]) for i in range(true.shape[-1])]
    index = int(np.argmax([swing.change for swing in swings]))
    swing = swings[index]
    bad = swing.change > BALANCE_CHANGE and swing.deviations > BEYOND_CHANCE
    moved = f"The share of true {class_names[index]!r} moves by {100 * swing.change:.0f} points over the clock"
    if not bad:
        return Diagnostic("class_balance", False, f"{moved}, which is little or chance.", "Nothing to do.")
    sentence = f"{moved}, most in tenth {swing.highest + 1} of 10 and least in tenth {swing.lowest + 1}."
    advice = "Part of a changing error rate may be the changing mix of classes. Compare error rates class by class."
    return Diagnostic("class_balance", True, sentence, advice)


def check_drift(data: ChainData) -> Diagnostic:
    """Where features mean something else at some hours, the network's doubt can be taken for noise."""
    if data.evidence is None:
        return Diagnostic("drift", False, "No network was needed, so none can drift.", "Nothing to do.")
    best, second = data.evidence[0].double().topk(2, dim=-1).values.clamp_min(-MARGIN).unbind(-1)
    margin = (best - second).numpy()  # (rows, steps)
    # A causal network knows little at the first steps of a sequence; that is no drift.
    swing = find_swing(data, margin, skip_first=data.points is None)
    size = swing.change / max(float(margin[data.mask.numpy()].std()), 1e-9)
    bad = size > MARGIN_CHANGE and swing.deviations > BEYOND_CHANCE
    moved = f"How clearly the networks tell classes apart moves by {size:.1f} standard deviations over the clock"
    if not bad:
        return Diagnostic("drift", False, f"{moved}, which is little or chance.", "Nothing to do.")
    sentence = f"{moved}: clearest in tenth {swing.highest + 1} of 10, least clear in tenth {swing.lowest + 1}."
    advice = "The features may drift with the clock, which can be taken for changing noise. Add the clock to them."
    return Diagnostic("drift", True, sentence, advice)


def check_few(data: ChainData, true: np.ndarray, class_names: list[str]) -> Diagnostic:
    """Where a class has few labels, its noise rests on little."""
    labels = (data.labels[0] >= 0).sum(-1).numpy()[..., None] * true
    tenth = _tenths(data)
    shown = [part for part in range(TENTHS) if (tenth == part).any()]
    counts = np.stack([labels[tenth == part].sum(0) for part in shown])  # (tenths, classes)
    part, index = (int(place) for place in np.unravel_index(counts.argmin(), counts.shape))
    count = counts[part, index]
    where = f"in tenth {shown[part] + 1} of 10 of the clock"
    if count >= FEW_LABELS:
        sentence = f"Every class has at least {count:.0f} labels in every tenth of the clock."
        return Diagnostic("few_labels", False, sentence, "Nothing to do.")
    sentence = f"There are only about {count:.0f} labels of true {class_names[index]!r} {where}."
    return Diagnostic("few_labels", True, sentence, "Do not read that stretch of its curve without its band.")


def check_members(training: TrainingEvidence) -> Diagnostic:
    """Each fold was judged by a network of its own; folds should agree on how much is wrong.

    Each fold is cut into parts, from each of which the error rate is learned: if networks agree, rates differ between
    folds no more than within them.
    """
    folds = training.folds[0].numpy()
    count = int(folds.max()) + 1
    part = np.empty(len(folds), dtype=np.int64)
    for fold in range(count):
        rows = np.flatnonzero(folds == fold)
        part[rows] = fold * FOLD_PARTS + np.arange(len(rows)) % FOLD_PARTS
    rates = _error_rates(training, part, count * FOLD_PARTS).reshape(count, FOLD_PARTS)
    p_value = float(f_oneway(*logit(rates)).pvalue)
    of_fold = rates.mean(1)
    bad = p_value < DISAGREE_P and float(np.ptp(of_fold)) > DISAGREE_CHANGE
    said = f"from {100 * of_fold.min():.0f} to {100 * of_fold.max():.0f} % of labels wrong"
    if not bad:
        return Diagnostic("members", False, f"The networks of all folds agree: {said}.", "Nothing to do.")
    sentence = f"The networks of the folds disagree beyond chance: {said}."
    return Diagnostic("members", True, sentence, "Fit again with another random_state, more epochs or more sequences.")


def check_together(training: TrainingEvidence) -> tuple[Diagnostic, ...]:
    """People who err together, or part where a step lies between classes, agree in another way than the chain thinks.

    What one annotator records is foretold from the labels of all others, and once more in labels drawn from the fitted
    chain, whose annotators err independently.
    """
    data, chain = training.data, training.parameters
    spoke = (((data.labels[0] >= 0) & data.mask[..., None]).any(1).sum(-1) > 1)[None]  # (1, rows)
    if chain.matrices.shape[1] == 1 or not bool(spoke.any()):
        return ()
    drawn = replace(data, labels=resample_labels(data, chain, DRAWS, seed=0))
    each = torch.arange(DRAWS)
    own = _foretold(data, same_data(1, spoke.float()), chain)[0]
    others = _foretold(drawn, Members(each, torch.zeros_like(each), spoke.float().expand(DRAWS, -1)), chain)
    bad = bool(own < others.mean() - TOGETHER * others.std(ddof=1))
    count = int((data.labels[0] >= 0)[spoke[0]].sum())
    found = f"From the labels of the others, what an annotator recorded has a probability of {np.exp(own / count):.2f}"
    found += f" (geometric mean); if they erred independently, {np.exp(others.mean() / count):.2f}"
    if not bad:
        return (Diagnostic("together", False, f"{found}, which chance explains.", "Nothing to do."),)
    sentence = f"{found}. They err together, or steps lie between classes."
    advice = "What is taken for the truth is then what they see in common. Give a few trusted labels."
    return (Diagnostic("together", True, sentence, advice),)


def _foretold(data: ChainData, members: Members, chain: ChainParameters) -> np.ndarray:
    """The log-probability of the labels of each member's rows, each annotator's given those of the others."""
    nothing = torch.zeros_like(members.weights, dtype=torch.float64)
    every = chain.take(torch.zeros_like(members.labels))
    return judge_rows(data, members, every, nothing, members.weights > 0).sum(1).numpy()


def _error_rates(training: TrainingEvidence, part: np.ndarray, count: int) -> np.ndarray:
    """The share of wrong labels in each of some parts of the rows, each with a Q of its own."""
    data = training.data
    members = same_data(count, torch.from_numpy(part == np.arange(count)[:, None]).float())
    static = family(data.n_classes, constant_shape(training.grid), "each")
    if training.parameters.matrices.shape[1] > 1:
        static = pooled(static, POOLING)
    fitted = refit(data, members, [static] * count, training.parameters).parameters
    counts = expect(data, members, fitted).counts.sum((1, 2)).double().numpy()  # (parts, true, recorded)
    return np.asarray(1 - np.trace(counts, axis1=1, axis2=2) / counts.sum((1, 2)).clip(1e-12))


def find_swing(data: ChainData, values: np.ndarray, skip_first: bool = False) -> Swing:
    """The largest difference of the average of (rows, steps) values between tenths of the clock.

    Steps of one sequence are alike, so its standard deviation counts sequences.
    """
    tenth = np.where(data.mask.numpy(), _tenths(data), -1)
    averages, variances, parts = [], [], []
    for part in range(int(skip_first), TENTHS):
        within = tenth == part
        total = within.sum()
        if not total:
            continue
        average = values[within].sum() / total
        parts.append(part)
        averages.append(average)
        variances.append((((values - average) * within).sum(1) ** 2).sum() / total**2)
    high, low = int(np.argmax(averages)), int(np.argmin(averages))
    change = averages[high] - averages[low]
    deviation = np.sqrt(variances[high] + variances[low]).clip(1e-12)
    return Swing(float(change), float(change / deviation), parts[high], parts[low])


def _tenths(data: ChainData) -> np.ndarray:
    """The tenth of the clock of every step: (rows, steps)."""
    return np.minimum(data.places().numpy() * TENTHS // data.n_points, TENTHS - 1)
