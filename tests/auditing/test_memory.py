"""An audit that would not fit into memory is refused with a sentence."""

from types import SimpleNamespace

import numpy as np
import pytest

from labeltide.auditing import fitting


def table(classes, annotators=1, rows=1800):
    names = tuple(f"annotator {i}" for i in range(annotators)) if annotators > 1 else None
    return SimpleNamespace(class_names=("a",) * classes, annotator_names=names, index=np.zeros((rows, 1)), n_rows=rows)


def test_what_does_not_fit_is_refused_with_the_memory_it_needs(monkeypatch):
    monkeypatch.setattr(fitting, "free_bytes", lambda: 2.0 * 2**30)
    with pytest.raises(ValueError, match=r"100 classes and 5 annotators over 1,800 rows needs about 1\d\.\d GiB"):
        fitting.check_memory(table(100, annotators=5))


def test_twenty_classes_need_less_than_a_gigabyte(monkeypatch):
    monkeypatch.setattr(fitting, "free_bytes", lambda: 1.0 * 2**30)
    fitting.check_memory(table(20))


def test_free_memory_is_known():
    assert fitting.free_bytes() > 0
