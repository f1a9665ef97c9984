"""Model diagnostics of the noise: identifiability, dependent errors, confounding with the clock, too few labels.

Every check gives a sentence and an advice. Each warns on the simulation that was built to trigger it and stays silent
on those drawn from the model: `bench/benchmarks/inference.py checks` (docs/decisions/017-diagnostics.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom, norm
from scipy.stats import t as student

from labeltide.chain.em import join_evidence, label_chain
from labeltide.chain.passes import (
    ChainData,
    ExpectedCounts,
    Members,
    TrainingEvidence,
    expect,
    posteriors,
    predictive_log_likelihood,
    same_data,
)
from labeltide.inference.annotators import cohen_kappas
from labeltide.inference.bootstrap import simulate_members
from labeltide.inference.conclusion import Diagnostic

MIN_PERSISTENCE = 0.1  # by hand: kappa of consecutive labels under which they do not persist
MIN_SUPPORT, MIN_SUPPORT_T = 0.05, 2.0  # by hand: kappa of labels and predictions, and its t value over recordings
MIN_SUPPORT_LABELS, MIN_SUPPORT_CLUSTERS = 20, 10  # by hand: labels and recordings from which recordings are compared
SUPPORT_MARGIN, SUPPORT_P_VALUE = 0.2, 0.01  # by hand: agreement below that of most recordings, and level of the test
MIN_SUPPORT_GAIN = 0.1  # by hand: share of suspects that the signals support, above that of other labels
BURSTS_WARNING = 0.1  # share of labels whose draw is kept from the step before
SUSPECTED_BURSTS = 0.05  # by hand: level at which bursts are mentioned that the fit does not have
CLOCK_TENTHS = 10
MAX_BALANCE_CHANGE = 0.15  # of the share of a class over the clock
MAX_LOG_ODDS = 20.0  # margins are cut off here
MAX_MARGIN_CHANGE = 0.5  # of margins over the clock, in standard deviations
CHANCE_Z = 3.5  # z score up to which a change over the clock may be chance
DEPENDENCE_DRAWS, DEPENDENCE_Z = 20, 2.5  # by hand: parametric bootstrap samples, and standard deviations among them


class ClockContrast(NamedTuple):
    """The largest difference of a mean between tenths of the clock, and its z score."""

    change: float
    z: float  # the change in standard errors
    highest: int  # tenth
    lowest: int


def diagnose(training: TrainingEvidence, class_names: list[str]) -> tuple[Diagnostic, ...]:
    """Run all diagnostics of one fit; a cause comes before what follows from it."""
    data = training.data
    expected = expect(data, same_data(torch.ones(1, data.labels.shape[1])), training.parameters, posterior=True)
    assert expected.posterior is not None
    true = expected.posterior[0].double().numpy()  # (rows, steps, classes)
    return (
        check_confounding(training),
        check_mostly_right(training, expected, class_names),
        check_identifiability(training),
        *check_support(training),
        *check_persistence(training, true),
        check_bursts(training),
        check_balance(training, true, class_names),
        check_drift(training),
        *check_independence(training),
    )


def _judge(name: str, bad: bool, sound: str, doubt: str, advice: str, denies: bool = False) -> Diagnostic:
    """A warning with its advice where the check fails, otherwise what was found."""
    return Diagnostic(name, True, doubt, advice, denies) if bad else Diagnostic(name, False, sound)


def check_identifiability(training: TrainingEvidence) -> Diagnostic:
    """Labels that persist, several annotators or trusted labels identify Q; features alone do not.

    A hidden Markov model is identifiable if its transition matrix has full rank and its emission distributions are
    linearly independent (Allman, Matias and Rhodes 2009). Without persistence, a class that the features do not
    determine gives the same labels and features as noise.
    """
    data, labels = training.data, training.data.labels[0].numpy()
    before, after = labels[:, :-1], labels[:, 1:]
    both = (before >= 0) & (after >= 0) & data.mask.numpy()[:, 1:, None]
    persistence = _kappa(before[both], after[both], data.n_classes)
    several = bool(((data.labels[0] >= 0) & data.mask[..., None]).sum(-1).max() > 1)
    sentence = f"Beyond chance, {100 * max(persistence, 0):.0f} % of the labels repeat the one before"
    if persistence >= MIN_PERSISTENCE:
        return Diagnostic("identifiability", False, f"{sentence}. That identifies single wrong labels.")
    if several or data.is_trusted:
        return Diagnostic("identifiability", False, f"{sentence}: other labels of the same step identify wrong ones.")
    sentence += ". A wrong label then looks like a class that the signals do not determine."
    return Diagnostic("identifiability", True, sentence, "Give a second annotator or trusted labels.", denies=True)


def _kappa(first: np.ndarray, second: np.ndarray, n_classes: int) -> float:
    """Cohen's kappa of two arrays of codes; 0 where chance agreement is one."""
    kappa = cohen_kappas(np.stack([first, second], 1), n_classes)[0, 1]
    return 0.0 if np.isnan(kappa) else float(kappa)


