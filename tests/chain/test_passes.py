"""Forward-backward against every path written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chains import make_case
from labeltide.chain import passes
from labeltide.chain.passes import kernel_inputs, plain_pass
from labeltide.kernels.compiled import compiled_pass

compiled = pytest.mark.usefixtures("compiled_variant")


def kept_or_new(bursts, row, state, recorded, right_before, was_wrong, recorded_before):
    """One uniform number stands behind each label, its lowest part for errors; it is kept or drawn anew.

    An error that goes on is recorded as the same label, unless that has become the true one.
    """
    error, before = 1 - row[state], 1 - right_before
    low, high = (0, before) if was_wrong else (before, 1)
    again = max(0.0, min(high, error) - low) / (high - low)  # the share of the earlier number's range that errs now
    goes_on = was_wrong and recorded_before != state
    named = float(recorded == recorded_before) if goes_on else row[recorded] / error
    same = 1 - again if recorded == state else again * named
    return (1 - bursts) * row[recorded] + bursts * same


def enumerate_paths(data, members, parameters, member, row):
    """The likelihood, posterior, pair counts and slope in the power of one row, by summing over all its paths."""
    length, classes = int(data.mask[row].sum()), data.n_classes
    start, transition, power, matrices = (tensor[member].double().numpy() for tensor in parameters[:4])
    bursts = 0.0 if parameters.bursts is None else float(parameters.bursts[member])
    labels = data.labels[members.labels[member], row].numpy()
    e = np.zeros((length, classes))
    if data.evidence is not None:
        e = data.evidence[members.evidence[member], row].double().numpy()
    points = data.grid_index()[row].numpy()
    jump = np.zeros(length, int) if data.jumps is None else data.jumps[row].numpy()
    over = [np.linalg.matrix_power(transition, gap) for gap in data.gaps]
    total, slope = 0.0, 0.0
    posterior, pairs = np.zeros((length, classes)), np.zeros((classes, classes))
    for path in itertools.product(range(classes), repeat=length):
        weight, own_slope = 1.0, 0.0
        for t, state in enumerate(path):
            base = start if t == 0 else over[jump[t]][path[t - 1]]
            moves = base * np.exp(power * e[t])
            moves /= moves.sum()
            weight *= moves[state]
            own_slope += e[t, state] - moves @ e[t]
            for annotator, recorded in enumerate(labels[t]):
                own = matrices[annotator if len(matrices) > 1 else 0]
                if recorded >= 0 and (t == 0 or jump[t] or labels[t - 1, annotator] < 0):
                    weight *= own[points[t], state, recorded]
                elif recorded >= 0:
                    earlier, right = labels[t - 1, annotator], own[points[t - 1], path[t - 1], path[t - 1]]
                    wrong = earlier != path[t - 1]
                    weight *= kept_or_new(bursts, own[points[t], state], state, recorded, right, wrong, earlier)
            if data.trusted is not None and data.trusted[row, t] >= 0:
                weight *= float(data.trusted[row, t] == state)
        total += weight
        slope += weight * own_slope
        for t, state in enumerate(path):
            posterior[t, state] += weight
            if t and not jump[t]:
                pairs[path[t - 1], state] += weight
    return np.log(total), posterior / total, pairs / total, slope / total


@pytest.mark.usefixtures("any_variant")
@pytest.mark.parametrize("run", [plain_pass, passes.expect])
@pytest.mark.parametrize("evidence", [True, False])
@pytest.mark.parametrize("bursts", [True, False])
@pytest.mark.parametrize("jumps", [True, False])
@pytest.mark.parametrize(("classes", "annotators", "groups", "points"), [(2, 1, 1, 3), (3, 2, 2, 3), (2, 3, 1, 4)])
def test_a_pass_equals_the_sum_over_all_paths(run, evidence, bursts, jumps, classes, annotators, groups, points):
    sizes = {"classes": classes, "annotators": annotators, "groups": groups, "points": points, "evidence": evidence}
    sizes |= {"bursts": bursts, "jumps": jumps}
    data, members, parameters = make_case(classes + points, **sizes)
    found = run(data, members, parameters, posterior=True)
    n_members, rows = members.weights.shape
    for member in range(n_members):
        pairs, slope = 0.0, 0.0
        counts = np.zeros(found.counts.shape[1:])
        for row in range(rows):
            likelihood, posterior, own_pairs, own_slope = enumerate_paths(data, members, parameters, member, row)
            length, weight = len(posterior), float(members.weights[member, row])
            np.testing.assert_allclose(found.log_likelihood[member, row], likelihood, rtol=1e-5)
            np.testing.assert_allclose(found.posterior[member, row, :length], posterior, atol=1e-5)
            assert not found.posterior[member, row, length:].any()
            pairs, slope = pairs + weight * own_pairs, slope + weight * own_slope
            for t, annotator in itertools.product(range(length), range(data.labels.shape[-1])):
                recorded = int(data.labels[members.labels[member], row, t, annotator])
                if recorded >= 0:
                    index = int(data.grid_index()[row, t])
                    counts[annotator if groups > 1 else 0, index, :, recorded] += weight * posterior[t]
        np.testing.assert_allclose(found.pairs[member, 0], pairs, atol=1e-5)
        np.testing.assert_allclose(found.counts[member], counts, atol=1e-5)
        if evidence:
            np.testing.assert_allclose(found.power[member, 0], slope, atol=1e-4)


@compiled
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    members=st.integers(1, 5),
    rows=st.integers(1, 40),
    steps=st.integers(1, 12),
    classes=st.integers(2, 6),
    annotators=st.integers(1, 3),
    evidence=st.booleans(),
    bursts=st.booleans(),
    jumps=st.booleans(),
)
def test_the_compiled_pass_equals_the_plain_one(
    seed, members, rows, steps, classes, annotators, evidence, bursts, jumps
):
    groups = 1 + seed % 2 * (annotators - 1)
    case = make_case(seed, members, rows, steps, classes, annotators, groups, 5, evidence, bursts, jumps)
    compiled = compiled_pass(kernel_inputs(*case), posterior=True)
    for one, two in zip(plain_pass(*case, posterior=True), compiled, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4 * (1 + float(two.abs().max())))


def test_members_in_parts_equal_members_at_once(monkeypatch):
    case = make_case(3, members=5)
    whole = plain_pass(*case, posterior=True)
    monkeypatch.setattr(passes, "choose", lambda kernel, device: "torch")
    monkeypatch.setattr(passes, "NUMBERS_AT_ONCE", 200)
    for one, two in zip(whole, passes.expect(*case, posterior=True), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
