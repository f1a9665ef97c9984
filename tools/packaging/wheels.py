"""Build the sdist and the wheels of all platforms on this machine, and test each as far as it can be tested here.

    python tools/packaging/wheels.py                                  # all platforms
    python tools/packaging/wheels.py --platforms win_amd64            # some
    python tools/packaging/wheels.py --install                        # and install this machine's wheel from an index

zig, which comes as a Python package, is the cross-compiler. Every wheel is built twice, in two folders, and must have
the same bytes. Its kernels are inspected (processor, functions, libraries, least system) and replayed against the
stored cases: natively, under qemu (Arm) or under wine (Windows). dist/ gets the files, SHA256SUMS and an index for pip.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from commands import CONSTRAINTS, ROOT, read, step
from contents import check_source, check_versions, check_wheel
from distributions import TARGET, commit_time, copy_tree, make_reproducible
from environments import Environment, fresh_environment

TOOLS = ("ziglang==0.17.0", "lief>=0.16", "setuptools==84.2.1", "build>=1.2")  # pinned: they decide about the bytes
REPLAY = ROOT / "tools/kernels/replay.c"
CASES = ROOT / "src/labeltide/kernels/cases.bin"
FUNCTIONS = sorted(
    {"labeltide_run", "labeltide_processor", *re.findall(r"each\((labeltide_\w+)\)", REPLAY.read_text())}
)
WINE = ("wine64", "wine", "/usr/lib/wine/wine64")


@dataclass(frozen=True)
class Platform:
    """One wheel: its tag, zig's name of the target, and what its libraries may be."""

    tag: str
    target: str
    machine: str  # as lief names the processor
    least: str  # version of glibc, macOS or Windows
    libraries: str  # pattern of the libraries that every such system has

    @property
    def variants(self) -> list[str]:
        return ["avx512", "avx2", "plain"] if self.tag.endswith(("x86_64", "amd64")) else ["plain"]

    @property
    def suffix(self) -> str:
        return ".dll" if self.tag.startswith("win") else ".so"

    def emulator(self) -> list[str] | None:
        """The command that runs a program of this platform here; None where there is none."""
        if self.tag.startswith("manylinux"):
            machine = self.tag.removeprefix("manylinux_2_28_")
            if machine == platform.machine():
                return [] if sys.platform == "linux" else None
            found = shutil.which(f"qemu-{machine}")
            return [found, "-L", f"/usr/{machine}-linux-gnu"] if found else None
        if self.tag == "win_amd64" and platform.machine() == "x86_64":
            return next(([found] for found in map(shutil.which, WINE) if found), None)
        return None


GLIBC = r"lib(c|m|pthread|dl)\.so\.\d|ld-linux-.*"
SYSTEM = r"/usr/lib/libSystem\.B\.dylib|@rpath/.*|labeltide_.*"
UCRT = r"api-ms-win-crt-.*|kernel32\.dll|ntdll\.dll"
PLATFORMS = (
    Platform("manylinux_2_28_x86_64", "x86_64-linux-gnu.2.28", "X86_64", "2.28", GLIBC),
    Platform("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", "AARCH64", "2.28", GLIBC),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0", "ARM64", "11.0", SYSTEM),
    Platform("macosx_11_0_x86_64", "x86_64-macos.11.0", "X86_64", "11.0", SYSTEM),
    Platform("win_amd64", "x86_64-windows-gnu", "AMD64", "10", UCRT),
    Platform("win_arm64", "aarch64-windows-gnu", "ARM64", "10", UCRT),
)


def build_wheel(environment: Environment, wanted: Platform, tree: Path) -> Path:
    """Build in a copy of the tree, whose folder is not used for anything else."""
    made = tree.with_name(f"{tree.name}-dist")
    compiler = f"{environment.python} -m ziglang cc -target {wanted.target} -s"
    variables = {
        "CC": compiler,
        "LABELTIDE_PLATFORM": wanted.tag,
        "LABELTIDE_REQUIRE_KERNELS": "1",
        "SOURCE_DATE_EPOCH": str(commit_time()),
        "ZIG_GLOBAL_CACHE_DIR": str(environment.folder / "zig"),
    }
    shutil.copytree(environment.folder / "snapshot", tree)
    read(environment.python, "-m", "build", "--wheel", "--no-isolation", "--outdir", made, tree, **variables)
    return next(made.glob("*.whl"))


