"""labeltide: learn from labels whose quality changes over time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Loaded when first used, so that commands which never train start at once and never load torch.
_NAMES = {
    "labeltide.estimators": "METHODS AnchorClassifier ContinuousClassifier DiscontinuousClassifier IgnoreClassifier "
    "KnownNoiseClassifier PlugInClassifier TideClassifier VolMinClassifier fit_fleet",
    "labeltide.estimators.paper": "published_settings",
    "labeltide.auditing.run": "TableAudit audit",
    "labeltide.estimators.predictions": "audit_predictions cross_predict",
    "labeltide._validation": "UnanswerableError",
    "labeltide.auditing.predict": "predict_table",
    "labeltide.exporting.spans": "export_audit",
    "labeltide.recordings.spans.formats": "read_spans",
    "labeltide.auditing.apply": "apply_decisions",
    "labeltide.auditing.compare": "compare_audits",
    "labeltide.estimators.storage": "load",
    "labeltide.data.sequences": "Sequences",
    "labeltide.data.scaler": "SequenceScaler",
    "labeltide.estimators.scoring": "step_scorer",
    "labeltide.data.simulate": "make_sequences",
    "labeltide.noise.functions": "FixedNoise NoiseFunction",
    "labeltide.inference.bands": "NoiseEstimate",
    "labeltide.inference.conclusion": "NoiseWarning",
    "labeltide.inference.annotators": "Agreement Consensus agreement consensus drift_alarm",
    "labeltide.inference.review": "checked_rate review_sample",
    "labeltide.inference.shifts": "Shifts find_shifts",
    "labeltide.noise.simulate": "corrupt make_noise",
    "labeltide.models.base": "SequenceModel",
    "labeltide.models.wrap": "wrap",
    "labeltide.training.objective": "backward_loss forward_loss",
    "labeltide.doctor": "show_versions",
    "labeltide._workers": "workers",
    "labeltide_bench.studies": "read_study run_study",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from labeltide._validation import UnanswerableError as UnanswerableError
    from labeltide._workers import workers as workers
    from labeltide.auditing.apply import apply_decisions as apply_decisions
    from labeltide.auditing.compare import compare_audits as compare_audits
    from labeltide.auditing.predict import predict_table as predict_table
    from labeltide.auditing.run import TableAudit as TableAudit
    from labeltide.auditing.run import audit as audit
    from labeltide.data.scaler import SequenceScaler as SequenceScaler
    from labeltide.data.sequences import Sequences as Sequences
    from labeltide.data.simulate import make_sequences as make_sequences
    from labeltide.doctor import show_versions as show_versions
    from labeltide.estimators import METHODS as METHODS
    from labeltide.estimators import AnchorClassifier as AnchorClassifier
    from labeltide.estimators import ContinuousClassifier as ContinuousClassifier
    from labeltide.estimators import DiscontinuousClassifier as DiscontinuousClassifier
    from labeltide.estimators import IgnoreClassifier as IgnoreClassifier
    from labeltide.estimators import KnownNoiseClassifier as KnownNoiseClassifier
    from labeltide.estimators import PlugInClassifier as PlugInClassifier
    from labeltide.estimators import TideClassifier as TideClassifier
    from labeltide.estimators import VolMinClassifier as VolMinClassifier
    from labeltide.estimators import fit_fleet as fit_fleet
    from labeltide.estimators.paper import published_settings as published_settings
    from labeltide.estimators.predictions import audit_predictions as audit_predictions
    from labeltide.estimators.predictions import cross_predict as cross_predict
    from labeltide.estimators.scoring import step_scorer as step_scorer
    from labeltide.estimators.storage import load as load
    from labeltide.exporting.spans import export_audit as export_audit
    from labeltide.inference.annotators import Agreement as Agreement
    from labeltide.inference.annotators import Consensus as Consensus
    from labeltide.inference.annotators import agreement as agreement
    from labeltide.inference.annotators import consensus as consensus
    from labeltide.inference.annotators import drift_alarm as drift_alarm
    from labeltide.inference.bands import NoiseEstimate as NoiseEstimate
    from labeltide.inference.conclusion import NoiseWarning as NoiseWarning
    from labeltide.inference.review import checked_rate as checked_rate
    from labeltide.inference.review import review_sample as review_sample
    from labeltide.inference.shifts import Shifts as Shifts
    from labeltide.inference.shifts import find_shifts as find_shifts
    from labeltide.models.base import SequenceModel as SequenceModel
    from labeltide.models.wrap import wrap as wrap
    from labeltide.noise.functions import FixedNoise as FixedNoise
    from labeltide.noise.functions import NoiseFunction as NoiseFunction
    from labeltide.noise.simulate import corrupt as corrupt
    from labeltide.noise.simulate import make_noise as make_noise
    from labeltide.recordings.spans.formats import read_spans as read_spans
    from labeltide.training.objective import backward_loss as backward_loss
    from labeltide.training.objective import forward_loss as forward_loss
    from labeltide_bench.studies import read_study as read_study
    from labeltide_bench.studies import run_study as run_study


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"labeltide has no {name!r}. It has: {', '.join(__all__)}.")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "labeltide_bench":
            raise
        raise ModuleNotFoundError(
            f"labeltide.{name} is part of labeltide-bench, which is not installed. Install it with: "
            "pip install labeltide-bench.",
            name=error.name,
        ) from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
