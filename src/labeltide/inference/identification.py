"""Checks of what identifies the noise. Where one of them fails, how many labels are wrong cannot be told.

- Information: features and neighbouring labels must say something about the recorded labels. Labels drawn by coin flips
  are explained as well by their frequencies, and then every Q fits.
- Right more often than not: the true classes are named by the labels that are recorded most often for them (diagonally
  dominant Q). Two classes with 70 % wrong labels fit as well as 30 % with the names exchanged, so no data can show that
  the assumption fails; an estimate close to its edge shows that it may.
- Confounding with the clock: where every class has its moments by protocol, networks learn the moments, and a class
  that is hard to see cannot be told from one that is mislabelled.
"""

from __future__ import annotations

import numpy as np
import torch

from labeltide.chain.data import ChainData, Expected, TrainingEvidence
from labeltide.chain.passes import expect
from labeltide.inference.diagnostic import Diagnostic
from labeltide.inference.warm_start import same_data

# Each threshold separates sound from misleading studies; its value in the gap between them is by hand
# (docs/decisions/016-when-nothing-can-be-told.md).
MIN_GAIN_T = 2.0  # by hand: t value of the gain over label frequencies
FREQUENCY_PARTS = 10  # by hand: of the clock, each with its own frequencies
MIN_RIGHT = 0.55  # by hand: share of right labels of a true class under which its name is in doubt
MAX_DOUBTFUL = 0.25  # by hand: share of the labels whose true class may have changed names
MIN_CLOCK_GAIN = 0.3  # by hand: share of the labels beside the most common class that the clock tells
MIN_CLOCK_SHARE = 0.9  # by hand: of what the networks tell beyond the most common class; noise lowers both alike
TRUSTED_LABELS = 30  # by hand: with as many, Q is known from them


def check_identification(training: TrainingEvidence, class_names: list[str]) -> tuple[Diagnostic, ...]:
    """The three checks of one fit; a cause comes before what follows from it."""
    ones = torch.ones(1, training.data.labels.shape[1])
    expected = expect(training.data, same_data(1, ones), training.parameters)
    return (
        check_confounding(training),
        check_information(training, expected),
        check_mostly_right(training, expected, class_names),
    )


def check_information(training: TrainingEvidence, expected: Expected) -> Diagnostic:
    """Is the fitted model likelier than label frequencies? Likelihood ratio of non-nested models (Vuong 1989)."""
    t = information_t(training, expected)
    bad = t < MIN_GAIN_T and not is_trusted(training.data)
    if not bad:
        sentence = "Features or neighbouring labels say more about the labels than their frequencies do."
        return Diagnostic("information", False, sentence, "Nothing to do.")
    sentence = "Neither features nor neighbouring labels say clearly more about the labels than their frequencies do."
    return Diagnostic("information", True, sentence, "Give better features or some trusted labels.", denies=True)


def information_t(training: TrainingEvidence, expected: Expected) -> float:
    """The gain in log-likelihood over frequencies at the same tenth of the clock, in standard errors of clusters.

    The gain is reduced by the number of parameters of the chain (Akaike 1974).
    """
    gain = expected.log_likelihood[0].double().numpy() - frequency_log_likelihood(training.data)
    units = np.arange(len(gain)) if training.clusters is None else training.clusters.numpy()
    _, unit_of_row = np.unique(units, return_inverse=True)
    gains = np.bincount(unit_of_row, gain) if unit_of_row.any() else gain
    if len(gains) < 2:
        return 0.0
    classes = training.data.n_classes
    parameters = 2 * classes * (classes - 1) + classes
    return float((gains.sum() - parameters) / np.sqrt(len(gains) * gains.var(ddof=1)).clip(1e-9))


def frequency_log_likelihood(data: ChainData) -> np.ndarray:
    """Log-likelihood of each row's labels by the frequencies of each annotator in each tenth of the clock: (rows,)."""
    labels, places = data.labels[0].numpy(), data.places().numpy()
    part = np.minimum(places * FREQUENCY_PARTS // data.n_points, FREQUENCY_PARTS - 1)
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
    right, share = right_shares(expected)
    doubtful = right < MIN_RIGHT
    worst = int(np.where(share > 0, right, 1.0).argmin())
    bad = bool(share[doubtful].sum() > MAX_DOUBTFUL) and not is_trusted(training.data)
    said = f"True {class_names[worst]!r} is recorded as such in {100 * right[worst]:.0f} % of cases"
    if not bad:
        return Diagnostic("mostly_right", False, f"{said}, the least of all classes.", "Nothing to do.")
    sentence = f"{said}. Nothing is known unless each class is right more often than not, and this is at its edge."
    return Diagnostic("mostly_right", True, sentence, "Give some trusted labels of every class.", denies=True)


def right_shares(expected: Expected) -> tuple[np.ndarray, np.ndarray]:
    """For each true class the share of its labels that are right, and its share of all labels: (classes,) each."""
    counts = expected.counts[0].double().sum((0, 1)).numpy()  # (true, recorded)
    of_class = counts.sum(1)
    return np.diagonal(counts) / of_class.clip(1e-9), of_class / of_class.sum().clip(1e-9)


def check_confounding(training: TrainingEvidence) -> Diagnostic:
    """Does the clock alone tell the classes nearly as well as the networks do?"""
    by_clock, by_networks, most_common = clock_accuracy(training)
    gain = by_clock - most_common
    large = gain > MIN_CLOCK_GAIN * (1 - most_common)
    bad = large and gain > MIN_CLOCK_SHARE * (by_networks - most_common) and not is_trusted(training.data)
    said = f"The clock alone tells {100 * by_clock:.0f} % of the labels of other sequences"
    if not bad:
        return Diagnostic("confounding", False, f"{said}.", "Nothing to do.")
    sentence = (
        f"{said}, features {100 * by_networks:.0f} %: classes come at fixed moments, as in a protocol. A class that is "
        "hard to see cannot be told from one that is mislabelled."
    )
    advice = "Give some trusted labels, or sequences in which the classes come in another order."
    return Diagnostic("confounding", True, sentence, advice, denies=True)


def clock_accuracy(training: TrainingEvidence) -> tuple[float, float, float]:
    """Shares of labels that are told by the clock, by the networks, and by the most common label, each held out.

    The clock tells the label that is most frequent at the same moment in other clusters.
    """
    data = training.data
    labels, places, k = data.labels[0].numpy(), data.places().numpy(), data.n_classes
    clusters = np.arange(len(labels)) if training.clusters is None else training.clusters.numpy()
    n_clusters, cluster = len(np.unique(clusters)), np.unique(clusters, return_inverse=True)[1]
    shown = (labels >= 0) & data.mask.numpy()[..., None]
    row, step, annotator = np.nonzero(shown)
    codes, point, of = labels[row, step, annotator], places[row, step], cluster[row]
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
