"""Call a function of the compiled library through ctypes, with its items shared among threads."""

from __future__ import annotations

import ctypes


def call(compiled: ctypes.CDLL, name: str, task: ctypes.Structure | ctypes.Array, items: int, threads: int) -> None:
    """Run a kernel on all items of a task, on at most `threads` threads of the compiled library."""
    kernel = ctypes.cast(getattr(compiled, name), ctypes.c_void_p)
    if compiled.labeltide_run(kernel, ctypes.byref(task), ctypes.c_int64(items), ctypes.c_int64(threads)):
        raise MemoryError(f"Not enough memory for {name}.")
