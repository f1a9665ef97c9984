r"""Leave-one-annotator-out predictive log-likelihood, by which models of several annotators are compared.

The labels of annotator a are predicted from the labels of all others:
:math:`\sum_t \log \sum_i P(y_t = i \mid \text{labels of others})\, Q_a(t)_{i \tilde y_{ta}}`, as in leave-one-out
cross-validation. The ordinary likelihood misleads where annotators err together or a step lies between two classes:
the likeliest model is then the one that explains how each annotator continues from step to step, and its posterior
drifts away from what the annotators agree on. Labels of other annotators predict only through the true label
(docs/decisions/009-several-annotators.md).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.passes import expect
from labeltide.chain.plain import label_likelihoods

POSTERIORS_AT_ONCE = 2**24  # numbers of the posteriors that are held in memory together
MEMBERS_AT_ONCE = 8  # members that a block of rows leaves room for


def predictive_log_likelihood(
    data: ChainData, members: Members, parameters: ChainParameters, log_likelihood: Tensor, scored: Tensor
) -> Tensor:
    """Predictive log-likelihood of the scored rows: (members, rows).

    Rows with labels of several annotators are predicted, each annotator's labels from those of the others. All other
    rows, and all rows where annotators share one Q, keep `log_likelihood`.

    Parameters
    ----------
    log_likelihood, scored : Tensors of shape (members, rows), the second of bool
    """
    several = ((data.labels >= 0) & data.mask[..., None]).any(2).sum(-1) > 1  # (sets, rows)
    predicted = scored & several[members.labels]
    if parameters.matrices.shape[1] == 1 or not bool(predicted.any()):
        return log_likelihood
    result = log_likelihood.clone()
    row_sets, row_set = predicted.unique(dim=0, return_inverse=True)  # members with the same predicted rows
    most = max(1, POSTERIORS_AT_ONCE // (MEMBERS_AT_ONCE * data.mask.shape[1] * data.n_classes))
    for number, in_set in enumerate(row_sets):
        for rows in in_set.nonzero().flatten().split(most) if bool(in_set.any()) else ():
            part = data.take_rows(rows)
            at_once = max(1, POSTERIORS_AT_ONCE // (part.mask.numel() * data.n_classes))
            for index in (row_set == number).nonzero().flatten().split(at_once):
                some = members.take(index)
                some = some._replace(weights=some.weights[:, rows])
                result[index[:, None], rows] = _leave_one_out(part, some, parameters.take(index)).to(result)
    return result


def _leave_one_out(data: ChainData, members: Members, parameters: ChainParameters) -> Tensor:
    """Log-probability of each annotator's labels given those of all others, summed over steps: (members, rows)."""
    total = torch.zeros_like(members.weights)
    for annotator in range(data.labels.shape[-1]):
        left_out = slice(annotator, annotator + 1)
        others = data.labels.clone()
        others[..., left_out] = -1
        posterior = expect(replace(data, labels=others), members, parameters, posterior=True).posterior
        assert posterior is not None
        alone = replace(data, labels=data.labels[..., left_out], trusted=None)
        emission = label_likelihoods(
            alone, members, parameters.matrices[:, left_out]
        )  # (members, rows, steps, classes)
        recorded = (alone.labels[members.labels, ..., 0] >= 0) & data.mask
        total += ((posterior * emission).sum(-1).clamp_min(1e-30).log() * recorded).sum(-1)
    return total
