"""What the sdist and the wheel must hold, and the one version that all places must name."""

from __future__ import annotations

import platform
import re
import tarfile
import zipfile
from pathlib import Path

from commands import ROOT

NAMED = ("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py")
FOLDERS = ("examples", "src/labeltide", "tests")
VERSIONS = {
    "src/labeltide/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## (\d[^\s,]*)",
}


def kernels() -> list[str]:
    """The variants that setup.py builds for this processor family."""
    return ["avx512", "avx2", "plain"] if platform.machine().lower() in ("x86_64", "amd64") else ["plain"]


def check_versions() -> None:
    """The version stands in several files; it must be the same in each."""
    found = {name: re.findall(pattern, (ROOT / name).read_text(), re.MULTILINE) for name, pattern in VERSIONS.items()}
    if len({tuple(versions[:1]) for versions in found.values()}) > 1:
        told = ", ".join(f"{name} says {versions[0] if versions else 'none'}" for name, versions in found.items())
        raise SystemExit(f"All files must name one version, but {told}. Write the right one into each.")


def check_source(archive: Path, tree: Path) -> None:
    """The sdist has all that a wheel is built from and tested with."""
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    files = {str(path.relative_to(tree)) for folder in FOLDERS for path in (tree / folder).rglob("*") if path.is_file()}
    _check(archive, {*NAMED, *files}, held)


def check_wheel(archive: Path, tree: Path, variants: list[str], suffix: str) -> None:
    """The wheel has the whole package and every kernel, and nothing beside the package."""
    held = set(zipfile.ZipFile(archive).namelist())
    package = {str(path.relative_to(tree / "src")) for path in (tree / "src/labeltide").rglob("*") if path.is_file()}
    sources = {name for name in package if name.startswith("labeltide/kernels/c/")}
    compiled = {f"labeltide/kernels/labeltide_{name}{suffix}" for name in variants}
    expected = (package - sources) | compiled
    _check(archive, expected, held)
    surplus = {name for name in held if ".dist-info/" not in name} - expected
    if surplus:
        raise SystemExit(f"A wheel must hold nothing but the package. {archive.name} also has {_some(surplus)}.")


def _check(archive: Path, expected: set[str], held: set[str]) -> None:
    missing = expected - held
    if missing:
        raise SystemExit(
            f"{archive.name} must hold every file of the package. It lacks {_some(missing)}. Name them in MANIFEST.in, "
            "or for the wheel in [tool.setuptools.package-data] of pyproject.toml."
        )


def _some(names: set[str]) -> str:
    first = sorted(names)[:5]
    return ", ".join(first) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
