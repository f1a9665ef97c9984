"""What every method promises, checked on each; scikit-learn's own checks know nothing of 3-D input."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from torch import nn

import labeltide as lt
import variants
from labeltide.estimators import NoisyLabelClassifier
from labeltide.kernels import library
from variants import using

N, STEPS, FEATURES = 12, 8, 2
HIDDEN: list[int] = []
LABEL_TYPES = {
    "ints": np.array([4, 9]),
    "strings": np.array(["asleep", "awake"]),
    "objects": np.array(["asleep", "awake"], dtype=object),
    "bools": np.array([False, True]),
    "floats": np.array([0.5, 1.5]),
    "tuples": np.array([("n", 1), ("w", 2), None], dtype=object)[:2],
}

# Four hidden units are too few for the compiled GRU, 32 are what ships: each kernel variant runs with 32.
SMALL = (library.requested() or "", 4)
SETTINGS = [pytest.param(SMALL, id="small"), *(pytest.param((variant, 32), id=variant) for variant in variants.ALL)]


def every_method(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for each method, with a small network and with the kernels that are used here.

    That all variants give the same numbers is tested in tests/kernels, tests/chain and tests/training.
    """
    return _by_setting(test, SETTINGS[:2])


def every_method_and_variant(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for each method, with a small network and with each kernel variant."""
    return _by_setting(test, SETTINGS)


def _by_setting(test: Callable[..., None], settings: list[Any]) -> Callable[..., None]:
    by_setting = pytest.mark.parametrize("setting", settings, indirect=True)
    return pytest.mark.parametrize("name", lt.METHODS)(by_setting(test))


# What no kernel sees (parameters, types of labels, scores, cutting of rows, errors) is checked with the small network.
every_method_small = pytest.mark.parametrize("name", lt.METHODS)


@pytest.fixture(autouse=True)
def setting(request: pytest.FixtureRequest) -> Iterator[None]:
    """The kernels and the hidden size that `make` uses; small where a test does not ask."""
    variant, size = getattr(request, "param", SMALL)
    HIDDEN.append(size)
    with using(variant):
        yield
    HIDDEN.pop()


def make(name: str, n_classes: int = 2, **params: Any) -> NoisyLabelClassifier:
    """A small, quick estimator; `known` is told a noise function."""
    if name == "known":
        params = {"noise": 0.7 * np.eye(n_classes) + 0.3 / n_classes, **params}
    own = {"epochs": 2, "hidden_size": HIDDEN[-1] if HIDDEN else SMALL[1], "random_state": 0, "device": "cpu"}
    return lt.METHODS[name](**{**own, **params})


def make_study(n_classes: int = 2, n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, STEPS, FEATURES))
    y = np.digitize(X[..., 0] + 0.3 * rng.normal(size=(n, STEPS)), np.linspace(-0.7, 0.7, n_classes + 1)[1:-1])
    return X, y


def fitted(name: str, n_classes: int = 2, epochs: int = 2) -> NoisyLabelClassifier:
    """`make` fitted to `make_study`, once for all tests of a kernel variant: no test may change it."""
    return _fit_once(name, n_classes, epochs, library.requested(), HIDDEN[-1])


@functools.cache
def _fit_once(name: str, n_classes: int, epochs: int, *setting: object) -> NoisyLabelClassifier:
    return make(name, n_classes, epochs=epochs).fit(*make_study(n_classes))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny fits lose more by sharing threads than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def study() -> tuple[np.ndarray, np.ndarray]:
    return make_study()


@pytest.fixture
def lengths() -> np.ndarray:
    return np.random.default_rng(5).integers(2, STEPS + 1, N)


def results(method: NoisyLabelClassifier, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return method.predict_proba(X), method.noise_matrices_


def assert_same(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> None:
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_valid_noise(matrices: np.ndarray, shape: tuple[int, ...]) -> None:
    assert matrices.shape == shape
    assert np.all(matrices >= 0)
    np.testing.assert_allclose(matrices.sum(-1), 1, atol=1e-5)


# The scikit-learn protocol


@every_method_small
def test_every_argument_has_a_default_and_is_only_stored(name):
    parameters = inspect.signature(lt.METHODS[name]).parameters
    assert {"model", "epochs", "random_state"} <= set(parameters) == set(lt.METHODS[name]().get_params())
    for argument, parameter in parameters.items():
        assert parameter.default is not parameter.empty
        given = object()
        assert getattr(lt.METHODS[name](**{argument: given}), argument) is given
    with pytest.raises(TypeError, match="nonsense"):
        lt.METHODS[name](nonsense=1)


@every_method_small
def test_clone_get_params_and_set_params(name):
    method = copy.deepcopy(fitted(name))
    copied = clone(method)
    assert not hasattr(copied, "model_")
    assert copied.epochs == 2
    assert repr(copied) == repr(method)
    assert method.set_params(epochs=4, learning_rate=0.1) is method
    assert (method.get_params()["epochs"], method.learning_rate) == (4, 0.1)
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        method.set_params(nonsense=1)


@every_method_small
def test_fit_returns_itself_and_changes_nothing_it_was_given(name, study, lengths):
    X, y = study
    clock, trusted = np.sort(np.random.default_rng(2).random(y.shape)), np.where(y == 0, y, -1)
    given = {"X": X, "y": y, "clock": clock, "lengths": lengths, "trusted": trusted}
    for array in given.values():
        array.setflags(write=False)
    method = make(name)
    before, kept = copy.deepcopy(given), method.get_params()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert method.fit(**given) is method
    for key, array in given.items():
        np.testing.assert_array_equal(array, before[key])
    assert all(method.get_params()[key] is value for key, value in kept.items())
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


@every_method
def test_pickle_and_deepcopy_keep_a_fitted_method_whole(name, study):
    X, _ = study
    method = fitted(name)
    assert_same(results(pickle.loads(pickle.dumps(method)), X), results(method, X))
    assert_same(results(copy.deepcopy(method), X), results(method, X))


@every_method_and_variant
def test_the_same_seed_gives_the_same_numbers_also_after_another_fit(name, study):
    X, y = study
    refitted = make(name, random_state=7).fit(X[:, :5], y[:, :5]).set_params(random_state=0).fit(X, y)
    assert_same(results(fitted(name), X), results(refitted, X))


@every_method_small
def test_another_seed_and_no_seed_give_other_numbers_and_a_stream_its_own(name, study):
    X, y = study
    assert not np.array_equal(results(fitted(name), X)[0], make(name, random_state=1).fit(X, y).predict_proba(X))
    unseeded = [make(name, random_state=None).fit(X, y).predict_proba(X) for _ in range(2)]
    assert not np.array_equal(*unseeded)
    streams = [make(name, random_state=np.random.RandomState(3)).fit(X, y) for _ in range(2)]
    assert_same(results(streams[0], X), results(streams[1], X))


@every_method_and_variant
def test_a_fleet_of_estimators_ends_as_each_would_alone(name, study):
    X, y = study
    labels = [y, 1 - y, np.where(y == 1, -1, y)]  # the last has seen one class only
    labels[2][0] = 1
    fleet = [make(name, random_state=seed) for seed in range(3)]
    lt.fit_fleet(fleet, X, labels)
    for seed, (member, own) in enumerate(zip(fleet, labels, strict=True)):
        alone = make(name, random_state=seed).fit(X, own) if seed else fitted(name)
        np.testing.assert_allclose(member.predict_proba(X), alone.predict_proba(X), atol=1e-4)
        np.testing.assert_allclose(member.noise_matrices_, alone.noise_matrices_, atol=1e-4)


@every_method_small
def test_grid_search_with_groups_works_for_strings(name, study):
    X, y = study
    labels = LABEL_TYPES["strings"][y]
    search = GridSearchCV(make(name, epochs=1), {"hidden_size": [2, 3]}, cv=GroupKFold(2), error_score="raise")
    search.fit(X, labels, groups=np.repeat(np.arange(4), 3))
    assert search.best_params_["hidden_size"] in (2, 3)
    assert 0 <= search.best_score_ <= 1
    assert search.predict(X).shape == labels.shape
    assert search.score(X, labels) == search.best_estimator_.score(X, labels)


@every_method_small
def test_clusters_are_cut_with_the_rows_of_a_grid_search(name, study):
    X, y = study
    people = np.repeat(np.arange(4), 3)
    search = GridSearchCV(make(name, epochs=1), {"hidden_size": [2, 3]}, cv=GroupKFold(2), error_score="raise")
    search.fit(X, y, groups=people, clusters=people)
    assert 0 <= search.best_score_ <= 1


@every_method_small
def test_clusters_of_any_hashable_type_give_the_same_numbers(name, study):
    X, y = study
    codes = np.repeat(np.arange(6), 2)
    names = [codes, [f"person {code}" for code in codes], [("site", int(code)) for code in codes]]
    first, *others = (results(make(name, early_stopping=True).fit(X, y, clusters=clusters), X) for clusters in names)
    for other in others:
        assert_same(first, other)


@every_method_small
def test_clusters_of_one_row_each_change_nothing(name, study):
    X, y = study
    alone = make(name, early_stopping=True).fit(X, y, clusters=np.arange(N))
    assert_same(results(alone, X), results(make(name, early_stopping=True).fit(X, y), X))


@every_method_small
def test_cross_val_score_scores_steps(name, study):
    scores = cross_val_score(make(name, epochs=1), *study, cv=2, error_score="raise")
    assert scores.shape == (2,)
    assert np.all((scores >= 0) & (scores <= 1))


# Predictions and scores


@every_method_small
@pytest.mark.parametrize("kind", LABEL_TYPES)
def test_predictions_are_labels_of_the_users_own_type(name, kind, study):
    X, codes = study
    names = LABEL_TYPES[kind]
    method = make(name, epochs=1).fit(X, names[codes])
    predicted = method.predict(X)
    assert predicted.shape == codes.shape
    assert method.classes_.tolist() == names.tolist()
    assert {type(label) for label in predicted.ravel().tolist()} == {type(names.tolist()[0])}
    assert method.classes_.dtype.kind == ("U" if kind == "objects" else names.dtype.kind)
    np.testing.assert_array_equal(method.predict_proba(X).argmax(-1), fitted(name, epochs=1).predict(X))
    assert method.score(X, predicted) == 1


@every_method
def test_probabilities_sum_to_one_on_real_steps_and_to_zero_on_padding(name, study, lengths):
    X, y = study
    method = make(name).fit(X, y, lengths=lengths)
    probabilities = method.predict_proba(X, lengths)
    real = np.arange(STEPS) < lengths[:, None]
    assert probabilities.shape == (N, STEPS, 2)
    np.testing.assert_allclose(probabilities[real].sum(-1), 1, atol=1e-5)
    assert np.all(probabilities[~real] == 0)
    assert np.all(method.predict(X, lengths)[~real] == -1)
    assert np.all(method.predict(X, lengths)[real] >= 0)


@pytest.mark.parametrize("kind", LABEL_TYPES)
def test_predictions_on_padding_are_missing(kind, study, lengths):
    X, codes = study
    method = make("ignore").fit(X, LABEL_TYPES[kind][codes], lengths=lengths)
    padding = np.arange(STEPS) >= lengths[:, None]
    expected = {"ints": -1, "floats": np.nan}.get(kind)
    for label in method.predict(X, lengths)[padding]:
        assert label is expected or label == expected or (kind == "floats" and np.isnan(label))


@every_method_small
def test_score_is_a_slow_loop_over_the_labels_that_are_there(name, lengths):
    X, y = make_study(n_classes=3)
    rng = np.random.default_rng(1)
    given = np.where(rng.random((N, STEPS, 2)) < 0.3, -1, np.stack([y, rng.permuted(y)], -1))
    method = fitted(name, n_classes=3)
    predicted, weights = method.predict(X, lengths), rng.random(N)
    hits = total = 0.0
    for row in range(N):
        for step in range(lengths[row]):
            for label in given[row, step]:
                if label != -1:
                    hits += weights[row] * (predicted[row, step] == label)
                    total += weights[row]
    assert method.score(X, given, lengths, sample_weight=weights) == pytest.approx(hits / total)
    there = (np.arange(STEPS) < lengths[:, None])[..., None] & (given != -1)
    plain = (predicted[..., None] == given)[there].mean()
    assert method.score(X, given, lengths) == pytest.approx(plain)


# Gaps, padding, annotators and clocks


@every_method_and_variant
def test_garbage_on_padding_changes_nothing(name, study, lengths):
    X, y = study
    clock = np.sort(np.random.default_rng(2).random(y.shape), axis=1)
    padding = np.arange(STEPS) >= lengths[:, None]
    assert padding.any()
    clean = make(name).fit(X, y, clock=clock, lengths=lengths)
    X_bad, y_bad, clock_bad = X.copy(), y.copy(), clock.copy()
    X_bad[padding], y_bad[padding], clock_bad[padding] = np.nan, 99, np.nan
    dirty = make(name).fit(X_bad, y_bad, clock=clock_bad, lengths=lengths)
    assert_same(results(clean, X), results(dirty, X))
    np.testing.assert_array_equal(clean.clock_grid_, dirty.clock_grid_)
    np.testing.assert_array_equal(dirty.classes_, [0, 1])
    np.testing.assert_array_equal(clean.predict(X, lengths), dirty.predict(X_bad, lengths))
    assert clean.score(X, y, lengths) == dirty.score(X_bad, y_bad, lengths)


@every_method_small
def test_missing_labels_are_marked_in_the_way_of_their_type(name, study):
    X, y = study
    gaps = np.random.default_rng(3).random(y.shape) < 0.3
    as_numbers = results(make(name).fit(X, np.where(gaps, -1, y)), X)
    as_floats = np.where(gaps, np.nan, y.astype(float))
    as_objects = np.where(gaps, None, LABEL_TYPES["objects"][y])
    assert_same(as_numbers, results(make(name).fit(X, as_floats), X))
    assert_same(as_numbers, results(make(name).fit(X, as_objects), X))
    assert not np.array_equal(as_numbers[0], fitted(name).predict_proba(X))


@every_method
def test_several_annotators_and_the_empty_one(name, study):
    X, y = study
    one = results(fitted(name), X)
    assert_same(one, results(make(name).fit(X, y[..., None]), X))
    second = np.where(np.random.default_rng(4).random(y.shape) < 0.5, 1 - y, -1)
    several = make(name).fit(X, np.stack([y, second], -1))
    assert_valid_noise(several.noise_matrices_, (STEPS, 2, 2))
    assert not np.array_equal(several.predict_proba(X), one[0])
    silent = make(name).fit(X, np.stack([y, np.full_like(y, -1)], -1))
    np.testing.assert_allclose(silent.predict_proba(X), one[0], atol=1e-5)


@every_method
def test_noise_matrices_are_valid_at_every_step(name):
    method = fitted(name, n_classes=3)
    assert_valid_noise(method.noise_matrices_, (STEPS, 3, 3))
    np.testing.assert_allclose(method.clock_grid_, np.arange(STEPS) / (STEPS - 1), atol=1e-6)
    np.testing.assert_array_equal(method.noise_at(method.clock_grid_), method.noise_matrices_)


@every_method
def test_noise_can_be_asked_for_at_any_shape_of_clock(name):
    method = fitted(name)
    for clock in (0.3, [0.1, 0.9], np.linspace(-5, 5, 6).reshape(2, 3), np.zeros((2, 0)), 1e30):
        assert_valid_noise(method.noise_at(clock), (*np.shape(clock), 2, 2))
    np.testing.assert_allclose(method.noise_at([[0.25, 0.5]])[0, 1], method.noise_at(0.5), atol=1e-6)
    with pytest.raises(ValueError, match="clock must be finite"):
        method.noise_at([0.1, np.nan])


@every_method
def test_a_shared_clock_is_the_same_for_all_sequences(name, study):
    X, y = study
    shared = np.array([0, 1, 2, 4, 8, 16, 32, 64.0])
    method = make(name).fit(X, y, clock=shared)
    np.testing.assert_array_equal(method.clock_grid_, shared)
    assert_valid_noise(method.noise_matrices_, (STEPS, 2, 2))
    assert_same(results(method, X), results(make(name).fit(X, y, clock=np.tile(shared, (N, 1))), X))


@every_method
def test_sequences_may_have_irregular_clocks_of_their_own(name, study, lengths):
    X, y = study
    clock = np.sort(np.random.default_rng(6).uniform(-50, 900, y.shape), axis=1)
    method = make(name).fit(X, y, clock=clock, lengths=lengths)
    moments = np.unique(clock[np.arange(STEPS) < lengths[:, None]])
    np.testing.assert_allclose(method.clock_grid_, moments, rtol=1e-6)
    assert_valid_noise(method.noise_matrices_, (len(moments), 2, 2))
    assert np.isfinite(method.predict_proba(X)).all()


@every_method
def test_seconds_since_1970_are_a_clock_like_any_other(name, study):
    X, y = study
    seconds = 1.7e9 + np.arange(STEPS)
    method = make(name).fit(X, y, clock=seconds)
    np.testing.assert_array_equal(method.clock_grid_, seconds)
    assert_valid_noise(method.noise_matrices_, (STEPS, 2, 2))


@every_method
def test_trusted_labels_are_heard(name, study):
    X, y = study
    plain = results(fitted(name), X)
    nothing = make(name).fit(X, y, trusted=np.full_like(y, -1))
    np.testing.assert_allclose(nothing.predict_proba(X), plain[0], atol=1e-5)
    trusted = make(name).fit(X, y, trusted=np.where(np.arange(N)[:, None] < 6, 1 - y, -1))
    assert not np.allclose(trusted.predict_proba(X), plain[0], atol=1e-5)
    assert_valid_noise(trusted.noise_matrices_, (STEPS, 2, 2))


@every_method_small
def test_clean_labels_kept_aside_are_never_seen(name):
    study = lt.make_sequences(n=N, n_steps=STEPS, n_features=FEATURES, random_state=0)
    assert study.clean_labels is not None
    other = dataclasses.replace(study, clean_labels=1 - study.clean_labels)
    fits = [make(name).fit(s.features, s.labels, s.clock, s.lengths) for s in (study, other)]
    assert_same(results(fits[0], study.features), results(fits[1], study.features))
    assert "clean" not in " ".join(inspect.signature(lt.METHODS[name].fit).parameters)


@every_method
def test_early_stopping_keeps_the_best_epoch_of_the_rows_held_out(name, study):
    if name == "tide":
        pytest.skip("tide stops its networks on rows they do not see, whatever early_stopping says.")
    method = make(name, epochs=4, early_stopping=True, validation_fraction=0.25, learning_rate=0.1).fit(*study)
    held_out = method.history_.held_out[:, 0]
    assert np.isfinite(held_out).all()
    assert 0 <= method.history_.best_epoch[0] <= 4
    assert np.isfinite(method.predict_proba(study[0])).all()
    assert np.isnan(fitted(name).history_.held_out).all()


# Models


class Own(nn.Module):
    def __init__(self, n_features: int, n_classes: int, more: int = 0) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(n_features, 3, batch_first=True)
        self.head = nn.Linear(3, n_classes + more)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(features)[0])


class WholeSequence(Own):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return super().forward(features)[:, -1]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("model", ["gru", "tcn", "transformer", "linear", Own, lt.wrap(Own), Own(2, 3)], ids=str)
def test_any_model_serves_a_method(model, causal, lengths):
    X, y = make_study(n_classes=3)
    method = make("volmin", model=model, causal=causal).fit(X, y, lengths=lengths)
    assert method.predict_proba(X).shape == (N, STEPS, 3)
    assert np.isfinite(method.predict_proba(X)).all()
    padded = np.concatenate([X, np.full((N, 3, FEATURES), np.nan)], 1)
    if isinstance(model, str):
        longer = method.predict_proba(padded, np.full(N, STEPS))[:, :STEPS]
        np.testing.assert_allclose(longer, method.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (
            lambda f, c: Own(f, c, more=1),
            r"logits of shape \(batch, steps, classes\) = \(1, 8, 2\).* Got \(1, 8, 3\)",
        ),
        (WholeSequence, r"logits of shape \(batch, steps, classes\)"),
        ("lstm", "Unknown model 'lstm'. Choose one of: gru, tcn, transformer, linear"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model, match, study):
    with pytest.raises(ValueError, match=match):
        make("ignore", model=model).fit(*study)


# Bad input


def bad_shapes() -> dict[str, tuple[dict[str, Any], str]]:
    X, y = make_study()
    one = np.zeros((N, STEPS))
    nan, infinite, huge = X.copy(), X.copy(), X.copy()
    nan[3, 2, 1], infinite[0, 0, 0], huge[0, 0, 0] = np.nan, -np.inf, 1e300
    clock = np.tile(np.arange(STEPS) / 7, (N, 1))
    clock[4, 3] = np.nan
    return {
        "X two-dimensional": ({"X": X[0]}, r"X must have shape \(n, steps, features\).* Got shape \(8, 2\)"),
        "X of words": ({"X": np.full(X.shape, "a")}, "X must be numbers"),
        "X ragged": ({"X": [[[1.0]], [[1.0], [2.0]]]}, "X must be numbers"),
        "X empty": ({"X": X[:0], "y": y[:0]}, "at least one sequence"),
        "X with NaN": ({"X": nan}, "X must be finite.* sequence 3, step 2, feature 1"),
        "X infinite": ({"X": infinite}, "X must be finite"),
        "X beyond float32": ({"X": huge}, "X must be finite within float32"),
        "y too short": ({"y": y[:, :-1]}, r"y must have shape \(12, 8\).* Got shape \(12, 7\)"),
        "y too few": ({"y": y[:-1]}, r"y must have shape \(12, 8\)"),
        "y one-dimensional": ({"y": y[:, 0]}, r"y must have shape"),
        "y four-dimensional": ({"y": y[..., None, None]}, r"y must have shape"),
        "y without annotators": ({"y": np.zeros((N, STEPS, 0), int)}, r"y must have shape"),
        "y all missing": ({"y": np.full_like(y, -1)}, "y holds no label at all"),
        "y all None": ({"y": np.full(y.shape, None)}, "y holds no label at all"),
        "y beyond lengths": (
            {"y": np.where(np.arange(STEPS) < 4, -1, y), "lengths": np.full(N, 4)},
            "y holds no label at all",
        ),
        "y one class": ({"y": np.ones_like(y)}, "at least two classes. Got only 1"),
        "y unhashable": ({"y": np.array([[{}] * STEPS] * N, dtype=object)}, "y must hold hashable labels"),
        "lengths too long": (
            {"lengths": np.full(N, 9)},
            "lengths must lie between 1 and 8.* Got 9 for sequence 0",
        ),
        "lengths zero": ({"lengths": np.zeros(N, int)}, "lengths must lie between 1 and 8"),
        "lengths too few": ({"lengths": np.full(N - 1, 8)}, "lengths must be 12 whole numbers"),
        "lengths not whole": ({"lengths": np.full(N, 7.5)}, "lengths must be 12 whole numbers"),
        "clock of another shape": (
            {"clock": one[:, :-1]},
            r"clock must have shape \(12, 8\).* Got shape \(12, 7\)",
        ),
        "clock with NaN": ({"clock": clock}, "clock must be finite. Got nan in sequence 4, step 3"),
        "clock of words": ({"clock": np.full(y.shape, "noon")}, "clock must be numbers"),
        "trusted of another shape": ({"trusted": y[:, :-1]}, "must have shape"),
        "trusted never recorded": ({"trusted": np.full_like(y, 7)}, "trusted holds labels .* known ones: 7"),
        "clusters too few": (
            {"clusters": np.arange(N - 1)},
            r"clusters must be 12 names, one per sequence. Got shape \(11,\)",
        ),
        "clusters missing": (
            {"clusters": [None, *range(N - 1)]},
            "clusters must name one for every sequence. Sequence 0 has none",
        ),
        "clusters unhashable": ({"clusters": [[0]] * N}, "clusters must hold hashable names"),
        "trusted by several": ({"trusted": np.stack([y, y], -1)}, "trusted must have shape"),
    }


@pytest.mark.parametrize("case", bad_shapes())
def test_bad_input_to_fit_is_answered_with_a_sentence(case, study):
    X, y = study
    changed, match = bad_shapes()[case]
    method = make("ignore")
    with pytest.raises(ValueError, match=match) as caught:
        method.fit(**{"X": X, "y": y, **changed})
    assert len(str(caught.value)) < 500
    assert not hasattr(method, "model_")


@every_method_small
def test_every_method_checks_its_input(name, study):
    X, y = study
    for changed, match in (bad_shapes()[case] for case in ("X with NaN", "y one class", "clock with NaN")):
        with pytest.raises(ValueError, match=match):
            make(name).fit(**{"X": X, "y": y, **changed})


def test_more_than_127_classes_are_refused():
    X = np.zeros((20, STEPS, FEATURES))
    many = np.arange(20 * STEPS).reshape(20, STEPS)
    with pytest.raises(ValueError, match=r"at most 127 classes. Got 160: is it a measurement\?"):
        make("ignore").fit(X, many)
    assert len(make("ignore", epochs=1).fit(X, many % 127).classes_) == 127


BAD_SETTINGS = [
    ("epochs", [0, -1, 1.5, "a", None, True, np.nan]),
    ("batch_size", [0, -1, 1.5, "a", None]),
    ("hidden_size", [0, -1, 1.5, "a", None]),
    ("learning_rate", [0, -0.1, "a", None, np.nan, True]),
    ("validation_fraction", [0, 1, -0.1, "a", None, np.nan]),
    ("random_state", [-1, 2**32, "a", 1.5]),
]


@pytest.mark.parametrize(("setting", "value"), [(name, value) for name, values in BAD_SETTINGS for value in values])
def test_nonsense_settings_are_refused(setting, value, study):
    with pytest.raises(ValueError, match=f"{setting} must be|cannot be used to seed"):
        make("ignore", **{setting: value}).fit(*study)


@pytest.mark.parametrize("value", [np.nan, "a", None])
@pytest.mark.parametrize(
    ("name", "setting"),
    [("volmin", "volume_weight"), ("discontinuous", "volume_weight"), ("continuous", "diagonal_weight")],
)
def test_nonsense_weights_are_refused(name, setting, value, study):
    own = {"objective": "penalised"} if name == "continuous" else {}
    with pytest.raises(ValueError, match=f"{setting} must be"):
        make(name, **{setting: value}, **own).fit(*study)


@pytest.mark.parametrize(
    ("name", "params", "match"),
    [
        ("ignore", {"device": "gpu9"}, "Unknown or absent device 'gpu9'. This machine has: auto, cpu"),
        (
            "continuous",
            {"objective": "best"},
            "Unknown objective 'best'. Choose one of: lagrangian, penalised",
        ),
        ("known", {"loss": "sideways"}, "Unknown loss 'sideways'. Choose one of"),
        ("known", {"noise": None}, "needs to be told the noise"),
        ("known", {"noise": np.eye(3)}, "noise must be for the 2 classes of y. Got one for 3"),
        ("known", {"noise": np.ones((2, 2))}, "Every row of a noise matrix must be a distribution"),
        ("known", {"noise": np.stack([np.eye(2)] * 5)}, "one matrix for each of the 8 clock moments. Got 5"),
        ("anchor", {"warm_up": 0}, "warm_up must be a whole number at least 1"),
        ("plugin", {"percentile": 101}, "percentile must be a number at least 0 and at most 100"),
        ("ignore", {"model": "transformer", "hidden_size": 6}, "divisible by 4"),
    ],
)
def test_settings_of_one_method_are_checked(name, params, match, study):
    with pytest.raises(ValueError, match=match):
        make(name, **params).fit(*study)


def test_an_unknown_method_is_answered_with_the_methods_there_are():
    with pytest.raises(ValueError, match=r"Unknown method 'best'. Choose one of: ignore, anchor"):
        lt.METHODS["best"]
    with pytest.raises(KeyError):
        lt.METHODS["best"]


@every_method_small
def test_nothing_works_before_fit(name, study):
    X, y = study
    method = make(name)
    for call in (lambda: method.predict(X), lambda: method.predict_proba(X), lambda: method.score(X, y)):
        with pytest.raises(NotFittedError):
            call()
    for call in (lambda: method.noise_at(0.5), lambda: method.encode(y), lambda: method.save("nowhere")):
        with pytest.raises(NotFittedError):
            call()


@every_method_small
def test_bad_input_after_fit_is_answered_with_a_sentence(name, study):
    X, y = study
    method = fitted(name)
    with pytest.raises(ValueError, match=r"X must have 2 features, as in fit. Got 3"):
        method.predict(np.zeros((N, STEPS, 3)))
    with pytest.raises(ValueError, match="X must have shape"):
        method.predict_proba(X[0])
    with pytest.raises(ValueError, match="X must be finite"):
        method.predict(np.full_like(X, np.nan))
    with pytest.raises(ValueError, match="lengths must lie between"):
        method.predict(X, lengths=np.full(N, 9))
    with pytest.raises(ValueError, match=r"y holds labels that are not among the known ones: 7. Known labels: 0, 1"):
        method.score(X, np.where(y == 0, 7, y))
    with pytest.raises(ValueError, match="y holds no label to score"):
        method.score(X, np.full_like(y, -1))


@pytest.mark.parametrize("cut", [np.s_[:-1], np.s_[:, :-1], np.s_[:1], np.s_[:, :1]])
def test_score_refuses_labels_of_another_shape(cut, study):
    X, y = study
    method = fitted("ignore")
    with pytest.raises(ValueError, match="y must have shape"):
        method.score(X, y[cut])
    with pytest.raises(ValueError, match="y must have shape"):
        method.score(X[cut], y)  # one sequence against many labels must not be broadcast


def test_score_refuses_labels_of_one_dimension(study):
    X, y = study
    with pytest.raises(ValueError, match="y must have shape"):
        make("ignore").fit(X, y).score(X, y[0])


def test_score_refuses_weights_of_another_shape(study):
    with pytest.raises(ValueError, match="sample_weight must"):
        make("ignore").fit(*study).score(*study, sample_weight=np.ones(N - 1))


def test_early_stopping_needs_a_sequence_to_hold_out(study):
    X, y = study
    with pytest.raises(ValueError, match="early_stopping needs at least two sequences"):
        make("ignore", early_stopping=True).fit(X[:1], y[:1])


@pytest.mark.parametrize(
    "others", [[make("ignore", epochs=3)], [make("volmin")], [make("ignore", hidden_size=5)]], ids=str
)
def test_estimators_of_one_fleet_differ_in_their_seed_only(others, study):
    X, y = study
    with pytest.raises(ValueError, match="estimators of one fleet must be of one method and differ in"):
        lt.fit_fleet([make("ignore"), *others], X, [y, y])


def test_a_fleet_needs_labels_for_each_estimator(study):
    X, y = study
    with pytest.raises(ValueError, match=r"one label array for each estimator. Got 2 and 1"):
        lt.fit_fleet([make("ignore"), make("ignore")], X, [y])
    with pytest.raises(ValueError, match=r"one label array for each estimator. Got 0 and 0"):
        lt.fit_fleet([], X, [])


def test_gaps_in_a_list_of_texts_are_gaps():
    X = np.zeros((2, 3, 1))
    clf = lt.METHODS["ignore"](epochs=1, random_state=0).fit(X, [["a", "b", float("nan")], ["a", None, "b"]])
    assert clf.classes_.tolist() == ["a", "b"]


def test_noise_is_never_stretched_silently_over_another_clock():
    study = lt.make_sequences(n=4, n_steps=6, n_features=1)
    noise, hours = lt.make_noise("linear", n_steps=6), np.arange(6) * 4.0
    with pytest.raises(ValueError, match="clock from 0 to 1, but the data's clock runs from 0 to 20"):
        lt.corrupt(study.labels[..., 0], noise, clock=hours)
    with pytest.raises(ValueError, match="clock from 0 to 1"):
        lt.METHODS["known"](noise=noise, epochs=1).fit(study.features, study.labels, clock=hours)
    placed = lt.FixedNoise(np.asarray(noise), clock=hours)
    assert lt.corrupt(study.labels[..., 0], placed, clock=hours).shape == (4, 6)


def test_a_singular_noise_has_no_backward_loss():
    study = lt.make_sequences(n=4, n_steps=6, n_features=1)
    with pytest.raises(ValueError, match="can be inverted"):
        lt.METHODS["known"](noise=np.full((2, 2), 0.5), loss="backward", epochs=1).fit(study.features, study.labels)


def test_a_checkpoint_needs_a_seed(tmp_path):
    study = lt.make_sequences(n=4, n_steps=6, n_features=1)
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        lt.METHODS["ignore"](checkpoint=tmp_path, epochs=1).fit(study.features, study.labels)


def test_only_labelled_sequences_are_held_out():
    study = lt.make_sequences(n=20, n_steps=6, n_features=1)
    labels = study.labels.copy()
    labels[4:] = -1
    clf = lt.METHODS["ignore"](early_stopping=True, epochs=2, random_state=0).fit(study.features, labels)
    assert np.isfinite(clf.history_.held_out).all()


@pytest.mark.parametrize("weights", [np.full(4, np.inf), np.zeros(4)])
def test_weights_that_say_nothing_are_refused(weights):
    study = lt.make_sequences(n=4, n_steps=6, n_features=1)
    clf = lt.METHODS["ignore"](epochs=1, random_state=0).fit(study.features, study.labels)
    with pytest.raises(ValueError, match=r"sample_weight|no label to score"):
        clf.score(study.features, study.labels, sample_weight=weights)
