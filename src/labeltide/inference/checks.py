"""Model diagnostics of the noise: identifiability, dependent errors, confounding with the clock, too few labels.

Every check gives a sentence and an advice. Each warns on the simulation that was built to trigger it and stays silent
on those drawn from the model: `bench/benchmarks/inference.py checks` (docs/decisions/017-diagnostics.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import f_oneway, norm
from scipy.stats import t as student

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members, TrainingEvidence, same_data
from labeltide.chain.em import POOLING
from labeltide.chain.families import constant_shape, family, pooled
from labeltide.chain.passes import expect, posteriors, predictive_log_likelihood
from labeltide.data.clusters import deal_units
from labeltide.inference.bands import logit
from labeltide.inference.bootstrap import refit, simulate_labels
from labeltide.inference.conclusion import Diagnostic

MIN_EIGENVALUE = 0.3  # second eigenvalue of the transition matrix under which labels do not persist
CONFIDENT = 0.9  # probability of a class above which a step is an anchor point of it
MIN_ANCHORS = 0.05  # anchor points of each class, as a share of its steps
BURSTS_WARNING = 0.1  # share of labels whose draw is kept from the step before
CLOCK_TENTHS = 10
MIN_LABELS = 30.0  # of a class in a tenth of the clock; with fewer, bands are wider than 15 points either way
MAX_BALANCE_CHANGE = 0.15  # of the share of a class over the clock
MAX_LOG_ODDS = 20.0  # margins are cut off here
MAX_MARGIN_CHANGE = 0.5  # of margins over the clock, in standard deviations
CHANCE_Z = 3.5  # z score up to which a change over the clock may be chance
FOLD_PARTS = 4
FOLD_P_VALUE, MAX_FOLD_CHANGE = 0.001, 0.1  # of the F test between folds, and of error rates between them
MAX_FOLD_RANGE = 0.25  # by hand: of error rates between folds, whatever the F test says
DEPENDENCE_DRAWS, DEPENDENCE_Z = 20, 2.5  # by hand: parametric bootstrap samples, and standard deviations among them


class ClockContrast(NamedTuple):
    """The largest difference of a mean between tenths of the clock, and its z score."""

    change: float
    z: float  # the change in standard errors
    highest: int  # tenth
    lowest: int


def diagnose(training: TrainingEvidence, class_names: list[str]) -> tuple[Diagnostic, ...]:
    """Run all diagnostics of one fit."""
    data = training.data
    single = same_data(torch.ones(1, data.labels.shape[1]))
    true = posteriors(data, single, training.parameters)[0].double().numpy()  # (rows, steps, classes)
    return (
        *check_identification(training, class_names),
        check_identifiability(training, true),
        check_bursts(training),
        check_balance(training, true, class_names),
        check_drift(training),
        check_few_labels(data, true, class_names),
        check_folds(training),
        *check_independence(training),
    )


def check_identifiability(training: TrainingEvidence, true: np.ndarray) -> Diagnostic:
    """Q is identifiable from labels that persist, or from anchor points of every class.

    A hidden Markov model is identifiable if its transition matrix has full rank and its emission distributions are
    linearly independent (Allman, Matias and Rhodes 2009); the second eigenvalue tells how far the matrix is from rank
    one. Without persistence, steps whose class is nearly certain (anchor points) identify Q (Liu and Tao 2016).
    """
    data, parameters = training.data, training.parameters
    persistence = float(np.sort(np.abs(np.linalg.eigvals(parameters.transition[0].double().numpy())))[-2])
    share = 0.0
    if data.evidence is not None:
        sure = (parameters.power[0] * data.evidence[0].double()).softmax(-1).numpy() >= CONFIDENT
        shown = data.mask.numpy()[..., None]
        share = float(((sure & shown).sum((0, 1)) / (true * shown).sum((0, 1)).clip(1.0)).min())
    trusted = data.trusted is not None and bool((data.trusted >= 0).any())
    bad = persistence < MIN_EIGENVALUE and share < MIN_ANCHORS and not trusted
    sentence = f"Features leave no doubt about {100 * min(share, 1):.0f} % of the steps of the hardest class"
    if persistence >= MIN_EIGENVALUE:
        sentence += ". Beyond what they say, labels persist from step to step, and that alone identifies the noise."
    else:
        sentence += ", and beyond what they say, labels hardly persist from step to step"
        sentence += ": noise and real ambiguity cannot be separated." if bad else "."
    if not bad:
        return Diagnostic("identifiability", False, sentence)
    return Diagnostic("identifiability", True, sentence, "Give better features or a few trusted labels.", denies=True)


def check_bursts(training: TrainingEvidence) -> Diagnostic:
    """Runs of errors can be taken for true labels where features say little."""
    kept = training.parameters.bursts
    share = 0.0 if kept is None else float(kept[0])
    if share <= BURSTS_WARNING:
        return Diagnostic("bursts", False, "Mistakes are isolated; they do not come in runs.")
    sentence = f"Mistakes come in runs: {100 * share:.0f} % of labels repeat what went right or wrong just before."
    advice = "Runs without support from the features may be taken for the truth. Check some flagged stretches whole."
    return Diagnostic("bursts", True, sentence, advice)


def check_balance(training: TrainingEvidence, true: np.ndarray, class_names: list[str]) -> Diagnostic:
    """Confounding: a class whose share changes over the clock can be taken for noise that changes."""
    contrasts = [largest_contrast(training, true[..., i]) for i in range(true.shape[-1])]
    index = int(np.argmax([contrast.change for contrast in contrasts]))
    contrast = contrasts[index]
    bad = contrast.change > MAX_BALANCE_CHANGE and contrast.z > CHANCE_Z
    moved = f"The share of true {class_names[index]!r} moves by {100 * contrast.change:.0f} points over the clock"
    if not bad:
        return Diagnostic("class_balance", False, f"{moved}, which is little or chance.")
    sentence = f"{moved}, most in tenth {contrast.highest + 1} of 10 and least in tenth {contrast.lowest + 1}."
    advice = "Part of a changing error rate may be the changing mix of classes. Compare error rates class by class."
    return Diagnostic("class_balance", True, sentence, advice)


def check_drift(training: TrainingEvidence) -> Diagnostic:
    """Covariate shift over the clock: the doubt of the networks at some moments can be taken for noise."""
    data = training.data
    if data.evidence is None:
        return Diagnostic("drift", False, "No network was needed, so none can drift.")
    first, second = data.evidence[0].double().clamp_min(-MAX_LOG_ODDS).topk(2, dim=-1).values.unbind(-1)
    margin = (first - second).numpy()  # (rows, steps)
    # A causal network has seen little at the first steps of a sequence; that is not drift.
    contrast = largest_contrast(training, margin, skip_first=data.points is None)
    size = contrast.change / max(float(margin[data.mask.numpy()].std()), 1e-9)
    bad = size > MAX_MARGIN_CHANGE and contrast.z > CHANCE_Z
    moved = f"How clearly the networks tell classes apart moves by {size:.1f} standard deviations over the clock"
    if not bad:
        return Diagnostic("drift", False, f"{moved}, which is little or chance.")
    sentence = f"{moved}: clearest in tenth {contrast.highest + 1} of 10, least clear in tenth {contrast.lowest + 1}."
    advice = "The features may drift with the clock, which can be taken for changing noise. Add the clock to them."
    return Diagnostic("drift", True, sentence, advice)


def check_few_labels(data: ChainData, true: np.ndarray, class_names: list[str]) -> Diagnostic:
    """Expected labels of each true class in each tenth of the clock: with few, Q is estimated poorly there."""
    labels = (data.labels[0] >= 0).sum(-1).numpy()[..., None] * true
    tenth = _tenths(data)
    shown = [part for part in range(CLOCK_TENTHS) if (tenth == part).any()]
    counts = np.stack([labels[tenth == part].sum(0) for part in shown])  # (tenths, classes)
    part, index = (int(axis) for axis in np.unravel_index(counts.argmin(), counts.shape))
    count = counts[part, index]
    where = f"in tenth {shown[part] + 1} of 10 of the clock"
    amount = f"only about {count:.0f} labels" if count >= 1.5 else "hardly any labels"
    if count >= MIN_LABELS:
        sentence = f"Every class has at least {count:.0f} labels in every tenth of the clock."
        return Diagnostic("few_labels", False, sentence)
    sentence = f"True {class_names[index]!r} has {amount} {where}."
    return Diagnostic("few_labels", True, sentence, "Read that part of its curve only together with its band.")


def check_folds(training: TrainingEvidence) -> Diagnostic:
    """Do the networks of the folds agree on the error rate? One-way analysis of variance (F test, Fisher 1925).

    Each fold is cut into parts, of whole clusters, and the error rate of each part is estimated. If the networks agree,
    rates differ between folds no more than within them.
    """
    folds, clusters = training.folds[0].numpy(), _clusters(training)
    part, counts = np.empty(len(folds), dtype=np.int64), list[int]()  # of each row; parts of each fold
    for fold in np.unique(folds):
        rows = np.flatnonzero(folds == fold)
        if clusters is None:
            of_rows = np.arange(len(rows)) % FOLD_PARTS
        else:
            of_rows = deal_units(clusters[rows], np.ones(len(rows)), FOLD_PARTS, np.random.default_rng(0))
        part[rows] = sum(counts) + of_rows
        counts.append(int(of_rows.max()) + 1)
    rates = np.split(_error_rates(training, part, sum(counts)), np.cumsum(counts)[:-1])
    fold_rates = np.array([of_fold.mean() for of_fold in rates])
    summary = f"from {100 * fold_rates.min():.0f} to {100 * fold_rates.max():.0f} % of labels wrong"
    if float(np.ptp(fold_rates)) > MAX_FOLD_RANGE:
        sentence = f"The networks of the folds are far apart: {summary}."
        return Diagnostic("members", True, sentence, "The share rests on too little. Give more sequences or labels.")
    if max(counts) == 1:
        sentence = f"Every fold holds one person or recording, and its network may differ for that alone: {summary}."
        return Diagnostic("members", False, sentence)
    p_value = float(f_oneway(*map(logit, rates)).pvalue) if len(counts) > 1 else 1.0
    bad = p_value < FOLD_P_VALUE and float(np.ptp(fold_rates)) > MAX_FOLD_CHANGE
    if not bad:
        return Diagnostic("members", False, f"The networks of all folds agree: {summary}.")
    sentence = f"The networks of the folds disagree beyond chance: {summary}."
    return Diagnostic("members", True, sentence, "Fit again with another random_state, more epochs or more sequences.")


def check_independence(training: TrainingEvidence) -> tuple[Diagnostic, ...]:
    """Are annotators' errors independent given the truth? Predictive check (Gelman, Meng and Stern 1996).

    The leave-one-annotator-out predictive log-likelihood of the recorded labels is compared with that of labels
    simulated from the fitted chain, whose annotators err independently. It is lower where annotators err together, or
    where they part on steps between classes.
    """
    data, chain = training.data, training.parameters
    several = (((data.labels[0] >= 0) & data.mask[..., None]).any(1).sum(-1) > 1)[None]  # (1, rows)
    if chain.matrices.shape[1] == 1 or not bool(several.any()):
        return ()
    simulated = replace(data, labels=simulate_labels(data, chain, DEPENDENCE_DRAWS, seed=0))
    each = torch.arange(DEPENDENCE_DRAWS)
    draws = Members(each, torch.zeros_like(each), several.float().expand(DEPENDENCE_DRAWS, -1))
    observed = _leave_one_out(data, same_data(several.float()), chain)[0]
    expected = _leave_one_out(simulated, draws, chain)
    bad = bool(observed < expected.mean() - DEPENDENCE_Z * expected.std(ddof=1))
    count = int((data.labels[0] >= 0)[several[0]].sum())
    sentence = "From the labels of the others, what an annotator recorded has a probability of "
    sentence += f"{np.exp(observed / count):.2f} (geometric mean); if they erred independently, "
    sentence += f"{np.exp(expected.mean() / count):.2f}"
    if not bad:
        return (Diagnostic("together", False, f"{sentence}, which chance explains."),)
    sentence += ". They err together, or steps lie between classes."
    advice = "What is taken for the truth is then what they see in common. Give a few trusted labels."
    return (Diagnostic("together", True, sentence, advice),)


def _leave_one_out(data: ChainData, members: Members, chain: ChainParameters) -> np.ndarray:
    """Leave-one-annotator-out predictive log-likelihood of each member's rows: (members,)."""
    zeros = torch.zeros_like(members.weights, dtype=torch.float64)
    chains = chain.take(torch.zeros_like(members.labels))
    return predictive_log_likelihood(data, members, chains, zeros, members.weights > 0).sum(1).numpy()


