"""EM finds the offsets with which labels were recorded."""

from __future__ import annotations

import numpy as np
import torch

from chains import annotator_path
from labeltide.chain.data import ChainData, Members
from labeltide.chain.families import constant_shape, family
from labeltide.chain.logit import Families
from labeltide.chain.start import flat_chain
from labeltide.chain.timing import fit_timing, no_offsets, pool_offsets, start_offsets
from labeltide.chain.timing_expect import TimedChains, expect_timing, likelihood_ratios, timing_log_likelihood
from labeltide.chain.timing_states import MAX_REACH as REACH


def simulate(seed=0, rows=120, steps=50, late=3.0, spread=1.0, wrong=0.1, sharpness=2.0):
    """Labels that persist, recorded late and with independent errors besides, and calibrated evidence."""
    generator = np.random.default_rng(seed)
    moves = generator.random((rows, steps)) < 0.05
    truth = (moves.cumsum(1) + generator.integers(0, 2, (rows, 1))) % 2
    drawn = np.rint(generator.normal(late, spread, (rows, steps))).astype(int).clip(-REACH, REACH)
    seen = np.array([annotator_path(row.tolist(), offsets) for row, offsets in zip(truth, drawn, strict=True)])
    recorded = np.where(generator.random(seen.shape) < wrong, 1 - seen, seen)
    signal = sharpness * (generator.standard_normal(truth.shape) + sharpness * (truth - 0.5))
    evidence = torch.from_numpy(np.stack([-signal / 2, signal / 2], -1)).log_softmax(-1)[None]
    mask = torch.ones(rows, steps, dtype=torch.bool)
    labels = torch.from_numpy(recorded.astype(np.int8))[None, ..., None]
    return ChainData(labels, mask, None, steps, 2, likelihood_ratios(evidence, mask)), truth


def fit(data, iterations=15, **options):
    zero = torch.zeros(1, dtype=torch.int64)
    members = Members(zero, zero, torch.ones(1, len(data.mask)))
    families = Families.of([family(2, constant_shape(np.linspace(0, 1, data.n_points)), "each")])
    chain = flat_chain(1, 1, data, 0.8)
    plain = fit_timing(
        data, members, families, TimedChains(chain, no_offsets(1, 2)), iterations=iterations, learn_offsets=False
    )
    start = TimedChains(plain.chain, start_offsets(REACH).expand(1, 1, 2, -1))
    return members, plain, fit_timing(data, members, families, start, iterations=iterations, **options)


def test_late_labels_are_found_and_put_right():
    data, truth = simulate()
    members, plain, timed = fit(data)
    places = torch.arange(-REACH, REACH + 1)
    mean = (timed.offsets[0, 0] * places).sum(-1)
    spread = ((timed.offsets[0, 0] * places.square()).sum(-1) - mean.square()).sqrt()
    assert ((mean - 3).abs() < 0.4).all()
    assert ((spread - 1).abs() < 0.5).all()
    gain = (timing_log_likelihood(data, members, timed) - timing_log_likelihood(data, members, plain)).sum()
    assert gain > 100
    wrong = [
        (expect_timing(data, members, fitted).posterior[0].argmax(-1).numpy() != truth).mean()
        for fitted in (plain, timed)
    ]
    assert wrong[1] < wrong[0] / 4


def test_labels_in_time_have_no_offset():
    data, _ = simulate(late=0.0, spread=0.0)
    members, plain, timed = fit(data)
    assert (timed.offsets[0, 0, :, REACH] > 0.85).all()
    gain = (timing_log_likelihood(data, members, timed) - timing_log_likelihood(data, members, plain)).sum()
    assert gain < 5


def test_a_pair_without_transitions_has_the_offsets_of_all():
    counts = torch.zeros(1, 2, 2, 5)
    counts[0, 0, 0, 4] = 100
    offsets = pool_offsets(counts)
    assert torch.allclose(offsets.sum(-1), torch.ones(1, 2, 2))
    assert offsets[0, 1, 1].argmax() == 4
