import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.annotators import vote_shares
from labeltide_bench.simulated import (
    Differences,
    SharedDifficulty,
    SimulatedStudy,
    autoregression,
    record_windows,
    simulate,
    simulate_difficulty,
)

MATRICES = np.broadcast_to([[0.8, 0.2], [0.3, 0.7]], (20, 2, 2))


def test_labels_are_recorded_through_q_and_persist():
    drawn = simulate(SimulatedStudy(MATRICES, n=4000, stay=0.9), 2, 0)
    clean, recorded = drawn.clean, drawn.data.labels[..., 0].numpy()
    assert (clean[..., 1:] == clean[..., :-1]).mean() == pytest.approx(0.9, abs=0.01)
    for true in (0, 1):
        assert (recorded[clean == true] == 1).mean() == pytest.approx(MATRICES[0, true, 1], abs=0.01)


def test_the_evidence_is_calibrated():
    drawn = simulate(SimulatedStudy(MATRICES, n=2000, stay=None, sharpness=1.5), 1, 0)
    probability = drawn.data.evidence.exp().numpy()[..., 1]
    for low in (0.1, 0.4, 0.7):
        inside = (probability > low) & (probability < low + 0.2)
        assert drawn.clean[inside].mean() == pytest.approx(probability[inside].mean(), abs=0.02)


def test_windows_of_a_person_follow_each_other_on_the_clock():
    drawn = simulate(SimulatedStudy(MATRICES, n=400, stay=None), 1, 0)
    data, person = record_windows(drawn, 100, 0.2, Differences(drift=2.0), 0)
    assert person.tolist() == [row // 4 for row in range(400)]
    assert data.n_points == 80
    wrong = data.labels[0, ..., 0].numpy() != drawn.clean[0]
    assert wrong[data.points.numpy() >= 60].mean() > wrong[data.points.numpy() < 20].mean() + 0.1


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_effects_of_neighbouring_windows_are_correlated(correlation):
    series = autoregression(np.random.default_rng(0).standard_normal((4000, 6)), correlation)
    np.testing.assert_allclose(series.std(0), 1, atol=0.05)
    np.testing.assert_allclose(np.corrcoef(series[:, 2], series[:, 3])[0, 1], correlation, atol=0.05)
    np.testing.assert_allclose(np.corrcoef(series[:, 2], series[:, 4])[0, 1], correlation**2, atol=0.05)


def test_annotators_may_drift_each_by_themselves():
    drawn = simulate(SimulatedStudy(np.stack([MATRICES] * 2), n=400, stay=None), 1, 0)
    data, _ = record_windows(drawn, 100, 0.2, Differences(drift=(2.0, 0.0)), 0)
    wrong = data.labels[0].numpy() != drawn.clean[0][..., None]
    late, early = data.points.numpy() >= 60, data.points.numpy() < 20
    drifting, steady = wrong[late].mean(0) - wrong[early].mean(0)
    assert drifting > 0.1
    assert abs(steady) < 0.05


def test_steps_near_a_border_are_hard_for_all_annotators():
    study = SharedDifficulty(n=200, habit=0.0)
    made = simulate_difficulty(study, 0)
    wrong = made.labels != made.clean[..., None]
    independent = wrong.mean((0, 1))
    both = (wrong[..., 0] & wrong[..., 1]).mean()
    assert both > 1.3 * independent[0] * independent[1]


def test_the_evidence_of_an_annotator_is_calibrated():
    study = SharedDifficulty(n=400, habit=0.6)
    made = simulate_difficulty(study, 1)
    for who in range(study.annotators):
        shares = np.bincount(made.labels[..., who].ravel(), minlength=3) / made.clean.size
        np.testing.assert_allclose(np.exp(made.evidence[who]).mean((0, 1)), shares, atol=0.02)


def predict_left_out(study, seed, left_out=0):
    """Accuracy and log-loss of the majority and of the consensus for an annotator who was left out."""
    labels = simulate_difficulty(study, seed).labels
    others, target = np.delete(labels, left_out, 2), torch.from_numpy(labels[..., left_out])
    fitted = lt.consensus(others)
    votes = vote_shares(torch.from_numpy(others), torch.full((3,), 0.5))
    belief, another = torch.from_numpy(fitted.probabilities), torch.from_numpy(fitted.another)
    probabilities = (votes, another)
    right = [float((each.argmax(-1) == target).double().mean()) for each in (votes, belief, another)]
    losses = [-float(each.gather(-1, target[..., None]).log().mean()) for each in probabilities]
    return right, losses


def test_where_steps_are_hard_for_all_the_consensus_is_not_worse_than_a_majority():
    results = [predict_left_out(SharedDifficulty(), 5, who) for who in range(5)]
    right, losses = (np.mean([result[index] for result in results], 0) for index in (0, 1))
    assert right[1] > right[0] - 0.002
    assert right[2] > right[0]
    assert losses[1] < losses[0]
