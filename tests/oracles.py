"""Slow, obvious versions of what the library does fast: loops and one number at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from labeltide.chain.families import RIDGE, Family, shared


def matrix_of(
    matrices: np.ndarray, member: int | None, row: int, step: int, kind: str, annotator: int = 0
) -> np.ndarray:
    """The matrix of one step, from Q given as "static", "shared" or "own" (per sequence), or for "each" annotator."""
    if kind == "static":
        return matrices
    if member is not None:
        matrices = matrices[member]
    if kind.startswith("each"):
        return matrices[0 if kind == "each, shared" else row, step, annotator]
    return matrices[step] if kind == "shared" else matrices[row, step]


def forward_loss_of_step(probs: np.ndarray, label: int, matrix: np.ndarray) -> float:
    """-log P(recorded), by going through every label that could be the true one."""
    if label < 0:
        return 0.0
    likelihood = 0.0
    for true in range(len(probs)):
        likelihood += probs[true] * matrix[true, label]
    return -float(np.log(likelihood))


def backward_loss_of_step(probs: np.ndarray, label: int, matrix: np.ndarray) -> float:
    """The row of the inverse that belongs to the recorded label, times the losses of all labels."""
    if label < 0:
        return 0.0
    return -float(sum(np.linalg.inv(matrix)[label, true] * np.log(probs[true]) for true in range(len(probs))))


def cross_entropy_of_step(probs: np.ndarray, label: int) -> float:
    return 0.0 if label < 0 else -float(np.log(probs[label]))


def slow_objective(
    losses: np.ndarray, weights: np.ndarray, linear: float = 1.0, quadratic: float = 0.0
) -> tuple[float, float]:
    """Total and average loss of one member from (batch, steps, annotators) losses and weights."""
    n_batch, n_steps, n_annotators = losses.shape
    all_weights = float(weights.sum())
    data = squares = 0.0
    for step in range(n_steps):
        loss = weight = 0.0
        for row in range(n_batch):
            for annotator in range(n_annotators):
                loss += weights[row, step, annotator] * losses[row, step, annotator]
                weight += weights[row, step, annotator]
        if weight > 0:
            data += weight / all_weights * (loss / weight)
            squares += weight / all_weights * (loss / weight) ** 2
    return linear * data + quadratic / 2 * squares, data


def gru_states(
    features: np.ndarray,
    weight_input: np.ndarray,
    weight_hidden: np.ndarray,
    bias_input: np.ndarray,
    bias_hidden: np.ndarray,
) -> np.ndarray:
    """torch.nn.GRU's equations for one sequence (steps, inputs), step by step; gates in the order r, z, n."""
    size = weight_hidden.shape[0]
    hidden, states = np.zeros(size), []
    for x in features:
        a_reset, a_update, a_new = np.split(x @ weight_input + bias_input, 3)
        h_reset, h_update, h_new = np.split(hidden @ weight_hidden + bias_hidden, 3)
        reset = 1 / (1 + np.exp(-(a_reset + h_reset)))
        update = 1 / (1 + np.exp(-(a_update + h_update)))
        new = np.tanh(a_new + reset * h_new)
        hidden = (1 - update) * new + update * hidden
        states.append(hidden)
    return np.stack(states)


def adam_path(start: Tensor, gradients: list[Tensor], rate: float, clip: float) -> list[Tensor]:
    """Where torch.optim.Adam with clip_grad_norm_ takes one member's parameters, after each gradient."""
    parameter = torch.nn.Parameter(start.clone())
    optimiser = torch.optim.Adam([parameter], lr=rate)
    path = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([parameter], clip)
        optimiser.step()
        path.append(parameter.detach().clone())
    return path


def anchor_matrix(probabilities: np.ndarray, percentile: float) -> np.ndarray:
    """Q of one member from (steps, classes) predictions: each class's anchor step, found by sorting."""
    n_steps, n_classes = probabilities.shape
    rows = []
    for true in range(n_classes):
        by_probability = sorted(range(n_steps), key=lambda step: probabilities[step, true])
        anchor = by_probability[-max(1, int((1 - percentile / 100) * n_steps))]
        rows.append(probabilities[anchor] / probabilities[anchor].sum())
    return np.stack(rows)


def nearest_moment(moment: float, grid: np.ndarray) -> int:
    """The place on the grid closest to a moment."""
    return min(range(len(grid)), key=lambda index: abs(grid[index] - moment))


