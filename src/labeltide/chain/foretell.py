r"""How well what some annotators recorded foretells what another did: by this, and not by likelihood, they are judged.

Where annotators err together, or a step lies between two classes, the chain that makes all labels likeliest is the one
that explains best how each annotator goes on from step to step; what it takes for the truth then drifts away from what
they see in common. What one annotator records at a step, foretold from the labels of all others,
:math:`\sum_i P(y_t = i \mid \text{others})\, Q_a(t)_{ij}`, can only be foretold by way of the truth.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.passes import expect
from labeltide.chain.plain import label_likelihoods

NUMBERS_AT_ONCE = 2**25  # posteriors that are held together


def judge_rows(
    data: ChainData, members: Members, parameters: ChainParameters, log_likelihood: Tensor, judged: Tensor
) -> Tensor:
    """The log-probability of the labels of judged rows, by which chains are compared: (members, rows).

    Rows with labels of several annotators are foretold, each annotator's labels from those of the others. In all other
    rows, and where all share one Q, it is the likelihood.

    Parameters
    ----------
    log_likelihood, judged : Tensors of shape (members, rows), the second of bool
    """
    spoke = ((data.labels >= 0) & data.mask[..., None]).any(2).sum(-1) > 1  # (sets, rows)
    foretold = judged & spoke[members.labels]
    if parameters.matrices.shape[1] == 1 or not bool(foretold.any()):
        return log_likelihood
    found = log_likelihood.clone()
    kinds, kind = foretold.unique(dim=0, return_inverse=True)  # members of one kind are judged by the same rows
    for number, own in enumerate(kinds):
        rows = own.nonzero().flatten()
        part = data.take_rows(rows)
        at_once = max(1, NUMBERS_AT_ONCE // max(1, part.mask.numel() * data.n_classes))
        for chosen in (kind == number).nonzero().flatten().split(at_once) if len(rows) else ():
            theirs = members.take(chosen)
            theirs = theirs._replace(weights=theirs.weights[:, rows])
            found[chosen[:, None], rows] = _foretell(part, theirs, parameters.take(chosen)).to(found)
    return found


def _foretell(data: ChainData, members: Members, parameters: ChainParameters) -> Tensor:
    """The log-probability of what each annotator recorded at each step, given the labels of all others, summed."""
    total = torch.zeros_like(members.weights)
    for annotator in range(data.labels.shape[-1]):
        theirs = slice(annotator, annotator + 1)
        others = data.labels.clone()
        others[..., theirs] = -1
        posterior = expect(replace(data, labels=others), members, parameters, posterior=True).posterior
        assert posterior is not None
        alone = replace(data, labels=data.labels[..., theirs], trusted=None)
        seen = label_likelihoods(alone, members, parameters.matrices[:, theirs])  # (members, rows, steps, classes)
        recorded = (alone.labels[members.labels, ..., 0] >= 0) & data.mask
        total += ((posterior * seen).sum(-1).clamp_min(1e-30).log() * recorded).sum(-1)
    return total
