"""Classifiers of the true label by name: GRU, TCN, transformer, multinomial logistic regression, or any module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from labeltide import _validation
from labeltide.models.base import LinearModel, SequenceModel
from labeltide.models.gru import GRUModel
from labeltide.models.tcn import TCNModel
from labeltide.models.transformer import TransformerModel
from labeltide.models.wrap import ModelFactory, wrap

MODELS: dict[str, type[SequenceModel]] = {
    model.name: model for model in (GRUModel, TCNModel, TransformerModel, LinearModel)
}

__all__ = [
    "MODELS",
    "GRUModel",
    "LinearModel",
    "ModelFactory",
    "SequenceModel",
    "TCNModel",
    "TransformerModel",
    "make_model",
    "wrap",
]


def make_model(
    model: str | nn.Module | Callable[..., Any], members: int, n_features: int, n_classes: int, **options: Any
) -> SequenceModel:
    """Build a fleet of models from a name, a torch module, a factory of modules, or the result of `wrap`."""
    if isinstance(model, str):
        return MODELS[_validation.check_choice("model", model, MODELS)](members, n_features, n_classes, **options)
    factory = model if isinstance(model, ModelFactory) else wrap(model, causal=options["causal"])
    return factory(members, n_features, n_classes, **options)
