"""Imports go from a layer to layers below it only; ARCHITECTURE.md has the table."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labeltide

SOURCE = Path(__file__).parents[1] / "src"
ROOT = SOURCE / "labeltide"
BENCH_SOURCE = Path(__file__).parents[1] / "bench" / "src"
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
BENCH_STEPS = [{"datasets", "evaluation", "dawid_skene", "simulated"}, {"studies"}, {"pages"}, {"cli"}]
FRONT = "__init__"  # may name everything, and everything may read its version
STEP_OF = {name: step for step, names in enumerate(STEPS) for name in names}
BENCH_STEP_OF = {name: step for step, names in enumerate(BENCH_STEPS) for name in names}
FRIENDS = {
    ("estimators", "inference"),
    ("_clock", "_validation"),
    ("_workers", "_files"),
}  # within one step, who may call whom
FORWARDERS = {ROOT / "cli" / "__init__.py"}  # the only file of the library that may import labeltide_bench

FILES = sorted(ROOT.rglob("*.py"))
BENCH_FILES = sorted(BENCH_ROOT.rglob("*.py"))
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
every_bench_file = pytest.mark.parametrize("path", BENCH_FILES, ids=lambda path: str(path.relative_to(BENCH_ROOT)))
any_file = pytest.mark.parametrize("path", [*FILES, *BENCH_FILES], ids=lambda path: path.stem)


def part(path: Path) -> str:
    """The folder, or the file beside the folders, to which a file belongs."""
    root = ROOT if path.is_relative_to(ROOT) else BENCH_ROOT
    return path.relative_to(root).parts[0].removesuffix(".py")


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


@every_file
def test_every_file_belongs_to_a_step(path):
    assert part(path) in {*STEP_OF, FRONT, "__main__"}, "Give it a step in STEPS, or another home."


@every_file
def test_imports_point_down_only(path):
    if part(path) in (FRONT, "__main__"):
        pytest.skip("the front door")
    forbidden = {name for name in parts_imported(path) if not may_import(part(path), name)}
    assert not forbidden, f"{part(path)} must not import {', '.join(sorted(forbidden))}."


@every_file
def test_the_library_never_imports_the_bench(path):
    names = imported_modules(path.read_text(), package_of(path))
    found = {name for name in names if name.split(".")[0] == "labeltide_bench"}
    assert not found or path in FORWARDERS, f"{path} imports {', '.join(sorted(found))}."


@every_bench_file
def test_imports_within_the_bench_point_down_only(path):
    if part(path) == FRONT:
        pytest.skip("the front door")
    assert part(path) in BENCH_STEP_OF, "Give it a step in BENCH_STEPS, or another home."
    names = imported_modules(path.read_text(), package_of(path))
    inside = {name.split(".")[1] for name in names if name.startswith("labeltide_bench.")} - {part(path)}
    forbidden = {name for name in inside if BENCH_STEP_OF[name] >= BENCH_STEP_OF[part(path)]}
    assert not forbidden, f"{part(path)} must not import {', '.join(sorted(forbidden))}."


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
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def test_importing_labeltide_leaves_torch_out():
    code = "import sys, labeltide, labeltide._validation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{SOURCE}:{BENCH_SOURCE}", "PATH": ""}


@any_file
def test_nothing_read_from_a_file_is_ever_run(path):
    source = path.read_text()
    assert not {name for name in imported_modules(source) if re.match(r"_?c?(pickle|dill|cloudpickle|joblib)\b", name)}
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert not {call.id for call in calls if isinstance(call, ast.Name)} & {"eval", "exec"}
    called = {ast.unparse(call) for call in calls if isinstance(call, ast.Attribute)}
    assert not called & {"torch.load", "torch.save", "builtins.eval", "builtins.exec"}


def test_every_public_name_is_there():
    assert sorted(set(labeltide.__all__)) == labeltide.__all__
    for name in labeltide.__all__:
        assert getattr(labeltide, name) is not None
    assert set(labeltide.__all__) <= set(dir(labeltide))
    with pytest.raises(AttributeError, match=r"labeltide has no 'nonsense'. It has: "):
        labeltide.nonsense  # noqa: B018
