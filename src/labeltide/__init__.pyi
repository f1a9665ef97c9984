"""The public names of labeltide and the modules they come from; `__init__.py` reads this file, too."""

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
from labeltide.noise.functions import TemporalNoise as TemporalNoise
from labeltide.noise.simulate import corrupt as corrupt
from labeltide.noise.simulate import make_noise as make_noise
from labeltide.recordings.spans.formats import read_spans as read_spans
from labeltide.training.objective import backward_loss as backward_loss
from labeltide.training.objective import forward_loss as forward_loss
from labeltide_bench.studies import read_study as read_study
from labeltide_bench.studies import run_study as run_study

__version__: str
__all__: list[str]
