import numpy as np
import pytest

from labeltide_bench.evaluation import absolute_errors, balanced_error, error_over_time, error_rate, frobenius_errors

LABELS = np.array([[0, 0, 0, -1], [0, 1, 1, -1]])
PREDICTED = np.array([[0, 0, 1, 0], [0, 0, 1, 1]])


def test_missing_labels_are_not_counted():
    assert error_rate(PREDICTED, LABELS) == pytest.approx(2 / 6)
    np.testing.assert_allclose(error_over_time(PREDICTED, LABELS), [0, 0.5, 0.5, np.nan])


def test_the_balanced_error_is_the_mean_over_classes():
    assert balanced_error(PREDICTED, LABELS) == pytest.approx((1 / 4 + 1 / 2) / 2)


def test_distances_of_q_are_zero_for_the_truth_and_known_for_the_identity():
    matrices = np.array([[[0.8, 0.2], [0.4, 0.6]]])
    assert frobenius_errors(matrices, matrices) == absolute_errors(matrices, matrices) == 0
    assert frobenius_errors(matrices, np.eye(2)[None])[0] == pytest.approx(np.sqrt(2 * 0.2**2 + 2 * 0.4**2))
    assert absolute_errors(matrices, np.eye(2)[None])[0] == pytest.approx(0.3)
