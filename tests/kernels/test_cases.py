"""The stored cases hold what torch computes today."""

import importlib.util
from pathlib import Path

import numpy as np

from labeltide.kernels.library import read_cases

TOOL = Path(__file__).parents[2] / "tools" / "kernel_cases.py"


def tool():
    specification = importlib.util.spec_from_file_location("kernel_cases", TOOL)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_stored_cases_are_what_torch_computes_today():
    stored, fresh = read_cases(), tool().all_cases()
    assert [case.name for case in stored] == [case.name for case in fresh]
    for old, new in zip(stored, fresh, strict=True):
        assert (old.kernel, old.size, old.calls) == (new.kernel, new.size, new.calls), "Run tools/kernel_cases.py."
        assert old.inputs == new.inputs
        for one, two in zip(old.comparisons, new.comparisons, strict=True):
            scale = max(1.0, float(np.abs(two.expected.astype(float)).max()))
            np.testing.assert_allclose(one.expected, two.expected, atol=1e-5 * scale)


def test_cases_are_read_as_they_were_written(tmp_path):
    tool().write_cases(read_cases(), tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == (TOOL.parents[1] / "src/labeltide/kernels/cases.bin").read_bytes()
