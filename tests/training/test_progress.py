import io
import logging

import pytest
from rich.console import Console

from fresh_process import run_code
from labeltide.training import loop
from labeltide.training.loop import epoch_bar, watch_epochs


def test_nothing_is_printed_when_nobody_asked(capfd):
    with epoch_bar("ignore train", 3, shown=False) as on_epoch:
        for epoch in range(1, 4):
            on_epoch(epoch, 0.5)
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_the_log_has_a_line_at_the_end(caplog):
    with epoch_bar("ignore train", 3, shown=True) as on_epoch:
        for epoch in range(1, 4):
            on_epoch(epoch, 0.5)
    assert [record.getMessage() for record in caplog.records] == [
        "ignore train: done after 3 of 3 epochs, loss 0.500 (0 s)"
    ]


def test_a_long_training_has_a_line_every_ten_seconds(caplog, monkeypatch):
    seconds = iter(range(0, 1000, 4))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(seconds))
    with epoch_bar("ignore train", 9, shown=True) as on_epoch:
        for epoch in range(1, 10):
            on_epoch(epoch, 0.5)
    messages = [record.getMessage() for record in caplog.records]
    assert 3 <= len(messages) < 9
    assert "of 9 epochs, loss 0.500" in messages[0]


def test_lines_reach_standard_error_where_nobody_set_up_logging():
    code = (
        "from labeltide.training.loop import epoch_bar\n"
        "with epoch_bar('ignore train', 1, True) as on_epoch: on_epoch(1, 0.5)"
    )
    result = run_code(code)
    assert result.returncode == 0
    assert result.stderr == "ignore train: done after 1 of 1 epochs, loss 0.500 (0 s)\n"
    assert result.stdout == ""


def test_a_terminal_shows_epochs_and_loss_on_standard_error(monkeypatch, capfd):
    screen = io.StringIO()

    def terminal(*, stderr):
        assert stderr
        return Console(file=screen, force_terminal=True, width=100)

    monkeypatch.setattr(loop, "Console", terminal)
    with epoch_bar("ignore train", 3, shown=True) as on_epoch:
        on_epoch(3, 0.125)
    assert "ignore train" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert "0.125" in screen.getvalue()
    assert capfd.readouterr() == ("", "")


def test_a_terminal_stays_empty_unless_asked(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(loop, "Console", lambda stderr: Console(file=screen, force_terminal=True))
    with epoch_bar("ignore train", 3, shown=False) as on_epoch:
        on_epoch(1, 0.5)
    assert screen.getvalue() == ""


def test_the_library_adds_no_log_handlers():
    assert not logging.getLogger("labeltide").handlers
    assert not logging.getLogger("labeltide.training").handlers
    with loop.progress_log():
        pass
    assert not logging.getLogger("labeltide.progress").handlers
    assert logging.getLogger("labeltide.progress").level == logging.NOTSET


def test_a_watcher_hears_the_share_done_and_no_bar_is_drawn(monkeypatch):
    screen, heard = io.StringIO(), []
    monkeypatch.setattr(loop, "Console", lambda stderr: Console(file=screen, force_terminal=True))
    with watch_epochs(heard.append), epoch_bar("ignore train", 4, shown=True) as on_epoch:
        on_epoch(1, 0.5)
        on_epoch(4, 0.25)
    assert heard == [0.25, 1.0]
    assert screen.getvalue() == ""


def test_a_watcher_is_gone_after_an_error():
    heard = []
    with pytest.raises(ZeroDivisionError), watch_epochs(heard.append):
        raise ZeroDivisionError
    with epoch_bar("ignore train", 4, shown=False) as on_epoch:
        on_epoch(1, 0.5)
    assert heard == []


def test_several_trainings_have_one_total_and_the_time_left(caplog, monkeypatch):
    monkeypatch.setattr(loop, "LOG_EVERY", 0.0)
    with caplog.at_level("INFO", logger="labeltide.progress"), loop.stages_bar("tide", 3, 4, shown=True):
        for stops in (4, 2, 3):  # the second and third stop early
            with epoch_bar("tide stage", 4, shown=True) as on_epoch:
                for done in range(1, stops + 1):
                    on_epoch(done, 0.5)
    counts = [int(record.getMessage().split(": ")[1].split(" of ")[0]) for record in caplog.records[:-1]]
    assert counts == [1, 2, 3, 4, 5, 6, 9, 10, 11, 12]
    assert all(" of 12 epochs" in record.getMessage() for record in caplog.records)
    assert "s left" in caplog.records[0].getMessage()
    assert "done after 12 of 12 epochs" in caplog.records[-1].getMessage()
