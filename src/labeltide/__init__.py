"""labeltide: learn from labels whose quality changes over time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Loaded when first used, so that commands which never train start at once and never load torch.
_HOMES = {
    "METHODS": "labeltide.estimators",
    "AnchorClassifier": "labeltide.estimators",
    "ContinuousClassifier": "labeltide.estimators",
    "DiscontinuousClassifier": "labeltide.estimators",
    "IgnoreClassifier": "labeltide.estimators",
    "KnownNoiseClassifier": "labeltide.estimators",
    "PlugInClassifier": "labeltide.estimators",
    "TideClassifier": "labeltide.estimators",
    "VolMinClassifier": "labeltide.estimators",
    "fit_fleet": "labeltide.estimators",
    "published_settings": "labeltide.estimators.paper",
    "audit": "labeltide.auditing.run",
    "audit_predictions": "labeltide.estimators.predictions",
    "cross_predict": "labeltide.estimators.predictions",
    "TableAudit": "labeltide.auditing.run",
    "UnanswerableError": "labeltide._validation",
    "predict_table": "labeltide.auditing.predict",
    "export_audit": "labeltide.exporting.spans",
    "read_spans": "labeltide.recordings.spans.formats",
    "apply_decisions": "labeltide.auditing.apply",
    "compare_audits": "labeltide.auditing.compare",
    "load": "labeltide.estimators.storage",
    "Sequences": "labeltide.data.sequences",
    "SequenceScaler": "labeltide.data.scaler",
    "step_scorer": "labeltide.estimators.scoring",
    "make_sequences": "labeltide.data.simulate",
    "FixedNoise": "labeltide.noise.functions",
    "NoiseFunction": "labeltide.noise.functions",
    "NoiseEstimate": "labeltide.inference.bands",
    "NoiseWarning": "labeltide.inference.conclusion",
    "Agreement": "labeltide.inference.annotators",
    "Consensus": "labeltide.inference.annotators",
    "agreement": "labeltide.inference.annotators",
    "checked_rate": "labeltide.inference.review",
    "review_sample": "labeltide.inference.review",
    "consensus": "labeltide.inference.annotators",
    "drift_alarm": "labeltide.inference.annotators",
    "Shifts": "labeltide.inference.shifts",
    "find_shifts": "labeltide.inference.shifts",
    "corrupt": "labeltide.noise.simulate",
    "make_noise": "labeltide.noise.simulate",
    "SequenceModel": "labeltide.models.base",
    "wrap": "labeltide.models.wrap",
    "backward_loss": "labeltide.training.objective",
    "forward_loss": "labeltide.training.objective",
    "show_versions": "labeltide.doctor",
    "workers": "labeltide._workers",
    "read_study": "labeltide_bench.studies",
    "run_study": "labeltide_bench.studies",
}

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
