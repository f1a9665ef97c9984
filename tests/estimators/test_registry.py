"""Methods by name: each spells the parameters that all share, with the same defaults."""

from __future__ import annotations

import inspect

import pytest

from fresh_process import run_code
from labeltide.estimators import NoisyLabelClassifier
from labeltide.estimators.fleet import METHODS, UnknownMethodError
from labeltide.inference.audit import FDR


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    return {name: p for name, p in inspect.signature(cls.__init__).parameters.items() if name != "self"}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_spells_the_shared_parameters_with_the_same_defaults(name):
    spelled, shared = parameters(METHODS[name]), parameters(NoisyLabelClassifier)
    assert all(p.kind is p.KEYWORD_ONLY for p in spelled.values())
    assert {key: spelled[key].default for key in shared} == {key: p.default for key, p in shared.items()}
    assert {key: spelled[key].annotation for key in shared} == {key: p.annotation for key, p in shared.items()}


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_reaches_the_estimator(name):
    values = {key: object() for key in parameters(METHODS[name])}
    assert METHODS[name](**values).get_params(deep=False) == values


def test_an_unknown_method_is_answered_with_the_names_there_are():
    with pytest.raises(UnknownMethodError, match="Choose one of: ignore"):
        METHODS["tides"]


@pytest.mark.parametrize("module", ["storage", "base", "paper", "tide", "fleet"])
def test_every_module_can_be_the_first_to_be_imported(module):
    code = f"import labeltide.estimators.{module}; import labeltide; assert len(labeltide.METHODS) == 8"
    result = run_code(code)
    assert result.returncode == 0, result.stderr


def test_a_simple_method_loads_neither_the_hidden_markov_model_nor_inference():
    code = """
import sys, numpy as np, labeltide as lt
X = np.random.default_rng(0).normal(size=(6, 5, 2))
lt.IgnoreClassifier(epochs=1, device="cpu").fit(X, (X[..., 0] > 0).astype(int))
loaded = {name for name in sys.modules if name.startswith("labeltide")}
assert len(loaded) <= 36, loaded
assert not {"labeltide.chain.em", "labeltide.inference.bands", "labeltide.estimators.tide"} & loaded
"""
    result = run_code(code)
    assert result.returncode == 0, result.stderr


def test_the_default_false_discovery_rate_is_that_of_audits():
    assert inspect.signature(NoisyLabelClassifier.audit).parameters["fdr"].default == FDR
