"""Baseline of the speed benchmarks: `continuous` in plain torch.nn, one model and one training loop."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from labeltide.noise.functions import WIDTHS


class PlainModel(nn.Module):
    """`nn.GRU` and a linear head."""

    def __init__(self, n_features: int, n_classes: int, hidden_size: int = 32) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(n_features, hidden_size, batch_first=True), nn.Linear(hidden_size, n_classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(self.gru(features)[0]).log_softmax(-1)


class PlainNoise(nn.Module):
    """Ten linear layers from the clock to Q."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        sizes = (1, *WIDTHS)
        layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        self.layers, self.n_classes = nn.Sequential(*layers, nn.Linear(sizes[-1], n_classes**2)), n_classes

    def forward(self, clock: Tensor) -> Tensor:
        logits = self.layers(2 * clock[:, None] - 1).reshape(-1, self.n_classes, self.n_classes)
        return (torch.eye(self.n_classes, device=clock.device) + logits.softmax(-1)) / 2


def plain_step(model: PlainModel, optimiser: torch.optim.Optimizer, features: Tensor, labels: Tensor) -> None:
    """One training step that takes labels for true."""
    optimiser.zero_grad()
    nn.functional.nll_loss(model(features).flatten(0, 1), labels.flatten()).backward()
    optimiser.step()


def fit_plain_continuous(features: Tensor, labels: Tensor, n_classes: int, epochs: int = 150, batch: int = 64) -> None:
    """The paper's algorithm 1, written out."""
    device = features.device
    model, noise = PlainModel(features.shape[2], n_classes).to(device), PlainNoise(n_classes).to(device)
    optimisers = [torch.optim.Adam(module.parameters(), lr=0.01) for module in (model, noise)]
    clock = torch.linspace(0, 1, features.shape[1], device=device)
    linear, quadratic, before = 1.0, 1.0, float("inf")
    for epoch in range(epochs):
        seen = []
        for rows in torch.randperm(len(features), device=device).split(batch):
            matrices = noise(clock)  # (steps, classes, classes)
            noisy = torch.einsum("bti,tij->btj", model(features[rows]).exp(), matrices)
            losses = -noisy.gather(-1, labels[rows][..., None])[..., 0].log().mean(0)  # (steps,)
            sizes = matrices.square().sum((1, 2)).sqrt()
            total = (sizes + linear * losses + quadratic / 2 * losses.square()).mean()
            for optimiser in optimisers:
                optimiser.zero_grad()
            total.backward()
            for optimiser in optimisers:
                optimiser.step()
            seen.append(float(losses.mean()))
        if epoch % 10 == 9:
            violation = sum(seen) / len(seen)
            linear += quadratic * violation
            quadratic *= 2 if violation > 2 * before else 1
            before = violation
