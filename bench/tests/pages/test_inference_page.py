"""The page of bench/results/inference follows from its records, also from those of checks that were removed."""

import shutil
from pathlib import Path

BENCH = Path(__file__).parents[2]


def test_the_committed_page_of_inference_follows_from_its_records(tmp_path, monkeypatch):
    committed = BENCH / "results" / "inference"
    for records in committed.glob("*.jsonl*"):
        shutil.copy(records, tmp_path)
    monkeypatch.syspath_prepend(BENCH / "benchmarks")
    from inference_page import write_page

    assert write_page(tmp_path) == (committed / "README.md").read_text()
