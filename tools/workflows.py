"""Run the commands of .github/workflows on this machine, so that none of them is a guess.

    python tools/workflows.py --list           # what would be run, and what is skipped for which reason
    python tools/workflows.py                  # run all that can be run here
    python tools/workflows.py test.yml docs.yml

Steps that use an action have no command. Of a matrix the values of this machine are taken. It also checks that every
action is pinned by a full hash with its version, and that every workflow limits its permissions.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".github/workflows"
HERE = {"matrix.system": "ubuntu-24.04", "matrix.python": ".".join(map(str, sys.version_info[:2]))}
SKIPPED = {  # fragment of a command: why it is not run here
    "sudo ": "installs packages of the system",
    "sha256sum": "needs the files of another job; `make release` runs the same check",
    "mv dist/": "moves the files of another job",
    "--find-links dist": "`make wheels WHEELS_ARGS=--install` does the same in an environment of its own",
    "pip install --editable": "would change the environment that runs this script; `make setup` does the same",
    "contracts.py": "needs an installed wheel; `make wheel` runs it in an environment of its own",
    "SUPPLY_ARGS=--strict": "needs the service of known vulnerabilities",
}
LONG = {
    "tests/test_contracts.py": "some minutes",
    "make test": "ten minutes",
    "make fuzz": "twenty minutes",
    "make floors": "downloads torch",
    "tests/tables": "ten minutes",
}


def commands(path: Path) -> Iterator[tuple[str, str]]:
    """Each step with a command: the job and the command, with the values of this machine filled in."""
    for job, content in yaml.safe_load(path.read_text())["jobs"].items():
        for step in content.get("steps", []):
            if "run" in step:
                yield job, re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: HERE[found[1]], step["run"]).strip()


def complaints(path: Path) -> list[str]:
    """What is unsafe in a workflow."""
    text = path.read_text()
    workflow = yaml.safe_load(text)
    used = re.findall(r"uses: (.+)", text)
    loose = [name for name in used if not re.fullmatch(r"(\./\S+|\S+@[0-9a-f]{40} # v[\d.]+)", name.strip())]
    found = [f"{path.name}: {name} is not pinned by a full hash with its version" for name in loose]
    if workflow.get("permissions") not in ({}, {"contents": "read"}):
        found.append(f"{path.name}: the permissions of the workflow must be contents: read")
    return found


def main() -> int:
    """Run or list; 1 if a command fails or a workflow is unsafe."""
    parser = argparse.ArgumentParser(description="Run the commands of the workflows on this machine.")
    parser.add_argument("names", nargs="*", help="workflows; all if none is named")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    parser.add_argument("--long", action="store_true", help="also run what takes long")
    arguments = parser.parse_args()
    paths = [FOLDER / name for name in arguments.names] or sorted(FOLDER.glob("*.yml"))
    wrong = [complaint for path in paths for complaint in complaints(path)]
    reasons = SKIPPED if arguments.long else SKIPPED | {key: f"takes long: {why}" for key, why in LONG.items()}
    done: dict[str, int] = {}
    for path in paths:
        for job, command in commands(path):
            reason = next((why for fragment, why in reasons.items() if fragment in command), "")
            line = f"{path.name}, {job}: {command}"
            if reason or arguments.list:
                print(f"skipped  {line}  ({reason})" if reason else f"runs     {line}", flush=True)
                continue
            if command not in done:
                started = time.perf_counter()
                done[command] = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=ROOT).returncode
                print(f"[{time.perf_counter() - started:.0f} s]", flush=True)
            print(f"{'FAILED ' if done[command] else 'passed '}  {line}", flush=True)
            wrong += [f"{path.name}: `{command}` ended with code {done[command]}"] if done[command] else []
    print("\n".join(wrong) or "No workflow has a command that fails or an action that is not pinned.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
