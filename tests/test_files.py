"""Files are written whole or not at all."""

import pytest

from labeltide import _files
from labeltide._files import write_atomically


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left on device")])
def test_an_interrupted_write_leaves_the_old_file_and_no_partial_one(tmp_path, monkeypatch, step, error):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(_files.os, step, fail)
    with pytest.raises((KeyboardInterrupt, OSError)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_write_atomically_makes_folders_and_replaces_files(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_function_may_write_the_content(tmp_path):
    write_atomically(tmp_path / "file", lambda draft: draft.write_bytes(b"one"))
    assert (tmp_path / "file").read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
