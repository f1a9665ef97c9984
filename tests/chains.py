"""Random chains that tests of the forward-backward passes share."""

from __future__ import annotations

import torch

from labeltide.chain.passes import ChainData, ChainParameters, Members


def normal(values: torch.Tensor) -> torch.Tensor:
    return values / values.sum(-1, keepdim=True)


def make_case(
    seed: int,
    members=2,
    rows=3,
    steps=4,
    classes=2,
    annotators=1,
    groups=1,
    points=3,
    evidence=True,
    bursts=False,
    jumps=False,
):
    """Random chains over ragged rows with missing labels, shared clocks or not, and a few trusted labels."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator)

    def whole(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    lengths = whole(1, steps + 1, rows)
    lengths[0] = steps
    data = ChainData(
        labels=whole(-1, classes, 2, rows, steps, annotators).to(torch.int8),
        mask=torch.arange(steps) < lengths[:, None],
        points=whole(0, points, rows, steps) if points != steps else None,
        n_points=points,
        n_classes=classes,
        evidence=(2 * torch.randn(2, rows, steps, classes, generator=generator)).log_softmax(-1) if evidence else None,
        trusted=torch.where(uniform(rows, steps) < 0.2, whole(0, classes, rows, steps), -1).to(torch.int8),
        jumps=whole(0, 3, rows, steps).to(torch.int8) if jumps else None,
        gaps=(1, 2, 7) if jumps else (1,),
    )
    chosen = Members(
        whole(0, 2, members), whole(0, 2, members), uniform(members, rows) * (uniform(members, rows) < 0.8)
    )
    parameters = ChainParameters(
        normal(uniform(members, classes) + 0.1),
        normal(uniform(members, classes, classes) + 0.1),
        2 * uniform(members) if evidence else torch.zeros(members),
        normal(uniform(members, groups, points, classes, classes) + 0.05),
        0.9 * uniform(members) if bursts else None,
    )
    return data, chosen, parameters
