from __future__ import annotations

from labeltide.auditing.decisions import audit_identity, file_digest

SUMMARY = {"table": {"name": "t.csv", "rows": 3, "digest": "sha256:1"}, "settings": {"seed": 0}, "created": "now"}


def test_the_identity_is_that_of_the_table_and_the_settings():
    same = SUMMARY | {"created": "later", "noise": {}}
    other = SUMMARY | {"table": SUMMARY["table"] | {"digest": "sha256:2"}}
    assert audit_identity(SUMMARY) == audit_identity(same)
    assert audit_identity(SUMMARY) != audit_identity(other)
    assert len(audit_identity({})) == 16


def test_the_digest_of_a_file_depends_on_the_order_of_rows(tmp_path):
    for name, text in (("a", "1\n2\n"), ("b", "2\n1\n"), ("c", "1\n2\n")):
        (tmp_path / name).write_text(text)
    a, b, c = (file_digest(tmp_path / name) for name in "abc")
    assert a == c != b
    assert file_digest(tmp_path) != a