class PlainFit:
    """One fit of a method of the paper as a plain loop: `torch.nn.GRU`, two optimisers, one loss for each step."""

    def __init__(self, features: np.ndarray, labels: np.ndarray, model: nn.Module, rate: float = 0.01) -> None:
        self.features, self.labels, self.rate = torch.from_numpy(features).float(), torch.from_numpy(labels), rate
        self.network, self.head = self.copy_of(model)

    @staticmethod
    def copy_of(model: nn.Module) -> tuple[nn.GRU, nn.Linear]:
        """A GRU and a linear layer with the weights of the first member of our model."""
        layer = model.forwards
        gru = nn.GRU(layer.weight_input.shape[1], layer.hidden_size, batch_first=True)
        head = nn.Linear(layer.hidden_size, model.head.weight.shape[2])
        ours = (layer.weight_input, layer.weight_hidden, layer.bias_input, layer.bias_hidden)
        for mine, theirs in zip(
            (*gru.parameters(), *head.parameters()), (*ours, *model.head.parameters()), strict=True
        ):
            mine.data.copy_(theirs[0].T.squeeze(-1))
        return gru, head

    def probabilities(self, rows: np.ndarray | slice = slice(None)) -> Tensor:
        """Of the true label: (rows, steps, classes)."""
        return self.head(self.network(self.features[rows])[0]).softmax(-1)

    def train(self, orders, batch_size, find_matrices, noise_parameters=(), penalty=None, **how) -> list[float]:
        """Train in place and return the mean loss of each epoch.

        `orders` has the rows of each epoch in their order; `find_matrices` gives Q, (steps, classes, classes).
        """
        optimisers = [torch.optim.Adam([*self.network.parameters(), *self.head.parameters()], lr=self.rate)]
        schedulers = [torch.optim.lr_scheduler.MultiStepLR(optimisers[0], how.get("milestones", ()), 0.1)]
        if noise_parameters:
            optimisers.append(torch.optim.Adam(noise_parameters, lr=self.rate))
            halved = how.get("noise_milestones", ())
            schedulers.append(torch.optim.lr_scheduler.MultiStepLR(optimisers[1], halved, 0.5))
        linear, quadratic, before, means = 1.0, 1.0, float("inf"), []
        for epoch, order in enumerate(orders):
            total = 0.0
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                matrices, clean = find_matrices(), self.probabilities(rows)
                violations = []
                for step in range(clean.shape[1]):
                    noisy = clean[:, step] @ matrices[step]
                    violations.append(-noisy[range(len(rows)), self.labels[rows, step]].log().mean())
                each = torch.stack(violations)  # R_t
                loss = each.mean()
                if how.get("lagrangian"):  # equation 3
                    norms = torch.stack([torch.linalg.norm(matrix) for matrix in matrices])
                    objective = (norms + linear * each + quadratic / 2 * each**2).mean()
                else:
                    objective = loss if penalty is None else loss + penalty(matrices)
                for optimiser in optimisers:
                    optimiser.zero_grad()
                objective.backward()
                for optimiser in optimisers:
                    optimiser.step()
                total += loss.item() * len(rows)
            for scheduler in schedulers:
                scheduler.step()
            means.append(total / len(order))
            if how.get("lagrangian") and (epoch + 1) % 10 == 0:  # algorithm 1: rounds of ten epochs
                linear += quadratic * means[-1]
                quadratic *= 2.0 if means[-1] > 2 * before else 1.0
                before = means[-1]
        return means


def code_penalty(matrices: Tensor, diagonal_weight: float) -> Tensor:
    """1e-4 mean log|det Q_t| / T + f mean ||diag Q_t||, as the paper's code has it."""
    volumes = [torch.linalg.slogdet(matrix)[1] for matrix in matrices]
    norms = [torch.linalg.norm(torch.diag(matrix)) for matrix in matrices]
    return 1e-4 * torch.stack(volumes).mean() / len(volumes) + diagonal_weight * torch.stack(norms).mean()


def choose_issues(quality, may_flag, fdr):
    """Flags by sorting: as many labels as possible, lowest quality first, while their mean quality is at most `fdr`.

    Ties are flagged together or not at all.
    """
    candidates = np.sort(quality[may_flag & np.isfinite(quality)])
    last = np.searchsorted(candidates, candidates, side="right")
    worst = candidates[candidates.cumsum()[last - 1] / last <= fdr]
    return may_flag & (quality <= worst[-1]) if worst.size else np.zeros(quality.shape, dtype=bool)


def family_design(kind: Family) -> np.ndarray:
    """Dense design matrix of a family of Q(t), (points, entries, coefficients), those of the level first."""
    constant, moving = shared(kind.n_classes, kind.level), kind.moving_shares()
    level = np.broadcast_to(constant, (len(kind.basis), *constant.shape))
    movement = np.einsum("tk,es->teks", kind.basis, moving).reshape(len(kind.basis), len(moving), -1)
    return np.concatenate([level, movement], 2)


def family_penalty(kind: Family) -> np.ndarray:
    """Roughness penalty and ridge penalty of a family of Q(t): (coefficients, coefficients)."""
    n_level, n_moving = shared(kind.n_classes, kind.level).shape[1], kind.moving_shares().shape[1]
    penalty = RIDGE * np.eye(n_level + len(kind.shape.penalty) * n_moving)
    penalty[n_level:, n_level:] += np.kron(kind.shape.penalty, np.eye(n_moving))
    return penalty
