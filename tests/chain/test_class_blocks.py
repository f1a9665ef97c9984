"""Products with blocks of true classes, against the dense design matrix."""

import numpy as np
import pytest
import torch

from labeltide.chain.families import (
    ClassBlocks,
    constant_shape,
    families_of,
    family,
    hold_class,
    pieces_shape,
    spline_shape,
)
from oracles import family_design, family_penalty

GRID = np.linspace(0, 1, 9)
SHARINGS = [
    ("alike", "alike"),
    ("each", "alike"),
    ("each", "each"),
    ("by class", "by class"),
    ("each", "by class"),
    ("by class", "each"),
    ("by class", "alike"),
    ("alike", "by class"),
]
SHAPES = [spline_shape(GRID, 2.0), constant_shape(GRID), pieces_shape(np.arange(9) // 4)]


def dense_design(blocks, kind):
    """The logits of unit vectors: (points * entries, coefficients)."""
    units = torch.eye(blocks.n_blocks * blocks.size, dtype=torch.float64)[None]  # one annotator for each coefficient
    design = blocks.logits(units)[0].flatten(1).mT
    assert design.shape[0] == len(kind.basis) * kind.n_classes * (kind.n_classes - 1)
    return design


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize(("level", "movement"), SHARINGS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_projection_and_information_are_those_of_the_dense_design(n_classes, level, movement, shape):
    kind = family(n_classes, shape, level, movement)
    blocks = ClassBlocks.of([kind])
    design = dense_design(blocks, kind)
    generator = torch.Generator().manual_seed(0)
    size = (1, 1, len(GRID), n_classes, n_classes - 1)
    values, diagonal, root = torch.rand(3, *size, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(blocks.project(values)[0, 0], values.flatten() @ design, rtol=1e-12, atol=1e-12)
    each = torch.block_diag(*(torch.diag(d) - torch.outer(r, r) for d, r in zip(
        diagonal.reshape(-1, n_classes - 1), root.reshape(-1, n_classes - 1), strict=True)))  # fmt: skip
    found = torch.block_diag(*blocks.information(diagonal, root)[0, 0])
    torch.testing.assert_close(found, design.mT @ each @ design, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("level", "movement"), SHARINGS[:5])
def test_the_blocks_span_the_design_of_their_family(level, movement):
    kind = family(3, spline_shape(GRID, 2.0), level, movement)
    found, wanted = dense_design(ClassBlocks.of([kind]), kind), torch.from_numpy(family_design(kind)).flatten(0, 1)
    assert sorted(map(tuple, found.mT.tolist())) == sorted(map(tuple, wanted.mT.tolist()))
    costs = [
        np.sort(np.linalg.eigvalsh(each))
        for each in (family_penalty(kind), torch.block_diag(*ClassBlocks.of([kind]).penalty[0]))
    ]
    np.testing.assert_allclose(*costs, atol=1e-9)


def test_a_held_class_stays_where_it_is():
    kinds = families_of([hold_class(family(3, spline_shape(GRID, 2.0), "each", "each"), 1)])
    counts = 10 * torch.rand(1, 1, 9, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = kinds.fit_start(counts / counts.sum(-1, keepdim=True))
    for _ in range(5):
        found = kinds.step(found, counts)
    noise = kinds.noise(found)[0, 0]
    assert np.ptp(noise[:, 1].numpy(), axis=0).max() < 1e-6
    assert np.ptp(noise[:, 0].numpy(), axis=0).max() > 0.01
