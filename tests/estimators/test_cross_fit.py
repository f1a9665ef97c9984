"""Out-of-fold predictions of cross-fitted networks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import labeltide as lt
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


@pytest.mark.parametrize(("kind", "networks"), [("per step", 5), ("linear", 5), ("gru", 10)])
def test_networks_without_memory_are_trained_in_one_direction(kind, networks, tmp_path):
    made = lt.make_sequences(20, 8, 3, stay=0.9, random_state=0)
    y = lt.corrupt(made.clean_labels, np.array([[0.8, 0.2], [0.2, 0.8]]))
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    own = model if kind == "per step" else kind
    clf = lt.TideClassifier(model=own, epochs=2, random_state=0, device="cpu").fit(made.features, y)
    assert clf.fold_model_.members == networks
    clf.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file", model=None if isinstance(own, str) else own)
    first, second = (each.audit(made.features, y).probabilities for each in (clf, loaded))
    np.testing.assert_array_equal(first, second)
    evidence, out_of_fold = clf._evidence(clf._check_features(made.features, None)[0], np.ones(y.shape, bool))
    assert out_of_fold.all()
    np.testing.assert_allclose(evidence, clf.training_.data.evidence[0].numpy(), atol=1e-5)
