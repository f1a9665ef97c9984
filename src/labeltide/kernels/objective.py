"""The compiled average loss: `Objective`'s data term and its gradient, straight from logits."""

from __future__ import annotations

import ctypes

STEPS = 8  # steps in one item, as in c/objective.c


class Task(ctypes.Structure):
    """One call, as c/objective.c declares it."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "batch", "steps", "classes")),
        *((name, ctypes.c_int64) for name in ("annotators", "groups", "table", "points", "noisy")),
        *((name, ctypes.c_void_p) for name in ("rows", "labels", "mask", "weights", "targets", "places", "logits")),
        *((name, ctypes.c_void_p) for name in ("matrices", "linear", "quadratic", "losses", "counts")),
        *((name, ctypes.c_void_p) for name in ("grad_logits", "grad_matrices")),
    ]


def items(task: Task) -> int:
    """How many parts a call has: some steps of one member, or a member where sequences have clocks of their own."""
    return task.members * (1 if task.places else -(-task.steps // STEPS))
