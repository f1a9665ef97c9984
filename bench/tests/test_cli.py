import pytest

from labeltide_bench.cli import report


def test_a_page_needs_a_folder():
    with pytest.raises(ValueError, match="Name at least one folder of records"):
        report()


def test_one_place_cannot_take_two_pages(tmp_path):
    with pytest.raises(ValueError, match="--out takes the page of one folder"):
        report(tmp_path, tmp_path, out=tmp_path)


def test_the_page_of_the_paper_is_written_beside_its_folders(tmp_path, capsys):
    from pages.paper.fake import write_studies

    folders = write_studies(tmp_path / "paper", draws=1)
    report(*folders[1:], paper=True)
    assert (tmp_path / "paper" / "paper.html").exists()
    assert "paper.html" in capsys.readouterr().out
