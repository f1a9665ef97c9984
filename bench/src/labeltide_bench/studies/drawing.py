"""Label noise of a run: recorded labels drawn from Q(t), independently, in bursts or near class boundaries."""

from __future__ import annotations

import hashlib

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.noise.corrupt import corrupt
from labeltide.noise.fixed import FixedNoise

CONDITIONAL = "class-conditional"  # the one variant that changes Q itself
BURSTS = {"bursts 0.5": 0.5, "bursts 0.9": 0.9}
NEAR_BOUNDARIES = "near boundaries"
NOISE_VARIANTS = ("uniform", CONDITIONAL, *BURSTS, NEAR_BOUNDARIES)
MOST = 0.98  # the highest chance of a mistake near a boundary: twice the highest rate of the shapes


def draw_labels(train: Sequences, noise: FixedNoise, variant: str, generator: np.random.Generator) -> np.ndarray:
    """Recorded labels (n, steps) for clean ones, missing where those are.

    In every variant a label of class i at step t is recorded as j with probability :math:`Q_t[i, j]`. Variants
    differ in the dependence between errors. For "near boundaries" the probability is a mean over the sequences.
    """
    clean = train.labels[..., 0]
    if variant == NEAR_BOUNDARIES:
        return corrupt_near_boundaries(clean, train.features, np.asarray(noise), generator)
    return corrupt(clean, noise, generator, bursts=BURSTS.get(variant, 0.0))


def keep_information(
    clean: np.ndarray, matrices: np.ndarray, generator: np.random.Generator, probabilities: np.ndarray | None = None
) -> np.ndarray:
    r"""Clean labels (n, steps), thinned to the information that labels drawn from Q(t) would carry.

    A clean label of step t is kept with the relative Fisher information of a noisy label about the logits of the
    classes, and is missing otherwise. With the probabilities p of the classes and :math:`q = p Q_t` it is, by traces,
    :math:`\sum_{ij} p_i^2 (Q_{ij} - q_j)^2 / q_j` over :math:`\sum_i p_i (1 - p_i)`. Where classes are equally likely
    and the noise is alike for all C, with rate e, it is :math:`(1 - e C / (C - 1))^2`, with two classes
    :math:`(1 - 2e)^2`. Where features all but tell the class, a noisy label says far less beside a clean one: with two
    classes, p = .05 and e = .4, it is .008, not .04.

    Parameters
    ----------
    clean : codes of shape (n, steps), -1 for missing
    matrices : array of shape (steps, classes, classes)
    probabilities : array of shape (n, steps, classes), optional
        Of the true label given the features; equal where left out.
    """
    n_classes = matrices.shape[-1]
    if probabilities is None:
        probabilities = np.full((1, clean.shape[1], n_classes), 1 / n_classes)
    noisy = np.einsum("...ti,tij->...tj", probabilities, matrices)[..., None, :]  # q
    scores = (probabilities[..., None] * (matrices - noisy)) ** 2  # (n or 1, steps, true, recorded)
    found = np.divide(scores, noisy, out=np.zeros_like(scores), where=noisy > 0).sum((-2, -1))
    kept = found / np.maximum((probabilities * (1 - probabilities)).sum(-1), 1e-12)
    return np.where(generator.random(clean.shape) < kept, clean, -1).astype(clean.dtype)


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
    places = generator.random(clean.shape) * rates
    drawn = np.minimum((places[..., None] >= ends).sum(-1), matrices.shape[-1] - 1)
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
