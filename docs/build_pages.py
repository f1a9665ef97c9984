"""Pages that are written from the program: the reference in Markdown, and the report that the first page shows.

python docs/build_pages.py      # docs/reference/commands.md and docs/reference/names.md
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import public_names
from cyclopts import App, Argument

DOCS = Path(__file__).parent
LIVE = DOCS / "_build" / "live"  # copied into the site as it is
COMMANDS = """# Commands

`labeltide --help` lists the commands, and `labeltide COMMAND --help` shows the options of one. See also
[files and columns](files.md) and [exit codes](exit_codes.md). `bench`, `report`, `pack` and `datasets` need the
distribution `labeltide-bench`.

This page is written by `python docs/build_pages.py` from the program.
"""
REPORT_COMMAND = (
    "labeltide audit study.csv --features movement,posture,heart_rate --annotator annotator --clock hour_of_day"
)


def reference_pages() -> dict[Path, str]:
    """The pages of the reference that are written from the program; the files are committed."""
    tables = "\n".join(_describe(name, command) for name, command in commands()).rstrip()
    folder = DOCS / "reference"
    return {folder / "commands.md": f"{COMMANDS}\n{tables}\n", folder / "names.md": public_names.names_page()}


def write_reference() -> None:
    """Write the pages that have changed."""
    for path, text in reference_pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def commands() -> Iterator[tuple[str, App]]:
    """The name of every command, such as `datasets fetch`, and its program."""
    from labeltide.cli import app

    yield from _below(app, "")


def _below(app: App, words: str) -> Iterator[tuple[str, App]]:
    for name in app:
        if name.startswith("-"):
            continue
        below = list(_below(app[name], f"{words}{name} "))
        yield from below or [(f"{words}{name}", app[name])]


def _describe(name: str, command: App) -> str:
    rows = [_row(argument) for argument in command.assemble_argument_collection() if argument.show and argument.names]
    words = " ".join(row[0].strip("`") for row in rows if not row[0].startswith("`--"))
    required = " ".join(f"{row[0].strip('`')} ..." for row in rows if row[0].startswith("`--") and row[2] == "required")
    usage = " ".join(part for part in (f"labeltide {name}", words, required) if part)
    table = ["| argument | meaning | default |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([f"## {name}", "", command.help, "", "```bash", usage, "```", "", *(table if rows else []), ""])


def _row(argument: Argument) -> tuple[str, str, str]:
    """The name of an argument, its meaning, and its default."""
    field, name = argument.field_info, argument.names[0]
    shown = f"`{name}`" if argument.index is None else f"`{name.removeprefix('--').upper()}`"
    meaning = (argument.parameter.help or "").replace("|", "\\|")
    if argument.required:
        return shown, meaning, "required"
    default = field.default
    nothing = default is None or default is inspect.Parameter.empty or default is False
    return shown, meaning, "" if nothing else f"`{default}`"


def write_live_report() -> None:
    """The folder of an audit of a small simulated study for the first page; about 20 s, kept for the next build."""
    folder = LIVE / "audit"
    if folder.exists():
        return
    import labeltide as lt
    from labeltide.data.studies import simulate_study, write_study

    with tempfile.TemporaryDirectory() as folder_name:
        lt.audit(
            write_study(simulate_study(people=10, days=3), Path(folder_name) / "study.csv"),
            features="movement,posture,heart_rate",
            annotator="annotator",
            clock="hour_of_day",
            out=Path(folder_name) / "audit",
            command=REPORT_COMMAND,
        )
        LIVE.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder_name) / "audit", folder)


def remove_source_maps(site: Path) -> None:
    """A third of the site would be maps of the theme's sources, which only its developers read."""
    for path in (site / "_static").glob("**/*.map"):
        path.unlink()


if __name__ == "__main__":
    write_reference()
