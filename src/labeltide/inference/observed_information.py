r"""Effective scores of one annotator among several, by the observed information (Louis 1982).

The labels of all annotators inform the posterior of the true label, so that the score of one depends on the Q of the
others. The complete-data information knows nothing of this: there annotators are independent. Under the observed
information :math:`H = -\partial U / \partial \eta`, here by central differences of the score,

.. math:: U^*_g = U_g - H_{\psi\eta} H_{\eta\eta}^{-1} S_g

is to first order free of the error of the fitted null, for each person g: U are scores of the tested change, S those of
what the null fits. Without it, causes that annotators share pass for a change of one of them
(docs/decisions/015-tests-of-change.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labeltide.inference.score import Alternative, ClockMoments, NullFit

STEP = 0.05  # of a logit, to both sides
MAX_DIRECTIONS = 64  # of the null; above it the entries of Q move together
RIDGE = 1.0  # by hand: added to the information of every direction, as MIN_INFORMATION of score.py


class Directions(NamedTuple):
    """Ways in which the logits of Q move: of an annotator, or of several at once, along functions of the clock."""

    groups: list[int]
    functions: np.ndarray  # (points, functions)
    shares: np.ndarray  # (entries, shares)

    def scores(self, fit: NullFit, unit: np.ndarray, n_units: int) -> np.ndarray:
        """Scores of units of rows: (units, functions * shares)."""
        n_points = len(self.functions)
        place = (unit[:, None] * n_points + fit.places).ravel()
        total = np.zeros((n_units, self.functions.shape[1], self.shares.shape[1]))
        for entry, of_entry in zip(fit.entries, self.shares, strict=True):
            if of_entry.any():
                residuals = sum(fit.residuals(group, entry) for group in self.groups)
                at_point = np.bincount(place, np.ravel(residuals), n_units * n_points)
                total += (at_point.reshape(n_units, n_points) @ self.functions)[..., None] * of_entry
        return total.reshape(n_units, -1)

    def moved(self, noise: np.ndarray) -> np.ndarray:
        """Q moved by a step forth and back in each direction: (directions, 2, groups, points, classes, classes)."""
        n_classes = noise.shape[-1]
        shift = np.zeros((self.functions.shape[1], self.shares.shape[1], len(self.functions), n_classes, n_classes))
        shift[..., ~np.eye(n_classes, dtype=bool)] = np.einsum("pk,es->kspe", self.functions, self.shares)
        shift = STEP * shift.reshape(-1, 1, 1, *shift.shape[2:])  # (directions, 1, 1, points, classes, classes)
        both = np.concatenate([shift, -shift], 1)  # (directions, 2, 1, ...)
        moved = np.tile(noise, (len(both), 2, 1, 1, 1, 1))
        moved[:, :, self.groups] *= np.exp(both)
        return moved / moved.sum(-1, keepdims=True)


def observed_scores(fit: NullFit, change: Alternative, moments: ClockMoments, person: np.ndarray) -> np.ndarray:
    """The effective score of each person, of one annotator: (people, 1, functions, shares)."""
    tested = Directions(change.groups, change.functions[moments.of_point], change.shares)
    parts = _null_directions(fit, tested)
    people = int(person.max()) + 1
    scores = np.concatenate([part.scores(fit, person, people) for part in parts], 1)
    of_change = tested.scores(fit, person, people)
    cross, information = _observed(fit, tested, parts)
    projection = np.linalg.solve(information + RIDGE * np.eye(len(information)), cross)
    effective = of_change - scores @ projection
    return effective.reshape(people, 1, tested.functions.shape[1], -1)


def _null_directions(fit: NullFit, tested: Directions) -> list[Directions]:
    """What the null fits: the level of the annotator, and how all others move together, who may move."""
    level = np.ones((len(tested.functions), 1))
    both = np.concatenate([level, tested.functions], 1)
    shares = tested.shares
    if shares.shape[1] * (1 + both.shape[1]) > MAX_DIRECTIONS:
        shares = shares.sum(1, keepdims=True)
    others = [group for group in range(len(fit.noise)) if group not in tested.groups]
    return [Directions(tested.groups, level, shares), Directions(others, both, shares)]


def _observed(fit: NullFit, tested: Directions, parts: list[Directions]) -> tuple[np.ndarray, np.ndarray]:
    """Observed information of null and change, (null, change), and of the null, (null, null)."""
    moved = np.concatenate([part.moved(fit.noise) for part in parts])  # (null, 2, groups, ...)
    fits = fit.with_noise(moved.reshape(-1, *fit.noise.shape))
    together = np.zeros(len(fit.labels), dtype=np.int64)  # all rows are one unit
    of_fit = [np.concatenate([part.scores(one, together, 1)[0] for part in (tested, *parts)]) for one in fits]
    forth, back = np.array(of_fit).reshape(len(moved), 2, -1).transpose(1, 0, 2)
    information = (back - forth) / (2 * STEP)
    n_tested = tested.functions.shape[1] * tested.shares.shape[1]
    return information[:, :n_tested], information[:, n_tested:]
