"""The server of a review: decisions through kills, forged requests, and a table of a million rows.

    python bench/benchmarks/review_kills.py --out bench/results/review

A made-up audit is served by `labeltide review`. A client keeps a thousand decisions over HTTP while the server is
killed (SIGKILL) ten times at random moments. A request without an answer is sent again with the same id. Then come ten
thousand requests with a wrong token, a forged Host or from another origin. Writes review_server.md.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from labeltide.auditing.decisions import DecisionStore, file_digest

DECISIONS, KILLS, FORGED, SEED = 1000, 10, 10_000, 5
CLASSES, ANNOTATORS = ["rest", "sit", "walk"], ["Ada", "Ben"]


def make_audit(folder: Path, sequences: int, steps: int) -> Path:
    """An audit of two annotators with a column each, and its table: random labels, of which some are flagged."""
    rng = np.random.default_rng(SEED)
    n = sequences * steps
    names = np.repeat([f"p{number:04d}" for number in range(sequences)], steps)
    times = np.tile(np.arange(steps), sequences)
    table = folder.with_suffix(".parquet")
    signals = {f"signal_{number}": rng.normal(size=n).astype(np.float32) for number in range(8)}
    parquet.write_table(pa.table({"person": names, "time": times, **signals}), table, row_group_size=1 << 16)
    codes = np.repeat(rng.integers(3, size=-(-2 * n // 10)), 10)[: 2 * n]
    right = np.where(np.repeat(rng.random(-(-n // 2)) < 0.05, 4)[: 2 * n], 0.05, 0.97)
    suggested = np.where(right < 0.5, (codes + 1) % 3, codes)
    labels = {
        "row": np.repeat(np.arange(n), 2),
        "sequence": np.repeat(names, 2),
        "time": np.repeat(times, 2).astype(str),
        "annotator": np.tile(ANNOTATORS, n),
        "clock": np.repeat(times / steps, 2),
        "recorded": np.array(CLASSES)[codes],
        "probability_right": right,
        "suggested": np.array(CLASSES)[suggested],
        "suggested_probability": np.maximum(right, 1 - right),
        "corrected": np.array(CLASSES)[suggested],
        "is_issue": right < 0.5,
        "reason": pa.array([None] * (2 * n), pa.string()),
    }
    folder.mkdir()
    parquet.write_table(pa.table(labels), folder / "labels.parquet", row_group_size=1 << 16, compression="zstd")
    about = {"name": table.name, "path": str(table), "digest": file_digest(table), "rows": n, "classes": CLASSES}
    audit = {
        "format": 1,
        "labeltide": "made up",
        "table": {**about, "features": list(signals)},
        "settings": {"seed": 0},
    }
    (folder / "audit.json").write_text(json.dumps(audit))
    return folder


class Server:
    """`labeltide review` in another process, which can be killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.start()

    def start(self) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "labeltide", "review", str(self.folder), "--no-browser", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        atexit.register(self.process.kill)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]
        self.origin = self.address.rsplit("/", 2)[0]
        self.seconds = time.perf_counter() - began
        self.client = httpx.Client(timeout=120)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(f"{self.address}api/{path}", json=body, headers={"origin": self.origin})
        answer.raise_for_status()
        return answer.json()

    def memory(self) -> float:
        """Resident memory of the server in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def decide_through_kills(folder: Path) -> dict[str, Any]:
    """Keep decisions while the server is killed; a request without an answer is sent again."""
    rng = np.random.default_rng(SEED)
    server = Server(folder, "--items", "300", "--sample", "700")
    kill_at = set(rng.choice(np.arange(20, DECISIONS - 20), KILLS, replace=False).tolist())
    answered, resent = [], 0
    for number in range(DECISIONS):
        body = {"position": number, "reviewer": "Ada", "unit": "step", "request": f"request {number}"}
        body |= {"action": "label", "class": int(rng.integers(3))} if number % 2 else {"action": "keep"}
        if number in kill_at:  # while this decision is on its way
            threading.Timer(float(rng.uniform(0, 0.03)), server.process.kill).start()
        while True:
            try:
                server.post("decide", body)
                break
            except httpx.TransportError:
                server.process.wait()
                server.start()
                resent += 1
        answered.append(body["request"])
        if number in kill_at and server.process.poll() is None:
            time.sleep(0.05)
            if server.process.poll() is not None:
                server.start()
    server.process.kill()
    server.process.wait()
    with DecisionStore.open(folder, create=False) as store:
        kept = [decision.request for decision in store.all()]
    return {
        "kills": KILLS + 1,
        "resent": resent,
        "kept": len(kept),
        "lost": len(set(answered) - set(kept)),
        "doubled": len(kept) - len(set(kept)),
    }


def forge_requests(folder: Path) -> dict[str, Any]:
    """Requests with a wrong token, a forged Host or from another origin."""
    server = Server(folder)
    body = {"position": 0, "reviewer": "Eve", "action": "keep", "unit": "step", "request": "forged"}
    kinds: list[tuple[str, dict[str, str]]] = [
        (f"{server.origin}/{'x' * 43}/api/decide", {"origin": server.origin}),
        (f"{server.address}api/decide", {"origin": server.origin, "host": "evil.example"}),
        (f"{server.address}api/decide", {"origin": "https://evil.example"}),
        (f"{server.address}api/decide", {"origin": server.origin, "sec-fetch-site": "cross-site"}),
    ]
    began = time.perf_counter()
    refused = 0
    for number in range(FORGED):
        address, headers = kinds[number % len(kinds)]
        refused += server.client.post(address, json=body, headers=headers).status_code == 403
    seconds = time.perf_counter() - began
    server.process.kill()
    server.process.wait()
    with DecisionStore.open(folder, create=False) as store:
        kept = sum(decision.reviewer == "Eve" for decision in store.all())
    return {"sent": FORGED, "refused": refused, "kept": kept, "seconds": seconds}


def serve_large(folder: Path) -> dict[str, Any]:
    """Times and memory on a large table."""
    server = Server(folder)
    sizes, seconds = [], []
    for position in range(100):
        began = time.perf_counter()
        answer = server.client.get(f"{server.address}api/item/{position}?reviewer=Ada")
        answer.raise_for_status()
        seconds.append(time.perf_counter() - began)
        sizes.append(len(answer.content))
    decided = []
    for position in range(100):
        body = {"position": position, "reviewer": "Ada", "action": "keep", "unit": "step", "request": f"r{position}"}
        began = time.perf_counter()
        server.post("decide", body)
        decided.append(time.perf_counter() - began)
    began = time.perf_counter()
    server.client.get(f"{server.address}api/summary").raise_for_status()
    summary, memory = time.perf_counter() - began, server.memory()
    server.process.kill()
    server.process.wait()
    return {
        "start": server.seconds,
        "item": float(np.median(seconds)),
        "kilobytes": float(np.median(sizes)) / 1000,
        "decision": float(np.median(decided)),
        "summary": summary,
        "memory": memory,
    }


def write_page(path: Path, kills: dict[str, Any], forged: dict[str, Any], large: dict[str, Any], rows: int) -> None:
    lines = [
        "# The server of a review",
        "",
        "`python bench/benchmarks/review_kills.py`: a made-up audit, served by `labeltide review` on one machine.",
        "",
        f"- **Kills.** {DECISIONS:,} decisions over HTTP while the server was killed {kills['kills']} times (SIGKILL), "
        f"{KILLS} of them at random moments while a decision was on its way: {kills['kept']:,} kept, {kills['lost']} "
        f"lost, {kills['doubled']} doubled. {kills['resent']} requests got no answer and were sent again.",
        f"- **Forged requests.** {forged['sent']:,} requests with a wrong token, a forged Host, from another origin or "
        f"marked as cross-site: {forged['refused']:,} refused, {forged['kept']} kept ({forged['seconds']:.0f} s).",
        f"- **A table of {rows:,} rows** with two annotators ({2 * rows:,} labels) and eight signals, on busy cores: "
        f"{large['start']:.1f} s to the first address (digest of the table, queue and sample included), "
        f"{1000 * large['item']:.0f} ms and {large['kilobytes']:.0f} kB for an item, {1000 * large['decision']:.0f} ms "
        f"for a decision, {large['summary']:.1f} s for the summary, {large['memory']:.0f} MB of memory.",
        "",
    ]
    path.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results/review"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        small = make_audit(Path(name) / "small", 20, 500)
        kills, forged = decide_through_kills(small), forge_requests(small)
        print(kills, forged)
        steps = 1000
        large = serve_large(make_audit(Path(name) / "large", options.rows // steps, steps))
    print(large)
    options.out.mkdir(parents=True, exist_ok=True)
    write_page(options.out / "review_server.md", kills, forged, large, options.rows)


if __name__ == "__main__":
    main()
