"""What the README and the examples show runs as it stands."""

import re
from pathlib import Path

import pytest

from fresh_process import run_code

ROOT = Path(__file__).parents[1]


# As few replicates for bands and tests as where each is expensive; and quick audits.
QUICK = "import labeltide.inference.bootstrap\nlabeltide.inference.bootstrap.MAX_OPERATIONS = 0\n"
FAST = f"{QUICK}import functools\nlabeltide.audit = functools.partial(labeltide.audit, fast=True, train_on=500)\n"


def run(code, folder):
    return run_code(code, folder=folder, strict=True)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(path, tmp_path):
    code = path.read_text()
    result = run(FAST * ("audit(" in code) + code, tmp_path)  # tests/auditing/test_run.py audits at full length
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_quick_start_runs_and_has_fifteen_lines(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "model.safetensors").exists()
