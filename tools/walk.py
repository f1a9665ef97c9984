"""How large labeltide is, and through how many of its files a request runs.

    python tools/walk.py                       # a table of sizes, and the number of files of each request
    python tools/walk.py --names               # with the names of the files
    python tools/walk.py --source OTHER/src    # of another checkout

A file counts for a request when one of its functions is called between the request and its answer; calls while
modules are imported do not count. Every request runs in a process of its own, so the number of imported files is that
of the request alone. `--wheel` also builds the wheel, which needs the compiler of the kernels.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
FIT = """
import labeltide as lt

study = lt.make_sequences(n=24, n_steps=12, n_features=2, stay=0.8, random_state=0)
estimator = lt.{name}(epochs=2, random_state=0, device="cpu")
request = lambda: estimator.fit(study.features, study.labels)
"""
PREDICT = """
import labeltide as lt

study = lt.make_sequences(n=24, n_steps=12, n_features=2, stay=0.8, random_state=0)
estimator = lt.TideClassifier(epochs=2, random_state=0, device="cpu").fit(study.features, study.labels)
request = lambda: estimator.predict(study.features)
"""
AUDIT = """
import subprocess, sys

subprocess.run([sys.executable, "-m", "labeltide", "simulate", "study.parquet", "--people", "6", "--days", "2"],
               check=True, stdout=subprocess.DEVNULL)

def request():
    sys.argv[1:] = "audit study.parquet --clock hour_of_day --fast --quiet --device cpu --out audit".split()
    from labeltide.cli import main

    main()
"""
REQUESTS = {
    "labeltide audit --fast": AUDIT,
    "IgnoreClassifier.fit": FIT.format(name="IgnoreClassifier"),
    "ContinuousClassifier.fit": FIT.format(name="ContinuousClassifier"),
    "TideClassifier.fit": FIT.format(name="TideClassifier"),
    "TideClassifier.predict": PREDICT,
}


def follow(code: str, package: str) -> dict[str, list[str]]:
    """The files of the package that the function `request` of some code calls into, and those that are imported."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or name in called or not name.startswith(package) or not _is_function(frame):
            return
        if not _while_importing(frame, package):
            called.add(name)

    names: dict[str, Any] = {}
    exec(code, names)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        names["request"]()
    except SystemExit as end:  # of a command
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    return {"called": sorted(called), "imported": sorted({file for file in files if file.startswith(package)})}


def _is_function(frame: FrameType) -> bool:
    """Whether a frame runs the body of a function; those of modules and classes have no fast locals."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def _while_importing(frame: FrameType, package: str) -> bool:
    above: FrameType | None = frame
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(package):
            return True
        above = above.f_back
    return False


def files_of_requests(source: Path) -> dict[str, dict[str, list[str]]]:
    """For each request, the files that are called and imported, relative to the package."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{source.parent / 'bench' / 'src'}"}
    package, found = f"{source / 'labeltide'}{os.sep}", {}
    for name, code in REQUESTS.items():
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, __file__, "--follow", package]
            ran = subprocess.run(words, input=code, env=environment, cwd=folder, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"{name} failed:\n{ran.stderr}")
        files = json.loads(ran.stdout.splitlines()[-1])
        found[name] = {kind: [path.removeprefix(package) for path in paths] for kind, paths in files.items()}
    return found


def sizes(source: Path) -> dict[str, str]:
    """The table of sizes: a row for each measure."""
    package = source / "labeltide"
    files = sorted(package.rglob("*.py"))
    texts = {path: path.read_text() for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    total = sum(lines.values())
    imported = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    containers = sum(_is_container(node) for tree in trees.values() for node in ast.walk(tree))
    importers = importers_of_modules(source, trees)
    single = [name for name, users in importers.items() if len(users) == 1]
    return {
        "files": f"{len(files)}",
        "lines": f"{total:,}",
        "median file, lines": f"{median(lines.values()):.0f}",
        "median file without __init__, lines": f"{median(n for p, n in lines.items() if p.stem != '__init__'):.0f}",
        "import lines, share": f"{imported / total:.1%}",
        "dataclasses and named tuples": f"{containers}",
        "modules with one importer": f"{len(single)}",
    }


def _is_container(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    words = [ast.unparse(item).partition("(")[0].rpartition(".")[2] for item in (*node.decorator_list, *node.bases)]
    return bool({"dataclass", "NamedTuple"} & set(words))


def importers_of_modules(source: Path, trees: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """Module → the modules that import it; a name from the front door of a folder stands for the module it is from."""
    names = {_module_name(path, source): path for path in trees}
    doors: dict[str, dict[str, str]] = defaultdict(dict)  # folder → exported name → module
    for name, path in names.items():
        if path.stem == "__init__":
            for home, alias in _imports(trees[path], name, is_package=True):
                doors[name][alias] = home
    found: dict[str, set[str]] = {name: set() for name, path in names.items() if path.stem != "__init__"}
    for name, path in names.items():
        if path.stem == "__init__" and len(trees[path].body) < 40:
            continue  # a front door only passes on
        for home, alias in _imports(trees[path], name, path.stem == "__init__"):
            target = f"{home}.{alias}" if f"{home}.{alias}" in names else home
            target = doors[target].get(alias, target) if target in doors else target
            if target in found and target != name:
                found[target].add(name)
    return found


def _module_name(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Every import of a module as (module, name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")
            above = above[: len(above) - node.level + is_package] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((home, alias.name) for alias in node.names)


def wheel_size(source: Path) -> str:
    """Bytes of the wheel that a copy of the checkout builds."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(source, copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
            shutil.copy(source.parent / name, copy)
        words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
        ran = subprocess.run(words, cwd=copy, capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        return f"{wheels[0].stat().st_size:,} bytes ({wheels[0].name})" if wheels else f"not built: {ran.stderr[-300:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds labeltide/")
    parser.add_argument("--names", action="store_true", help="name the files of each request")
    parser.add_argument("--wheel", action="store_true", help="build the wheel and give its size")
    parser.add_argument("--follow", metavar="PACKAGE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        print(json.dumps(follow(sys.stdin.read(), options.follow)))
        return
    source = options.source.resolve()
    table = sizes(source)
    if options.wheel:
        table["wheel"] = wheel_size(source)
    walks = files_of_requests(source)
    for name, files in walks.items():
        table[f"{name}: files called / imported"] = f"{len(files['called'])} / {len(files['imported'])}"
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:{width}}  {value}")
    if options.names:
        for name, files in walks.items():
            print(f"\n{name}:", *files["called"], sep="\n  ")


if __name__ == "__main__":
    main()
