from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student

from labeltide.auditing.page.page import environment
from labeltide.auditing.page.verdict import check_title
from labeltide.chain.em import label_chain
from labeltide.chain.passes import ChainData, Members, TrainingEvidence, expect, same_data
from labeltide.inference.checks import (
    check_bursts,
    check_drift,
    check_independence,
    check_persistence,
    check_support,
    diagnose,
    largest_contrast,
    share_alone,
)
from labeltide.inference.conclusion import Diagnostic
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 40
MATRICES = make_noise("static", 2, STEPS, 0.25).at(np.linspace(0, 1, STEPS))


def warned(study, **more):
    training, _ = fit_studies(simulate(study, 1, 0, **more).data)[0]
    diagnostics = diagnose(training, ["a", "b"])
    meanings = environment().get_template("audit_parts.html").module.meanings
    assert all(isinstance(check, Diagnostic) and meanings[check_title(check.name)] for check in diagnostics)
    return {check.name for check in diagnostics if check.is_warning}


def test_a_sound_study_raises_no_warning():
    assert warned(SimulatedStudy(MATRICES, n=100)) == set()


@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_labels_that_do_not_persist_do_not_separate_noise_from_a_class_that_features_do_not_determine(sharpness):
    assert "identifiability" in warned(SimulatedStudy(MATRICES, n=100, stay=None, sharpness=sharpness))


def test_labels_that_signals_do_not_predict_are_seen():
    training, _ = fit_studies(simulate(SimulatedStudy(MATRICES, n=100), 1, 0).data)[0]
    other = training.data.evidence.roll(1, 1)  # signals of another recording
    unrelated = training._replace(data=replace(training.data, evidence=other))
    assert [check.name for check in check_support(unrelated) if check.is_warning] == ["support"]


def test_recordings_whose_labels_belong_to_others_are_counted():
    training, _ = fit_studies(simulate(SimulatedStudy(0 * MATRICES + np.eye(2), n=100, sharpness=4.0), 1, 0).data)[0]
    labels = training.data.labels.clone()
    labels[:, :10] = labels[:, :10].roll(1, 1)
    assert not any(check.is_warning for check in check_support(training))
    (check,) = [c for c in check_support(training._replace(data=replace(training.data, labels=labels))) if c.is_warning]
    assert check.name == "recordings"
    assert 1 <= int(check.sentence.split()[1]) <= 10  # labels of others may fit by chance


