"""Independent work gives the same numbers wherever it runs, and survives workers that die."""

import os
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide import _workers
from labeltide._workers import Processes, current_workers
from labeltide.chain.passes import same_data
from labeltide.inference.bootstrap import chosen_family, draw_row_counts, refit


def add(shared, part):
    return shared + part


def die_once(folder, part):
    """End the process the first time that part 2 is asked for."""
    marker = Path(folder) / "died"
    if part == 2 and not marker.exists():
        marker.touch()
        os._exit(1)
    return part * 10


def always_die(shared, part):
    os._exit(1)


def fail(shared, part):
    raise ValueError(f"part {part} is wrong.")


def test_without_workers_everything_runs_here():
    assert list(current_workers().run(add, 1, [1, 2])) == [(0, 2), (1, 3)]


@pytest.fixture(scope="module")
def engine():
    """Two processes that import torch once for all tests which start none of their own."""
    engine = Processes(2)
    yield engine
    engine.close()


@contextmanager
def two_workers(engine):
    """`lt.workers(2)` with processes that are kept for the next test."""
    started = patch.object(_workers, "Processes", return_value=engine)
    with started, patch.object(engine, "close"), lt.workers(2) as entered:
        assert entered is current_workers() is engine
        yield


def test_results_come_with_their_numbers_and_errors_as_they_are(engine):
    with two_workers(engine):
        assert sorted(engine.run(add, 1, [1, 2, 3])) == [(0, 2), (1, 3), (2, 4)]
        assert sorted(engine.run(add, 5, [1])) == [(0, 6)]
        with pytest.raises(ValueError, match="part 1 is wrong"):
            list(engine.run(fail, None, [1]))
    assert current_workers().count == 1


def test_a_worker_that_dies_is_tried_again_but_not_for_ever(tmp_path, monkeypatch):
    with lt.workers(2) as engine:
        assert sorted(engine.run(die_once, str(tmp_path), [1, 2, 3])) == [(0, 10), (1, 20), (2, 30)]
        monkeypatch.setattr("labeltide._workers.TRIES", 1)
        with pytest.raises(ChildProcessError, match="A worker process died"):
            list(engine.run(always_die, None, [1]))
    assert current_workers().count == 1


@pytest.mark.parametrize(
    ("wrong", "match"),
    [({"n": 0}, "at least 1"), ({"n": 2.0}, "whole number"), ({"n": 2, "ray": "auto"}, "not both")],
)
def test_wrong_numbers_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match), lt.workers(**wrong):
        pass


def study():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 10, 3)).astype(np.float32)
    return X, (X[..., 0] + 0.5 * rng.normal(size=(30, 10)) > 0).astype(int)


@pytest.fixture(scope="module")
def alone():
    return lt.TideClassifier(epochs=4, hidden_size=32, random_state=0, device="cpu").fit(*study())


def assert_same(first, second):
    X, _ = study()
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    np.testing.assert_array_equal(first.noise_matrices_, second.noise_matrices_)


def test_tide_has_the_same_bits_with_several_workers(alone, engine):
    with two_workers(engine):
        many = lt.TideClassifier(epochs=4, hidden_size=32, random_state=0, device="cpu").fit(*study())
    assert_same(alone, many)


def test_bootstrap_replicates_have_the_same_bits_with_several_workers(alone, engine, monkeypatch):
    monkeypatch.setattr("labeltide.inference.bootstrap.MIN_STEPS_FOR_WORKERS", 0)
    here = noise_replicates(alone.training_, 6)
    with two_workers(engine):
        there = noise_replicates(alone.training_, 6)
    np.testing.assert_array_equal(here, there)


def noise_replicates(training, count):
    members = same_data(torch.from_numpy(draw_row_counts(len(training.data.mask), None, count, 0)).float())
    family = chosen_family(2, training.grid, training.families, training.period)
    return refit(training.data, members, [family] * count, training.parameters).parameters.matrices.numpy()


def test_few_tasks_share_all_cores(engine, monkeypatch):
    monkeypatch.setattr(_workers, "usable_cores", lambda: 6)
    assert sorted(engine.run(count_threads, None, [0, 0, 0])) == [(0, 3), (1, 3), (2, 3)]
    assert list(engine.run(count_threads, None, [0])) == [(0, 6)]


def count_threads(shared, part):
    return torch.get_num_threads()


ray_test = pytest.mark.skipif("LABELTIDE_SKIP_RAY" in os.environ, reason="LABELTIDE_SKIP_RAY is set")


@pytest.fixture(scope="module")
def cluster():
    """Three nodes on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'labeltide[ray]'")
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def slow(folder, part):
    (Path(folder) / f"{part}-{os.getpid()}").touch()
    time.sleep(1.5)
    return part * 10


@ray_test
def test_a_ray_cluster_gives_the_same_bits_and_survives_the_death_of_a_node(cluster, alone, tmp_path):
    _workers._check_reachable(cluster.address)
    with lt.workers(ray="auto") as engine:
        assert engine.count == 3
        many = lt.TideClassifier(epochs=4, hidden_size=32, random_state=0, device="cpu").fit(*study())
        assert_same(alone, many)
        results = engine.run(slow, str(tmp_path), list(range(6)))
        first = next(results)
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        assert sorted([first, *results]) == [(part, part * 10) for part in range(6)]
        with pytest.raises(ValueError, match="part 1 is wrong"):
            list(engine.run(fail, None, [1]))


def test_without_a_cluster_the_way_out_is_named(monkeypatch):
    ray = pytest.importorskip("ray")

    def refuse(**settings):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ValueError, match="ray start --head"), lt.workers(ray="auto"):
        pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("how", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "localhost:{}"])
def test_an_address_where_nothing_listens_is_refused_before_ray_starts(how, monkeypatch):
    ray, address = pytest.importorskip("ray"), how.format(free_port())
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray would try for minutes"))
    with pytest.raises(ValueError, match=f"no Ray cluster at '{address}' .* ray='local'"), lt.workers(ray=address):
        pass


def test_auto_means_the_address_of_the_environment_where_there_is_one(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    with pytest.raises(ValueError, match=r"no Ray cluster at '127\.0\.0\.1:"):
        _workers._check_reachable("auto")
    monkeypatch.delenv("RAY_ADDRESS")
    _workers._check_reachable("auto")  # Ray looks for a cluster of this machine


def test_a_host_that_does_not_answer_is_given_up_after_seconds(monkeypatch):
    waited = []

    def never(address, timeout):
        waited.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(_workers.socket, "create_connection", never)
    with pytest.raises(ValueError, match="no connection within 5 s: timed out"):
        _workers._check_reachable("ray://far.example")
    assert waited == [_workers.PATIENCE]


@pytest.mark.parametrize("wrong", ["", "far.example", "far.example:port", "far.example:99999", "[::1", ":6379"])
def test_an_address_without_host_and_port_is_refused(wrong):
    with pytest.raises(ValueError, match="HOST:PORT or ray://HOST:PORT"):
        _workers._check_reachable(wrong)
