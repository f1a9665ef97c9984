import subprocess
import sys

import pytest

from labeltide_bench.studies.lock import locked

HOLD = """
import sys, time
from pathlib import Path
from labeltide_bench.studies.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_refused_until_the_holder_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match="Another process is running a study"), locked(tmp_path):
            pass
        holder.kill()
    with locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_an_error_inside_frees_the_folder(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    with locked(tmp_path):
        pass
