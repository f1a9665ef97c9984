"""What is costly in an audit has limits, which grow with the table."""

from types import SimpleNamespace

import numpy as np
import pytest

from labeltide.auditing import fitting


def table_of(n_steps, window=100):
    labels = np.zeros((n_steps // window, window, 1), dtype=np.int8)
    labels[:, ::2] = 1
    shape = labels.shape[:2]
    return SimpleNamespace(place=np.zeros(n_steps, bool), index=np.zeros(shape), fit_labels=labels, class_names="ab")


@pytest.mark.parametrize(
    ("n_steps", "windows", "epochs"),
    [(10_000, 100, 60), (100_000, 600, 13), (900_000, 1_800, 13), (1_600_000, 2_400, 13), (4_000_000, 2_400, 13)],
)
def test_a_larger_table_is_learned_from_longer_up_to_a_limit(n_steps, windows, epochs):
    table = table_of(n_steps)
    chosen = fitting.choose_windows(table, seed=0)
    assert len(chosen) == windows
    assert fitting.choose_epochs(table, chosen) == epochs
