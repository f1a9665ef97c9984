"""Where there is no terminal, a study says in the log which fleet runs and how many runs are done."""

from labeltide_bench.studies.progress import study_bar


def test_every_fleet_is_a_line(caplog):
    with study_bar([3, 2], shown=True) as bar:
        moved = bar.start("tide on moving", 3)
        moved(0.5)
        bar.finish("tide on moving", 3)
        bar.start("ignore on moving", 2)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "tide on moving, 0 of 5 runs (0 s)",
        "tide on moving: done, 3 of 5 runs (0 s)",
        "ignore on moving, 3 of 5 runs (0 s)",
    ]


def test_nothing_is_said_unless_asked(caplog):
    with study_bar([1], shown=False) as bar:
        bar.start("tide on moving", 1)
        bar.finish("tide on moving", 1)
    assert not caplog.records
