"""EM climbs, finds what was simulated, and chooses families by rows left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.em import (
    POWER_CENTRE,
    choose_noise,
    find_pieces,
    fit_chains,
    flat_chain,
    join_evidence,
    keep_dominant,
    label_chain,
    power_log_prior,
    power_unit,
)
from labeltide.chain.families import (
    constant_shape,
    families_of,
    family,
    pieces_shape,
    spline_shape,
    wave_shape,
)
from labeltide.chain.passes import ChainData, Members, expect, informedness

STEPS = 30
GRID = np.linspace(0, 1, STEPS)


def study(shape: str, n=120, n_classes=2, stay=0.9, seed=0):
    """Recorded labels of persistent true ones, as a chain sees them, with one fit."""
    true = lt.make_sequences(n=n, n_steps=STEPS, n_features=2, n_classes=n_classes, stay=stay, random_state=seed)
    noise = lt.make_noise(shape, n_classes=n_classes, n_steps=STEPS, rate=0.25)
    recorded = lt.corrupt(true.labels, noise, random_state=seed)
    data = ChainData(torch.tensor(recorded)[None], torch.ones(n, STEPS, dtype=torch.bool), None, STEPS, n_classes)
    fits = Members(torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), torch.ones(1, n))
    return data, fits, np.asarray(noise), true.labels[..., 0]


def frobenius(one, two):
    return float(np.sqrt(((np.asarray(one) - np.asarray(two)) ** 2).sum((-1, -2))).mean())


@pytest.mark.parametrize("with_evidence", [False, True])
def test_every_iteration_raises_the_likelihood(with_evidence):
    data, fits, _, truth = study("growth")
    if with_evidence:
        right = torch.nn.functional.one_hot(torch.tensor(truth).long(), 2).float()
        data = data.with_evidence((0.3 + 0.4 * right).log()[None])
    kinds = families_of([family(2, constant_shape(GRID), "each")])
    chain, reached = flat_chain(1, 1, data, 0.8), []
    for _ in range(12):
        fitted = fit_chains(data, fits, kinds, chain, iterations=1, learn_power=with_evidence)
        chain = fitted.parameters
        reached.append(float(fitted.log_likelihood.sum()))
    assert np.all(np.diff(reached) > -0.05)  # pseudo-counts and the ridge cost a trifle


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_alone_show_the_noise_where_they_persist(n_classes):
    data, fits, noise, truth = study("growth", n=300, n_classes=n_classes, stay=0.95)
    chain = label_chain(data, fits, GRID)
    assert frobenius(chain.matrices[0, 0], noise) < 0.15
    posterior = expect(data, fits, chain, posterior=True).posterior[0].argmax(-1).numpy()
    assert (posterior != truth).mean() < 0.7 * (data.labels[0, ..., 0].numpy() != truth).mean()


def test_states_keep_the_names_of_their_labels():
    data, fits, _, _ = study("static", n_classes=3)
    matrices = label_chain(data, fits, GRID).matrices[0, 0].mean(0)
    assert matrices.argmax(-1).tolist() == [0, 1, 2]


def test_no_class_is_recorded_more_often_as_another_than_as_itself():
    generator = np.random.default_rng(0)
    shares, stay = np.array([0.62, 0.3, 0.07, 0.01]), np.array([0.9, 0.9, 0.6, 0.5])
    true = generator.choice(4, (80, 60), p=shares)
    for t in range(1, 60):
        kept = generator.random(80) < stay[true[:, t - 1]]
        true[:, t] = np.where(kept, true[:, t - 1], true[:, t])
    wrong = generator.random(true.shape) < 0.3
    recorded = np.where(wrong, (true + generator.integers(1, 4, true.shape)) % 4, true)
    data = ChainData(
        torch.tensor(recorded.astype(np.int8))[None, ..., None], torch.ones(80, 60, dtype=torch.bool), None, 60, 4
    )
    fits = Members(torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), torch.ones(1, 80))
    matrices = label_chain(data, fits, np.linspace(0, 1, 60)).matrices[0, 0]
    right = matrices.diagonal(dim1=-2, dim2=-1)
    assert bool((matrices <= right[..., None] + 1e-6).all())


def test_rows_that_are_mostly_wrong_become_the_likeliest_that_are_not():
    counts = torch.tensor([[[5.0, 20, 3], [0, 9, 1], [8, 6, 1]]], dtype=torch.float64)
    kept = keep_dominant(counts / counts.sum(-1, keepdim=True))
    expected = torch.tensor([[[12.5, 12.5, 3], [0, 9, 1], [5, 5, 5]]], dtype=torch.float64)
    assert torch.allclose(kept, expected / expected.sum(-1, keepdim=True))
    assert torch.equal(keep_dominant(kept), kept)


def test_evidence_counts_for_what_it_is_worth():
    data, fits, _, truth = study("growth")
    right = torch.nn.functional.one_hot(torch.tensor(truth).long(), 2).float()
    telling = data.with_evidence((0.1 + 0.8 * right).log()[None])
    empty = data.with_evidence(torch.randn(1, *right.shape, generator=torch.Generator().manual_seed(0)).log_softmax(-1))
    chain = label_chain(data, fits, GRID)
    powers = [float(join_evidence(given, fits, chain, GRID).power) for given in (telling, empty)]
    assert powers[0] > 0.7
    assert powers[1] < 0.2


@pytest.mark.parametrize(("shape", "wanted"), [("static", "static"), ("growth", "spline"), ("mixed", "each")])
def test_the_family_that_made_the_noise_is_found(shape, wanted):
    data, fits, noise, _ = study(shape, n=250, stay=0.95)
    folds = torch.arange(250)[None] % 5
    chosen = choose_noise(data, fits, label_chain(data, fits, GRID), folds, GRID)
    weights = {tried.name: tried.weight for tried in chosen.weighted(0)}
    assert sum(weights.values()) == pytest.approx(1)
    assert sum(weight for name, weight in weights.items() if wanted in name) > 0.2
    assert frobenius(chosen.parameters.matrices[0, 0], noise) < 0.1


def test_a_jump_is_found_where_it_is():
    counts = np.full((20, 2, 2), 5.0)
    counts[:, [0, 1], [0, 1]] = np.where(np.arange(20) < 8, 95, 40)[:, None]
    assert find_pieces(counts, 2).tolist() == [0] * 8 + [1] * 12
    assert find_pieces(np.zeros((5, 2, 2)), 3).tolist() == [0] * 5


def test_rounding_moves_no_change_point():
    counts = np.full((8, 2, 2), 2.5)  # ten labels a point: twenty on either side are reached exactly
    counts[2:, 0] += [1.0, -1.0]
    expected = find_pieces(counts, 3)
    for seed in range(20):
        shaken = counts * (1 + 1e-7 * np.random.default_rng(seed).normal(size=counts.shape))
        np.testing.assert_array_equal(find_pieces(shaken, 3), expected)


@pytest.mark.parametrize(("level", "movement"), [("alike", "alike"), ("each", "by class"), ("each", "each")])
@pytest.mark.parametrize(
    "shape", [spline_shape(GRID, 1.0), wave_shape(GRID, 0.5), pieces_shape(np.arange(STEPS) // 10)]
)
def test_newton_finds_the_noise_behind_exact_counts(shape, level, movement):
    kinds = families_of([family(3, shape, level, movement)])
    generator = torch.Generator().manual_seed(1)
    size = kinds.groups[0].blocks.n_blocks * kinds.groups[0].blocks.size
    true = [0.4 * torch.randn(1, 1, size, generator=generator, dtype=torch.float64)]
    wanted = kinds.noise(true)
    found = kinds.fit_start(torch.full_like(wanted, 1 / 3))
    for _ in range(20):
        found = kinds.step(found, 1e6 * wanted)
    assert float((kinds.noise(found) - wanted).abs().max()) < 1e-3


def test_a_spline_over_a_ring_ends_where_it_begins():
    grid = np.linspace(0, 24, 49)
    basis = spline_shape(grid, 1.0, period=24.0).basis
    np.testing.assert_allclose(basis[0], basis[-1], atol=1e-9)
    np.testing.assert_allclose(basis.sum(1), 1)


def test_families_tried_in_parts_are_those_tried_at_once(monkeypatch):
    from labeltide.chain import em

    study = lt.make_sequences(n=30, n_steps=STEPS, n_features=2, stay=0.8, random_state=0)
    labels = torch.from_numpy(study.labels.astype(np.int8).reshape(1, 30, STEPS, -1))
    mask = torch.ones(labels.shape[1:3], dtype=torch.bool)
    data = ChainData(labels, mask, None, STEPS, int(study.labels.max()) + 1)
    zero = torch.zeros(1, dtype=torch.int64)
    fits, folds = Members(zero, zero, torch.ones(1, 30)), (torch.arange(30) % 5)[None]
    start = label_chain(data, fits, GRID)
    whole = choose_noise(data, fits, start, folds, GRID)
    monkeypatch.setattr(em, "NUMBERS_AT_ONCE", 1)
    parts = choose_noise(data, fits, start, folds, GRID)
    assert [tried.name for tried in whole.weighted(0)] == [tried.name for tried in parts.weighted(0)]
    torch.testing.assert_close(whole.weights, parts.weights, rtol=0, atol=1e-2)
    torch.testing.assert_close(whole.parameters.matrices, parts.parameters.matrices, rtol=0, atol=1e-4)


def test_the_prior_holds_the_power_where_labels_are_few_and_not_where_they_are_many(monkeypatch):
    few, many = (power_of_careful_evidence(n) for n in (2, 200))
    monkeypatch.setattr("labeltide.chain.em.POWER_SCALE", 100.0)
    free_few, free_many = (power_of_careful_evidence(n) for n in (2, 200))
    assert POWER_CENTRE < few < 0.8 * free_few
    assert many > 0.9 * free_many > 4
    assert power_log_prior(torch.tensor(POWER_CENTRE)) == 0


def power_of_careful_evidence(n):
    """The power of probabilities ten times as careful as calibrated ones."""
    data, fits, _, true = study("static", n=n, stay=0.5)
    sure = 3 * (2.0 * torch.tensor(true) - 1) + torch.randn(true.shape, generator=torch.Generator().manual_seed(0))
    evidence = torch.nn.functional.logsigmoid(torch.stack([-sure, sure], -1) / 10)
    data = data.with_evidence(evidence[None])
    kinds = families_of([family(2, constant_shape(GRID), "each")])
    start = flat_chain(1, 1, data)
    return float(fit_chains(data, fits, kinds, start, iterations=40, learn_power=True).parameters.power[0])


def test_informedness_is_one_without_noise_and_zero_for_labels_at_random():
    right, random = torch.eye(3), torch.full((3, 3), 1 / 3)
    matrices = torch.stack([right, random, (right + random) / 2])[:, None, None].expand(3, 2, 4, 3, 3)
    torch.testing.assert_close(informedness(matrices), torch.tensor([1.0, 0.0, 0.5]))


def test_the_prior_of_the_power_follows_the_noise_that_networks_were_trained_with():
    data, fits, _, _ = study("static", n=5)
    noisy = flat_chain(1, 1, data).matrices  # a quarter is wrong: informedness one half
    evidence = torch.zeros(1, *data.mask.shape, 2)
    untold = data.with_evidence(evidence)
    told = data.with_evidence(evidence, informedness(noisy))
    assert power_unit(untold, fits, torch.eye(2).expand_as(noisy)) == 1
    assert power_unit(told, fits, noisy) == 1
    assert power_unit(told, fits, torch.eye(2).expand_as(noisy)) == 0.5
    assert power_log_prior(torch.tensor(POWER_CENTRE / 2), 0.5) == 0
    assert told.of_fit(0).trained_with == 0.5


def test_the_noise_is_drawn_less_to_that_of_training_where_labels_do_not_persist():
    """Networks trained as if a quarter of clean labels were wrong are too sure; Q must not follow them."""
    generator = np.random.default_rng(0)
    true = generator.integers(2, size=(300, 1))
    signal = generator.normal(size=true.shape) + true
    logit = torch.from_numpy(signal - 0.5).float()
    sure = torch.stack([-logit, logit], -1).log_softmax(-1)  # twice the logit of the true class
    data = ChainData(
        torch.from_numpy(true.astype(np.int8))[None, ..., None], torch.ones(300, 1, dtype=torch.bool), None, 1, 2
    )
    fits = Members(*torch.zeros(2, 1, dtype=torch.long), torch.ones(1, 300))
    kinds = families_of([family(2, constant_shape(np.zeros(1)), "each")])
    messages = []
    for trained in (None, informedness(flat_chain(1, 1, data).matrices)):
        told = data.with_evidence(sure[None], trained)
        start = flat_chain(1, 1, told)
        fitted = fit_chains(told, fits, kinds, start, iterations=200, learn_power=True)
        messages.append(1 - float(fitted.parameters.matrices.diagonal(dim1=-2, dim2=-1).mean()))
    assert messages[1] < 0.8 * messages[0]
