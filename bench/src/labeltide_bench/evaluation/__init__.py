"""Error rates of predictions and distances of estimated noise matrices."""

from labeltide_bench.evaluation.recovery import absolute_errors, average_rate, frobenius_errors
from labeltide_bench.evaluation.scores import balanced_error, error_over_time, error_rate

__all__ = ["absolute_errors", "average_rate", "balanced_error", "error_over_time", "error_rate", "frobenius_errors"]
