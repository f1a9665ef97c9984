"""Builds the compiled kernels: one shared object a vector width, without any symbol of Python's.

They are loaded with ctypes, so one wheel a platform serves every Python (tag py3-none-PLATFORM). A build without a C
compiler still gives a working package, tagged py3-none-any, in which torch does the kernels' work.
LABELTIDE_REQUIRE_KERNELS=1 makes a missing kernel an error: releases are built so.
"""

import os
import platform
import sys
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

FOLDER = Path("src/labeltide/kernels/c")
SOURCES = [str(FOLDER / f"{name}.c") for name in ("pool", "network", "objective", "gru", "adam", "chain")]
# Vectors are written out in the sources. What an auto-vectoriser adds is little, and gcc 12's was wrong (see chain.c).
COMMON = ["-std=gnu11", "-O3", "-fno-tree-vectorize", "-fno-math-errno", "-g0"]
FLAGS = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-ffp-contract=fast", "-DLANES=16"],
    "avx2": ["-mavx2", "-mfma", "-ffp-contract=fast", "-DLANES=8"],
    "plain": [],
}
REQUIRED = os.environ.get("LABELTIDE_REQUIRE_KERNELS", "") not in ("", "0")


def variants() -> list[str]:
    """The vector widths of this machine's processor family; none where the compiler has no GCC vectors (MSVC)."""
    if sys.platform == "win32":
        print("labeltide: no kernels on Windows, whose compiler lacks GCC's vectors; torch does their work.")
        return []
    return list(FLAGS) if platform.machine().lower() in ("x86_64", "amd64") else ["plain"]


def extensions() -> list[Extension]:
    return [
        Extension(
            f"labeltide.kernels.labeltide_{name}",
            SOURCES,
            depends=[str(FOLDER / "common.h")],
            extra_compile_args=[*COMMON, *FLAGS[name]],
            libraries=["m", "pthread"] if sys.platform.startswith("linux") else [],
            optional=not REQUIRED,
        )
        for name in variants()
    ]


class BuildKernels(build_ext):
    """Builds plain shared objects, whose names do not carry a Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except CompileError as error:
            if not REQUIRED:
                raise
            raise SystemExit(
                f"LABELTIDE_REQUIRE_KERNELS=1 needs a C compiler that builds {ext.name}: {error}. Install gcc or "
                "clang, or unset the variable to build without kernels."
            ) from None

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []  # there is no PyInit function


class PlatformWheel(bdist_wheel):
    """One wheel for all Pythons of a platform; for all platforms where nothing was compiled."""

    def run(self) -> None:
        self.run_command("build_ext")  # first, because the tag depends on what could be built
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2] if self._compiled() else "any")

    def write_wheelfile(self, *args: object, **kwargs: object) -> None:
        self.root_is_pure = not self._compiled()
        super().write_wheelfile(*args, **kwargs)  # type: ignore[arg-type]

    def _compiled(self) -> bool:
        build = self.get_finalized_command("build_ext")
        return any(Path(path).exists() for path in build.get_outputs())


class PlatformDistribution(Distribution):
    """A distribution with a platform, also where every kernel is optional."""

    def has_ext_modules(self) -> bool:
        return bool(variants())


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)
