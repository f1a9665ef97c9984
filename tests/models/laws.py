"""What must hold for every model of the true label, whatever is inside it.

A law that takes `make_model` is given a function from the number of members to a new model that is not yet
initialised and reads `N_FEATURES` features (or `n_features`, where the law is told so).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labeltide._fleet import member_generators
from labeltide.models.base import SequenceModel

N_FEATURES = 3
N_STEPS = 9
LENGTHS = (9, 6, 1)  # of the three sequences that each member reads

MakeModel = Callable[[int], SequenceModel]


def started(model: SequenceModel, seeds: Sequence[int] | None = None) -> SequenceModel:
    """The model with starting values, the m-th member's from seed m."""
    return model.initialise(member_generators(range(model.members) if seeds is None else seeds))


def make_features(members: int, n_features: int = N_FEATURES, seed: int = 0) -> Tensor:
    """Features of shape (members, sequences, steps, features), different for every member."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(members, len(LENGTHS), N_STEPS, n_features, generator=generator)


def ragged_mask(members: int) -> Tensor:
    """True on the real steps of sequences of `LENGTHS`."""
    return (torch.arange(N_STEPS) < torch.tensor(LENGTHS)[:, None]).expand(members, -1, -1)


def full_mask(features: Tensor) -> Tensor:
    return torch.ones(features.shape[:3], dtype=torch.bool)


def run(model: SequenceModel, features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Logits without gradients, in evaluation mode."""
    with torch.no_grad():
        return model.eval()(features, full_mask(features) if mask is None else mask)


def assert_close(left: Tensor, right: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(left, right, atol=atol, rtol=1e-4)


def assert_causal(model: SequenceModel, n_features: int = N_FEATURES) -> None:
    """Changing the future never changes the past, and the model says so."""
    assert model.is_causal
    features = make_features(model.members, n_features)
    before = run(model, features)
    for step in range(1, N_STEPS):
        changed = features.clone()
        changed[:, :, step:] = make_features(model.members, n_features, seed=1)[:, :, step:]
        assert_close(run(model, changed)[:, :, :step], before[:, :, :step], atol=1e-6)


def assert_looks_ahead(model: SequenceModel, n_features: int = N_FEATURES) -> None:
    """Changing the last step changes the one before it, and the model says so."""
    assert not model.is_causal
    features = make_features(model.members, n_features)
    changed = features.clone()
    changed[:, :, -1] += 1
    moved = (run(model, changed) - run(model, features))[:, :, -2].abs().amax(-1)  # (members, sequences)
    assert (moved > 1e-6).all()


def assert_padding_never_matters(model: SequenceModel, n_features: int = N_FEATURES) -> None:
    """What stands on padding changes neither the logits nor the gradients of real steps."""
    features, mask = make_features(model.members, n_features), ragged_mask(model.members)
    other = torch.where(mask[..., None], features, 100.0)
    logits = run(model, features, mask)
    assert torch.isfinite(logits).all()
    assert_close(run(model, other, mask)[mask], logits[mask], atol=1e-6)
    for one, two in zip(_gradients(model, features, mask), _gradients(model, other, mask), strict=True):
        assert_close(one, two)


def _gradients(model: SequenceModel, features: Tensor, mask: Tensor) -> list[Tensor]:
    loss = model.eval()(features, mask)[mask].square().sum()
    parameters = list(model.parameters())
    return list(torch.autograd.grad(loss, parameters)) if parameters else []


def assert_members_do_not_mix(make_model: MakeModel, n_features: int = N_FEATURES) -> None:
    """Features and parameters of the second of three members reach the second member's logits only."""
    model, features = started(make_model(3)), make_features(3, n_features)
    mask, before = ragged_mask(3), run(model, features, ragged_mask(3))
    changed = features.clone()
    changed[1] += 1
    _assert_only_second_moved(run(model, changed, mask), before)
    _assert_gradients_stay_home(model, features, mask)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[1] += 0.1
    _assert_only_second_moved(run(model, features, mask), before)


def _assert_only_second_moved(after: Tensor, before: Tensor) -> None:
    assert_close(after[[0, 2]], before[[0, 2]], atol=1e-6)
    assert not torch.allclose(after[1], before[1], atol=1e-4)


def _assert_gradients_stay_home(model: SequenceModel, features: Tensor, mask: Tensor) -> None:
    parameters = list(model.parameters())
    first_member = model(features, mask)[0].square().sum()
    for gradient in torch.autograd.grad(first_member, parameters):
        assert (gradient[1:] == 0).all()


def assert_member_equals_alone(make_model: MakeModel, n_features: int = N_FEATURES) -> None:
    """Each member of a fleet gives what it gives as a fleet of one, gradients included."""
    model, features, mask = started(make_model(3)), make_features(3, n_features), ragged_mask(3)
    logits, gradients = run(model, features, mask), _gradients(model, features, mask)
    for m in range(3):
        alone = model.member(m)
        assert alone.members == 1
        rows = slice(m, m + 1)
        assert_close(run(alone, features[rows], mask[rows]), logits[rows])
        for one, all_ in zip(_gradients(alone, features[rows], mask[rows]), gradients, strict=True):
            assert_close(one, all_[rows], atol=1e-4)


def assert_starts_alike_in_any_fleet(make_model: MakeModel) -> None:
    """A seed gives the same starting values alone and beside others, and other seeds give others."""
    fleet, alone = started(make_model(3), seeds=[5, 6, 7]), started(make_model(1), seeds=[6])
    assert alone.state_dict().keys() == fleet.state_dict().keys()
    for name, value in alone.state_dict().items():
        assert torch.equal(value[0], fleet.state_dict()[name][1])
    assert any(not torch.equal(value[0], value[1]) for value in fleet.state_dict().values())


def assert_works_on_views_of_one_buffer(make_model: MakeModel, n_features: int = N_FEATURES) -> None:
    """Parameters may be non-contiguous views into one (members, everything) buffer, as in training."""
    model, features, mask = started(make_model(3)), make_features(3, n_features), ragged_mask(3)
    before, gradients = run(model, features, mask), _gradients(model, features, mask)
    parameters = list(model.parameters())
    buffer = torch.cat([parameter.detach().flatten(1) for parameter in parameters], 1)
    pieces = buffer.split([parameter[0].numel() for parameter in parameters], 1)
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data = piece.unflatten(1, parameter.shape[1:])
    assert_close(run(model, features, mask), before, atol=1e-6)
    for one, two in zip(_gradients(model, features, mask), gradients, strict=True):
        assert_close(one, two, atol=1e-4)


def assert_obeys_every_law(make_model: MakeModel, n_features: int = N_FEATURES) -> None:
    """All laws that hold for causal models and for those that look ahead."""
    assert_padding_never_matters(started(make_model(3)), n_features)
    assert_members_do_not_mix(make_model, n_features)
    assert_member_equals_alone(make_model, n_features)
    assert_starts_alike_in_any_fleet(make_model)
    assert_works_on_views_of_one_buffer(make_model, n_features)
