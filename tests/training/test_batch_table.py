"""A batch that is gathered gives the bits of one that is read from the whole tables."""

from dataclasses import replace

import pytest
import torch

from labeltide.training import reversal
from labeltide.training.objective import Objective
from labeltide.training.step import compiled_step
from training.test_compiled import make_data, make_fleet
from variants import COMPILED, NONE, using


@pytest.mark.parametrize("told", ["", "trusted", "targets", "trusted and targets"])
@pytest.mark.parametrize("own_clocks", [False, True])
def test_a_gathered_batch_has_the_bits_of_the_whole_tables(told, own_clocks):
    with using((COMPILED or [NONE])[-1]):
        _compare(told, own_clocks)


def _compare(told, own_clocks):
    data, fleet = make_data(3, 20, 11, 3, 2, own_clocks, told=told), make_fleet(3, 3, None)
    rows = torch.stack([torch.randperm(20, generator=torch.Generator().manual_seed(seed))[:9] for seed in range(3)])
    rows[1, -2:] = -1
    one, other = (
        compiled_step(fleet.model, None, each, Objective()) for each in (data, replace(data, sets=torch.arange(3)))
    )
    assert (one is None) == (not COMPILED)
    if one is None:
        return
    for number in (9, 4):  # also with a smaller batch
        direct = [part.clone() for part in one(rows[:, :number].contiguous(), None)]
        gathered = other(rows[:, :number].contiguous(), None)
        assert all(torch.equal(a, b) for a, b in zip(direct, gathered, strict=True))


def test_features_are_reversed_when_they_are_taken():
    data = make_data(2, 7, 6, 2)
    backwards = replace(data, backwards=True)
    order = reversal(data.mask)
    expected = data.features[torch.arange(7)[:, None], order]
    assert torch.equal(backwards.take_features(slice(2, 5)), expected[2:5])
    rows = torch.tensor([[3, 1], [0, 6]])
    assert torch.equal(backwards.batch(rows).features, expected[rows])
    assert torch.equal(data.batch(rows).features, data.features[rows])
