"""What is tracked by git stays small: large files are listed here by name, and results stay below a total."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MEGABYTE = 1_000_000
LARGE_FILES = {
    "bench/results/paper/paper.html",  # every figure of the paper, print, public code and ours on one page
    "bench/results/paper/figures/records.parquet",  # 29,542 fits, each with its seed, settings and commit
}
RESULTS_LIMIT = 10 * MEGABYTE


def tracked_sizes() -> dict[str, int]:
    """Path → bytes of every tracked file that is there."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        pytest.skip("This is no git checkout, so there are no tracked files to measure.")
    names = [name for name in listed.decode().split("\0") if (ROOT / name).is_file()]
    return {name: (ROOT / name).stat().st_size for name in names}


def test_no_file_above_one_megabyte_is_tracked_without_being_listed():
    large = {name for name, size in tracked_sizes().items() if size > MEGABYTE}
    assert large <= LARGE_FILES, (
        f"Too large to track: {', '.join(sorted(large - LARGE_FILES))}. Make it smaller (labeltide pack FOLDER "
        "--no-arrays), or add it to LARGE_FILES with a reason."
    )


def test_every_listed_file_is_tracked_and_large():
    sizes = tracked_sizes()
    assert {name for name in LARGE_FILES if sizes.get(name, 0) > MEGABYTE} == LARGE_FILES


def test_results_stay_below_ten_megabytes():
    total = sum(size for name, size in tracked_sizes().items() if name.startswith("bench/results/"))
    assert total < RESULTS_LIMIT, f"bench/results holds {total / MEGABYTE:.1f} MB. Leave out curves or pages."
