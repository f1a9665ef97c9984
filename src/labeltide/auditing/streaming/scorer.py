"""Fast judgement of many windows by a fitted estimator: what `TideClassifier.audit` computes, in single precision.

Three things are fixed beforehand, from the windows that were learned from, so that a label gets the same numbers in
whatever chunk it stands: the grid of the clock, the lengths of gaps, and the weights of the opinion pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide import _validation
from labeltide._clock import MAX_GAP, gap_ladder
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.streaming.known_rows import KnownRows, find_known_rows
from labeltide.auditing.streaming.small_softmax import mean_logits, ones_matrix, small_softmax
from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.opinion_pool import fit_weights, left_out_opinions, shared_labels, stack_opinions, vote_prior
from labeltide.chain.passes import expect
from labeltide.estimators import TideClassifier
from labeltide.estimators.fleet import find_moments
from labeltide.inference.contested import SEEN_ALIKE
from labeltide.tables.sources import Sources
from labeltide.training.data import MAX_GRID_POINTS, reversal

STEPS_AT_ONCE = 50_000  # of windows that one call of the networks takes
LEAST = 1e-6  # probabilities in the opinion pool are clipped here, as in chain/opinion_pool.py


class Scores(NamedTuple):
    """Of every step that belongs to one of the windows: float32 arrays of shape (steps, classes), and its moment."""

    posterior: np.ndarray
    another: np.ndarray
    signal: np.ndarray
    point: np.ndarray  # int64 (steps,), the place on the grid


@dataclass
class Scorer:
    """A fitted estimator as fixed numbers.

    Attributes
    ----------
    grid : moments of the clock, rising
    noise : Tensor of shape (annotators or 1, points, classes, classes), points are moments of the grid
    common : Tensor of shape (points, classes, classes)
    weights : of the opinions of chain, votes and features where steps have several labels, else of features alone
    prior : votes that are added to those of a step
    several : whether any step has labels of two annotators
    known_rows : by which windows that were learned from are found
    """

    estimator: TideClassifier
    grid: np.ndarray
    noise: Tensor
    common: Tensor
    gap_lengths: tuple[int, ...]
    device: str
    weights: Tensor
    prior: Tensor
    several: bool
    known_rows: KnownRows | None = None

    @property
    def error_rates(self) -> np.ndarray:
        """1 less the diagonal of Q: shape (annotators or 1, points, classes)."""
        return 1 - torch.diagonal(self.noise, dim1=-2, dim2=-1).numpy()

    def score(self, table: AuditInput) -> Scores:
        """Judge the windows of a table."""
        mask = _validation.steps_mask(table.lengths, table.index.shape[1])
        signal = self.signal(table.features, mask)
        inputs = self._chain_inputs(table, mask)
        posterior = self._posterior(inputs, signal)
        place = torch.from_numpy(table.place)
        point = inputs.points.reshape(-1)[place]  # type: ignore[union-attr]
        flat = [values.flatten(0, 1)[place] for values in (posterior, signal)]
        another = self._another(inputs, flat[0], flat[1], point, place, signal)
        return Scores(flat[0].numpy(), another.numpy(), flat[1].numpy(), point.numpy())

    def score_windows(self, table: AuditInput, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior and prediction from the features at every step of the windows: (n, steps, classes) each."""
        signal = self.signal(table.features, mask)
        return self._posterior(self._chain_inputs(table, mask), signal).numpy(), signal.numpy()

    def signal(self, features: np.ndarray, mask: np.ndarray) -> Tensor:
        """Probabilities of the true labels from the features: (n, steps, classes); out of fold for training rows.

        Predictions of one fold are a normalised geometric mean over its networks and both directions of time, in which
        the normalising constants cancel: it is the softmax of their mean logit. Folds are then averaged.
        """
        if self.estimator.fold_model_ is None:  # every label was trusted: nothing was cross-fitted
            return torch.from_numpy(self.estimator.predict_proba(features, mask.sum(1))).float()
        rows = self.estimator.training_rows_
        folds = torch.from_numpy((self.known_rows or rows).find_folds(features, mask))
        count = int(rows.folds.max()) + 1
        inputs, real = torch.from_numpy(features), torch.from_numpy(mask)
        size = max(8, STEPS_AT_ONCE // features.shape[1] // 8 * 8)
        parts = [
            self._fold_average(
                inputs[start : start + size], real[start : start + size], folds[start : start + size], count
            )
            for start in range(0, len(inputs), size)
        ]
        return torch.cat(parts) * real[..., None]

    @torch.no_grad()
    def _fold_average(self, features: Tensor, mask: Tensor, folds: Tensor, count: int) -> Tensor:
        onwards, backwards = self._networks
        logits = mean_logits(onwards, features, mask, count, self.device)
        if backwards is not None:
            order, index = reversal(mask), torch.arange(len(mask))[:, None]
            mirrored = mean_logits(backwards, features[index, order], mask, count, self.device)
            logits = (logits + mirrored[:, index, order]) / 2
        chances = small_softmax(logits)  # (folds, n, steps, classes)
        result = chances.mean(0)
        known = torch.nonzero(folds >= 0)[:, 0]
        result[known] = chances[folds[known], known]
        return result

    @property
    def _networks(self) -> tuple[Any, Any]:
        """Networks that read onwards, and those that read backwards; the latter None where networks read both ways."""
        if not hasattr(self, "_halves"):
            model = self.estimator.fold_model_
            assert model is not None
            half = model.members // 2
            halves: tuple[Any, Any] = (model, None)
            if model.is_causal:
                halves = model.take(torch.arange(half)), model.take(torch.arange(half, 2 * half))
            self._halves = tuple(None if part is None else part.eval().to(self.device) for part in halves)
        return self._halves  # type: ignore[return-value]

    def _chain_inputs(self, table: AuditInput, mask: np.ndarray) -> ChainData:
        moments = find_moments(self.estimator, table.clock)
        points = np.searchsorted((self.grid[1:] + self.grid[:-1]) / 2, moments)
        gaps = table.gaps
        jumps = None
        if gaps is not None:
            gaps = np.where(mask, np.minimum(gaps, MAX_GAP), 1)
            gaps[:, 0] = 1
            places = np.searchsorted(np.array(self.gap_lengths), gaps)
            jumps = torch.from_numpy(np.minimum(places, len(self.gap_lengths) - 1).astype(np.int8))
        return ChainData(
            labels=torch.from_numpy(table.labels)[None],
            mask=torch.from_numpy(mask),
            points=torch.from_numpy(points),
            n_points=self.noise.shape[1],
            n_classes=self.noise.shape[-1],
            trusted=None if table.trusted is None else torch.from_numpy(table.trusted),
            jumps=jumps,
            gaps=self.gap_lengths if jumps is not None else (1,),
        )

    def _posterior(self, inputs: ChainData, signal: Tensor) -> Tensor:
        """Posterior of the true labels, with probabilities from the features as evidence: (n, steps, classes)."""
        chain = self.estimator.chain_
        first = torch.zeros(1, dtype=torch.int64)
        members = Members(first, first, torch.ones(1, len(inputs.mask)))
        start, transition, power = (
            torch.as_tensor(v).float()[None] for v in (chain.start, chain.transition, chain.power)
        )
        bursts = torch.tensor([chain.bursts]) if chain.bursts else None
        parameters = ChainParameters(start, transition, power, self.noise[None].float(), bursts)
        evidence = signal.clamp_min(1e-30).log()[None]
        found = expect(inputs.with_evidence(evidence), members, parameters, posterior=True).posterior
        assert found is not None
        posterior = found[0].float() * inputs.mask[..., None]
        return posterior / (posterior @ ones_matrix(posterior.shape[-1])).clamp_min(1e-30)

    def _another(
        self, inputs: ChainData, posterior: Tensor, signal: Tensor, point: Tensor, place: Tensor, evidence: Tensor
    ) -> Tensor:
        """Probability of each label of another annotator (`inference/contested.py`): (steps, classes)."""
        common = self.common[point]
        by_features, by_chain = (torch.bmm(belief[:, None], common)[:, 0] for belief in (signal, posterior))
        if not self.several:
            opinion = by_features.clamp_min(LEAST).log() * self.weights[0]
            return SEEN_ALIKE * by_chain + (1 - SEEN_ALIKE) * small_softmax(opinion)
        labels = inputs.labels[0].flatten(0, 1)[place]  # (steps, annotators)
        by_chain = self._without_each(inputs, by_chain, common, place, evidence)
        votes = (labels[..., None] == torch.arange(len(self.prior))).float().sum(1) + self.prior
        shares = votes / votes.sum(-1, keepdim=True)
        logs = [opinion.clamp_min(LEAST).log() for opinion in (by_chain, shares, by_features)]
        return small_softmax(sum(weight * log for weight, log in zip(self.weights, logs, strict=True)))

    def _without_each(
        self, inputs: ChainData, by_chain: Tensor, common: Tensor, place: Tensor, signal: Tensor
    ) -> Tensor:
        """What the chains that each leave out one annotator expect, where a step has labels of several."""
        shared = shared_labels(inputs.labels[0], inputs.mask)
        rows = torch.nonzero(shared.any(-1).any(-1))[:, 0]
        if not len(rows):
            return by_chain
        some = inputs.take_rows(rows)
        sums, counts = torch.zeros(*shared.shape[:2], by_chain.shape[1]), shared.sum(-1).float()
        for annotator in range(shared.shape[-1]):
            others = some.labels.clone()
            others[..., annotator] = -1
            without = self._posterior(_relabelled(some, others), signal[rows])
            sums[rows] += without * shared[rows, :, annotator, None]
        counted = counts.reshape(-1)[place]
        mean = sums.flatten(0, 1)[place] / counted.clamp_min(1)[:, None]
        expected = torch.bmm(mean[:, None], common)[:, 0]
        return torch.where(counted[:, None] > 0, expected, by_chain)


def make_scorer(estimator: TideClassifier, sample: AuditInput, device: str) -> Scorer:
    """Fix the grid, the gaps and the weights of the opinion pool from the windows that were learned from."""
    mask = _validation.steps_mask(sample.lengths, sample.index.shape[1])
    moments = find_moments(estimator, sample.clock)
    grid = np.unique(moments[mask])
    if len(grid) > MAX_GRID_POINTS:
        grid = np.linspace(grid[0], grid[-1], MAX_GRID_POINTS)
    noise, common = _noise_tables(estimator, grid)
    lengths: tuple[int, ...] = (1,)
    if sample.gaps is not None:
        inner = np.where(mask, np.minimum(sample.gaps, MAX_GAP), 1)
        inner[:, 0] = 1
        lengths = gap_ladder(inner)[1]
    n_classes = noise.shape[-1]
    several = bool(shared_labels(torch.from_numpy(sample.labels), torch.from_numpy(mask)).any())
    first = Scorer(estimator, grid, noise, common, lengths, device, torch.ones(3), torch.ones(n_classes), several)
    if estimator.fold_model_ is not None:
        first.known_rows = find_known_rows(estimator.training_rows_, sample.features, mask)
    first.weights, first.prior = _fit_pool(first, sample, mask)
    return first


def _noise_tables(estimator: TideClassifier, grid: np.ndarray) -> tuple[Tensor, Tensor]:
    """Q of annotators, and the common Q, at the moments of a grid."""
    matrices = estimator.noise_.at(grid)
    if estimator.noise_.annotators > 1:
        matrices = matrices[Sources.of(estimator.sources_).places(None, 1)[0]]
    common = torch.from_numpy(estimator.noise_.common_at(grid)).float()
    return torch.from_numpy(matrices if matrices.ndim == 4 else matrices[None]).float(), common


def _fit_pool(scorer: Scorer, sample: AuditInput, mask: np.ndarray) -> tuple[Tensor, Tensor]:
    """Weights and prior of the opinion pool, as `inference/contested.py` fits them."""
    signal = scorer.signal(sample.features, mask)
    inputs = scorer._chain_inputs(sample, mask)
    common = scorer.common[inputs.places()].double()
    by_features = torch.einsum("nti,ntij->ntj", signal.double(), common)
    labels, real = inputs.labels[0], inputs.mask
    if not scorer.several:
        only = labels.amax(-1).long()
        labelled = (only >= 0) & real
        opinion = stack_opinions(by_features)[labelled]
        return fit_weights(opinion, only[labelled], torch.ones(1, dtype=torch.float64)).float(), scorer.prior
    left_out = []
    for annotator in range(labels.shape[-1]):
        others = inputs.labels.clone()
        others[..., annotator] = -1
        without = scorer._posterior(_relabelled(inputs, others), signal).double()
        left_out.append(torch.einsum("nti,ntij->ntj", without, common))
    prior = vote_prior(labels, scorer.noise.shape[-1])
    shared = shared_labels(labels, real)
    opinions = left_out_opinions(labels, shared, torch.stack(left_out), prior, [by_features])
    return fit_weights(*opinions).float(), prior.float()


def _relabelled(inputs: ChainData, labels: Tensor) -> ChainData:
    fields = {**vars(inputs), "labels": labels, "trusted": None}
    return ChainData(**fields)
