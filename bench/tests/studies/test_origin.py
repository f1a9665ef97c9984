"""The commit that a record names."""

import subprocess

import pytest

from labeltide_bench.studies import origin


@pytest.mark.parametrize(
    "changed", ["", "src/labeltide/loop.py", "bench/src/labeltide_bench/studies/origin.py", "docs/page.md"]
)
def test_a_commit_is_dirty_where_the_library_or_the_benchmark_differs_from_it(tmp_path, monkeypatch, changed):
    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    files = [tmp_path / name for name in ("src/labeltide/loop.py", "bench/src/labeltide_bench/studies/origin.py")]
    files += [tmp_path / "docs/page.md", tmp_path / "bench/src/labeltide_bench/__init__.py"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    if changed:
        (tmp_path / changed).write_text("y")
    monkeypatch.setattr(origin, "__file__", str(files[1]))
    monkeypatch.delenv("LABELTIDE_COMMIT", raising=False)
    commit = origin.origin.__wrapped__("cpu")["commit"]  # past its cache
    assert len(commit.removesuffix("-dirty")) == 40
    assert commit.endswith("-dirty") == changed.endswith(".py")