def _error_rates(training: TrainingEvidence, part: np.ndarray, count: int) -> np.ndarray:
    """Error rate in each of several parts of the rows, from a constant Q fitted to that part."""
    data = training.data
    members = same_data(torch.from_numpy(part == np.arange(count)[:, None]).float())
    static = family(data.n_classes, constant_shape(training.grid), "each")
    if training.parameters.matrices.shape[1] > 1:
        static = pooled(static, POOLING)
    fitted = refit(data, members, [static] * count, training.parameters).parameters
    counts = expect(data, members, fitted).counts.sum((1, 2)).double().numpy()  # (parts, true, recorded)
    return np.asarray(1 - np.trace(counts, axis1=1, axis2=2) / counts.sum((1, 2)).clip(1e-12))


def largest_contrast(training: TrainingEvidence, values: np.ndarray, skip_first: bool = False) -> ClockContrast:
    """The largest difference of the mean of (rows, steps) values between tenths of the clock.

    Standard errors are robust to correlation within clusters, or within rows where no clusters are known: sums over
    one are the units (Liang and Zeger 1986). Few clusters are judged by Student's t (Cameron and Miller 2015).
    """
    clusters, tenth = _clusters(training), np.where(training.data.mask.numpy(), _tenths(training.data), -1)
    units = np.arange(len(tenth)) if clusters is None else clusters
    averages, variances, parts = [], [], []
    for part in range(int(skip_first), CLOCK_TENTHS):
        within = tenth == part
        total = within.sum()
        if not total:
            continue
        average = values[within].sum() / total
        parts.append(part)
        averages.append(average)
        variances.append((np.bincount(units, ((values - average) * within).sum(1)) ** 2).sum() / total**2)
    if len(parts) < 2:  # such as sequences of one step
        return ClockContrast(0.0, 0.0, 0, 0)
    high, low = int(np.argmax(averages)), int(np.argmin(averages))
    change = averages[high] - averages[low]
    z = float(change / np.sqrt(variances[high] + variances[low]).clip(1e-12))
    if clusters is not None:
        count = min(len(np.unique(units[(tenth == parts[end]).any(1)])) for end in (high, low))
        # The normal quantile of the tail of Student's t, with the factor n / (n - 1) in the variance of n clusters.
        z = float(norm.isf(student.sf(z * np.sqrt(1 - 1 / count), count - 1))) if count > 1 else 0.0
    return ClockContrast(float(change), z, parts[high], parts[low])


