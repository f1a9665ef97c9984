"""Builds the compiled kernels: one shared object for each vector width, without any symbol of Python's.

They are loaded with ctypes, so one wheel for each platform serves every Python (tag py3-none-PLATFORM). A build without
a C compiler still gives a working package, tagged py3-none-any, in which torch does the kernels' work.

    CC                          the compiler, with its options: gcc, clang or zig; `cc`, `gcc` or `clang` if not set
    CFLAGS, LDFLAGS             options that are added to ours
    LABELTIDE_REQUIRE_KERNELS   1 makes a missing kernel an error: releases are built so
    LABELTIDE_PLATFORM          the wheel's platform where CC compiles for another one (tools/packaging/wheels.py)
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

FOLDER = Path("src/labeltide/kernels/c")
SOURCES = [str(FOLDER / f"{name}.c") for name in ("pool", "network", "objective", "gru", "adam", "chain")]
# Vectors are written out in the sources. What an auto-vectoriser adds is little, and gcc 12's was wrong (see chain.c).
COMMON = ["-std=gnu11", "-O3", "-fno-tree-vectorize", "-fno-math-errno", "-g0", "-fvisibility=hidden"]
FLAGS = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-ffp-contract=fast", "-DLANES=16"],
    "avx2": ["-mavx2", "-mfma", "-ffp-contract=fast", "-DLANES=8"],
    "plain": [],
}
REQUIRED = os.environ.get("LABELTIDE_REQUIRE_KERNELS", "") not in ("", "0")
PLATFORM = os.environ.get("LABELTIDE_PLATFORM", "")  # such as manylinux_2_28_aarch64; empty for this machine's
MACHINE = platform.machine().lower()
MACOS = PLATFORM.startswith("macosx") if PLATFORM else sys.platform == "darwin"
WINDOWS = PLATFORM.startswith("win") if PLATFORM else sys.platform == "win32"

if PLATFORM.startswith("musllinux"):
    raise SystemExit(
        f"labeltide needs torch, which has no wheels for musl. LABELTIDE_PLATFORM is {PLATFORM}. Use a system with "
        "glibc, such as Debian or Fedora, or build torch and labeltide from source."
    )


def compiler() -> list[str]:
    """The C compiler's command; empty where there is none that knows GCC's vectors, as Visual C++ does not."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"], posix=sys.platform != "win32")
    if sys.platform == "win32":
        print(
            "labeltide: Visual C++ lacks GCC's vectors, so torch does the kernels' work. CC=clang builds the kernels."
        )
        return []
    return [found for found in map(shutil.which, ("cc", "gcc", "clang")) if found][:1]


def extensions() -> list[Extension]:
    is_x86 = (PLATFORM or MACHINE).endswith(("x86_64", "amd64"))
    return [
        Extension(f"labeltide.kernels.labeltide_{name}", SOURCES, depends=[str(FOLDER / "common.h")], optional=True)
        for name in (FLAGS if is_x86 else ["plain"])
    ]


class BuildKernels(build_ext):
    """Calls the compiler once for each vector width; no option of Python's own build reaches it."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + (".dll" if WINDOWS else ".so")

    def run(self) -> None:
        command = compiler()
        for extension in self.extensions:
            try:
                self.compile(command, extension.name)
            except (OSError, subprocess.CalledProcessError, CompileError) as error:
                if REQUIRED:
                    raise SystemExit(
                        f"LABELTIDE_REQUIRE_KERNELS=1 needs a C compiler that builds {extension.name}: {error}. "
                        "Install gcc or clang, or unset the variable to build without kernels."
                    ) from None
                print(f"labeltide: {extension.name} is left out, and slower code takes its place: {error}")
        if self.inplace:
            self.copy_extensions_to_source()

    def compile(self, command: list[str], name: str) -> None:
        if not command:
            raise CompileError("there is no C compiler")
        target = Path(self.build_lib, self.get_ext_filename(name))
        made = Path(self.build_temp, target.name)  # where linkers may leave other files, too
        for folder in (target.parent, made.parent):
            folder.mkdir(parents=True, exist_ok=True)
        flags = [*COMMON, *FLAGS[name.rpartition("_")[2]], *shlex.split(os.environ.get("CFLAGS", ""))]
        link = ["-shared", *([] if WINDOWS else ["-fPIC"]), *shlex.split(os.environ.get("LDFLAGS", ""))]
        link += [f"-Wl,-install_name,@rpath/{target.name}"] if MACOS else []  # it would be the path of the build
        libraries = [] if WINDOWS or MACOS else ["-lm", "-lpthread"]
        subprocess.run([*command, *flags, *link, "-o", str(made), *SOURCES, *libraries], check=True)
        shutil.copyfile(made, target)

    def get_outputs(self) -> list[str]:
        paths = [Path(self.build_lib, self.get_ext_filename(extension.name)) for extension in self.extensions]
        return [str(path) for path in paths if path.exists()]


class PlatformWheel(bdist_wheel):
    """One wheel for all Pythons of a platform; for all platforms where nothing was compiled."""

    def run(self) -> None:
        self.run_command("build_ext")  # first, because the tag depends on what could be built
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        if not self._compiled():
            return ("py3", "none", "any")
        return ("py3", "none", PLATFORM or super().get_tag()[2].replace("universal2", MACHINE))

    def write_wheelfile(self, *args: object, **kwargs: object) -> None:
        self.root_is_pure = not self._compiled()
        super().write_wheelfile(*args, **kwargs)  # type: ignore[arg-type]

    def _compiled(self) -> bool:
        return bool(self.get_finalized_command("build_ext").get_outputs())


class PlatformDistribution(Distribution):
    """A distribution with a platform, also where every kernel is optional."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)
