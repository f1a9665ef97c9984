"""Out-of-fold predictions of cross-fitted networks."""

from types import SimpleNamespace

import numpy as np
import torch

from labeltide.estimators import cross_fit
from labeltide.models import make_model
from labeltide.training import FleetData


def test_predictions_made_some_rows_at_a_time_are_those_made_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    folds = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 0, 1, 2, 2]])
    model = make_model("gru", 3, 4, 3, hidden_size=8)
    model.initialise([torch.Generator().manual_seed(seed) for seed in range(3)])
    data = FleetData(
        features=torch.randn(11, 5, 4, generator=generator),
        mask=torch.arange(5) < torch.arange(1, 12)[:, None],
        labels=torch.zeros(1, 11, 5, 1, dtype=torch.int8),
        grid=torch.linspace(0, 1, 5),
        points=None,
        weights=torch.ones(1, 11),
        held_out=torch.zeros(1, 11, dtype=torch.bool),
    )
    copies = SimpleNamespace(data=data, n_classes=3)
    whole = cross_fit.predict_out_of_fold(copies, model, folds)[0]
    monkeypatch.setattr(cross_fit, "STEPS_AT_ONCE", 3 * 5 * 2)  # two rows, often of the first fold alone
    parts = cross_fit.predict_out_of_fold(copies, model, folds)[0]
    assert whole.shape == (1, 11, 5, 3)
    np.testing.assert_allclose(parts[0][data.mask], whole[0][data.mask], atol=1e-6)