def check_support(training: TrainingEvidence) -> tuple[Diagnostic, ...]:
    """Do the signals predict the labels, of all recordings together and of each?

    A recording stands out by a binomial test with Bonferroni's correction. Its trials are runs of equal labels and
    predictions, because neighbours repeat each other.
    """
    data = training.data
    if data.evidence is None or data.is_trusted:
        return ()
    labels = data.labels[0].numpy()
    matrices = training.parameters.matrices[0].mean((0, 1)).double().numpy()
    expected = (data.evidence[0].double().exp().numpy() @ matrices).argmax(-1)  # the likeliest recorded label
    predicted = np.broadcast_to(expected[..., None], labels.shape)
    begins = np.ones(labels.shape, bool)
    begins[:, 1:] = (labels[:, 1:] != labels[:, :-1]) | (predicted[:, 1:] != predicted[:, :-1])
    shown = (labels >= 0) & data.mask.numpy()[..., None]
    units = np.broadcast_to(_units(training)[0][:, None, None], labels.shape)
    unit, code, guess = units[shown], labels[shown], predicted[shown]
    count = unit.max() + 1
    total, right, runs = (np.bincount(unit, part, count) for part in (shown[shown], code == guess, begins[shown]))
    judged = (total >= MIN_SUPPORT_LABELS) & (runs > 1)
    kappas = np.array(
        [_kappa(code[unit == each], guess[unit == each], data.n_classes) for each in np.flatnonzero(judged)]
    )
    kappa = _kappa(code, guess, data.n_classes)
    t = math.inf if len(kappas) < 2 else kappas.mean() / max(kappas.std(ddof=1) / math.sqrt(len(kappas)), 1e-9)
    agreement = f"their agreement beyond chance is {max(kappa, 0):.2f}"
    if kappa < MIN_SUPPORT or t < MIN_SUPPORT_T:
        sentence = f"Signals do not predict these labels ({agreement}), so each was compared with its neighbours only."
        advice = "Errors that last for several steps cannot be seen. Check the features."
        return (Diagnostic("support", True, sentence, advice),)
    checks = [Diagnostic("support", False, f"The signals predict the labels of other recordings: {agreement}.")]
    share = right / total.clip(1)
    least = np.median(share[judged]) - SUPPORT_MARGIN if judged.sum() >= MIN_SUPPORT_CLUSTERS else 0.0
    p_value = binom.cdf(np.floor(share * runs), runs.clip(1), max(least, 0.0))
    low = int((judged & (share < least) & (p_value * count < SUPPORT_P_VALUE)).sum())
    doubt = f"In {low} of {count} recordings, labels and signals do not fit together as they do in the others."
    advice = "Check these recordings for labels of another one, a broken sensor or other labelling rules."
    sound = "In every recording, the labels fit the signals."
    return (*checks, _judge("recordings", bool(low), sound, doubt, advice))


