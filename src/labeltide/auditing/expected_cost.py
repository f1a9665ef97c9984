"""What each stage of an audit is expected to cost, from counts alone.

Coefficients are rough and by hand (docs/decisions/018-size-of-an-audit.md). Only their proportions matter: `Stages`
corrects their speed by what it observes.
"""

from __future__ import annotations

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.fitting import INFERENCE_STEPS, TEST_STEPS, patience
from labeltide.auditing.pace import Pace

TRAININGS = 2  # fleets of ten networks that a fit trains, one after the other
TRAINING, TRAINING_OF_FEATURE = 2.5e-6, 2.5e-8  # seconds for a step and epoch of such a fleet; for each feature
EM_PASSES = 1_500  # forward-backward passes over the windows to learn from, of all chains and iterations
PASS, PASS_OF_CLASSES = 1.6e-8, 8e-10  # seconds for a step and annotator, and for a step and pair of classes
BAND_PASSES, TEST_PASSES = 5_000, 20_000  # over the windows of bands, and of tests
NEWTON = 2e-5  # seconds for a Newton step of one annotator and class
JUDGING = 4e-6  # seconds for a row


def expected_seconds(table: AuditInput, windows: np.ndarray, epochs: int, pace: Pace) -> dict[str, float]:
    """Seconds of each stage after reading."""
    steps, classes = len(windows) * table.index.shape[1], len(table.class_names)
    annotators = len(table.annotator_names or ()) or 1
    a_pass = PASS * annotators + PASS_OF_CLASSES * classes**2
    limits = [int(most * pace.inference * patience(table)) for most in (INFERENCE_STEPS, TEST_STEPS)]
    bands, tests = (min(steps, most) for most in limits)
    newton = NEWTON * annotators * classes
    training = TRAINING + TRAINING_OF_FEATURE * table.features.shape[-1]
    return {
        "fit": 1 + TRAININGS * training * steps * epochs + EM_PASSES * (steps * a_pass + newton),
        "judge": 0.5 + JUDGING * table.n_rows * annotators,
        "bands": 1 + BAND_PASSES * (bands * a_pass + newton) + TEST_PASSES * (tests * a_pass + newton / 4),
        "page": 1 + 1e-5 * table.n_rows,
    }
