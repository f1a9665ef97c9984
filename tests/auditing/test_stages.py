"""Where there is no terminal, an audit says in the log what it is doing."""

from labeltide.auditing import stages
from labeltide.auditing.stages import show_stages
from labeltide.training import progress


def test_every_stage_is_a_line(caplog):
    with show_stages(True) as shown:
        for name in ("read", "fit"):
            with shown.stage(name):
                shown.done(0.5)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["1 of 5: reading the table (0 s)", "2 of 5: learning from the labels (0 s)"]


def test_a_long_stage_says_how_far_it_is(caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY", 0.0)
    with show_stages(True) as shown, shown.stage("read"), shown.stage("fit"):
        shown.done(0.5)
    assert any(record.getMessage().startswith("about ") for record in caplog.records)


def test_nothing_is_said_unless_asked(caplog):
    with show_stages(False) as shown, shown.stage("read"):
        shown.done(1.0)
    assert not caplog.records
    assert sum(stages.SHARES.values()) == 100