def audit(environment: Environment, wanted: Platform, wheel: Path, tree: Path) -> Path:
    """Check the content of a wheel and inspect its kernels; the folder into which they were unpacked."""
    check_wheel(wheel, tree, wanted.variants, wanted.suffix)
    unpacked = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    if f"Tag: py3-none-{wanted.tag}\n" not in next(unpacked.glob("*.dist-info/WHEEL")).read_text():
        raise SystemExit(
            f"The wheel's tag must be py3-none-{wanted.tag}. {wheel.name} has another one. Look at setup.py."
        )
    folders = (str(environment.folder), str(ROOT), str(Path.home()) + "/")
    for path in unpacked.rglob("*"):
        found = [folder for folder in folders if path.is_file() and folder.encode() in path.read_bytes()]
        if found:
            raise SystemExit(f"A wheel must not name folders of the machine that built it. {path.name} has {found[0]}.")
    libraries = sorted(map(str, (unpacked / "labeltide/kernels").glob(f"labeltide_*{wanted.suffix}")))
    script = ROOT / "tools/packaging/inspect_libraries.py"
    for path, found in json.loads(read(environment.python, script, *libraries).splitlines()[-1]).items():
        _inspect(wanted, Path(path).name, found)
    return unpacked / "labeltide/kernels"


def _inspect(wanted: Platform, name: str, found: dict) -> None:
    foreign = [library for library in found["libraries"] if not re.fullmatch(wanted.libraries, library)]
    too_new = _numbers(found["least"]) > _numbers(wanted.least)
    expected = {"machine": wanted.machine, "functions": FUNCTIONS}
    wrong = [f"{key} is {found[key]}, not {value}" for key, value in expected.items() if found[key] != value]
    wrong += [f"it needs {', '.join(foreign)}"] if foreign else []
    wrong += [f"it needs version {found['least']} of the system"] if too_new else []
    if wrong:
        raise SystemExit(f"The kernels of {wanted.tag} must run wherever the tag says. {name}: {'; '.join(wrong)}.")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def replay(environment: Environment, wanted: Platform, kernels: Path) -> str:
    """Load each variant of the unpacked wheel in a small C program and replay the stored cases; how it was tested."""
    emulator = wanted.emulator()
    if emulator is None:
        return "inspected"
    program = kernels / ("replay.exe" if wanted.suffix == ".dll" else "replay")
    zig = [environment.python, "-m", "ziglang", "cc", "-target", wanted.target, "-DLOADS", "-O2"]
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(environment.folder / "zig")}
    read(*zig, "-o", program, REPLAY, *([] if wanted.suffix == ".dll" else ["-ldl"]), **cache)
    quiet = {"WINEDEBUG": "-all", "WINEPREFIX": str(environment.folder / "wine")}
    level, replayed, worst = 0, [], 0.0
    for needed, variant in enumerate(reversed(wanted.variants)):
        if needed > level:  # the plain variant, which comes first, tells what this processor can run
            continue
        library = kernels / f"labeltide_{variant}{wanted.suffix}"
        printed = read(*emulator, program, CASES, library, folder=kernels, **quiet)
        level = int(re.findall(r"processor level (\d)", printed)[0])
        differences = re.findall(r" passed (\S+)$", printed.replace("\r", ""), re.MULTILINE)
        if not differences:
            raise SystemExit(f"Every case must pass. {library.name} on {wanted.tag} printed: {printed}")
        replayed.append(variant)
        worst = max(worst, *map(float, differences))
    where = Path(emulator[0]).name if emulator else "natively"
    return f"replayed {where}: {', '.join(replayed)}; largest difference {worst:.1e}"


