"""Audits of whole tables by the command line: time, memory, size of the page and the printed conclusions.

    python bench/benchmarks/audits.py --data DATA --out bench/results/audits      # or LABELTIDE_DATA=DATA

Runs `labeltide demo` and `labeltide audit`, one process at a time: the demonstration, tables of real labels, and a
simulated table of a million rows. Measures wall time, CPU time, peak memory, the size of the page and the time in which
a browser opens it, and keeps the printed text. Writes records.jsonl and audits.md; a run named with --only replaces its
record. Wall times are comparable on an idle machine only, so the load before each run is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

MILLION = 670  # people of a simulated study over 14 days: a little more than a million rows
COLUMNS = {  # of audits.md, and where their numbers lie in a record
    "rows": "rows",
    "labels": "labels",
    "classes": "classes",
    "features": "features",
    "annotators": "annotators",
    "exit code": "exit_code",
    "wall s": "seconds",
    "CPU s": "cpu_seconds",
    "load": "load_before",
    "peak MB": "peak_mb",
    "page MB": "page_mb",
    "page opens in s": "page_opens_s",
}
COMMAND = Path(sys.executable).with_name("labeltide")


class AuditCommand(NamedTuple):
    """One command; TABLE stands for its table, OUT for its folder of results."""

    name: str
    words: tuple[str, ...]
    file: str | None = None  # below DATA


RUNS = (
    AuditCommand("demo", ("demo", "--out", "OUT")),
    AuditCommand("uci_har", ("audit", "TABLE", "--out", "OUT"), "uci_har/train.parquet"),
    AuditCommand(
        "lund2013",
        ("audit", "TABLE", "--label", "label_MN,label_RA", "--out", "OUT"),
        "lund2013/lund2013_two_coders_500hz.parquet",
    ),
    AuditCommand("dod_scorers", ("audit", "TABLE", "--out", "OUT"), "dod_scorers/dod_hypnograms.parquet"),
    AuditCommand("million", ("audit", "TABLE", "--clock", "hour_of_day", "--out", "OUT")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/audits", help="folder for the records")
    parser.add_argument("--only", nargs="*", choices=[run.name for run in RUNS], help="some of the runs")
    parser.add_argument("--keep", type=Path, help="folder for the audits themselves, to look at their pages")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    records = read_records(out / "records.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        wanted = [run for run in RUNS if arguments.only is None or run.name in arguments.only]
        for record in measure_all(wanted, Path(arguments.data), arguments.keep or Path(folder)):
            records[record["name"]] = record
            print(record["name"], f"exit code {record['exit_code']}, {record['seconds']:.0f} s", flush=True)
            ordered = [records[run.name] for run in RUNS if run.name in records]
            (out / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in ordered))
            (out / "audits.md").write_text(write_page(ordered))


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """The records of earlier runs by their names."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def measure_all(runs: list[AuditCommand], data: Path, target: Path) -> Iterator[dict[str, Any]]:
    """One record for each run."""
    target.mkdir(parents=True, exist_ok=True)
    for run in runs:
        table = data / run.file if run.file else target / "million.parquet"
        if run.name == "million" and not table.exists():
            subprocess.run([COMMAND, "simulate", table, "--people", str(MILLION)], check=True, capture_output=True)
        folder = target / run.name
        shutil.rmtree(folder, ignore_errors=True)
        spoken = " ".join(("labeltide", *run.words)).replace("TABLE", table.name).replace("OUT", run.name)
        words = [str({"TABLE": table, "OUT": folder}.get(word, word)) for word in run.words]
        yield {"name": run.name, "command": spoken, **measure(words, folder), **read_audit(folder), **where()}


def measure(words: list[str], folder: Path) -> dict[str, Any]:
    """Run the command line in its own process: what it costs and what it says."""
    load, start = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryFile("w+") as message:
        process = subprocess.Popen([COMMAND, *words], stdout=message, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        message.seek(0)
        text = message.read().replace(f"{folder.parent}{os.sep}", "")
    return {
        "exit_code": process.returncode,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load_before": round(load, 1),
        "peak_mb": round(used.ru_maxrss / (1000 if sys.platform == "linux" else 1_000_000)),
        "printed": text.strip().splitlines(),
    }


def read_audit(folder: Path) -> dict[str, Any]:
    """What stands in the folder of results: sizes, the verdict, and what the page says was done."""
    if not folder.exists():
        return {}
    from labeltide.auditing.page.format import terminal_text
    from labeltide.auditing.page.verdict import write_verdict

    audit = json.loads((folder / "audit.json").read_bytes())
    table, verdict = audit["table"], write_verdict(audit)
    page = folder / "report.html"
    return {
        "rows": table["rows"],
        "labels": table["labels"],
        "sequences": table["sequences"],
        "classes": len(table["classes"]),
        "features": len(table["features"]),
        "annotators": len(table["annotators"] or ()) or 1,
        "stages": {name: round(value, 1) for name, value in audit["seconds"].items()},
        "page_mb": round(page.stat().st_size / 1e6, 2),
        "page_opens_s": time_page(page),
        "folder_mb": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 1),
        "headline": terminal_text(verdict.headline),
        "verdict": [terminal_text(f"{card.question} {card.answer}. {card.detail}") for card in verdict.cards],
        "caution": terminal_text(verdict.caution),
        "messages": table["messages"],
    }


def time_page(page: Path) -> float | None:
    """Seconds until a browser has the page open and answers; None where there is no browser."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1180, "height": 900})
        start = time.perf_counter()
        tab.goto(page.resolve().as_uri())
        tab.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        seconds = time.perf_counter() - start
        browser.close()
    return round(seconds, 2)


def where() -> dict[str, Any]:
    """The state of the code and the machine."""
    from labeltide_bench.studies.origin import origin

    return {**origin("cpu"), "cores": os.cpu_count(), "finished": datetime.now(UTC).isoformat(timespec="seconds")}


def write_page(records: list[dict[str, Any]]) -> str:
    """The records as a table and as the words that were printed."""
    lines = [
        "# What audits of whole tables cost and say",
        "",
        "Made by `python bench/benchmarks/audits.py`; every number is in `records.jsonl`. The load is that of the",
        "machine just before the run: above 1 the wall time also measures other work.",
        "",
        f"| table | {' | '.join(COLUMNS)} |",
        f"|---|{'--:|' * len(COLUMNS)}",
    ]
    for record in records:
        cells = [f"{record[name]:,}" if record.get(name) is not None else "" for name in COLUMNS.values()]
        lines.append(f"| {record['name']} | {' | '.join(cells)} |")
    for record in records:
        lines += ["", f"## {record['name']}", "", f"`{record['command']}`", "", "```", *record["printed"], "```"]
        if record.get("headline"):
            lines += ["", f"**{record['headline']}** {record['caution']}", ""]
            lines += [f"- {sentence}" for sentence in record["verdict"]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
