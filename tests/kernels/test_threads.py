"""Fits in several Python threads give the same numbers and leave every setting as they found it."""

import threading

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.kernels.library import _mkl_local, kernel_threads, torch_on_one_thread


def fit(seed):
    study = lt.make_sequences(n=8, n_steps=5, n_features=2, stay=0.8, random_state=0)
    method = lt.METHODS["tide" if seed % 2 else "continuous"](epochs=2, random_state=seed, device="cpu")
    method.fit(study.features, study.labels)
    return method.predict_proba(study.features), method.noise_matrices_


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_torch_has_one_thread_within_the_block_and_kernels_keep_theirs():
    seen = []
    with torch_on_one_thread():
        assert torch.get_num_threads() == 1
        assert kernel_threads() == 2
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        with torch_on_one_thread():
            assert (torch.get_num_threads(), kernel_threads()) == (1, 2)
        assert torch.get_num_threads() == 1
    assert seen == [2]
    assert (torch.get_num_threads(), kernel_threads()) == (2, 2)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
def test_matrix_products_keep_to_one_thread_and_get_their_number_back():
    set_number = _mkl_local()
    before = set_number(3)
    with torch_on_one_thread():
        assert set_number(1) == 1
    assert set_number(before) == 3


@pytest.mark.usefixtures("two_threads", "any_variant")
def test_fits_side_by_side_equal_fits_one_after_the_other(any_variant):
    alone = [fit(seed) for seed in range(3)]
    together, after = [None] * 3, [None] * 3
    start = threading.Barrier(3)

    def work(seed):
        start.wait()
        together[seed] = fit(seed)
        after[seed] = torch.get_num_threads()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_array_equal(first, second)
    fresh = []
    newcomer = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    newcomer.start()
    newcomer.join()
    assert {*after, *fresh, torch.get_num_threads()} == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", ["gru", "tcn", "transformer"])
def test_every_network_of_ours_is_trained_on_one_thread(name, monkeypatch):
    seen = []
    monkeypatch.setattr("labeltide.training.loop._run_epoch", watch_threads(seen))
    X = np.random.default_rng(0).normal(size=(8, 6, 2))
    classifier = lt.IgnoreClassifier(model=name, hidden_size=8, epochs=2, device="cpu", random_state=0)
    classifier.fit(X, (X[..., 0] > 0).astype(int))
    assert set(seen) == {(1, 2)}
    assert torch.get_num_threads() == 2


def watch_threads(seen):
    """An epoch that also writes down the threads of torch and of the kernels."""
    from labeltide.training.loop import _run_epoch

    def watched(*step):
        seen.append((torch.get_num_threads(), kernel_threads()))
        return _run_epoch(*step)

    return watched
