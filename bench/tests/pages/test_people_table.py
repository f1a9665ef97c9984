"""Tables of labels of real people as Markdown."""

from labeltide_bench.pages.people import (
    EXPERT_HEADS,
    PEOPLE_HEADS,
    Line,
    People,
    PeopleTable,
    PersonBlock,
    people_markdown,
)
from labeltide_bench.pages.result_tables import Entry


def test_lines_have_all_columns_and_the_lowest_error_is_bold():
    entries = [Entry("1.0", "0.1", is_best=True), Entry("2.0"), Entry("")]
    table = PeopleTable("nights", "Percent.", [PersonBlock("ann", [], [Line("tide", "", entries)])])
    text = people_markdown(People("", [], [], (), list(PEOPLE_HEADS.values()), [], [table], []))
    assert text.splitlines()[-1] == "| ann | tide | **1.0 ± 0.1** | 2.0 | \N{EN DASH} |"
    assert "# nights" in text


def test_heads_of_disagreement_follow_the_others():
    heads = [list(each.values()) for each in (PEOPLE_HEADS, EXPERT_HEADS)]
    text = people_markdown(People("", [], [], (), *heads, [PeopleTable("nights", "Percent.", [])], []))
    assert " | ".join([*heads[0], *heads[1]]) in text
