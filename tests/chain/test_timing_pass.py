"""The chain with timing errors agrees with an enumeration of all true labels and all offsets."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

from chains import annotator_path, make_case, normal
from labeltide.chain.data import Members
from labeltide.chain.plain import plain_pass
from labeltide.chain.timing import no_offsets
from labeltide.chain.timing_expect import TimedChains, expect_timing, timing_log_likelihood
from labeltide.chain.timing_states import class_pairs, longest_offset, make_states, transition_weights


def enumerate_row(data, members, parameters, member, row):
    """Likelihood, posterior of the true labels and expected offsets of one row, by summing over everything."""
    chain, offsets = parameters
    n_classes, length = data.n_classes, int(data.mask[row].sum())
    reach = offsets.shape[-1] // 2
    place = {pair: k for k, pair in enumerate(class_pairs(n_classes))}
    labels = data.labels[members.labels[member], row]
    evidence = torch.zeros(length, n_classes) if data.evidence is None else data.evidence[members.evidence[member], row]
    powers = data.transitions(chain.transition)[member]
    features, total, posterior, counts = 0.0, 0.0, torch.zeros(length, n_classes), torch.zeros_like(offsets[member, 0])
    for truth in product(range(n_classes), repeat=length):
        if any(data.trusted[row, t] not in (-1, y) for t, y in enumerate(truth)):
            continue
        prior = (chain.start[member] * (chain.power[member] * evidence[0]).exp())[truth[0]]
        for t in range(1, length):
            gap = powers[0 if data.jumps is None else int(data.jumps[row, t])]
            prior = prior * (gap[truth[t - 1]] * (chain.power[member] * evidence[t]).exp())[truth[t]]
        features += prior
        moves = [place[pair] for pair in pairwise(truth) if pair[0] != pair[1]]
        for shifts in product(range(-reach, reach + 1), repeat=len(moves)):
            weight = prior
            for move, shift in zip(moves, shifts, strict=True):
                weight = weight * offsets[member, 0, move, shift + reach]
            for t, z in enumerate(annotator_path(truth, shifts)):
                if labels[t, 0] >= 0:
                    weight = weight * chain.matrices[member, 0, data.places()[row, t], z, labels[t, 0]]
            total += weight
            for t, y in enumerate(truth):
                posterior[t, y] += weight
            for move, shift in zip(moves, shifts, strict=True):
                counts[move, shift + reach] += weight
    return (total / features).log(), posterior / total, counts / total


def random_offsets(members, n_classes, reach, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return normal(torch.rand(members, 1, n_classes * (n_classes - 1), 2 * reach + 1, generator=generator) + 0.05)


@pytest.mark.parametrize(("classes", "steps", "reach", "jumps"), [(2, 6, 2, False), (2, 5, 3, True), (3, 4, 1, False)])
def test_the_pass_agrees_with_enumeration(classes, steps, reach, jumps):
    data, members, chain = make_case(3, rows=2, steps=steps, classes=classes, points=3, jumps=jumps)
    parameters = TimedChains(chain, random_offsets(2, classes, reach))
    weighted = expect_timing(data, members, parameters)
    moved = torch.zeros_like(parameters.offsets)
    for member, row in product(range(2), range(2)):
        log_likelihood, posterior, counts = enumerate_row(data, members, parameters, member, row)
        assert torch.allclose(weighted.log_likelihood[member, row], log_likelihood, atol=1e-4)
        length = len(posterior)
        assert torch.allclose(weighted.posterior[member, row, :length], posterior, atol=1e-4)
        assert not weighted.posterior[member, row, length:].any()
        moved[member, 0] += members.weights[member, row] * counts
    assert torch.allclose(weighted.offsets, moved, atol=1e-4)


@pytest.mark.parametrize("annotators", [1, 2])
def test_without_offsets_and_evidence_it_is_the_chain(annotators):
    data, members, chain = make_case(
        5, rows=6, steps=9, classes=3, annotators=annotators, groups=annotators, evidence=False, jumps=True
    )
    data.trusted[:] = -1
    timed = expect_timing(data, members, TimedChains(chain, no_offsets(2, 3)))
    plain = plain_pass(data, members, chain, posterior=True)
    for name in ("log_likelihood", "counts", "posterior"):
        assert torch.allclose(getattr(timed, name), getattr(plain, name), rtol=1e-3, atol=1e-4), name
    for name in ("starts", "pairs"):
        assert torch.allclose(getattr(timed, name), getattr(plain, name)[:, 0], rtol=1e-3, atol=1e-4), name


def test_all_recorded_labels_have_probability_one_together():
    data, _, chain = make_case(7, rows=2**5, steps=5, classes=2, points=5, evidence=True)
    every = torch.tensor(list(product(range(2), repeat=5)), dtype=torch.int8)
    data.labels[:] = every[:, :, None]
    data.mask[:], data.trusted[:] = True, -1
    data.evidence[:] = data.evidence[:, :1]
    members = Members(torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), torch.ones(2, 32))
    parameters = TimedChains(chain, random_offsets(2, 2, 3))
    assert torch.allclose(timing_log_likelihood(data, members, parameters).exp().sum(1), torch.ones(2), atol=1e-4)


def test_each_row_has_the_offsets_of_its_annotator():
    data, members, chain = make_case(9, rows=4, steps=6, annotators=2, groups=2)
    data.labels[:, :2, :, 1] = -1
    data.labels[:, 2:, :, 0] = -1
    offsets = torch.cat([random_offsets(2, 2, 2, seed) for seed in (1, 2)], 1)
    both = timing_log_likelihood(data, members, TimedChains(chain, offsets))
    for annotator, rows in enumerate((slice(0, 2), slice(2, 4))):
        alone = timing_log_likelihood(data, members, TimedChains(chain, offsets[:, annotator : annotator + 1]))
        assert torch.allclose(both[:, rows], alone[:, rows])


@pytest.mark.parametrize(("classes", "reach"), [(2, 8), (3, 8), (4, 5), (5, 3), (8, 1), (9, 0)])
def test_the_longest_offset_keeps_the_states_few(classes, reach):
    assert longest_offset(classes) == reach


def test_blocks_of_states_have_equal_size_and_one_true_label():
    states = make_states(3, 2)
    assert torch.equal(states.truth.view(3, -1), torch.arange(3)[:, None].expand(-1, states.block))
    assert transition_weights(states, random_offsets(2, 3, 2)[:, 0]).shape == (2, 27, 27)
