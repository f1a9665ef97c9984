from hypothesis import given
from hypothesis import strategies as st

from labeltide.auditing.page.format import (
    clean,
    display_name,
    in_quotes,
    name_markup,
    shorten,
    sound,
    terminal_text,
    text_markup,
)

anything = st.text(st.characters(exclude_categories=[]), max_size=400)  # with half characters and controls


@given(anything)
def test_any_name_becomes_one_line_that_can_be_written_and_turns_nothing(text):
    for made in (
        display_name(text),
        terminal_text(in_quotes(text)),
        str(name_markup(text)),
        str(text_markup(text)),
        sound(text),
    ):
        made.encode()
    assert len(display_name(text)) <= 40
    assert not set(clean(text)) & set("\n\r\t\x00\x1b\u202e\u2066\u2069")
    assert "<" not in str(name_markup(text)).removeprefix("<bdi").removesuffix("</bdi>").replace("&lt;", "")


def test_the_middle_of_a_long_name_is_left_out():
    assert shorten("a" * 100 + "end", 20) == "a" * 14 + "…" + "aaend"
    assert shorten("short") == "short"


def test_a_shortened_name_shows_more_on_pointing():
    assert name_markup("y" * 50).startswith('<bdi title="yyyy')
    assert name_markup("y") == "<bdi>y</bdi>"
    assert display_name(" \n ") == "unnamed"
