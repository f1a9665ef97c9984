"""The made-up studies of the paper, and the page that is made from them once."""

from __future__ import annotations

from pathlib import Path

import pytest

from labeltide_bench.pages import write_paper
from pages.paper.fake import write_studies


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four folders of records, whose accuracies are the paper's with a little noise."""
    return write_studies(tmp_path_factory.mktemp("studies"))


@pytest.fixture(scope="session")
def page_folder(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page that is made from them."""
    return write_paper(folders, tmp_path_factory.mktemp("page")).parent


@pytest.fixture
def results_folder() -> Path:
    """The committed records and pages."""
    return Path(__file__).parents[3] / "results"
