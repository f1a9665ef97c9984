import io
import logging

import pytest
from rich.console import Console

from labeltide.training import progress
from labeltide.training.progress import epoch_bar, watch_epochs


@pytest.mark.parametrize("shown", [True, False])
def test_nothing_is_printed_when_nobody_watches(shown, capfd):
    with epoch_bar("ignore train", 3, shown) as on_epoch:
        for epoch in range(1, 4):
            on_epoch(epoch, 0.5)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_epochs_and_loss_on_standard_error(monkeypatch, capfd):
    screen = io.StringIO()

    def terminal(*, stderr):
        assert stderr
        return Console(file=screen, force_terminal=True, width=100)

    monkeypatch.setattr(progress, "Console", terminal)
    with epoch_bar("ignore train", 3, shown=True) as on_epoch:
        on_epoch(3, 0.125)
    assert "ignore train" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert "0.125" in screen.getvalue()
    assert capfd.readouterr() == ("", "")


def test_a_terminal_stays_empty_unless_asked(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True))
    with epoch_bar("ignore train", 3, shown=False) as on_epoch:
        on_epoch(1, 0.5)
    assert screen.getvalue() == ""


def test_the_library_adds_no_log_handlers():
    assert not logging.getLogger("labeltide").handlers
    assert not logging.getLogger("labeltide.training").handlers


def test_a_watcher_hears_the_share_done_and_no_bar_is_drawn(monkeypatch):
    screen, heard = io.StringIO(), []
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True))
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
