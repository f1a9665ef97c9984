"""Label noise of a run: recorded labels drawn from Q(t), independently, in bursts or near class boundaries."""

from __future__ import annotations

import hashlib

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.noise.functions import FixedNoise
from labeltide.noise.simulate import corrupt

CONDITIONAL = "class-conditional"  # this variant and the next change Q itself
REVERSED = "classes reversed"  # the Q of the last class for the first: mixed noise as in the text of the paper
BURSTS = {"bursts 0.5": 0.5, "bursts 0.9": 0.9}
NEAR_BOUNDARIES = "near boundaries"
LATE = {"late 2": 2, "late 4": 4, "late 8": 8}  # steps
SPREAD = 2  # steps by which single transitions are later or earlier than that
NOISE_VARIANTS = ("uniform", CONDITIONAL, REVERSED, *BURSTS, NEAR_BOUNDARIES, *LATE)
MOST = 0.98  # the highest chance of a mistake near a boundary: twice the highest rate of the shapes


def draw_labels(train: Sequences, noise: FixedNoise, variant: str, generator: np.random.Generator) -> np.ndarray:
    """Recorded labels (n, steps) for clean ones, missing where those are.

    In every variant a label of class i at step t is recorded as j with probability :math:`Q_t[i, j]`. Variants
    differ in the dependence between errors. For "near boundaries" the probability is a mean over the sequences.
    """
    clean = train.labels[..., 0]
    if variant in LATE:
        return delay_transitions(clean, LATE[variant], generator)
    if variant == NEAR_BOUNDARIES:
        return corrupt_near_boundaries(clean, train.features, np.asarray(noise), generator)
    return corrupt(clean, noise, generator, bursts=BURSTS.get(variant, 0.0))


def keep_information(clean: np.ndarray, matrices: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    r"""Clean labels (n, steps), thinned to the information that labels drawn from Q(t) would carry.

    A clean label of step t is kept with probability :math:`|\det Q_t|^{2 / (C - 1)}` and missing otherwise. For noise
    that is alike for all of C classes, with rate e, this is :math:`(1 - e C / (C - 1))^2`, with two classes
    :math:`(1 - 2e)^2`: the Fisher information of a noisy label about the probability of its class, relative to that of
    a clean one, where classes are equally likely.
    """
    kept = np.abs(np.linalg.det(matrices)) ** (2 / (matrices.shape[-1] - 1))  # (steps,)
    return np.where(generator.random(clean.shape) < kept, clean, -1).astype(clean.dtype)


def delay_transitions(clean: np.ndarray, late: int, generator: np.random.Generator) -> np.ndarray:
    """Labels whose transitions are recorded late by `late` steps, give or take up to `SPREAD` steps each.

    A transition that would come before the one ahead of it takes its place: the stretch between them is not recorded.
    """
    n_steps = clean.shape[1]
    changes = np.zeros(clean.shape, dtype=bool)
    changes[:, 1:] = clean[:, 1:] != clean[:, :-1]
    delays = generator.integers(late - SPREAD, late + SPREAD + 1, clean.shape)
    recorded = np.repeat(clean[:, :1], n_steps, axis=1)
    for row, step in zip(*np.nonzero(changes), strict=True):  # in order of time within a row
        recorded[row, step + delays[row, step] :] = clean[row, step]
    return np.where((clean >= 0) & (recorded >= 0), recorded, clean).astype(clean.dtype)


def corrupt_near_boundaries(
    clean: np.ndarray, features: np.ndarray, matrices: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Instance-dependent noise: errors where a logistic regression on clean labels has a small margin.

    The probability of an error is that of Q(t) times `doubts`; the wrong label follows the row of Q(t).

    Parameters
    ----------
    clean : codes of shape (n, steps), -1 for missing
    features : array of shape (n, steps, features)
    matrices : array of shape (steps, classes, classes)
    """
    present = clean >= 0
    codes = np.where(present, clean, 0).astype(np.intp)
    others = matrices[np.arange(clean.shape[1]), codes]  # (n, steps, classes)
    np.put_along_axis(others, codes[..., None], 0.0, axis=-1)
    ends = others.cumsum(-1)
    rates = ends[..., -1]  # (n, steps)
    wrong = present & (generator.random(clean.shape) < np.minimum(rates * doubts(clean, features), MOST))
    indices = generator.random(clean.shape) * rates
    drawn = np.minimum((indices[..., None] >= ends).sum(-1), matrices.shape[-1] - 1)
    return np.where(wrong, drawn, clean).astype(clean.dtype)


def doubts(clean: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Factors (n, steps) on the error probability, from 2 at the smallest margin to 0 at the largest.

    They fall linearly with the rank of the margin among the labels of the same class and step. Their mean is one in
    each of these groups, so that Q(t) remains the share of each class that is recorded wrongly.
    """
    key = hashlib.blake2b(clean.tobytes() + features.tobytes()).digest()
    if key not in _doubts:  # the runs of a fleet share one data set
        _doubts.clear()
        _doubts[key] = _falling(margins(clean, features), clean)
    return _doubts[key]


_doubts: dict[bytes, np.ndarray] = {}


def margins(clean: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Margin of a logistic regression on the features of single steps, first minus second logit: (n, steps)."""
    from sklearn.linear_model import LogisticRegression  # here, so that studies without it need not wait
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    present = clean >= 0
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(features[present], clean[present])
    # Differences of logits: those of probabilities are all one where classes are well separated.
    logits = classifier.decision_function(features.reshape(-1, features.shape[-1]))
    if logits.ndim == 2:
        logits = np.sort(logits, axis=1)
        logits = logits[:, -1] - logits[:, -2]
    return np.abs(logits).reshape(clean.shape)


def _falling(margin: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """2 - 2 (rank + 1/2) / count, with ranks among the labels of one class and step."""
    group = (clean.astype(np.int64) * clean.shape[1] + np.arange(clean.shape[1])).ravel()
    order = np.lexsort((margin.ravel(), group))
    _, first, count = np.unique(group[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    factor = np.empty(len(order))
    factor[order] = 2 - 2 * (rank + 0.5) / np.repeat(count, count)
    return factor.reshape(clean.shape)
