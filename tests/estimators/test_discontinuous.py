"""Claims about the Discontinuous method: the objective of the paper's text and that of its code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators.paper import code_penalties
from labeltide.training.objective import Objective, average
from oracles import code_penalty


def test_the_penalties_of_the_code_are_those_of_its_formula():
    generator = torch.Generator().manual_seed(0)
    matrices = torch.rand(1, 7, 3, 3, generator=generator, dtype=torch.float64).softmax(-1) / 2 + torch.eye(3) / 2
    log_probs = torch.rand(1, 4, 7, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    labels = torch.randint(3, (1, 4, 7, 1), generator=generator)
    weights = torch.ones(1, 4, 7, 1, dtype=torch.float64)
    objective = Objective(penalties=tuple(code_penalties(7, 1e-4, 0.05)))
    total = objective(log_probs, labels, weights, matrices=matrices, grid=matrices).total
    recorded = torch.einsum("mbti,mtij->mbtj", log_probs.exp(), matrices)
    cross_entropy = -recorded.gather(-1, labels).log().mean()
    volume = torch.stack([torch.det(q).abs().log() for q in matrices[0]]).mean()
    diagonal = torch.stack([q.diagonal().norm() for q in matrices[0]]).mean()
    expected = cross_entropy + 1e-4 * volume / 7 + 0.05 * diagonal
    torch.testing.assert_close(total[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 0.0])
def test_the_code_has_the_determinant_itself_which_vanishes_where_rows_of_q_coincide(gap):
    """There its loss is not finite: 16 of 228 fits of `continuous` by the public code end in NaN."""
    matrices = torch.tensor([[0.5 + gap, 0.5 - gap], [0.5 - gap, 0.5 + gap]], dtype=torch.float64).expand(1, 7, 2, 2)
    volume = sum(average(each.function, each.weight, matrices) for each in code_penalties(7, 1e-4, 0.05))
    torch.testing.assert_close(volume[0], code_penalty(matrices[0], 0.05), rtol=1e-9, atol=0)


@pytest.fixture(scope="module")
def study() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 8, 2)).astype(np.float32)
    return X, (X[..., 0] + 0.7 * rng.normal(size=(20, 8)) > 0).astype(int)


def test_a_larger_weight_of_the_diagonal_gives_a_noisier_q(study):
    settings = {"objective": "penalised", "epochs": 15, "hidden_size": 4, "random_state": 0}
    light = lt.DiscontinuousClassifier(diagonal_weight=0.0, **settings).fit(*study)
    heavy = lt.DiscontinuousClassifier(diagonal_weight=0.5, **settings).fit(*study)
    assert np.trace(heavy.noise_matrices_.mean(0)) < np.trace(light.noise_matrices_.mean(0)) - 0.02


def test_an_unknown_objective_is_answered_with_the_choices(study):
    with pytest.raises(ValueError, match=r"Unknown objective 'odd'\. Choose one of: volume, penalised"):
        lt.DiscontinuousClassifier(objective="odd").fit(*study)
