"""Evidence of single steps: multinomial logistic regression on the features of one step, cross-fitted.

A recurrent network that is trained on late labels learns to predict late, and its predictions then agree with them. A
classifier that sees one step at a time cannot. The search for late labels (`lt.find_shifts`) will be built on it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ITERATIONS = 25  # by hand: of the fixed-Hessian bound
RIDGE = 1.0  # by hand: in labels
LARGEST = 5.0  # by hand: standard deviations at which features are cut, so that squares stay small


class StepModel(NamedTuple):
    """Multinomial logistic regressions on standardised features and their squares, one for each fold."""

    centre: Tensor  # (features,)
    scale: Tensor  # (features,)
    coefficients: Tensor  # (folds, 1 + 2 * features, classes)

    def log_probs(self, features: Tensor, fold: Tensor) -> Tensor:
        """Log-probabilities (rows, steps, classes); a row of fold -1 has the mean of all."""
        mean = self.coefficients.mean(0, keepdim=True)
        chosen = torch.cat([self.coefficients, mean])[fold]  # (rows, inputs, classes)
        return (_expand(features, self.centre, self.scale) @ chosen).log_softmax(-1)


def fit_step_model(features: Tensor, mask: Tensor, targets: Tensor, folds: Tensor) -> StepModel:
    """Fit to soft targets, without each fold in turn, by the quadratic lower bound of Böhning (1992).

    Parameters
    ----------
    features : Tensor of shape (rows, steps, features)
    mask : bool Tensor of shape (rows, steps)
    targets : Tensor of shape (rows, steps, classes)
        Probabilities of the labels.
    folds : int64 Tensor of shape (rows,)
    """
    real = features[mask]
    centre, scale = real.mean(0), real.std(0).clamp_min(1e-6)
    inputs = _expand(real, centre, scale)  # (labels, inputs)
    target, fold = targets[mask].to(inputs), folds[:, None].expand_as(mask)[mask]
    parts = [_fit(inputs[fold != left_out], target[fold != left_out]) for left_out in range(int(folds.max()) + 1)]
    return StepModel(centre, scale, torch.stack(parts))


def _fit(inputs: Tensor, target: Tensor) -> Tensor:
    """Coefficients (inputs, classes) of one regression; the bound on its Hessian is inverted once."""
    eye = torch.eye(inputs.shape[1], dtype=inputs.dtype, device=inputs.device)
    factor = torch.linalg.cholesky(inputs.T @ inputs / 2 + RIDGE * eye)
    coefficients = torch.zeros(inputs.shape[1], target.shape[1], dtype=inputs.dtype, device=inputs.device)
    before = coefficients
    for iteration in range(ITERATIONS):
        ahead = coefficients + iteration / (iteration + 3) * (coefficients - before)  # Nesterov 1983
        slope = inputs.T @ (target - (inputs @ ahead).softmax(-1)) - RIDGE * ahead
        before, coefficients = coefficients, ahead + torch.cholesky_solve(slope, factor)
    return coefficients


def _expand(features: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """A constant, standardised features and their squares."""
    standard = ((features - centre) / scale).clamp(-LARGEST, LARGEST)
    return torch.cat([torch.ones_like(standard[..., :1]), standard, standard.square() - 1], -1)
