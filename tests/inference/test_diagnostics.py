from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.inference.diagnostics import Diagnostic, diagnose
from labeltide.inference.simulated import Study, fit_studies, simulate
from labeltide.noise.shapes import make_noise
from labeltide.report.audit.checks import meaning

STEPS = 40
MATRICES = make_noise("static", 2, STEPS, 0.25).at(np.linspace(0, 1, STEPS))


def warned(study, **more):
    training, _ = fit_studies(simulate(study, 1, 0, **more).data)[0]
    found = diagnose(training, ["a", "b"])
    assert all(isinstance(one, Diagnostic) and meaning(one.name) for one in found)
    return {one.name for one in found if one.is_warning}


@pytest.mark.parametrize("study", [Study(MATRICES, n=100), Study(MATRICES, n=100, stay=None, sharpness=3.0)])
def test_sound_studies_raise_no_warning(study):
    assert warned(study) == set()


def test_labels_that_neither_persist_nor_show_cannot_be_told_from_noise():
    assert "identifiability" in warned(Study(MATRICES, n=100, stay=None, sharpness=0.5))


def test_errors_in_runs_are_seen():
    assert "bursts" in warned(Study(MATRICES, n=100, sharpness=3.0, bursts=0.7))


def test_a_class_that_grows_more_common_is_seen():
    share = np.linspace(0.2, 0.8, STEPS)
    assert "class_balance" in warned(Study(MATRICES, n=100), shares=np.stack([share, 1 - share], 1))


def test_features_that_fade_are_seen():
    study = Study(MATRICES, n=100, stay=None, sharpness=3.0)
    assert "drift" in warned(study, sharpness_at=lambda clock: 1 - 0.8 * clock)


def test_a_class_that_is_rare_at_some_hours_is_seen():
    share = np.where(np.arange(STEPS) < 8, 0.01, 0.5)
    study = Study(MATRICES, n=100, stay=None, sharpness=4.0)
    assert "few_labels" in warned(study, shares=np.stack([share, 1 - share], 1))


def test_a_fold_whose_network_failed_is_seen():
    data = simulate(Study(MATRICES, n=100, stay=None, sharpness=4.0), 1, 0).data
    training, _ = fit_studies(data)[0]
    failed = (training.folds[0] == 2)[:, None, None]
    swapped = torch.where(failed, training.data.evidence[0].flip(-1), training.data.evidence[0])
    training = training._replace(data=replace(training.data, evidence=swapped[None]))
    found = diagnose(training, ["a", "b"])
    assert "members" in {one.name for one in found if one.is_warning}
