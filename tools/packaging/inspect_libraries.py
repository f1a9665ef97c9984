"""Print as JSON what each shared library given needs and offers. It runs where lief is installed (see wheels.py)."""

import json
import sys

import lief


def describe(path: str) -> dict[str, object]:
    """Format, processor, exported functions, libraries needed, and the least system version."""
    library = lief.parse(path)
    functions = [function.name.removeprefix("_") for function in library.exported_functions]
    found = {"functions": sorted(name for name in functions if not name.startswith("_"))}
    if isinstance(library, lief.ELF.Binary):
        needs = [
            version.name for need in library.symbols_version_requirement for version in need.get_auxiliary_symbols()
        ]
        least = max((name.removeprefix("GLIBC_") for name in needs), key=_numbers, default="0")
        machine = library.header.machine_type
        libraries = list(library.libraries)
    elif isinstance(library, lief.MachO.Binary):
        least = ".".join(map(str, library.build_version.minos[:2]))
        machine = library.header.cpu_type
        libraries = [needed.name for needed in library.libraries]
    else:
        least = "10"  # api-ms-win-crt is part of Windows 10
        machine = library.header.machine
        libraries = [name.lower() for name in library.libraries]
    return {**found, "machine": machine.name, "libraries": libraries, "least": least}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


print(json.dumps({path: describe(path) for path in sys.argv[1:]}))