def _clusters(training: TrainingEvidence) -> np.ndarray | None:
    """The cluster of each row as a number from 0; None where fewer than two are known."""
    if training.clusters is None:
        return None
    names, clusters = np.unique(training.clusters.numpy(), return_inverse=True)
    return clusters if len(names) > 1 else None


def _tenths(data: ChainData) -> np.ndarray:
    """The tenth of the clock of every step: (rows, steps)."""
    return np.minimum(data.grid_index().numpy() * CLOCK_TENTHS // data.n_points, CLOCK_TENTHS - 1)


# Checks of what identifies the noise. Where one of them fails, the share of wrong labels cannot be estimated.
#
# - Information: features and neighbouring labels must say something about the recorded labels. Labels drawn by coin
#   flips are explained as well by their frequencies, and then every Q fits.
# - Right more often than not: the true classes are named by the labels that are recorded most often for them
#   (diagonally dominant Q). Two classes with 70 % wrong labels fit as well as 30 % with the names exchanged, so no data
#   can show that the assumption fails; an estimate close to its edge shows that it may.
# - Confounding with the clock: where every class has its moments by protocol, networks learn the moments, and a class
#   that is hard to see cannot be told from one that is mislabelled.

# Each threshold separates sound from misleading studies; its value in the gap between them is by hand
# (docs/decisions/016-when-nothing-can-be-told.md).
MIN_GAIN_T = 2.0  # by hand: t value of the gain over label frequencies
FREQUENCY_PARTS = 10  # by hand: of the clock, each with its own frequencies
MIN_RIGHT = 0.55  # by hand: share of right labels of a true class under which its name is in doubt
MAX_DOUBTFUL = 0.25  # by hand: share of the labels whose true class may have changed names
MIN_CLOCK_GAIN = 0.3  # by hand: share of the labels outside the most common class that the clock predicts
MIN_CLOCK_SHARE = 0.9  # by hand: of what the networks tell beyond the most common class; noise lowers both alike
TRUSTED_LABELS = 30  # by hand: with as many, Q is known from them


def check_identification(training: TrainingEvidence, class_names: list[str]) -> tuple[Diagnostic, ...]:
    """The three checks of one fit; a cause comes before what follows from it."""
    single = same_data(torch.ones(1, training.data.labels.shape[1]))
    expected = expect(training.data, single, training.parameters)
    return (
        check_confounding(training),
        check_information(training, expected),
        check_mostly_right(training, expected, class_names),
    )


def check_information(training: TrainingEvidence, expected: Expected) -> Diagnostic:
    """Is the fitted model likelier than label frequencies? Likelihood ratio of non-nested models (Vuong 1989).

    The gain in log-likelihood over frequencies at the same tenth of the clock, less the number of parameters of the
    chain (Akaike 1974), is counted in standard errors of clusters.
    """
    gain = expected.log_likelihood[0].double().numpy() - frequency_log_likelihood(training.data)
    units = np.arange(len(gain)) if training.clusters is None else training.clusters.numpy()
    _, unit_of_row = np.unique(units, return_inverse=True)
    gains = np.bincount(unit_of_row, gain) if unit_of_row.any() else gain
    t = 0.0
    if len(gains) > 1:
        classes = training.data.n_classes
        n_parameters = 2 * classes * (classes - 1) + classes
        t = float((gains.sum() - n_parameters) / np.sqrt(len(gains) * gains.var(ddof=1)).clip(1e-9))
    bad = t < MIN_GAIN_T and not is_trusted(training.data)
    if not bad:
        sentence = "Features or neighbouring labels say more about the labels than their frequencies do."
        return Diagnostic("information", False, sentence)
    sentence = "Neither features nor neighbouring labels say clearly more about the labels than their frequencies do."
    return Diagnostic("information", True, sentence, "Give better features or some trusted labels.", denies=True)


def frequency_log_likelihood(data: ChainData) -> np.ndarray:
    """Log-likelihood of each row's labels by the frequencies of each annotator in each tenth of the clock: (rows,)."""
    labels, index = data.labels[0].numpy(), data.grid_index().numpy()
    part = np.minimum(index * FREQUENCY_PARTS // data.n_points, FREQUENCY_PARTS - 1)
    total = np.zeros(len(labels))
    for annotator in range(labels.shape[-1]):
        codes = labels[..., annotator]
        shown = (codes >= 0) & data.mask.numpy()
        counts = np.zeros((FREQUENCY_PARTS, data.n_classes))
        np.add.at(counts, (part[shown], codes[shown]), 1.0)
        log_share = np.log(counts.clip(1e-9) / counts.sum(1, keepdims=True).clip(1e-9))
        total += np.where(shown, log_share[part, codes.clip(0)], 0.0).sum(1)
    return total


def check_mostly_right(training: TrainingEvidence, expected: Expected, class_names: list[str]) -> Diagnostic:
    """Is every class recorded rightly more often than not? The estimate must lie clear of that edge."""
    counts = expected.counts[0].double().sum((0, 1)).numpy()  # (true, recorded)
    of_class = counts.sum(1)
    right, share = np.diagonal(counts) / of_class.clip(1e-9), of_class / of_class.sum().clip(1e-9)
    doubtful = right < MIN_RIGHT
    worst = int(np.where(share > 0, right, 1.0).argmin())
    bad = bool(share[doubtful].sum() > MAX_DOUBTFUL) and not is_trusted(training.data)
    summary = f"True {class_names[worst]!r} is recorded as such in {100 * right[worst]:.0f} % of cases"
    if not bad:
        return Diagnostic("mostly_right", False, f"{summary}, the least of all classes.")
    sentence = f"{summary}. Nothing is known unless each class is right more often than not, and this is at its edge."
    return Diagnostic("mostly_right", True, sentence, "Give some trusted labels of every class.", denies=True)


def check_confounding(training: TrainingEvidence) -> Diagnostic:
    """Does the clock alone tell the classes nearly as well as the networks do?"""
    by_clock, by_networks, most_common = clock_accuracy(training)
    gain = by_clock - most_common
    large = gain > MIN_CLOCK_GAIN * (1 - most_common)
    bad = large and gain > MIN_CLOCK_SHARE * (by_networks - most_common) and not is_trusted(training.data)
    summary = f"The clock alone predicts {100 * by_clock:.0f} % of the labels of other sequences"
    if not bad:
        return Diagnostic("confounding", False, f"{summary}.")
    sentence = (
        f"{summary}, features {100 * by_networks:.0f} %: classes come at fixed moments, as in a protocol. A class that "
        "is hard to see cannot be distinguished from one that is mislabelled."
    )
    advice = "Give some trusted labels, or sequences in which the classes come in another order."
    return Diagnostic("confounding", True, sentence, advice, denies=True)


def clock_accuracy(training: TrainingEvidence) -> tuple[float, float, float]:
    """Shares of labels that are told by the clock, by the networks, and by the most common label, each held out.

    The clock tells the label that is most frequent at the same moment in other clusters.
    """
    data = training.data
    labels, index, k = data.labels[0].numpy(), data.grid_index().numpy(), data.n_classes
    clusters = np.arange(len(labels)) if training.clusters is None else training.clusters.numpy()
    n_clusters, cluster = len(np.unique(clusters)), np.unique(clusters, return_inverse=True)[1]
    shown = (labels >= 0) & data.mask.numpy()[..., None]
    row, step, annotator = np.nonzero(shown)
    codes, point, of = labels[row, step, annotator], index[row, step], cluster[row]
    everyone = np.zeros((data.n_points, k))
    np.add.at(everyone, (point, codes), 1.0)
    own = np.zeros((n_clusters, data.n_points, k), dtype=np.float32)
    np.add.at(own, (of, point, codes), 1.0)
    overall = everyone.sum(0)
    others = everyone[point] - own[of, point] + 1e-3 * overall / overall.sum()
    by_clock = float((others.argmax(1) == codes).mean())
    by_networks = 0.0
    if data.evidence is not None:
        by_networks = float((data.evidence[0].numpy()[row, step].argmax(-1) == codes).mean())
    return by_clock, by_networks, float(overall.max() / overall.sum())


def is_trusted(data: ChainData) -> bool:
    """Whether some labels are known to be right."""
    return data.trusted is not None and int((data.trusted >= 0).sum()) >= TRUSTED_LABELS
