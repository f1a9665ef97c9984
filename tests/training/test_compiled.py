"""The compiled step measures what the objective and autograd do."""

from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labeltide._fleet import member_generators
from labeltide.models.gru import GRUModel
from labeltide.noise.functions import NetworkNoise, StaticNoise
from labeltide.training import Fleet, FleetData, Schedule
from labeltide.training.objective import Multipliers, Objective, Penalty, diagonal_norm, frobenius, log_volume, spread
from labeltide.training.state import TrainingState, flatten_parameters, join_flat, learned_parameters
from labeltide.training.step import TrainingStep, compiled_step
from variants import using

compiled = pytest.mark.usefixtures("compiled_variant")
PENALTIES = (
    Penalty("frobenius", frobenius, 1.0),
    Penalty("diagonal", diagonal_norm, 0.3),
    Penalty("v", log_volume, 0.1),
)


def make_data(members, table, steps, classes, annotators=1, own_clocks=False, seed=0, told=""):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, steps + 1, (table, 1), generator=generator)
    trusted = torch.randint(-1, classes, (table, steps), generator=generator).to(torch.int8)
    targets = torch.rand(members, table, steps, classes, generator=generator)  # of any sum
    targets *= torch.rand(members, table, steps, 1, generator=generator) < 0.8
    return FleetData(
        features=torch.randn(table, steps, 3, generator=generator),
        mask=torch.arange(steps) < lengths,
        labels=torch.randint(-1, classes, (members, table, steps, annotators), generator=generator).to(torch.int8),
        grid=torch.linspace(0, 1, 7 if own_clocks else steps, dtype=torch.float64),
        points=torch.randint(0, 7, (table, steps), generator=generator) if own_clocks else None,
        weights=torch.rand(members, table, generator=generator).round(decimals=1),
        held_out=torch.zeros(members, table, dtype=torch.bool),
        trusted=trusted if "trusted" in told else None,
        targets=targets if "targets" in told else None,
    )


def make_fleet(members, classes, noise=NetworkNoise, annotators=1, tied=False):
    """Annotators above one have an own Q each, and differ; those of the first member may be tied."""
    generators = member_generators(range(members))
    model = GRUModel(members, 3, classes).initialise(generators)
    if noise is not None:
        noise = noise(members, classes, annotators=annotators) if annotators > 1 else noise(members, classes)
        noise.initialise(generators)
    fleet = Fleet(model, noise)
    flat = flatten_parameters(fleet, members)
    if annotators > 1:
        flat += 0.01 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(0))
        noise.tied[0] = tied
    return fleet


@torch.no_grad()
def is_smooth(noise, grid):
    """Whether no hidden unit of Q's network lies at the kink of its ReLU, where rounding decides about the gradient."""
    if not isinstance(noise, NetworkNoise):
        return True
    hidden = noise._scaled(grid.reshape(1, -1, 1)).expand(noise.members * noise.annotators, -1, -1)
    for layer in noise.layers:
        before = layer(hidden)
        if before.abs().min() < 1e-6:
            return False
        hidden = before.relu()
    return True


def by_autograd(fleet, data, objective, rows, multipliers):
    with using("torch"):
        scored = fleet.score(data, data.batch(rows), objective, multipliers)
        pieces = torch.autograd.grad(
            scored.total.sum(), learned_parameters(fleet), allow_unused=True, materialize_grads=True
        )
    return scored.data * scored.labels, scored.labels, join_flat(pieces)


