"""Sequences simulated from a Gaussian hidden Markov model, whose true labels are known."""

from __future__ import annotations

import numpy as np

from labeltide import _validation
from labeltide.data.sequences import Sequences


def make_sequences(
    n: int = 1000,
    n_steps: int = 100,
    n_features: int = 50,
    n_classes: int = 2,
    stay: float | None = None,
    random_state: int | np.random.Generator | None = 0,
    *,
    variance: float = 1.5,
    ragged: bool = False,
    missing: float = 0.0,
) -> Sequences:
    r"""Draw from a Gaussian hidden Markov model: :math:`x_t \mid y_t \sim N(y_t \mathbf 1, \sigma^2 I)`.

    The recorded labels are the clean ones; `labeltide.corrupt` makes them noisy. Turning `ragged` or
    `missing` on changes no label and no feature that remains.

    Parameters
    ----------
    n, n_steps, n_features : int
    n_classes : int from 2 to 127
    stay : float, optional
        The probability that a label persists from step to step; else it moves to any other class alike.
        When left out every step is drawn anew, the paper's synthetic set.
    variance : float
        Of each feature around its mean, the class index.
    ragged : bool
        Draw lengths between ``n_steps // 2`` and ``n_steps``.
    missing : float
        The share of recorded labels lost at random.

    Returns
    -------
    Sequences
        Of classes 0 .. n_classes - 1, labels of shape (n, steps, 1) and clean_labels of shape (n, steps).

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, n_classes=3, stay=0.9)
    >>> data.features.shape, data.labels.shape, data.classes
    ((20, 10, 2), (20, 10, 1), (0, 1, 2))
    """
    for name, size in (("n", n), ("n_steps", n_steps), ("n_features", n_features)):
        _validation.check_number(name, size, 1, whole=True)
    _validation.check_number("n_classes", n_classes, 2, _validation.MAX_CLASSES, whole=True)
    if stay is not None:
        _validation.check_number("stay", stay, 0, 1)
    _validation.check_number("variance", variance, 0)
    _validation.check_number("missing", missing, 0, 1)
    if not isinstance(ragged, bool | np.bool_):
        raise ValueError(f"ragged must be True or False. Got {ragged!r}.")
    streams = np.random.default_rng(random_state).spawn(4)
    clean = streams[0].integers(0, n_classes, (n, n_steps))
    if stay is not None:
        # A move of 1 .. classes - 1 places, modulo the classes, reaches each other class alike.
        moves = streams[0].integers(1, n_classes, (n, n_steps))
        moves[streams[0].random((n, n_steps)) < stay] = 0
        moves[:, 0] = clean[:, 0]
        clean = moves.cumsum(1) % n_classes
    clean = clean.astype(np.int8)
    features = streams[1].standard_normal((n, n_steps, n_features), dtype=np.float32)
    features *= np.float32(variance**0.5)
    features += clean[..., None]
    lengths = np.full(n, n_steps)
    if ragged:
        lengths = streams[2].integers(max(n_steps // 2, 1), n_steps + 1, n)
    padding = ~_validation.steps_mask(lengths, n_steps)
    clean[padding], features[padding] = -1, 0
    lost = streams[3].random((n, n_steps)) < missing
    return Sequences(
        features=features,
        labels=np.where(lost, np.int8(-1), clean)[..., None],
        lengths=lengths,
        clock=_validation.check_clock(None, lengths, n_steps),
        ids=tuple(range(n)),
        classes=tuple(range(n_classes)),
        clean_labels=clean,
    )