def check_persistence(training: TrainingEvidence, true: np.ndarray) -> tuple[Diagnostic, ...]:
    """Where a label is probably wrong, do the signals support the likeliest class more often than at other labels?

    The out-of-fold log-likelihood ratio of this class against the recorded one is positive if they do.
    """
    data, labels = training.data, training.data.labels[0].numpy()
    if data.evidence is None or data.is_trusted:
        return ()
    row, step, annotator = np.nonzero((labels >= 0) & data.mask.numpy()[..., None])
    recorded, belief = labels[row, step, annotator].astype(int), true[row, step]
    score, likeliest = data.evidence[0].numpy()[row, step], belief.argmax(1)
    suspect = belief[range(len(row)), recorded] < 0.5
    if suspect.sum() < MIN_SUPPORT_LABELS:
        return ()
    positive = score > np.take_along_axis(score, recorded[:, None], 1)  # (labels, classes)
    kept = [positive[(recorded == code) & ~suspect] for code in range(data.n_classes)]
    expected = np.stack([part.mean(0) if len(part) else np.zeros(data.n_classes) for part in kept])
    there = positive[suspect, likeliest[suspect]].mean()
    elsewhere = expected[recorded[suspect], likeliest[suspect]].mean()
    sound = f"Signals support another class at {100 * there:.0f} % of the labels that are probably wrong"
    doubt = f"{sound}, and at {100 * elsewhere:.0f} % of the others: persistence alone says that they are wrong."
    advice = "They may be brief true events. Review some of them."
    return (_judge("persistence", bool(there - elsewhere < MIN_SUPPORT_GAIN), f"{sound}.", doubt, advice),)


def share_alone(training: TrainingEvidence) -> tuple[float, float]:
    """The share of wrong labels by the labels alone, and the upper end of its 95 % interval.

    Labels that differ from their neighbours count, even if the signals support them: they may be right, or errors that
    follow the signals. The standard error is cluster-robust. NaN with several annotators or trusted labels.
    """
    training = training.for_bootstrap()
    data, labels = training.data, training.data.labels[0].numpy()
    if data.evidence is None or data.is_trusted or training.parameters.matrices.shape[1] > 1:
        return math.nan, math.nan
    single, labels_only = same_data(torch.ones(1, len(labels))), data.with_evidence(None)
    chain = label_chain(labels_only, single, training.grid, training.period)
    true = posteriors(labels_only, single, chain)[0].double().numpy()
    shown = (labels >= 0) & data.mask.numpy()[..., None]
    wrong = np.where(shown, 1 - np.take_along_axis(true, labels.clip(0).astype(np.intp), -1), 0.0)
    units = _units(training)[0]
    total, count = (np.bincount(units, part.sum((1, 2))) for part in (wrong, shown))
    share = float(total.sum() / count.sum())
    error = math.sqrt(float(np.square(total - share * count).sum())) / count.sum()
    return share, share + float(student.isf(0.025, max(len(count) - 1, 1))) * error


def check_bursts(training: TrainingEvidence) -> Diagnostic:
    """Runs of errors, or of networks that fail: also where they are less clear than the fit demands to model them."""
    data, chains = training.data, [training.parameters]
    single = same_data(torch.ones(1, data.labels.shape[1]))
    if data.evidence is not None and chains[0].matrices.shape[1] == 1:
        times = training.grid, training.period
        chains.append(join_evidence(data, single, chains[0], *times, training.clusters, SUSPECTED_BURSTS))
    bursts = [chain for chain in chains if chain.bursts is not None and float(chain.bursts[0]) > BURSTS_WARNING]
    if not bursts:
        return Diagnostic("bursts", False, "Mistakes are isolated; they do not come in runs.")
    counts = expect(data, single, bursts[0]).counts[0].double().sum((0, 1))
    wrong = f"{100 * (1 - float(counts.trace() / counts.sum())):.0f} %"
    doubt = f"Labels and signals disagree at about {wrong} of the steps, mostly in runs. Either may be at fault."
    return Diagnostic("bursts", True, doubt, "Review some 20 stretches in which they disagree: these will tell.")


def check_balance(training: TrainingEvidence, true: np.ndarray, class_names: list[str]) -> Diagnostic:
    """Confounding: a class whose share changes over the clock can be taken for noise that changes."""
    contrasts = [largest_contrast(training, true[..., i]) for i in range(true.shape[-1])]
    index = int(np.argmax([contrast.change for contrast in contrasts]))
    contrast = contrasts[index]
    bad = contrast.change > MAX_BALANCE_CHANGE and contrast.z > CHANCE_Z
    moved = f"The share of true {class_names[index]!r} changes by {100 * contrast.change:.0f} points over the clock"
    doubt = f"{moved}: largest at {_span(contrast.highest)}, smallest at {_span(contrast.lowest)}."
    advice = "Part of a changing error rate may be the changing mix of classes. Compare error rates class by class."
    return _judge("class_balance", bad, f"{moved}, which is small or due to chance.", doubt, advice)


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
    moved = f"How clearly the networks distinguish classes changes by {size:.1f} standard deviations over the clock"
    doubt = f"{moved}: clearest at {_span(contrast.highest)}, least clear at {_span(contrast.lowest)}."
    advice = "The features may drift with the clock, which can look like changing noise. Add the clock to them."
    return _judge("drift", bad, f"{moved}, which is small or due to chance.", doubt, advice)


