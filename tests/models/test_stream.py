"""Causal models that are given one step at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.models.base import LinearModel
from labeltide.models.gru import GRUModel
from labeltide.models.tcn import TCNModel
from models.laws import full_mask, run, started


@pytest.mark.usefixtures("compiled_variant")
@settings(max_examples=40, deadline=None)
@given(
    members=st.integers(1, 3), streams=st.integers(1, 20), steps=st.integers(1, 12), hidden=st.sampled_from([32, 64])
)
def test_the_compiled_gru_gives_the_same_bits_step_by_step(members, streams, steps, hidden):
    model = started(GRUModel(members, 5, 3, hidden_size=hidden))
    features = torch.randn(streams, steps, 5, generator=torch.Generator().manual_seed(steps))
    state, logits = model.start(streams), []
    for t in range(steps):
        step, state = model.advance(features[:, t], state)
        logits.append(step)
    assert torch.equal(torch.stack(logits, 2), run(model, features.expand(members, -1, -1, -1)))


@pytest.mark.parametrize("model", [TCNModel, LinearModel])
def test_an_output_depends_on_no_more_steps_than_it_reaches_back_to(model):
    network = started(model(1, 3, 2)).double()
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 1, model.reach + 3, 3, dtype=torch.float64, generator=generator).requires_grad_()
    network(features, full_mask(features))[0, 0, -1].sum().backward()
    touched = features.grad[0, 0].abs().sum(-1) > 0
    assert touched.tolist() == [False] * 3 + [True] * model.reach


def test_only_the_steps_within_reach_are_kept():
    model = started(TCNModel(2, 3, 2))
    state = model.start(1)
    for _ in range(TCNModel.reach + 5):
        _, state = model.advance(torch.randn(1, 3), state)
    assert state.shape == (1, TCNModel.reach, 3)
