"""Warm-started refits: the likelihood of each member is that of its labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.chain.passes import Members
from labeltide.inference.bootstrap import refit, simulate_labels, weighted_log_likelihood
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate


@pytest.mark.parametrize("annotators", [1, 2])
def test_labels_taken_for_right_are_judged_draw_by_draw(annotators):
    noise = np.stack([make_noise("static", 2, 15, 0.2).at(np.linspace(0, 1, 15))] * annotators)
    ((training, _),) = fit_studies(simulate(SimulatedStudy(noise, n=20), 1, 0).data, choose=False)
    drawn = replace(training.data, labels=simulate_labels(training.data, training.parameters, 3, 0))
    each = torch.arange(3)
    members = Members(each, torch.zeros_like(each), torch.ones(3, 20))
    together = weighted_log_likelihood(refit(drawn, members, None, training.parameters, learn_power=False), members)
    for draw in range(3):
        member = members.take(torch.tensor([draw]))
        alone = weighted_log_likelihood(refit(drawn, member, None, training.parameters, learn_power=False), member)
        assert float(together[draw]) == pytest.approx(float(alone), rel=1e-5)
    assert len(set(together.tolist())) == 3
