from __future__ import annotations

import numpy as np
import torch

from labeltide.inference.bands import estimate_annotators
from labeltide.inference.bootstrap import GRID_POINTS, affordable, coarsen, free_family, refine
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 120
MATRICES = make_noise("linear", 2, STEPS, 0.2).at(np.linspace(0, 1, STEPS))


def training():
    return fit_studies(simulate(SimulatedStudy(MATRICES, n=30, sharpness=2.0), 1, 0).data, choose=False)[0][0]


def test_joined_moments_keep_noise_and_labels():
    fine = training()
    coarse = coarsen(fine)
    assert coarse.parameters.matrices.shape[2] == coarse.data.n_points == len(coarse.grid) == GRID_POINTS
    torch.testing.assert_close(coarse.parameters.matrices.sum(-1), torch.ones(1, 1, GRID_POINTS, 2))
    back = refine(coarse.parameters.matrices[0].numpy(), coarse.grid, fine.grid)[0]
    np.testing.assert_allclose(back[5:-5], fine.parameters.matrices[0, 0, 5:-5], atol=0.02)
    assert coarsen(coarse) is coarse


def test_bands_stand_on_the_grid_of_the_fit():
    fine = training()
    estimate = estimate_annotators(fine, n_replicates=20)[0]
    assert estimate.lower.shape == (STEPS, 2, 2)
    np.testing.assert_allclose(estimate.labels.sum(), 30 * STEPS, rtol=0.02)


def test_replicates_are_fewer_only_where_they_cost_much():
    data = training().data
    assert affordable(data, free_family(2, np.linspace(0, 1, 50), 1.0), 20, 200, 100) == 200
    assert affordable(data, free_family(127, np.linspace(0, 1, 24), 1.0), 20, 200, 100) == 100
    assert affordable(data, free_family(127, np.linspace(0, 1, 24), 1.0), 20, 30, 100) == 30
