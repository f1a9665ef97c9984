"""Refitting fleets of chains: members are judged each by their own labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.chain.data import Members
from labeltide.inference.refit import reached, refit
from labeltide.inference.resample import resample_labels
from labeltide.noise.shapes import make_noise
from labeltide_bench.simulated import Study, fit_studies, simulate


@pytest.mark.parametrize("annotators", [1, 2])
def test_labels_taken_for_right_are_judged_draw_by_draw(annotators):
    noise = np.stack([make_noise("static", 2, 15, 0.2).at(np.linspace(0, 1, 15))] * annotators)
    ((training, _),) = fit_studies(simulate(Study(noise, n=20), 1, 0).data, choose=False)
    drawn = replace(training.data, labels=resample_labels(training.data, training.parameters, 3, 0))
    each = torch.arange(3)
    members = Members(each, torch.zeros_like(each), torch.ones(3, 20))
    together = reached(refit(drawn, members, None, training.parameters, learn_power=False), members)
    for draw in range(3):
        one = members.take(torch.tensor([draw]))
        alone = reached(refit(drawn, one, None, training.parameters, learn_power=False), one)
        assert float(together[draw]) == pytest.approx(float(alone), rel=1e-5)
    assert len(set(together.tolist())) == 3
