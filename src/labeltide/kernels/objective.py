"""Compiled forward loss (Patrini and others 2017) and cross-entropy: the data term of `Objective` and its gradient."""

from __future__ import annotations

import ctypes

STEPS_PER_ITEM = 8  # STEPS in c/objective.c


class ObjectiveTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/objective.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "batch", "steps", "classes")),
        *((name, ctypes.c_int64) for name in ("annotators", "groups", "table", "points", "noisy")),
        *((name, ctypes.c_void_p) for name in ("rows", "labels", "mask", "weights", "targets", "places", "logits")),
        *((name, ctypes.c_void_p) for name in ("matrices", "linear", "quadratic", "losses", "counts")),
        *((name, ctypes.c_void_p) for name in ("grad_logits", "grad_matrices")),
    ]


def count_items(task: ObjectiveTask) -> int:
    """Items of a call: blocks of steps of one member, or whole members where rows have different clocks."""
    return task.members * (1 if task.places else -(-task.steps // STEPS_PER_ITEM))
