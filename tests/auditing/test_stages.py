"""The progress of an audit: lines in the log where there is no terminal, and the time that is left."""

import pytest

from labeltide.auditing import resume as stages
from labeltide.auditing.resume import Stages, show_stages
from labeltide.training import loop


def test_every_stage_is_a_line(caplog):
    with show_stages(True) as shown:
        for name in ("read", "fit"):
            with shown.stage(name):
                shown.done(0.5)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["1 of 5: reading the table (0 s)", "2 of 5: learning from the labels (0 s)"]


def test_a_long_stage_says_how_far_it_is(caplog, monkeypatch):
    monkeypatch.setattr(loop, "LOG_EVERY", 0.0)
    with show_stages(True) as shown, shown.stage("read"), shown.stage("fit"):
        shown.done(0.5)
    assert any(record.getMessage().startswith("about ") for record in caplog.records)


def test_nothing_is_said_unless_asked(caplog):
    with show_stages(False) as shown, shown.stage("read"):
        shown.done(1.0)
    assert not caplog.records


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(stages.time, "monotonic", lambda: now[0])
    return now


def test_a_machine_that_is_slower_than_expected_has_more_time_left(clock):
    watched = Stages()
    with watched.stage("read"):
        clock[0] += 1
    watched.expect({"fit": 20.0, "judge": 5.0, "bands": 30.0, "page": 5.0})
    assert watched.left() == pytest.approx(60)
    with watched.stage("fit"):
        clock[0] += 60
    assert watched.left() == pytest.approx(3 * 40)


def test_a_stage_that_lasts_longer_than_expected_never_has_nothing_left(clock):
    watched = Stages()
    watched.expect({"fit": 10.0, "judge": 1.0, "bands": 10.0, "page": 1.0})
    with watched.stage("read"):
        clock[0] += 1
    with watched.stage("fit"):
        clock[0] += 47
        assert watched.left() > 12 + 0.1 * 47


def test_what_is_done_of_a_stage_corrects_what_was_expected(clock):
    watched = Stages()
    watched.expect({"fit": 10.0, "judge": 0.0, "bands": 0.0, "page": 0.0})
    with watched.stage("read"):
        pass
    with watched.stage("fit"):
        clock[0] += 30
        watched.done(0.5)
        assert watched.left() == pytest.approx(30)
        watched.done(0.25)  # the bar never goes back
        assert watched.left() == pytest.approx(30)


def test_all_stages_are_timed(clock):
    watched = Stages()
    for name in stages.TITLES:
        with watched.stage(name):
            clock[0] += 2
    assert watched.seconds == dict.fromkeys(stages.TITLES, 2.0)
    assert watched.left() == 0