def build_source(environment: Environment, folder: Path) -> Path:
    """The sdist, with one time stamp and owner for all files."""
    tree = Path(shutil.copytree(environment.folder / "snapshot", folder / "source"))
    read(environment.python, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, tree)
    archive = next(folder.glob("*.tar.gz"))
    make_reproducible(archive)
    check_source(archive, tree)
    return archive


def build_twice(environment: Environment, wanted: Platform) -> tuple[Path, str]:
    """The wheel of a platform and how it was tested."""
    folder = environment.folder / wanted.tag
    wheels = [build_wheel(environment, wanted, folder / name) for name in ("first", "again/in/another")]
    if len({_digest(wheel) for wheel in wheels}) > 1:
        raise SystemExit(
            f"Two builds of {wanted.tag} must have the same bytes. They differ: compare {wheels[0]} and {wheels[1]}."
        )
    kernels = audit(environment, wanted, wheels[0], folder / "first")
    return wheels[0], replay(environment, wanted, kernels)


def write_index(files: list[Path]) -> None:
    """SHA256SUMS and an index as pip reads it (PEP 503): `pip install --index-url file://.../dist/index labeltide`."""
    sums = {path.name: _digest(path) for path in files}
    (TARGET / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))
    folder = TARGET / "index/labeltide"
    folder.mkdir(parents=True, exist_ok=True)
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].replace(">", "&gt;")
    links = [
        f'<a href="../../{name}#sha256={digest}" data-requires-python="{requires}">{name}</a><br>'
        for name, digest in sorted(sums.items())
    ]
    (folder / "index.html").write_text("<!DOCTYPE html><title>labeltide</title>\n" + "\n".join(links) + "\n")
    (TARGET / "index/index.html").write_text(
        '<!DOCTYPE html><title>index</title>\n<a href="labeltide/">labeltide</a>\n'
    )


def install_from_index() -> None:
    """What a user does: install by name from an index in a fresh environment, and run the demonstration."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    with step("Install from the index and run the demonstration"), fresh_environment() as environment:
        environment.install("--constraint", CONSTRAINTS, *dependencies)
        environment.install("--no-deps", "--index-url", f"file://{TARGET}/index", "labeltide")
        environment.read("python", "-m", "pip", "check")
        print(environment.read("labeltide", "doctor"))
        print(environment.read("labeltide", "demo", "--out", str(environment.folder / "demo")))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Build, audit, replay, and print the table."""
    parser = argparse.ArgumentParser(description="Build and test the wheels of all platforms.")
    parser.add_argument("--platforms", nargs="+", default=[wanted.tag for wanted in PLATFORMS], help="platform tags")
    parser.add_argument("--install", action="store_true", help="install this machine's wheel and run the demonstration")
    arguments = parser.parse_args()
    known = {wanted.tag: wanted for wanted in PLATFORMS}
    for tag in arguments.platforms:
        if tag.startswith("musllinux"):
            raise SystemExit(f"There is no wheel for {tag}: labeltide needs torch, which has no wheels for musl.")
        if tag not in known:
            raise SystemExit(f"A platform must be one of {', '.join(known)}. Got {tag}.")
    check_versions()
    rows, built = [], []
    os.umask(0o022)
    with fresh_environment() as environment:
        with step("Install zig and lief"):
            environment.install(*TOOLS)
        copy_tree(environment.folder / "snapshot")  # once, for all builds
        with tempfile.TemporaryDirectory(prefix="labeltide-", dir=environment.folder) as name:
            built.append(build_source(environment, Path(name)))
            for tag in arguments.platforms:
                with step(tag):
                    wheel, tested = build_twice(environment, known[tag])
                built.append(wheel)
                rows.append((tag, f"{wheel.stat().st_size / 1e3:.0f} kB", f"py3-none-{tag}", tested))
            TARGET.mkdir(exist_ok=True)
            for old in TARGET.glob("labeltide-*"):
                old.unlink()
            built = [Path(shutil.copy2(path, TARGET)) for path in built]
    write_index(built)
    table = [("platform", "size", "tag", "how it was tested"), ("---",) * 4, *rows]
    print("\n".join(f"| {' | '.join(row)} |" for row in table))
    if arguments.install:
        install_from_index()


if __name__ == "__main__":
    main()
