r"""Sign flips of people's contributions to the score (Hemerik, Goeman and Finos 2020; Winkler and others 2014).

People are independent of each other, whatever connects the windows of one. Under the null hypothesis the contribution
:math:`u_g` of each person to the score has mean zero, and :math:`\sum_g s_g u_g` with random signs is distributed as
:math:`\sum_g u_g`: exactly where contributions are symmetric, otherwise with growing number of people. Contributions
are effective scores: what the null's own coefficients explain is taken out of the design. Where one of several
annotators is tested it is taken out of the scores (`observed_information.py`).

The fit of the null makes the contributions of G people a little too small. Flipped sums are multiplied by
:math:`\sqrt{G / (G - 1)}`, as cluster-robust variances are (Cameron and Miller 2015).
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import f as f_distribution

from labeltide.chain.class_blocks import ClassBlocks
from labeltide.chain.families import Family
from labeltide.inference.observed_information import observed_scores
from labeltide.inference.score import Alternative, ClockMoments, NullFit


def person_scores(
    fit: NullFit, change: Alternative, moments: ClockMoments, null: Family, person: np.ndarray
) -> np.ndarray:
    """The effective score of each person: (people, groups, functions, shares). `person` numbers them from 0."""
    if null.held is not None and len(fit.noise) > 1:
        return observed_scores(fit, change, moments, person)
    parts = [_of_group(fit, effective_design(fit, change, moments, null, g), g, person) for g in change.groups]
    return np.stack(parts, 1).reshape(parts[0].shape[0], len(parts), -1, change.shares.shape[1])


def effective_design(fit: NullFit, change: Alternative, moments: ClockMoments, null: Family, group: int) -> np.ndarray:
    r"""The design of the change less its projection on that of the null: (points, entries, functions * shares).

    :math:`X_1 - X_0 (X_0^\top V X_0 + S)^{-1} X_0^\top V X_1` with V the information of the logits and S the penalty.
    """
    blocks, weights = ClassBlocks.of([null]), fit.weights(group)
    diagonal, root = (torch.from_numpy(part)[None, None] for part in weights)
    information = blocks.information(diagonal, root)[0] + blocks.penalty  # (1, blocks, size, size)
    functions = torch.from_numpy(change.functions[moments.of_point])  # (points, functions)
    shares = torch.from_numpy(change.shares).unflatten(0, weights.root.shape[1:])  # (true, others, shares)
    tested = torch.einsum("pk,ijs->kspij", functions, shares).flatten(0, 1)[None]  # (1, columns, points, true, others)
    weighted = diagonal * tested - root * (root * tested).sum(-1, keepdim=True)
    cross = blocks.project(weighted).unflatten(2, information.shape[1:3])
    explained = torch.cholesky_solve(cross[..., None], torch.linalg.cholesky(information))[..., 0].flatten(2)
    effective = (tested - blocks.logits(explained))[0].flatten(2)  # (columns, points, entries)
    return effective.permute(1, 2, 0).numpy()


def _of_group(fit: NullFit, design: np.ndarray, group: int, person: np.ndarray) -> np.ndarray:
    people, n_points = int(person.max()) + 1, len(design)
    place = (person[:, None] * n_points + fit.places).ravel()
    scores = np.zeros((people, design.shape[2]))
    for entry, of_entry in zip(fit.entries, design.transpose(1, 0, 2), strict=True):
        if of_entry.any():
            at_point = np.bincount(place, fit.residuals(group, entry).ravel(), people * n_points)
            scores += at_point.reshape(people, n_points) @ of_entry
    return scores


def flip_signs(scores: np.ndarray, n_replicates: int, generator: np.random.Generator) -> np.ndarray:
    """Sums of (people, ...) contributions with random signs: (replicates, ...)."""
    signs = 2.0 * generator.integers(0, 2, (n_replicates, len(scores))) - 1.0
    return np.sqrt(len(scores) / (len(scores) - 1)) * np.tensordot(signs, scores, 1)


def compare_with_people(scores: np.ndarray, inverses: np.ndarray) -> float:
    r"""p-value of the mean contribution of (people, groups, functions, shares), against how people differ.

    For few people, whose flipped signs give few different sums. :math:`F = G \sum_d \bar z_d^2 / \sum_d s_d^2` over the
    standardised contributions z of G people, with Box's correction (1954) for directions of unequal variance.
    """
    factor = np.linalg.cholesky(inverses)  # of (groups, shares, shares)
    contributions = np.einsum("pgks,gst->pgkt", scores, factor).reshape(len(scores), -1)
    people, variance = len(scores), contributions.var(0, ddof=1)
    if not variance.any():
        return 1.0
    ratio = people * (contributions.mean(0) ** 2).sum() / variance.sum()
    freedom = variance.sum() ** 2 / (variance**2).sum()  # number of directions, times Box's epsilon
    return float(f_distribution.sf(ratio, freedom, freedom * (people - 1)))
