"""Names are shown so that they break no sentence."""

from labeltide.tables.words import quoted, unique_texts


def test_names_in_sentences_are_short_and_few():
    assert quoted(["a"]) == "'a'"
    assert quoted(["a", "b", "c"]) == "'a', 'b' and 'c'"
    assert quoted([]) == ""
    assert len(quoted(["x" * 10_000] * 500)) < 1000
    assert quoted(list(range(20)), 2) == "'0', '1', ... (20 in all)"


def test_every_value_gets_a_text_of_its_own():
    assert unique_texts([1, "b", ("x", 2)]) == ["1", "b", "x / 2"]
    for values in ([1, "1"], ["a", "a (2)", "a"], ["\ud800", "?"], [("a / b",), ("a", "b")]):
        texts = unique_texts(values)
        assert len(set(texts)) == len(values)
        assert "".join(texts).encode()
