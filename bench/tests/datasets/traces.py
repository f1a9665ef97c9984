"""What a failed fetch must leave: nothing."""

from pathlib import Path

import pytest

from labeltide_bench import datasets as public


def content(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, hidden or not."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def assert_fails_without_a_trace(data, name, message, **options):
    before = content(data.parent)
    with pytest.raises(public.FetchError, match=message) as caught:
        public.fetch(name, data, **options)
    assert content(data.parent) == before
    assert "Nothing was changed" in str(caught.value)
    assert public.DATASETS[name].page in str(caught.value)
