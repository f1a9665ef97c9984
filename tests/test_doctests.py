"""The examples in the docstrings of public names run as they stand, in a folder with the files that they name."""

import doctest
import inspect
import shutil
import warnings

import pytest
from pyarrow import csv

import labeltide as lt
from auditing.tables import make_table

NAMES = [name for name in lt.__all__ if callable(getattr(lt, name))]
SPANS = "onset,duration,label\n0,30,W\n30,60,N1\n"
STUDY = """
title = "A small study"
draws = 1
noise = [{ shape = "growth", rates = [0.3] }]
methods.ignore = { epochs = 1 }

[datasets.simulated]
simulate = { n = 20, n_steps = 10, n_features = 2, stay = 0.9, random_state = 0 }
"""


def examples_of(name: str) -> doctest.DocTest:
    """The examples of one docstring, with nothing imported but what they import."""
    text = inspect.getdoc(getattr(lt, name)) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, None, 0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a table, two audits of it, a file of spans and a study."""
    folder = tmp_path_factory.mktemp("examples")
    csv.write_csv(make_table(people=8, steps=15).drop_columns("truth"), folder / "walks.csv")
    (folder / "night.csv").write_text(SPANS)
    (folder / "small.toml").write_text(STUDY)
    roles = {"sequence": "person", "time": "minute", "label": "label"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lt.audit(folder / "walks.csv", out=folder / "audit", fast=True, **roles)
    shutil.copytree(folder / "audit", folder / "audit-before")
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_public_name_run(name, prepared, tmp_path, monkeypatch):
    here = tmp_path / "here"
    shutil.copytree(prepared, here)
    monkeypatch.chdir(here)
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.NoiseWarning)  # of so few sequences little can be told
        result = doctest.DocTestRunner(verbose=False).run(examples_of(name), out=messages.append)
    assert result.failed == 0, "".join(messages)


def test_every_public_name_has_a_short_example():
    texts = {name: inspect.getdoc(getattr(lt, name)) or "" for name in NAMES}
    assert [name for name, text in texts.items() if "\nExamples\n--------\n" not in text] == []
    assert [name for name in NAMES if not 2 <= len(examples_of(name).examples) <= 7] == []
