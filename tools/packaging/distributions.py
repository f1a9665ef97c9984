"""Builds the sdist from a copy of the tree, and the wheel from the sdist."""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT, attempt, read, step
from contents import check_source, check_versions, check_wheel, kernels

TARGET = ROOT / "dist"


@dataclass(frozen=True)
class Distributions:
    """The two files of a release."""

    source: Path
    wheel: Path

    def __str__(self) -> str:
        tag = self.wheel.stem.split("-", 2)[2]
        return f"{_sized(self.source)}\n{_sized(self.wheel)}, tag {tag}"


def build() -> Distributions:
    """Build both into dist/, with all kernels, and check what they hold."""
    check_versions()
    with step("Build the sdist and the wheel"), tempfile.TemporaryDirectory(prefix="labeltide-") as name:
        tree, made = Path(name, "tree"), Path(name, "dist")
        copy_tree(tree)
        read(sys.executable, "-m", "build", "--outdir", made, tree, LABELTIDE_REQUIRE_KERNELS="1")
        built = _find(made)
        check_source(built.source, tree)
        check_wheel(built.wheel, tree, kernels(), ".so")
        return _publish(built)


def copy_tree(target: Path) -> None:
    """Copy what git tracks or would track: a build must not find what earlier builds left behind."""
    listed = attempt("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=ROOT)
    if listed.returncode:
        raise SystemExit(
            f"Packages are built from a git checkout. git says: {listed.stdout.strip()}. Clone and try again."
        )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # not if it was removed without a commit
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
            (target / name).chmod(0o755 if (ROOT / name).stat().st_mode & 0o100 else 0o644)


def commit_time() -> int:
    """Seconds of the last commit, which every file of a release has as its time."""
    return int(read("git", "log", "-1", "--format=%ct", folder=ROOT))


def make_reproducible(archive: Path) -> None:
    """Write the sdist again with sorted members of one time and owner."""
    packed = io.BytesIO()
    with tarfile.open(archive) as opened, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written:
        for member in sorted(opened.getmembers(), key=lambda found: found.name):
            content = opened.extractfile(member) if member.isfile() else None
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = commit_time(), {}
            written.addfile(member, content)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def _find(folder: Path) -> Distributions:
    return Distributions(next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))


def _publish(built: Distributions) -> Distributions:
    """Put both where the last ones were."""
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("labeltide-*"):
        old.unlink()
    return Distributions(*(Path(shutil.move(path, TARGET)) for path in (built.source, built.wheel)))


def _sized(path: Path) -> str:
    return f"{path.name}: {path.stat().st_size / 1e3:.0f} kB"
