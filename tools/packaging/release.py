"""Prepare a release and say what is left to do by hand; nothing is published and no tag is made.

    python tools/packaging/release.py            # check everything, build everything
    python tools/packaging/release.py --skip-build

A maintainer then makes the tag, and .github/workflows/release.yml publishes after an approval.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys

from commands import ROOT, attempt, run
from contents import VERSIONS, check_versions
from distributions import TARGET

HERE = ROOT / "tools/packaging"


def problems(version: str) -> list[str]:
    """What keeps this tree from being released."""
    found = []
    if attempt("git", "status", "--porcelain", folder=ROOT).stdout.strip():
        found.append("the tree has changes that are not committed")
    if attempt("git", "rev-parse", "-q", "--verify", f"refs/tags/v{version}", folder=ROOT).returncode == 0:
        found.append(f"the tag v{version} exists already")
    if re.search(rf"^## {re.escape(version)}, unreleased", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        found.append(f"CHANGELOG.md still says that {version} is unreleased: write the date")
    for name in ("README.md", "recipe/recipe.yaml"):
        if version not in (ROOT / name).read_text():
            found.append(f"{name} does not name {version}")
    return found


def check_sums() -> int:
    """Compare every file with SHA256SUMS; how many there are."""
    lines = (TARGET / "SHA256SUMS").read_text().splitlines()
    for digest, name in (line.split() for line in lines):
        if hashlib.sha256((TARGET / name).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"SHA256SUMS must fit the files. {name} differs. Build again.")
    return len(lines)


def main() -> int:
    """Check, build, write the bill of materials; 1 while something is left to do before the tag."""
    parser = argparse.ArgumentParser(description="Prepare a release without publishing it.")
    parser.add_argument("--skip-build", action="store_true", help="check the files that are in dist/ already")
    arguments = parser.parse_args()
    check_versions()
    version = re.findall(VERSIONS["src/labeltide/__init__.py"], (ROOT / "src/labeltide/__init__.py").read_text(), re.M)[
        0
    ]
    if not arguments.skip_build:
        run(sys.executable, HERE / "wheels.py")
        run(sys.executable, HERE / "supply_chain.py")
    print(f"{check_sums()} files in dist/ fit SHA256SUMS; dist/sbom.json: {(TARGET / 'sbom.json').exists()}")
    left = problems(version)
    print("\n".join(f"Before the tag: {problem}." for problem in left))
    print(f"Then: git tag --sign v{version} && git push origin v{version}, and approve the environment `pypi`.")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
