"""Options that say where independent work runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class WorkerOptions:
    """Where independent work runs."""

    workers: Annotated[int | None, Parameter(help="Processes on this machine; the numbers stay the same.")] = None
    ray: Annotated[str | None, Parameter(help="A Ray cluster: auto, local or its address.")] = None

    def context(self) -> AbstractContextManager[Any]:
        """While it lasts, work runs there."""
        if self.workers is None and self.ray is None:
            return nullcontext()
        from labeltide._workers import workers

        return workers(self.workers, self.ray)
