r"""Logarithmic opinion pool (Genest and Zidek 1986) of the chain's prediction and the annotators' votes.

Annotators err together on hard steps (item difficulty, Whitehill and others 2009), so their labels are not independent
given the true label, and the chain's posterior is too sure. The pool :math:`p_j \propto \prod_k p_{kj}^{w_k}` contains
the chain alone (w = 1, 0), the shares of votes alone (w = 0, 1) and everything between. Its weights are those that best
predict an annotator who was left out.

The chain's opinion is the mean over the chains that each leave out one annotator (as in bagging, Breiman 1996): that is
what the weights were fitted to. The chain of all annotators was never put to the test. With two annotators who
differ, it decides by error rates that it learned from just such steps (docs/decisions/010-opinion-pool.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EQUAL = (0.5, 0.5)  # by hand: weights of the chain and of the votes where nothing can be compared
VOTE_PRIOR = 0.5  # votes added to every class (Krichevsky and Trofimov 1981) where annotators cannot be compared
LEAST_VOTES = 1e-3  # added to every class in any case
LEAST_KAPPA, MOST_KAPPA = 0.02, 0.98
LEAST = 1e-6  # probabilities are clipped here
PRIOR_LABELS = 10.0  # by hand: labels that the starting weights count for
NEWTON_STEPS = 30
TOLERANCE = 1e-5


def count_votes(labels: Tensor, n_classes: int) -> Tensor:
    """How many annotators gave each label: (..., annotators), -1 for none, to (..., classes)."""
    return (labels[..., None] == torch.arange(n_classes, device=labels.device)).double().sum(-2)


def vote_prior(labels: Tensor, n_classes: int) -> Tensor:
    r"""Votes added to those of each step: the parameters of a Dirichlet-multinomial distribution of votes, (classes,).

    If each step has label probabilities of its own, from which all annotators draw, the intraclass correlation is
    :math:`1 / (1 + \sum_j \alpha_j)`. Fleiss' kappa (1971) estimates it, and :math:`\alpha` is proportional to the
    shares of the classes.
    """
    votes = count_votes(labels, n_classes).flatten(0, -2)
    raters = votes.sum(-1)
    votes, raters = votes[raters > 1], raters[raters > 1]
    if not len(votes):
        return torch.full((n_classes,), VOTE_PRIOR, dtype=torch.float64)
    shares = (votes / raters[:, None]).mean(0)
    agreement = ((votes * (votes - 1)).sum(-1) / (raters * (raters - 1))).mean()
    chance = shares.square().sum().clamp_max(1 - 1e-9)
    kappa = ((agreement - chance) / (1 - chance)).clamp(LEAST_KAPPA, MOST_KAPPA)
    return shares * (1 - kappa) / kappa + LEAST_VOTES


def vote_shares(labels: Tensor, prior: Tensor) -> Tensor:
    """Shares of the votes of each class, to which a prior (classes,) is added: (..., annotators) to (..., classes)."""
    votes = count_votes(labels, len(prior)) + prior
    return votes / votes.sum(-1, keepdim=True)


def shared_labels(labels: Tensor, mask: Tensor) -> Tensor:
    """Labels at steps that have labels of other annotators, too: bool (rows, steps, annotators)."""
    recorded = (labels >= 0) & mask[..., None]
    return recorded & (recorded.sum(-1, keepdim=True) > 1)


def average_left_out(whole: Tensor, left_out: Tensor, shared: Tensor) -> Tensor:
    """The mean of predictions without one annotator each, over the annotators of a step; `whole` where it has one.

    Parameters
    ----------
    whole : Tensor of shape (rows, steps, classes)
    left_out : Tensor of shape (annotators, rows, steps, classes)
    shared : bool Tensor of shape (rows, steps, annotators)
    """
    mean = torch.einsum("artj,rta->rtj", left_out.double(), shared.double())
    count = shared.sum(-1, keepdim=True)
    return torch.where(count > 0, mean / count.clamp_min(1), whole.double())


def left_out_opinions(
    labels: Tensor, shared: Tensor, left_out: Tensor, prior: Tensor, others: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """Opinions of the chain, the votes and others about each label from the other annotators, and the label itself.

    Parameters
    ----------
    labels : int Tensor of shape (rows, steps, annotators)
    shared, left_out, prior : see `average_left_out` and `vote_prior`
    others : Tensors of shape (rows, steps, classes), opinions that no annotator's label at the step is part of

    Returns
    -------
    log-probabilities of shape (labels, opinions, classes), and int64 labels of shape (labels,)
    """
    opinions, wanted = [], []
    for annotator, predicted in enumerate(left_out):
        steps = shared[..., annotator]
        seen = labels[steps].clone()
        wanted.append(seen[:, annotator].long())
        seen[:, annotator] = -1
        parts = (predicted[steps], vote_shares(seen, prior), *(other[steps] for other in others))
        opinions.append(stack_opinions(*parts))
    return torch.cat(opinions), torch.cat(wanted)


def stack_opinions(*opinions: Tensor) -> Tensor:
    """Log-probabilities (..., opinions, classes) of probabilities (..., classes)."""
    return torch.stack([opinion.double().clamp_min(LEAST).log() for opinion in opinions], -2)


def pool(weights: Tensor, log_probs: Tensor) -> Tensor:
    """The pooled probabilities (..., classes) of opinions (..., opinions, classes) with weights (opinions,)."""
    return torch.einsum("k,...kj->...j", weights, log_probs).softmax(-1)


def fit_weights(log_probs: Tensor, labels: Tensor, start: Tensor | None = None) -> Tensor:
    """Weights that maximise the log-likelihood of labels: a conditional logit (McFadden 1974), by Newton's method.

    The log-likelihood is concave in the weights. Negative weights are set to zero and the others fitted again; where no
    opinion is left, all classes are equally likely.

    Parameters
    ----------
    log_probs : Tensor of shape (labels, opinions, classes)
    labels : int64 Tensor of shape (labels,)
    start : Tensor of shape (opinions,), equal by default; also the mean of a normal prior worth `PRIOR_LABELS`
    """
    if start is None:
        start = torch.full((log_probs.shape[1],), 1 / log_probs.shape[1], dtype=torch.float64)
    kept = torch.ones(len(start), dtype=torch.bool)
    weights = torch.zeros_like(start)
    while bool(kept.any()):
        weights = torch.zeros_like(start)
        weights[kept] = _newton(log_probs[:, kept], labels, start[kept])
        negative = weights < 0
        if not bool(negative.any()):
            break
        kept &= ~negative
    return weights.clamp_min(0.0)


def _newton(log_probs: Tensor, labels: Tensor, start: Tensor) -> Tensor:
    weights = start.clone()
    chosen = log_probs.gather(-1, labels[:, None, None].expand(-1, len(start), 1))[..., 0]  # (labels, opinions)
    prior = PRIOR_LABELS * torch.eye(len(start), dtype=start.dtype)
    for _ in range(NEWTON_STEPS):
        probabilities = pool(weights, log_probs)
        means = torch.einsum("nj,nkj->nk", probabilities, log_probs)
        centred = log_probs - means[..., None]
        slope = (chosen - means).sum(0) - prior @ (weights - start)
        information = torch.einsum("nj,nkj,nlj->kl", probabilities, centred, centred) + prior
        step = torch.linalg.solve(information, slope).clamp(-1.0, 1.0)
        weights = weights + step
        if float(step.abs().max()) < TOLERANCE:
            break
    return weights
