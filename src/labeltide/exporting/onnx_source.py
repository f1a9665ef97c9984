"""What is exported: a fitted estimator and, from an audit, how its features came from the columns of a table."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labeltide.auditing.folder import AUDIT, MODEL, MODEL_FILE
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.storage import load
from labeltide.estimators.storage_header import read_description
from labeltide.exporting.onnx_models import refusal
from labeltide.tables.features import LARGEST, Encoder, encoder_from_json


class OnnxSource(NamedTuple):
    """A fitted estimator with what is known about its data."""

    name: str
    estimator: NoisyLabelClassifier
    encoders: tuple[Encoder, ...] = ()
    audit: Mapping[str, Any] | None = None  # what audit.json holds

    @property
    def feature_names(self) -> list[str]:
        names = [name for encoder in self.encoders for name in encoder.names]
        return names or [f"feature {number}" for number in range(self.estimator.n_features_in_)]

    @property
    def scaling(self) -> np.ndarray | None:
        """Low, high, centre and scale of every feature, (4, features); indicators stay as they are."""
        if not self.encoders:
            return None
        columns = []
        for encoder in self.encoders:
            for place in range(len(encoder.names)):
                is_number = not encoder.levels and place == 0
                number = (encoder.low, encoder.high, encoder.centre, encoder.scale)
                columns.append(number if is_number else (-LARGEST, LARGEST, 0.0, 1.0))
        return np.array(columns, dtype=np.float64).T


def find_source(source: Any) -> OnnxSource:
    """The model behind a path, an estimator or the result of an audit; it computes on the CPU."""
    found = _find(source)
    estimator = copy.copy(found.estimator)
    estimator.device = "cpu"
    return found._replace(estimator=estimator)


def _find(source: Any) -> OnnxSource:
    if isinstance(source, NoisyLabelClassifier):
        check_is_fitted(source, "model_")
        return OnnxSource(source.name, source)
    if hasattr(source, "estimator") and hasattr(source, "summary"):  # the result of lt.audit
        name = Path(source.folder).name if source.folder else "model"
        return _of_audit(name, source.estimator, source.summary)
    if not isinstance(source, str | Path):
        raise ValueError(
            "export needs a saved model, the folder of an audit, a fitted estimator or the result of labeltide.audit. "
            f"Got {type(source).__name__}."
        )
    return _read(Path(source))


def _read(path: Path) -> OnnxSource:
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
    folder = path if path.is_dir() else path.parent.parent
    if (folder / AUDIT).is_file() and (folder / MODEL / MODEL_FILE).is_file():
        try:
            audit = json.loads((folder / AUDIT).read_bytes())
            return _of_audit(folder.resolve().name, load(folder / MODEL / MODEL_FILE), audit)
        except (KeyError, TypeError, json.JSONDecodeError):
            raise ValueError(
                f"{str(folder / AUDIT)!r} is not what an audit of this version writes. Audit again."
            ) from None
    if path.is_dir():
        raise ValueError(
            f"The folder must be that of an audit, with {AUDIT} and {MODEL}/{MODEL_FILE} in it. Got {str(path)!r}."
        )
    try:
        return OnnxSource(path.stem, load(path))
    except ValueError:
        if _is_own_module(path):
            raise ValueError(refusal(str(path))) from None
        raise


def _is_own_module(path: Path) -> bool:
    """Whether a saved model has a network of the user's own, whose code is in no file."""
    with suppress(ValueError):
        return path.is_file() and read_description(path.read_bytes()).params["model"] is None
    return False


def _of_audit(name: str, estimator: NoisyLabelClassifier, audit: Mapping[str, Any]) -> OnnxSource:
    encoders = tuple(encoder_from_json(dict(fields)) for fields in _listed(audit["encoders"]))
    count = sum(len(encoder.names) for encoder in encoders)
    if count != estimator.n_features_in_:
        raise ValueError(
            f"The audit names {count} features and its model takes {estimator.n_features_in_}: the files do not belong "
            "together. Audit again."
        )
    return OnnxSource(name, estimator, encoders, audit)


def _listed(encoders: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(encoders, list):
        raise TypeError
    return encoders