def check_independence(training: TrainingEvidence) -> tuple[Diagnostic, ...]:
    """Are annotators' errors independent given the truth? Predictive check (Gelman, Meng and Stern 1996).

    The leave-one-annotator-out predictive log-likelihood is lower than that of labels simulated from the fitted chain
    where annotators err together, or where they part on steps between classes.
    """
    data, chain = training.data, training.parameters
    several = (((data.labels[0] >= 0) & data.mask[..., None]).any(1).sum(-1) > 1)[None]  # (1, rows)
    if chain.matrices.shape[1] == 1 or not bool(several.any()):
        return ()

    def leave_one_out(data: ChainData, members: Members) -> np.ndarray:
        zeros = torch.zeros_like(members.weights, dtype=torch.float64)
        chains = chain.take(torch.zeros_like(members.labels))
        return predictive_log_likelihood(data, members, chains, zeros, members.weights > 0).sum(1).numpy()

    observed = leave_one_out(data, same_data(several.float()))[0]
    expected = leave_one_out(*simulate_members(data, chain, DEPENDENCE_DRAWS, 0, several.float()))
    bad = bool(observed < expected.mean() - DEPENDENCE_Z * expected.std(ddof=1))
    count = int((data.labels[0] >= 0)[several[0]].sum())
    sentence = "Given the labels of the others, the label that an annotator recorded has probability "
    sentence += f"{np.exp(observed / count):.2f} (geometric mean); with independent errors it would have "
    sentence += f"{np.exp(expected.mean() / count):.2f}"
    doubt = f"{sentence}. They err together, or steps lie between classes."
    advice = "Mistakes that they share are then taken for the truth. Give a few trusted labels."
    return (_judge("together", bad, f"{sentence}; chance explains the difference.", doubt, advice),)


