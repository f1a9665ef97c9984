r"""Logarithmic opinion pool (Genest and Zidek 1986) of the chain's prediction and the annotators' votes.

Annotators err together on hard steps, so their labels are not independent given the true label, and the chain's
posterior is too sure. The pool :math:`p_j \propto \prod_k p_{kj}^{w_k}` contains the chain alone (w = 1, 0), the shares
of votes alone (w = 0, 1) and everything between. Its weights are those that best predict an annotator who was left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

VOTE_PRIOR = 0.5  # added to the votes of every class (Krichevsky and Trofimov 1981)
LEAST = 1e-6  # probabilities are clipped here
# Weights of the chain and of the votes where nothing can be compared. With one annotator of simulations and of gaze
# (Lund 2013), equal weights predicted the other annotators with less log-loss than the chain alone.
EQUAL = (0.5, 0.5)
PRIOR_LABELS = 10.0  # labels that the starting weights count for
NEWTON_STEPS = 30
TOLERANCE = 1e-5


def vote_shares(labels: Tensor, n_classes: int) -> Tensor:
    """Shares of the votes of each class with `VOTE_PRIOR`: labels (..., annotators), -1 for none, to (..., classes)."""
    names = torch.arange(n_classes, device=labels.device)
    votes = (labels[..., None] == names).double().sum(-2) + VOTE_PRIOR
    return votes / votes.sum(-1, keepdim=True)


def stack_opinions(*opinions: Tensor) -> Tensor:
    """Log-probabilities (..., opinions, classes) of probabilities (..., classes)."""
    return torch.stack([opinion.double().clamp_min(LEAST).log() for opinion in opinions], -2)


def pool(weights: Tensor, log_probs: Tensor) -> Tensor:
    """The pooled probabilities (..., classes) of opinions (..., opinions, classes) with weights (opinions,)."""
    return torch.einsum("k,...kj->...j", weights, log_probs).softmax(-1)


def fit_weights(log_probs: Tensor, labels: Tensor, start: Tensor) -> Tensor:
    """Weights that maximise the log-likelihood of labels: a conditional logit (McFadden 1974), by Newton's method.

    The log-likelihood is concave in the weights. Negative weights are set to zero and the others fitted again.

    Parameters
    ----------
    log_probs : Tensor of shape (labels, opinions, classes)
    labels : int64 Tensor of shape (labels,)
    start : Tensor of shape (opinions,), also the mean of a normal prior worth `PRIOR_LABELS`
    """
    kept = torch.ones(len(start), dtype=torch.bool)
    while True:
        weights = torch.zeros_like(start)
        weights[kept] = _newton(log_probs[:, kept], labels, start[kept])
        negative = weights < 0
        if not bool(negative.any()):
            return weights
        kept &= ~negative


def _newton(log_probs: Tensor, labels: Tensor, start: Tensor) -> Tensor:
    weights = start.clone()
    chosen = log_probs.gather(-1, labels[:, None, None].expand(-1, len(start), 1))[..., 0]  # (labels, opinions)
    prior = PRIOR_LABELS * torch.eye(len(start), dtype=start.dtype)
    for _ in range(NEWTON_STEPS):
        probabilities = pool(weights, log_probs)
        centred = log_probs - torch.einsum("nj,nkj->nk", probabilities, log_probs)[..., None]
        slope = (chosen - (log_probs - centred)[..., 0]).sum(0) - prior @ (weights - start)
        information = torch.einsum("nj,nkj,nlj->kl", probabilities, centred, centred) + prior
        step = torch.linalg.solve(information, slope).clamp(-1.0, 1.0)
        weights = weights + step
        if float(step.abs().max()) < TOLERANCE:
            break
    return weights
