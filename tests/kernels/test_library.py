"""Which kernels are used, and that a kernel which is wrong is never used."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch

import labeltide as lt
import labeltide.doctor
from chains import make_case
from labeltide.chain.passes import expect, plain_pass
from labeltide.kernels import KERNELS, choose, library
from labeltide.kernels import library as check
from labeltide.kernels.library import read_cases

CPU = torch.device("cpu")


def test_every_kernel_has_a_case():
    assert {case.kernel for case in read_cases()} == set(KERNELS)


@pytest.mark.usefixtures("compiled_variant")
def test_every_kernel_passes_its_self_check(compiled_variant):
    checks = library.load(compiled_variant).checks
    assert all(result.passed for result in checks.values()), checks
    assert max(result.difference for result in checks.values()) < 1e-5
    assert all(choose(kernel, CPU) == "c" for kernel in KERNELS)


@pytest.fixture
def broken_chain(compiled_variant, monkeypatch):
    """A build whose forward-backward pass is off by a little in one sequence, as a miscompiled one may be."""
    intact = check.call

    def call(compiled, name, task, items, threads):
        intact(compiled, name, task, items, threads)
        if name == "labeltide_chain":
            posterior = int.from_bytes(bytes(task)[-8:], "little")  # the last field of the task
            (ctypes.c_float * 4).from_address(posterior)[0] += 0.01

    monkeypatch.setattr(check, "call", call)
    library.load.cache_clear()
    yield compiled_variant
    library.load.cache_clear()


def test_a_kernel_that_fails_its_check_is_named_once_and_replaced_by_torch(broken_chain):
    with pytest.warns(RuntimeWarning, match=f"'chain' .{broken_chain}. does not compute what torch does") as told:
        assert choose("chain", CPU) == "torch"
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("chain", CPU) == "torch"
        assert choose("gru", CPU) == "c"  # the others are still in use
        case = make_case(0, rows=20)
        for one, two in zip(expect(*case, posterior=True), plain_pass(*case, posterior=True), strict=True):
            torch.testing.assert_close(one, two)


def test_the_doctor_tells_of_a_kernel_that_failed(broken_chain):
    report = labeltide.doctor.examine()
    assert not report.healthy
    assert "chain FAILED (1e-02" in str(report)
    assert "chain: CPU: torch" in str(report)


def test_the_doctor_tells_versions_and_kernels(capsys):
    lt.show_versions()
    told = capsys.readouterr().out
    assert f"torch: {version('torch')}" in told
    assert all(f"{kernel}: CPU: " in told for kernel in KERNELS)
    assert all(f"{name}: " in told for name in library.VARIANTS)
    assert "FAILED" not in told


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("sse9", "LABELTIDE_KERNELS must be one of: avx512, avx2, plain, torch. Got 'sse9'"),
        (
            "avx512",
            "=avx512 is not possible: this processor cannot run it. This machine has: plain, torch",
        ),
    ],
)
def test_kernels_that_cannot_be_had_are_answered_with_a_sentence(value, match, monkeypatch):
    monkeypatch.setattr(library, "runnable", lambda: ("plain",))
    monkeypatch.setattr(library, "built", lambda: dict.fromkeys(library.VARIANTS))
    monkeypatch.setenv(library.ENVIRONMENT, value)
    with pytest.raises(ValueError, match=match):
        library.active()


def test_torch_alone_can_be_asked_for(monkeypatch):
    monkeypatch.setenv(library.ENVIRONMENT, "torch")
    assert library.active() is None
    assert all(choose(kernel, CPU) == "torch" for kernel in KERNELS)


def test_the_command_line_answers_an_impossible_choice_with_a_sentence():
    code = "import labeltide.cli; labeltide.cli.main()"
    finished = subprocess.run(
        [sys.executable, "-c", code, "doctor"],
        capture_output=True,
        text=True,
        check=False,
        env={"LABELTIDE_KERNELS": "abacus", "PATH": ""},
    )
    assert finished.returncode == 2
    assert "must be one of: avx512, avx2, plain, torch. Got 'abacus'" in finished.stderr + finished.stdout
    assert "Traceback" not in finished.stderr


def test_the_doctor_reports_where_the_package_is_not_installed(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(labeltide.doctor, "requires", missing)
    monkeypatch.setattr(labeltide.doctor, "version", missing)
    report = str(labeltide.doctor.examine())
    assert lt.__version__ in report
    assert "scikit-learn" in report
