from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from labeltide.chain.passes import expect, same_data
from labeltide.inference.checks import (
    check_confounding,
    check_mostly_right,
    clock_accuracy,
    diagnose,
)
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 20
SOUND = make_noise("static", 2, STEPS, 0.25).at(np.linspace(0, 1, STEPS))


def fitted(study, **more):
    training, _ = fit_studies(simulate(study, 1, 0, **more).data)[0]
    return training, expect(training.data, same_data(torch.ones(1, study.n)), training.parameters)


def test_a_sound_study_is_identified():
    training, _ = fitted(SimulatedStudy(SOUND, n=80))
    assert not any(check.is_warning or check.denies for check in diagnose(training, ["a", "b"]))


def denies(training):
    return [check.name for check in diagnose(training, ["a", "b"]) if check.is_warning and check.denies]


def test_coin_flips_say_nothing_unless_some_labels_are_trusted():
    training, _ = fitted(SimulatedStudy(np.full((STEPS, 2, 2), 0.5), n=80, sharpness=2.0))
    assert "identifiability" in denies(training)
    trusted = torch.full(training.data.mask.shape, -1, dtype=torch.int8)
    trusted[:10] = 0
    assert not denies(training._replace(data=replace(training.data, trusted=trusted)))


def test_an_estimate_at_the_edge_is_seen():
    """Each class is right in 40 %, and the other two share the rest: the estimate exchanges names at will."""
    matrices = np.tile(np.full((3, 3), 0.3) + 0.1 * np.eye(3), (STEPS, 1, 1))
    training, expected = fitted(SimulatedStudy(matrices, n=150, stay=None, sharpness=4.0))
    assert check_mostly_right(training, expected, ["a", "b", "c"]).denies


def test_a_rare_class_that_is_mostly_recorded_as_another_is_in_doubt():
    """Of the rare third class 30 % are recorded as such: no label is suggested to be one, the share may be stated."""
    matrices = np.tile(np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.7, 0.3]]), (STEPS, 1, 1))
    shares = np.tile([0.47, 0.47, 0.06], (STEPS, 1))
    training, expected = fitted(SimulatedStudy(matrices, n=150, stay=0.9, sharpness=4.0), shares=shares)
    check = check_mostly_right(training, expected, ["a", "b", "c"])
    assert (check.is_warning, check.denies, "'c'" in check.sentence) == (True, False, True)
    assert (check.unnamed, check.unsuggested) == ((), (2,))


def test_classes_at_fixed_moments_are_confounded_with_the_clock():
    training, _ = fitted(SimulatedStudy(SOUND, n=40, stay=None, sharpness=3.0))
    codes = torch.from_numpy(np.repeat([0, 1], STEPS // 2).astype(np.int8))
    labels = codes[None, None, :, None].expand(1, 40, -1, -1).contiguous()
    protocol = training._replace(data=replace(training.data, labels=labels))
    assert check_confounding(protocol).denies
    assert clock_accuracy(protocol)[0] == 1.0
    assert not check_confounding(training).is_warning
