import pytest
import torch

from labeltide.training.state import AugmentedLagrangian, TrainingState, flatten_parameters
from oracles import adam_path
from variants import using

MEMBERS, SIZE, STEPS = 3, 11, 6


def draw(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_state(rate=0.01):
    return TrainingState.start(draw(MEMBERS, SIZE), rate)


def everyone():
    return torch.ones(MEMBERS, dtype=torch.bool)


def test_adam_equals_torch_for_each_member_alone():
    state, start = make_state(), draw(MEMBERS, SIZE)
    rates = [0.01, 0.1, 0.001]
    state.rate = torch.tensor(rates)[:, None]
    scales = torch.tensor([0.1, 1.0, 100.0])[:, None]  # the last one is clipped at every step
    gradients = [scales * draw(MEMBERS, SIZE, seed=1 + step) for step in range(STEPS)]
    paths = [adam_path(start[m], [g[m] for g in gradients], rates[m], clip=5.0) for m in range(MEMBERS)]
    for step in range(STEPS):
        state.adam(gradients[step], everyone(), torch.ones(SIZE), clip=5.0)
        for m in range(MEMBERS):
            torch.testing.assert_close(state.parameters[m], paths[m][step], atol=2e-6, rtol=1e-5)


def test_group_factor_scales_the_rate_of_its_parameters():
    state, start, gradient = make_state(), draw(MEMBERS, SIZE), draw(MEMBERS, SIZE, seed=1)
    factor = torch.ones(SIZE)
    factor[4:] = 0.25
    state.adam(gradient, everyone(), factor, clip=1e9)
    for m in range(MEMBERS):
        fast = adam_path(start[m], [gradient[m]], 0.01, 1e9)[0]
        slow = adam_path(start[m], [gradient[m]], 0.0025, 1e9)[0]
        torch.testing.assert_close(state.parameters[m], torch.cat([fast[:4], slow[4:]]))


def test_members_that_do_not_take_part_do_not_move_and_do_not_count_the_step():
    state, start = make_state(), draw(MEMBERS, SIZE)
    gradients = [draw(MEMBERS, SIZE, seed=1 + step) for step in range(4)]
    for step, gradient in enumerate(gradients):
        taking_part = torch.tensor([True, step % 2 == 0, False])
        state.adam(gradient, taking_part, torch.ones(SIZE), clip=5.0)
    assert torch.equal(state.parameters[2], start[2])
    torch.testing.assert_close(state.parameters[0], adam_path(start[0], [g[0] for g in gradients], 0.01, 5.0)[-1])
    torch.testing.assert_close(state.parameters[1], adam_path(start[1], [g[1] for g in gradients[::2]], 0.01, 5.0)[-1])
    assert state.count.flatten().tolist() == [4, 2, 0]


def test_an_idle_member_may_have_any_gradient():
    state, start = make_state(), draw(MEMBERS, SIZE)
    gradient = draw(MEMBERS, SIZE, seed=1)
    gradient[2] = torch.nan
    state.adam(gradient, torch.tensor([True, True, False]), torch.ones(SIZE), clip=5.0)
    assert torch.equal(state.parameters[2], start[2])
    assert not state.diverged.any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_gradient_marks_its_member_only_and_rolls_it_back_at_half_the_rate(bad):
    state, start = make_state(), draw(MEMBERS, SIZE)
    gradients = [draw(MEMBERS, SIZE, seed=1 + step) for step in range(4)]
    gradients[2][1, 3] = bad
    for gradient in gradients:  # one epoch
        state.adam(gradient, everyone(), torch.ones(SIZE), clip=5.0)
    assert state.diverged.tolist() == [False, True, False]
    lost = state.restart_diverged(max_restarts=8)
    assert lost.tolist() == [False, True, False]
    assert torch.equal(state.parameters[1], start[1])
    assert state.rate.flatten().tolist() == pytest.approx([0.01, 0.005, 0.01])
    assert state.restarts.tolist() == [0, 1, 0]
    assert state.active.all()
    assert not state.diverged.any()
    for m in (0, 2):
        torch.testing.assert_close(state.parameters[m], adam_path(start[m], [g[m] for g in gradients], 0.01, 5.0)[-1])
    again = [draw(MEMBERS, SIZE, seed=10 + step) for step in range(2)]
    for gradient in again:
        state.adam(gradient, everyone(), torch.ones(SIZE), clip=5.0)
    fresh = adam_path(start[1], [g[1] for g in again], 0.005, 5.0)[-1]  # with no memory of the bad epoch
    torch.testing.assert_close(state.parameters[1], fresh)


def test_parameters_that_are_not_finite_count_as_diverged():
    state = make_state()
    start = state.parameters.clone()
    state.parameters[2, 0] = torch.inf
    assert state.restart_diverged(max_restarts=8).tolist() == [False, False, True]
    assert torch.equal(state.parameters, start)


def test_a_member_is_frozen_after_its_last_restart():
    state = make_state()
    for times in range(1, 4):
        state.diverged[0] = True
        state.restart_diverged(max_restarts=2)
        assert state.restarts[0] == times
        assert state.active.tolist() == [times <= 2, True, True]


def test_keep_best_remembers_the_best_and_stops_those_that_waited():
    state = make_state()
    scores = torch.tensor(
        [[3.0, 3.0, 3.0], [2.0, 4.0, torch.inf], [2.5, 5.0, 2.0], [1.0, 6.0, torch.inf], [0.5, 1.0, 2.5]]
    )
    snapshots = []
    for epoch, row in enumerate(scores, 1):
        state.parameters.copy_(draw(MEMBERS, SIZE, seed=epoch))
        snapshots.append(state.parameters.clone())
        state.epoch = epoch
        state.keep_best(row, patience=3)
    assert state.best_score.tolist() == [0.5, 3.0, 2.0]
    assert state.best_epoch.tolist() == [5, 1, 3]
    assert state.active.tolist() == [True, False, True]  # the second one stopped before its best score came
    for m, epoch in enumerate([5, 1, 3]):
        assert torch.equal(state.best[m], snapshots[epoch - 1][m])


def test_flattened_parameters_are_views_of_one_buffer():
    module = torch.nn.ParameterList([draw(MEMBERS, 2, 3), draw(MEMBERS, 4, seed=1)])
    before = [p.detach().clone() for p in module]
    flat = flatten_parameters(module, MEMBERS)
    assert flat.shape == (MEMBERS, 10)
    for parameter, old in zip(module, before, strict=True):
        assert torch.equal(parameter, old)
    flat.add_(1)
    for parameter, old in zip(module, before, strict=True):
        assert torch.equal(parameter, old + 1)


def test_scalar_parameters_can_be_flattened():
    module = torch.nn.ParameterList([draw(MEMBERS, 2), draw(MEMBERS, seed=1)])
    flat = flatten_parameters(module, MEMBERS)
    assert flat.shape == (MEMBERS, 3)
    assert module[1].shape == (MEMBERS,)


def test_every_tensor_is_named_once_for_the_checkpoint():
    state = make_state()
    assert "epoch" not in state.tensors()
    assert all(len(value) == MEMBERS for value in state.tensors().values())
    assert state.tensors()["parameters"] is state.parameters


@pytest.mark.usefixtures("compiled_variant")
def test_compiled_adam_equals_the_plain_one():
    states = [make_state(), make_state()]
    factor = torch.linspace(0.5, 1.0, SIZE)
    for number in range(4):
        gradients = draw(MEMBERS, SIZE, seed=number) * 10.0 ** (number - 1)
        if number == 2:
            gradients[1, 0] = torch.nan
        taking_part = torch.arange(MEMBERS) != number
        states[0].adam(gradients, taking_part, factor, 1.0)
        with using("torch"):
            states[1].adam(gradients, taking_part, factor, 1.0)
    for name, value in vars(states[0]).items():
        torch.testing.assert_close(value, getattr(states[1], name))


def test_a_member_without_loss_stops_after_its_round():
    state = make_state()
    state.next_round(AugmentedLagrangian(), torch.tensor([0.3, 0.0, torch.nan]))
    assert state.active.tolist() == [True, False, True]
