"""Imports go from a layer to layers below it only; ARCHITECTURE.md has the table."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import labeltide
from fresh_process import run_code

REPOSITORY = Path(__file__).parents[1]
SOURCE = REPOSITORY / "src"
ROOT = SOURCE / "labeltide"
BENCH_SOURCE = REPOSITORY / "bench" / "src"
BENCH_ROOT = BENCH_SOURCE / "labeltide_bench"
STEPS = [
    {"_validation", "_clock", "_fleet", "_files", "_display", "_workers"},
    {"kernels", "tables"},
    {"data", "noise", "models", "chain", "recordings"},
    {"training"},
    {"estimators", "inference"},
    {"auditing"},
    {"demo", "doctor", "reviewing", "exporting"},
    {"cli"},
]
BENCH_STEPS = [{"datasets", "evaluation", "dawid_skene", "simulated", "tables"}, {"studies"}, {"pages"}, {"cli"}]
FRONT = "__init__"  # may name everything, and everything may read its version
STEP_OF = {name: step for step, names in enumerate(STEPS) for name in names}
BENCH_STEP_OF = {name: step for step, names in enumerate(BENCH_STEPS) for name in names}
FRIENDS = {
    ("estimators", "inference"),
    ("_clock", "_validation"),
    ("_workers", "_files"),
}  # within one step, who may call whom
FORWARDERS = {ROOT / "cli" / "commands.py"}  # the only file of the library that may import labeltide_bench

FILES = sorted(ROOT.rglob("*.py"))
BENCH_FILES = sorted(BENCH_ROOT.rglob("*.py"))


def part(path: Path) -> str:
    """The folder, or the file beside the folders, to which a file belongs."""
    root = ROOT if path.is_relative_to(ROOT) else BENCH_ROOT
    return path.relative_to(root).parts[0].removesuffix(".py")


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run, also those within functions; not those for type checkers."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for node in tree.orelse:
            yield from imports(node)
        return
    if isinstance(tree, ast.Import | ast.ImportFrom):
        yield tree
    for node in ast.iter_child_nodes(tree):
        yield from imports(node)


@cache
def imported_modules(source: str, package: str = "labeltide") -> set[str]:
    """The full names that a file of the given package imports; for `from a import b` that is a.b."""
    found = set()
    for node in imports(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{home}.{alias.name}" for alias in node.names}
    return found


def package_of(path: Path) -> str:
    source = SOURCE if path.is_relative_to(SOURCE) else BENCH_SOURCE
    return ".".join(path.relative_to(source).parts[:-1])


def parts_imported(path: Path) -> set[str]:
    """The parts of labeltide that a file imports; a public name stands for the part it comes from."""
    names = imported_modules(path.read_text(), package_of(path))
    inside = {name.split(".")[1] for name in names if name.startswith("labeltide.")}
    own = {name: home for name, home in labeltide._HOMES.items() if home.startswith("labeltide.")}
    homes = {name: home.split(".")[1] for name, home in own.items()}
    found = {homes.get(name, name) for name in inside} - {"__version__"}
    return found | set(homes.values()) if "labeltide" in names else found


def may_import(importer: str, imported: str) -> bool:
    if importer == imported or (importer, imported) in FRIENDS:
        return True
    return imported in STEP_OF and importer in STEP_OF and STEP_OF[imported] < STEP_OF[importer]


def test_every_file_belongs_to_a_step():
    homeless = [named(path) for path in FILES if part(path) not in {*STEP_OF, FRONT, "__main__"}]
    homeless += [named(path) for path in BENCH_FILES if part(path) not in {*BENCH_STEP_OF, FRONT}]
    assert homeless == [], "Give them a step in STEPS or BENCH_STEPS, or another home."


def test_imports_point_down_only():
    inside = [path for path in FILES if part(path) not in (FRONT, "__main__")]
    upward = [
        f"{named(path)} imports {name}"
        for path in inside
        for name in sorted(parts_imported(path))
        if not may_import(part(path), name)
    ]
    assert not upward, "\n".join(upward)


def test_names_with_an_underscore_stay_within_their_module():
    found = [f"{named(path)} uses {name}" for path in [*FILES, *BENCH_FILES] for name in sorted(private_names(path))]
    assert not found, "\n".join(found)


def private_names(path: Path) -> set[str]:
    """Private names of other modules of labeltide that a file imports, or reads from what it imports."""
    tree, taken, found = ast.parse(path.read_text()), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("labeltide", "labeltide_bench"):
            taken |= {alias.asname or alias.name for alias in node.names}
            inside = node.module not in ("labeltide", "labeltide_bench")  # where modules such as _files are
            found |= {f"{node.module}.{alias.name}" for alias in node.names if inside and alias.name.startswith("_")}
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    of_tuples = {"_fields", "_replace", "_asdict", "_make"}  # public, of named tuples
    private = [node for node in reads if re.match("_[^_]", node.attr) and node.attr not in of_tuples]
    return found | {ast.unparse(node) for node in private if ast.unparse(node.value) in taken}


def test_the_library_never_imports_the_bench():
    found = [
        f"{named(path)} imports {name}"
        for path in set(FILES) - FORWARDERS
        for name in imported_modules(path.read_text(), package_of(path))
        if name.split(".")[0] == "labeltide_bench"
    ]
    assert not found, "\n".join(found)


def test_imports_within_the_bench_point_down_only():
    upward = []
    for path in [path for path in BENCH_FILES if part(path) != FRONT]:
        names = imported_modules(path.read_text(), package_of(path))
        inside = {name.split(".")[1] for name in names if name.startswith("labeltide_bench.")} - {part(path)}
        above = [name for name in inside if BENCH_STEP_OF[name] >= BENCH_STEP_OF[part(path)]]
        upward += [f"{named(path)} imports {name}" for name in above]
    assert not upward, "\n".join(upward)


def test_the_front_imports_nothing_until_asked():
    assert parts_imported(ROOT / "__init__.py") == set()


def test_the_two_lowest_files_do_not_know_each_other():
    assert parts_imported(ROOT / "_validation.py") == set()
    assert parts_imported(ROOT / "_fleet.py") == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import labeltide.noise.functions as b", {"labeltide.noise.functions"}),
        ("from labeltide import _validation", {"labeltide._validation"}),
        ("def f():\n    from labeltide.cli import main", {"labeltide.cli.main"}),
        ("if TYPE_CHECKING:\n    import torch\nelse:\n    import numpy", {"numpy"}),
        ("from .base import X", {"labeltide.noise.base.X"}),
        ("from ..models import Y", {"labeltide.models.Y"}),
        ("from . import base", {"labeltide.noise.base"}),
    ],
)
def test_the_reader_of_imports_sees_every_form(source, expected):
    assert imported_modules(source, "labeltide.noise") == expected


def test_the_rule_itself():
    assert may_import("estimators", "inference")
    assert not may_import("inference", "estimators")
    assert not may_import("noise", "models")
    assert not may_import("training", "estimators")
    assert not may_import("cli", "nowhere")
    assert may_import("cli", "_validation")


def files_of(name: str) -> list[Path]:
    """The files that run when a module of labeltide is imported by its full name."""
    root, steps = ROOT if name.startswith("labeltide.") else BENCH_ROOT, name.split(".")[1:]
    candidates = [root.joinpath(*steps[:depth], "__init__.py") for depth in range(1, len(steps) + 1)]
    candidates += [root.joinpath(*steps[:depth]).with_suffix(".py") for depth in range(1, len(steps) + 1)]
    return [path for path in candidates if path.exists()]


PAGES = {ROOT / "auditing" / "page", BENCH_ROOT / "pages"}  # read results, never train, never load torch


def test_pages_never_reach_torch():
    waiting, seen = sorted(path for folder in PAGES for path in folder.rglob("*.py")), set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        names = imported_modules(_at_import(path), package_of(path))
        assert not {name for name in names if name.split(".")[0] == "torch"}, f"{path} imports torch."
        inside = [name for name in names if name.split(".")[0] in ("labeltide", "labeltide_bench")]
        waiting += [file for name in inside for file in files_of(name)]


def _at_import(path: Path) -> str:
    """The source of what runs on import; within a page's own folder, the bodies of functions too."""
    tree = ast.parse(path.read_text())
    if not any(path.is_relative_to(folder) for folder in PAGES):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = [ast.Pass()]
    return ast.unparse(tree)


