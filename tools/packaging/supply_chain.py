"""Ask whether the environment's packages have known vulnerabilities, and write down what it is made of.

    python tools/packaging/supply_chain.py            # a vulnerability is an error
    python tools/packaging/supply_chain.py --strict   # so is a package that could not be looked up

pip-audit asks the vulnerability service; cyclonedx-py writes dist/sbom.json. Both live in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
from typing import Any

from commands import ROOT, attempt, step
from environments import Environment, fresh_environment

TOOLS = ("pip-audit>=2.7", "cyclonedx-bom>=5")
BILL = ROOT / "dist/sbom.json"
Entry = dict[str, Any]  # of one package
OWN = "labeltide"  # not on the registry while it is developed


def write_bill(environment: Environment) -> None:
    """Write the bill of materials, without the addresses of files on this machine."""
    options = ["--output-reproducible", "--mc-type", "library", "--pyproject", str(ROOT / "pyproject.toml")]
    bill = json.loads(environment.read("cyclonedx-py", "environment", *options, sys.executable))
    for component in bill["components"]:
        references = component.get("externalReferences", [])
        component["externalReferences"] = [found for found in references if not found["url"].startswith("file:")]
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(json.dumps(bill, indent=2) + "\n")
    print(f"{BILL.relative_to(ROOT)}: {len(bill['components'])} components")


def audit(environment: Environment) -> list[Entry]:
    """What pip-audit says of each package; nothing where its service cannot be reached."""
    found = environment.folder / "audit.json"
    options = ["--path", sysconfig.get_path("purelib"), "--format", "json", "--progress-spinner", "off"]
    ended = attempt(environment.python.with_name("pip-audit"), *options, "--output", found, folder=environment.folder)
    if not found.exists():
        last = (ended.stdout.strip().splitlines() or ["nothing"])[-1]
        print(f"pip-audit ended with code {ended.returncode} and said: {last}")
        return []
    return [entry for entry in json.loads(found.read_text())["dependencies"] if entry["name"] != OWN]


def verdict(entries: list[Entry], *, strict: bool) -> int:
    """Say what was found; 1 if something has to be done. pip-audit itself is content with packages it skipped."""
    unknown = [entry["name"] for entry in entries if "skip_reason" in entry]
    looked_up = [entry for entry in entries if "skip_reason" not in entry]
    weak = [entry for entry in looked_up if entry["vulns"]]
    _tell(looked_up, weak, unknown)
    return int(bool(weak) or (strict and (not looked_up or bool(unknown))))


def _tell(looked_up: list[Entry], weak: list[Entry], unknown: list[str]) -> None:
    for entry in weak:
        known = ", ".join(vulnerability["id"] for vulnerability in entry["vulns"])
        print(f"{entry['name']} {entry['version']} has known vulnerabilities: {known}. Take a newer version.")
    if looked_up:
        print(f"Audited {len(looked_up)} packages, {len(weak)} of them vulnerable; not looked up: {unknown or 'none'}.")
    else:
        print(
            "Nothing was audited: the vulnerability service cannot be reached from here, or knows none of the "
            "packages. Run `make supply-chain` again where it can be reached."
        )


def main() -> int:
    """Write the bill, then audit."""
    parser = argparse.ArgumentParser(description="Audit the environment's packages and write a bill of materials.")
    parser.add_argument("--strict", action="store_true", help="a package that could not be looked up is an error")
    strict = parser.parse_args().strict
    with fresh_environment() as environment:
        with step("Install pip-audit and cyclonedx-bom"):
            environment.install(*TOOLS)
        write_bill(environment)
        return verdict(audit(environment), strict=strict)


if __name__ == "__main__":
    sys.exit(main())