def largest_contrast(training: TrainingEvidence, values: np.ndarray, skip_first: bool = False) -> ClockContrast:
    """The largest difference of the mean of (rows, steps) values between tenths of the clock.

    Standard errors are cluster-robust (Liang and Zeger 1986); few clusters by Student's t (Cameron and Miller 2015).
    """
    data = training.data
    tenth = np.where(data.mask.numpy(), data.grid_index().numpy() * CLOCK_TENTHS // data.n_points, -1)
    units, are_clusters = _units(training)
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
    if are_clusters:
        count = min(len(np.unique(units[(tenth == parts[end]).any(1)])) for end in (high, low))
        # The normal quantile of the tail of Student's t, with the factor n / (n - 1) in the variance of n clusters.
        z = float(norm.isf(student.sf(z * np.sqrt(1 - 1 / count), count - 1))) if count > 1 else 0.0
    return ClockContrast(float(change), z, parts[high], parts[low])


def _units(training: TrainingEvidence) -> tuple[np.ndarray, bool]:
    """The cluster of each row as a number from 0, or the row where fewer than two are known; and whether it is one."""
    if training.clusters is not None and len(training.clusters.unique()) > 1:
        return training.clusters.unique(return_inverse=True)[1].numpy(), True
    return np.arange(len(training.data.mask)), False


def _span(tenth: int) -> str:
    return f"{10 * tenth} to {10 * tenth + 10} % of the clock"


# Checks of what identifies the noise. Where one of them fails, the share of wrong labels cannot be estimated. The true
# classes are named by the labels that are recorded most often for them (diagonally dominant Q). No data can show that
# this fails: two classes with 70 % wrong labels fit as well as 30 % with the names exchanged.

# Each threshold separates sound from misleading studies; its value in the gap between them is by hand
# (docs/decisions/016-when-nothing-can-be-told.md).
MIN_RIGHT = 0.55  # by hand: share of right labels of a true class under which its name is in doubt
MAX_DOUBTFUL = 0.25  # by hand: share of the labels whose true class may have changed names
MAX_EXCHANGED = 0.36  # by hand: share of labels that would be right if the classes had exchanged their names
MIN_CLOCK_GAIN = 0.3  # by hand: share of the labels outside the most common class that the clock predicts
MIN_CLOCK_SHARE = 0.9  # by hand: of what the networks tell beyond the most common class; noise lowers both alike


def check_mostly_right(training: TrainingEvidence, expected: ExpectedCounts, class_names: list[str]) -> Diagnostic:
    """Is every class recorded rightly more often than not? The estimate must lie clear of that edge."""
    counts = expected.counts[0].double().sum((0, 1)).numpy()  # (true, recorded)
    of_class = counts.sum(1)
    right, share = np.diagonal(counts) / of_class.clip(1e-9), of_class / of_class.sum().clip(1e-9)
    # Classes that are hardly recorded as such more often than not, so that their names are in doubt.
    doubtful = (of_class > 0) & (right < MIN_RIGHT) & (not training.data.is_trusted)
    worst = int(np.where(share > 0, right, 1.0).argmin())
    others = counts / of_class[:, None].clip(1e-9) * share[:, None]
    np.fill_diagonal(others, -1.0)
    exchanged = float(others[linear_sum_assignment(-others)].sum())  # right labels if classes had exchanged names
    edge = share[doubtful].sum() > MAX_DOUBTFUL or exchanged > MAX_EXCHANGED
    bad = bool(edge) and not training.data.is_trusted
    summary = f"True {class_names[worst]!r} is recorded as such in {100 * right[worst]:.0f} % of cases"
    doubt = f"{summary}. The audit assumes that each class is right more often than not, which may not hold here."
    if not bad and doubtful.any():
        names = ", ".join(repr(name) for name, is_in_doubt in zip(class_names, doubtful, strict=True) if is_in_doubt)
        sentence = f"{summary}. Its name is in doubt: labels that seem to be {names} are not listed."
        codes = tuple(np.flatnonzero(doubtful).tolist())
        advice = f"Give some trusted labels of {names}."
        return Diagnostic("mostly_right", True, sentence, advice, unsuggested=codes)
    sound = f"{summary}, the least of all classes."
    return _judge("mostly_right", bad, sound, doubt, "Give some trusted labels of every class.", denies=True)


def check_confounding(training: TrainingEvidence) -> Diagnostic:
    """Does the clock alone tell the classes nearly as well as the networks do?"""
    by_clock, by_networks, most_common = clock_accuracy(training)
    gain = by_clock - most_common
    large = gain > MIN_CLOCK_GAIN * (1 - most_common)
    bad = large and gain > MIN_CLOCK_SHARE * (by_networks - most_common) and not training.data.is_trusted
    summary = f"The clock alone predicts {100 * by_clock:.0f} % of the labels of other sequences"
    doubt = (
        f"{summary}, features {100 * by_networks:.0f} %: classes occur at fixed moments, as in a protocol. A class "
        "that is hard to see cannot be distinguished from one that is mislabelled."
    )
    advice = "Give some trusted labels, or sequences in which the classes occur in another order."
    return _judge("confounding", bad, f"{summary}.", doubt, advice, denies=True)


def clock_accuracy(training: TrainingEvidence) -> tuple[float, float, float]:
    """Shares of labels that other clusters at the same moment, the networks and the most common label predict."""
    data = training.data
    labels, index, k = data.labels[0].numpy(), data.grid_index().numpy(), data.n_classes
    clusters = np.arange(len(labels)) if training.clusters is None else training.clusters.numpy()
    names, cluster = np.unique(clusters, return_inverse=True)
    row, step, annotator = np.nonzero((labels >= 0) & data.mask.numpy()[..., None])
    codes, point, of = labels[row, step, annotator], index[row, step], cluster[row]
    everyone = np.zeros((data.n_points, k))
    np.add.at(everyone, (point, codes), 1.0)
    own = np.zeros((len(names), data.n_points, k), dtype=np.float32)
    np.add.at(own, (of, point, codes), 1.0)
    overall = everyone.sum(0)
    others = everyone[point] - own[of, point] + 1e-3 * overall / overall.sum()
    by_clock = float((others.argmax(1) == codes).mean())
    by_networks = 0.0
    if data.evidence is not None:
        by_networks = float((data.evidence[0].numpy()[row, step].argmax(-1) == codes).mean())
    return by_clock, by_networks, float(overall.max() / overall.sum())