def test_wrong_labels_that_persistence_alone_gives_away_are_told_from_those_that_signals_support():
    training, _ = fit_studies(simulate(SimulatedStudy(MATRICES, n=100), 1, 0).data)[0]
    data = training.data
    true = (
        expect(data, same_data(torch.ones(1, len(data.mask))), training.parameters, posterior=True).posterior[0].numpy()
    )
    (sound,) = check_persistence(training, true)
    assert not sound.is_warning
    silent = torch.randn(data.evidence.shape, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    (doubt,) = check_persistence(training._replace(data=replace(data, evidence=silent)), true)
    assert doubt.is_warning
    assert not doubt.denies
    assert "persistence alone" in doubt.sentence


def test_errors_that_follow_the_signals_count_by_the_labels_alone():
    training, _ = fit_studies(simulate(SimulatedStudy(MATRICES, n=100), 1, 0).data)[0]
    follows = torch.nn.functional.one_hot(training.data.labels[0, ..., 0].long(), 2).double().add(0.01).log()[None]
    share, upper = share_alone(training._replace(data=replace(training.data, evidence=follows)))
    assert abs(share - 0.25) < 0.03
    assert share < upper < share + 0.05
    clean, _ = fit_studies(simulate(SimulatedStudy(0 * MATRICES + np.eye(2), n=100), 1, 0).data)[0]
    assert share_alone(clean)[1] < 0.005


def test_errors_in_runs_are_seen():
    assert "bursts" in warned(SimulatedStudy(MATRICES, n=100, sharpness=3.0, bursts=0.7))


def test_runs_of_errors_that_a_fit_leaves_out_are_mentioned():
    """With nine sequences they are likely, but less clear than a fit demands."""
    study = SimulatedStudy(MATRICES, n=9, sharpness=3.0, bursts=0.7)
    training, _ = fit_studies(simulate(study, 1, 0).data)[0]
    assert not training.parameters.bursts.any()
    check = check_bursts(training)
    assert check.is_warning
    assert check.sentence.startswith("Labels and signals disagree at about 18 % of the steps, mostly in runs.")


def test_a_class_that_grows_more_common_is_seen():
    share = np.linspace(0.2, 0.8, STEPS)
    assert "class_balance" in warned(SimulatedStudy(MATRICES, n=100), shares=np.stack([share, 1 - share], 1))


def test_features_that_fade_are_seen():
    study = SimulatedStudy(MATRICES, n=100, stay=None, sharpness=3.0)
    assert "drift" in warned(study, sharpness_at=lambda clock: 1 - 0.8 * clock)


def test_a_fold_whose_network_failed_is_seen():
    data = simulate(SimulatedStudy(MATRICES, n=100, stay=None, sharpness=4.0), 1, 0).data
    training, _ = fit_studies(data)[0]
    failed = (training.folds[0] == 2)[:, None, None]
    swapped = torch.where(failed, training.data.evidence[0].flip(-1), training.data.evidence[0])
    training = training._replace(data=replace(training.data, evidence=swapped[None]))
    diagnostics = diagnose(training, ["a", "b"])
    assert "recordings" in {check.name for check in diagnostics if check.is_warning}


def evidence_of_people(people, windows):
    """The evidence of a sound study, without and with the person of each window."""
    study = SimulatedStudy(MATRICES, n=people * windows, stay=None, sharpness=4.0)
    training, _ = fit_studies(simulate(study, 1, 0).data)[0]
    return training, training._replace(clusters=torch.arange(people).repeat_interleave(windows))


def test_a_person_who_differs_is_no_drift_of_the_clock():
    """Each of five people has the windows of two tenths of the clock; margins differ from person to person."""
    training, _ = evidence_of_people(5, 20)
    index = torch.arange(5).repeat_interleave(20)
    points = (8 * index[:, None] + torch.arange(STEPS) % 8).clamp(max=STEPS - 1)
    level = torch.tensor([0.2, 1.0, 0.3, 0.9, 0.25])[index][:, None, None]
    moved = replace(training.data, points=points, evidence=(level * training.data.evidence[0]).log_softmax(-1)[None])
    windows = training._replace(data=moved)
    assert check_drift(windows).is_warning
    assert not check_drift(windows._replace(clusters=index)).is_warning


def test_a_drift_that_all_people_share_is_seen_by_people_too():
    study = SimulatedStudy(MATRICES, n=100, stay=None, sharpness=3.0)
    training, _ = fit_studies(simulate(study, 1, 0, sharpness_at=lambda clock: 1 - 0.8 * clock).data)[0]
    for people in (10, 25):
        assert check_drift(training._replace(clusters=torch.arange(100) % people)).is_warning


def test_one_cluster_is_judged_by_its_rows():
    training, _ = evidence_of_people(5, 20)
    values = np.random.default_rng(0).normal(size=(100, STEPS))
    one = training._replace(clusters=torch.zeros(100, dtype=torch.int64))
    assert largest_contrast(one, values) == largest_contrast(training, values)


def test_standard_errors_by_cluster_are_those_of_cluster_sums():
    """A slow oracle: sums over each person, n / (n - 1), and the tail of Student's t."""
    training, by_person = evidence_of_people(5, 20)
    values = np.random.default_rng(0).normal(size=(100, STEPS)) + by_person.clusters.numpy()[:, None]
    contrast = largest_contrast(by_person, values)
    variance = 0.0
    for tenth in (contrast.highest, contrast.lowest):
        inside = values[:, 4 * tenth : 4 * tenth + 4]
        sums = [(inside[20 * person : 20 * person + 20] - inside.mean()).sum() for person in range(5)]
        variance += sum(part**2 for part in sums) / inside.size**2 * 5 / 4
    tail = student.sf(contrast.change / np.sqrt(variance), 4)
    assert contrast.z == pytest.approx(norm.isf(tail))
    assert contrast.z < largest_contrast(training, values).z


def together(labels):
    """What is said of annotators who are known to err together or not, labels alone."""
    n, n_steps = labels.shape[:2]
    mask = torch.ones(n, n_steps, dtype=torch.bool)
    data = ChainData(torch.tensor(labels.astype(np.int8))[None], mask, None, n_steps, int(labels.max()) + 1)
    first = torch.zeros(1, dtype=torch.int64)
    fits, grid = Members(first, first, torch.ones(1, n)), np.linspace(0, 1, n_steps)
    chain = label_chain(data, fits, grid, groups=labels.shape[-1])
    return check_independence(TrainingEvidence(data, chain, torch.zeros(1, n), grid))


def test_annotators_who_part_between_classes_are_seen_and_independent_ones_are_not():
    generator = np.random.default_rng(0)
    depth, bias = np.zeros((60, 25)), np.zeros((60, 25, 4))
    for step in range(1, 25):
        depth[:, step] = 0.95 * depth[:, step - 1] + 0.31 * generator.standard_normal(60)
        bias[:, step] = 0.9 * bias[:, step - 1] + 0.18 * generator.standard_normal((60, 4))
    borders = np.array([-0.5, 0.5])
    truth = (depth[..., None] > borders).sum(-1)
    parting = ((depth[..., None] + bias)[..., None] > borders).sum(-1)
    wrong = generator.random(bias.shape) < 0.15
    single = np.where(wrong, (truth[..., None] + 1) % 3, truth[..., None])
    (dependent,), (independent,) = together(parting), together(single)
    assert dependent.is_warning
    assert not independent.is_warning
    assert together(single[..., :1]) == ()
