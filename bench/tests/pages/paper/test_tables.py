from labeltide_bench.pages.paper.sources import read_studies
from labeltide_bench.pages.paper.tables import PlainTable, as_markdown, printed_cells, size_table, stress_table


def test_table_4_holds_the_printed_numbers_beside_ours(folders):
    people = read_studies(folders[3:]).people
    table = stress_table(people)
    rows = {row[0].split(" ")[0]: row for row in table.rows}
    assert rows["continuous"][2:5] == ["9.7 ± 1.3", "21.1 ± 0.5", "25.5 ± 1.7"]
    assert rows["volmin"][2:5] == ["16.4 ± 1.1", "31.0 ± 0.3", "29.5 ± 4.0"]
    assert rows["tide"][2:5] == ["\N{EN DASH}"] * 3
    assert all("±" in text for text in rows["continuous"][5:])
    assert "not public" in table.caption


def test_tables_2_and_3_hold_only_rows_that_the_paper_printed(folders):
    cells = read_studies(folders[1:2]).tables
    assert [cell.name for cell in printed_cells(cells, "mixed")] == ["moving", "senior", "blinking", "sleeping"]


def test_table_6_sets_sizes_side_by_side(folders):
    rows = {row[0]: row for row in size_table(read_studies(folders[1:2]).tables).rows}
    assert rows["moving"][2:5] == ["192", "9", "50"]
    assert rows["moving"][5:8] == ["moving", "the paper's own", "137 + 55"]
    assert rows["senior"][6] == "substitute"


def test_markdown_escapes_bars():
    text = as_markdown(PlainTable("T", "c", ["a", "b"], [["x|y", "1"]]))
    assert text.endswith("| a | b |\n|---|---|\n| x\\|y | 1 |\n")
