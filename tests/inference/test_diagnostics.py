from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.auditing.page.checks import meaning
from labeltide.chain.data import ChainData, Members, TrainingEvidence
from labeltide.chain.start import label_chain
from labeltide.inference.diagnostics import Diagnostic, check_independence, diagnose
from labeltide.noise.shapes import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 40
MATRICES = make_noise("static", 2, STEPS, 0.25).at(np.linspace(0, 1, STEPS))


def warned(study, **more):
    training, _ = fit_studies(simulate(study, 1, 0, **more).data)[0]
    diagnostics = diagnose(training, ["a", "b"])
    assert all(isinstance(check, Diagnostic) and meaning(check.name) for check in diagnostics)
    return {check.name for check in diagnostics if check.is_warning}


@pytest.mark.parametrize(
    "study", [SimulatedStudy(MATRICES, n=100), SimulatedStudy(MATRICES, n=100, stay=None, sharpness=3.0)]
)
def test_sound_studies_raise_no_warning(study):
    assert warned(study) == set()


def test_labels_that_neither_persist_nor_show_cannot_be_told_from_noise():
    assert "identifiability" in warned(SimulatedStudy(MATRICES, n=100, stay=None, sharpness=0.5))


def test_errors_in_runs_are_seen():
    assert "bursts" in warned(SimulatedStudy(MATRICES, n=100, sharpness=3.0, bursts=0.7))


def test_a_class_that_grows_more_common_is_seen():
    share = np.linspace(0.2, 0.8, STEPS)
    assert "class_balance" in warned(SimulatedStudy(MATRICES, n=100), shares=np.stack([share, 1 - share], 1))


def test_features_that_fade_are_seen():
    study = SimulatedStudy(MATRICES, n=100, stay=None, sharpness=3.0)
    assert "drift" in warned(study, sharpness_at=lambda clock: 1 - 0.8 * clock)


def test_a_class_that_is_rare_at_some_hours_is_seen():
    share = np.where(np.arange(STEPS) < 8, 0.01, 0.5)
    study = SimulatedStudy(MATRICES, n=100, stay=None, sharpness=4.0)
    assert "few_labels" in warned(study, shares=np.stack([share, 1 - share], 1))


def test_a_fold_whose_network_failed_is_seen():
    data = simulate(SimulatedStudy(MATRICES, n=100, stay=None, sharpness=4.0), 1, 0).data
    training, _ = fit_studies(data)[0]
    failed = (training.folds[0] == 2)[:, None, None]
    swapped = torch.where(failed, training.data.evidence[0].flip(-1), training.data.evidence[0])
    training = training._replace(data=replace(training.data, evidence=swapped[None]))
    diagnostics = diagnose(training, ["a", "b"])
    assert "members" in {check.name for check in diagnostics if check.is_warning}


def together(labels):
    """What is said of annotators who are known to err together or not, labels alone."""
    n, n_steps = labels.shape[:2]
    mask = torch.ones(n, n_steps, dtype=torch.bool)
    data = ChainData(torch.tensor(labels.astype(np.int8))[None], mask, None, n_steps, int(labels.max()) + 1)
    first = torch.zeros(1, dtype=torch.int64)
    fits, grid = Members(first, first, torch.ones(1, n)), np.linspace(0, 1, n_steps)
    chain = label_chain(data, fits, grid, groups=labels.shape[-1])
    return check_independence(TrainingEvidence(data, chain, torch.zeros(1, n), grid))


def test_annotators_who_part_between_classes_are_seen_and_independent_ones_are_not():
    generator = np.random.default_rng(0)
    depth, bias = np.zeros((60, 25)), np.zeros((60, 25, 4))
    for step in range(1, 25):
        depth[:, step] = 0.95 * depth[:, step - 1] + 0.31 * generator.standard_normal(60)
        bias[:, step] = 0.9 * bias[:, step - 1] + 0.18 * generator.standard_normal((60, 4))
    borders = np.array([-0.5, 0.5])
    truth = (depth[..., None] > borders).sum(-1)
    parting = ((depth[..., None] + bias)[..., None] > borders).sum(-1)
    wrong = generator.random(bias.shape) < 0.15
    single = np.where(wrong, (truth[..., None] + 1) % 3, truth[..., None])
    (dependent,), (independent,) = together(parting), together(single)
    assert dependent.is_warning
    assert not independent.is_warning
    assert together(single[..., :1]) == ()
