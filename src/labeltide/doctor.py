"""What labeltide runs on: versions, processor, threads, GPU, and which kernels were found, checked and chosen."""

from __future__ import annotations

import os
import platform
import re
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import torch

from labeltide import __version__
from labeltide.kernels import KERNELS, choose, library

PROCESSORS = ("no AVX2", "AVX2", "AVX-512")  # what `labeltide_processor` tells apart on x86


@dataclass(frozen=True)
class Report:
    """Sections of names and values, and whether every kernel that this processor can run passed its self-check."""

    sections: dict[str, dict[str, str]]
    healthy: bool

    def __str__(self) -> str:
        lines = []
        for title, entries in self.sections.items():
            width = max((len(name) for name in entries), default=0)
            lines += [f"{title}:", *(f"  {name:>{width}}: {value}" for name, value in entries.items()), ""]
        return "\n".join(lines[:-1])


def show_versions() -> None:
    """Print what a bug report needs: versions, processor, threads, GPU, kernels and their self-checks.

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.show_versions()  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
    System:
       labeltide: ...
    ...
    """
    print(examine())


def examine() -> Report:
    """Look at this installation and check every kernel variant that the processor can run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what a failed check would warn of stands in the report
        checked = {name: library.load(name).checks for name in library.runnable()}
        chosen = {kernel: _chosen(kernel) for kernel in KERNELS}
    kernels = {
        name: "; ".join(
            f"{kernel} {'passed' if result.passed else 'FAILED'} "
            f"({result.difference:.0e}, {1e3 * result.seconds:.1f} ms)"
            for kernel, result in results.items()
        )
        for name, results in checked.items()
    }
    for name in library.VARIANTS:
        if name not in kernels:
            kernels[name] = "built, but this processor cannot run it" if name in library.built() else "not built"
    threads = f"{torch.get_num_threads()} within operations, {torch.get_num_interop_threads()} between them"
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Report(
        {
            "System": {
                "labeltide": __version__,
                "python": sys.version.replace("\n", " "),
                "executable": sys.executable,
                "machine": platform.platform(),
                "processor": f"{_processor()}, {os.cpu_count()} cores",
            },
            "Dependencies": _dependencies(),
            "Torch": {
                "capability": torch.backends.cpu.get_cpu_capability(),
                "threads": threads,
                "GPU": ", ".join(gpus) if torch.cuda.is_available() else "none",
            },
            "Kernels found, with the result of their self-check (difference from torch, time)": kernels,
            f"Kernels in use ({library.ENVIRONMENT}={os.environ.get(library.ENVIRONMENT, '')!r})": chosen,
        },
        all(result.passed for results in checked.values() for result in results.values()),
    )


def _processor() -> str:
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        model = re.search("^model name.*?:(.*)", information.read_text(), re.MULTILINE)
        name = model[1].strip() if model else name
    level = library.processor_level()
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return f"{name} ({PROCESSORS[level]})" if x86 and level is not None else name


def _dependencies() -> dict[str, str]:
    try:
        required = requires("labeltide") or []
    except PackageNotFoundError:  # run from a folder that is not installed
        required = ["numpy", "scipy", "scikit-learn", "torch", "pyarrow"]
    names = [re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line]
    return {name: _version(name) for name in sorted([*names, "pip", "triton"])}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _chosen(kernel: str) -> str:
    active = library.active()
    on_cpu = choose(kernel, torch.device("cpu"))
    parts = [f"CPU: {active.name if active is not None and on_cpu == 'c' else 'torch'}"]
    if torch.cuda.is_available():
        parts.append(f"GPU: {choose(kernel, torch.device('cuda'))}")
    return ", ".join(parts)