@compiled
@settings(max_examples=60, deadline=None)
@given(
    members=st.integers(1, 3),
    batch=st.integers(1, 20),
    steps=st.integers(1, 20),
    classes=st.integers(2, 4),
    annotators=st.integers(1, 3),
    noise=st.sampled_from([None, StaticNoise, NetworkNoise, "own", "own, tied"]),
    own_clocks=st.booleans(),
    told=st.sampled_from(["", "trusted", "targets", "trusted and targets"]),
    multiplied=st.booleans(),
    filled=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_compiled_step_equals_autograd(
    members, batch, steps, classes, annotators, noise, own_clocks, told, multiplied, filled, seed
):
    data = make_data(members, 20, steps, classes, annotators, own_clocks, seed, told)
    if str(noise).startswith("own"):
        fleet = make_fleet(members, classes, NetworkNoise, annotators, tied="tied" in noise)
    else:
        fleet = make_fleet(members, classes, noise)
    assume(is_smooth(fleet.noise, data.grid))
    objective = Objective(penalties=PENALTIES)
    if fleet.noise is not None and fleet.noise.annotators > 1:
        drawn = torch.rand(members, 1 + annotators, generator=torch.Generator().manual_seed(seed))
        pooling = Penalty("pooling", partial(spread, shares=fleet.noise.shares), drawn[:, :1], with_data=True)
        sizes = Penalty("sizes", frobenius, drawn[:, 1:])
        objective = Objective(penalties=(*PENALTIES, pooling, sizes))
    generator = torch.Generator().manual_seed(seed)
    multipliers = Multipliers(*torch.rand(2, members, generator=generator)) if multiplied else None
    rows = torch.stack([torch.randperm(20, generator=generator)[:batch] for _ in range(members)])
    rows[:, max(1, batch - filled) :] = -1
    step = compiled_step(fleet.model, fleet.noise, data, objective)
    for _ in range(2):  # the same memory twice
        measured = step(rows, multipliers)
    for one, other in zip(measured, by_autograd(fleet, data, objective, rows, multipliers), strict=True):
        scale = other.abs().max().clamp_min(1.0)
        torch.testing.assert_close(one / scale, other.detach() / scale, atol=1e-5, rtol=0)


@compiled
@pytest.mark.parametrize("annotators", [1, 3])
@pytest.mark.parametrize("told", ["", "trusted", "targets"])
def test_a_member_gets_the_same_bits_alone_and_in_a_fleet_and_from_any_number_of_threads(told, annotators):
    data, fleet = make_data(3, 40, 21, 2, annotators, told=told), make_fleet(3, 2, annotators=annotators)
    rows = torch.stack([torch.randperm(40)[:30] for _ in range(3)])
    multipliers = Multipliers(torch.ones(3), torch.ones(3))
    alone = Fleet(fleet.model.member(1), fleet.noise.member(1))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            step = compiled_step(fleet.model, fleet.noise, data, Objective(penalties=PENALTIES[:1]))
            results.append([part[1].clone() for part in step(rows, multipliers)])
            step = compiled_step(
                alone.model, alone.noise, data.members_in(slice(1, 2)), Objective(penalties=PENALTIES[:1])
            )
            single = Multipliers(torch.ones(1), torch.ones(1))
            results.append([part[0].clone() for part in step(rows[1:2].contiguous(), single)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@compiled
def test_members_that_have_stopped_are_not_computed_and_change_nothing_for_others():
    data, after = make_data(2, 9, 5, 2, told="targets"), []
    table = torch.arange(9).expand(1, 2, -1).clone()
    for stopped in (False, True):
        fleet = make_fleet(2, 2, None)
        state = TrainingState.start(flatten_parameters(fleet, 2), 0.01)
        state.active[0] = not stopped
        before = state.parameters.clone()
        step = TrainingStep(fleet, data, Objective(), Schedule(), state)
        step.run_epoch(table, 0)
        after.append(state.parameters.clone())
        assert bool(step.compiled.gradients[0].any()) is not stopped
    assert torch.equal(after[1][0], before[0])
    assert torch.equal(after[1][1], after[0][1])


@compiled
def test_weights_that_are_not_finite_reach_the_gradient():
    data, fleet = make_data(2, 9, 5, 2), make_fleet(2, 2)
    with torch.no_grad():
        fleet.model.forwards.weight_hidden[0, 0] = float("nan")
    gradients = compiled_step(fleet.model, fleet.noise, data, Objective())(torch.arange(9).expand(2, -1).clone(), None)[
        2
    ]
    assert not gradients[0].isfinite().all()
    assert gradients[1].isfinite().all()


def test_what_the_compiled_step_is_not_written_for_is_left_to_autograd():
    data, fleet = make_data(2, 9, 5, 2), make_fleet(2, 2)
    assert compiled_step(fleet.model.double(), fleet.noise, data, Objective()) is None
    both_ways = GRUModel(2, 3, 2, causal=False)
    assert compiled_step(both_ways, None, data, Objective()) is None
    fleet = make_fleet(2, 2)
    assert compiled_step(fleet.model, fleet.noise, data, Objective(loss="backward")) is None
    with using("torch"):
        assert compiled_step(fleet.model, fleet.noise, data, Objective()) is None