def test_importing_pages_leaves_torch_out():
    modules = [
        f"{package_of(path)}.{path.stem}".removesuffix(".__init__")
        for folder in PAGES
        for path in sorted(folder.rglob("*.py"))
    ]
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def test_an_audit_never_loads_matplotlib():
    code = "import sys, labeltide.auditing.run, labeltide.auditing.page; sys.exit('matplotlib' in sys.modules)"
    assert run_code(code).returncode == 0


def test_importing_labeltide_leaves_torch_out():
    code = "import sys, labeltide, labeltide._validation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{SOURCE}:{BENCH_SOURCE}", "PATH": ""}


def test_nothing_read_from_a_file_is_ever_run():
    assert [f"{named(path)}: {name}" for path in [*FILES, *BENCH_FILES] for name in unsafe_names(path)] == []


def unsafe_names(path: Path) -> set[str]:
    """Modules and functions that run what they read, and that a file imports or calls."""
    source = path.read_text()
    found = {
        name
        for name in imported_modules(source, package_of(path))
        if re.match(r"_?c?(pickle|dill|cloudpickle|joblib)\b", name)
    }
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    called = {ast.unparse(call) for call in calls if isinstance(call, ast.Name | ast.Attribute)}
    return found | (called & {"eval", "exec", "builtins.eval", "builtins.exec", "torch.load", "torch.save"})


def test_scripts_import_what_exists():
    """Benchmarks, tools, docs and examples are not type-checked, and many import within functions."""
    folders = ("bench/benchmarks", "bench/tests", "tests", "tools", "docs", "examples")
    absent = [
        f"{named(path)} imports {name}"
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        for name in imported_modules(path.read_text(), "")
        if name.split(".")[0] in ("labeltide", "labeltide_bench") and not exists(name)
    ]
    assert not absent, "\n".join(absent)


def exists(name: str) -> bool:
    """Whether a full name is that of a module, or of something in one."""
    home, _, last = name.rpartition(".")
    try:
        if not home or last == "*" or find_spec(name) is not None:
            return True
    except ModuleNotFoundError:  # the home is a module without modules of its own, or is not there
        pass
    return find_spec(home) is not None and hasattr(import_module(home), last)


def test_every_public_name_is_there():
    assert sorted(set(labeltide.__all__)) == labeltide.__all__
    for name in labeltide.__all__:
        assert getattr(labeltide, name) is not None
    assert set(labeltide.__all__) <= set(dir(labeltide))
    with pytest.raises(AttributeError, match=r"labeltide has no 'nonsense'. It has: "):
        labeltide.nonsense  # noqa: B018
