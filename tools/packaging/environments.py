"""Fresh environments outside the tree, in which a wheel is installed and tried as its users have it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT, read, run, step

TESTING = ("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100")
PLACE = "import labeltide.kernels.library as library; print(library.__file__); print(*library.built())"


@dataclass(frozen=True)
class Environment:
    """A virtual environment in a temporary folder, which is also where its commands run."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "environment/bin/python"

    def install(self, *arguments: str | Path) -> None:
        """Install with pip, which says only what goes wrong."""
        run(self.python, "-m", "pip", "install", "-qq", *arguments, folder=self.folder)

    def read(self, program: str, *arguments: str) -> str:
        """What one of the environment's own programs prints."""
        return read(self.python.with_name(program), *arguments, folder=self.folder)

    def check_kernels(self, expected: list[str]) -> None:
        """The package is the installed one, it has these kernels, and those that can run passed their self-checks."""
        target, *built = self.read("python", "-c", PLACE).split()
        if not Path(target).is_relative_to(self.folder) or sorted(built) != sorted(expected):
            raise SystemExit(
                f"The wheel must be imported from {self.folder} with the kernels {expected}. It came from {target} "
                f"with {built}. Look at setup.py and at what the compiler says."
            )
        print(self.read("labeltide", "doctor"), flush=True)  # its exit code is 0 only if every self-check passed

    def contracts(self, *, fast: bool) -> None:
        """Run the contracts against what is installed."""
        with step("Contracts"):
            script = ROOT / "tools/packaging/contracts.py"
            run(self.python, script, *(["--fast"] if fast else []), folder=self.folder)


@contextmanager
def fresh_environment(python: str | Path = sys.executable) -> Iterator[Environment]:
    """An environment of a Python, removed in the end."""
    with tempfile.TemporaryDirectory(prefix="labeltide-") as name:
        environment = Environment(Path(name).resolve())
        run(python, "-m", "venv", environment.folder / "environment")
        yield environment
