"""Files made to mislead: every number in a right digest is still checked, and only ValueError comes out of `load`."""

import copy
import json
import struct

import numpy as np
import pytest
import safetensors.torch
import torch

import labeltide as lt
from labeltide.estimators.storage import NO_DIGEST, seal

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The JSON and the tensors of a saved tide, with bands and tests."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 8, 2)).astype(np.float32)
    y = (X[..., 0] + 0.5 * rng.normal(size=(12, 8)) > 0).astype(int)
    estimator = lt.TideClassifier(epochs=2, hidden_size=4, random_state=0).fit(X, y)
    assert estimator.noise_estimate_.mean.shape[1:] == (2, 2)
    assert estimator.temporality_.method
    path = tmp_path_factory.mktemp("saved") / "model"
    estimator.save(path)
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    return json.loads(header["__metadata__"]["labeltide"]), safetensors.torch.load(raw)


def load(about, tensors, path):
    text = json.dumps({**about, "sha256": NO_DIGEST})
    path.write_bytes(seal(safetensors.torch.save(tensors, metadata={"labeltide": text})))
    return lt.load(path)


def change(about, indices, value):
    about = copy.deepcopy(about)
    inner = about
    for index in indices[:-1]:
        inner = inner[index]
    inner[indices[-1]] = value
    return about


@pytest.mark.filterwarnings("ignore::labeltide.NoiseWarning")
def test_the_file_itself_loads(saved, tmp_path):
    assert load(*saved, tmp_path / "file").classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("indices", "value"),
    [
        (("params", "period"), 10**30),
        (("params", "period"), 10**400),
        (("params", "epochs"), 10**400),
        (("learned", "chain", "power"), 10**400),
        (("learned", "chain", "start"), [0.9, 0.9]),
        (("learned", "chain", "transition"), [[0.5, 0.1], [0.5, 0.5]]),
        (("learned", "chain", "transition"), [[0, 0], [0, 0]]),
        (("learned", "findings", "temporality", "p_value"), -5),
        (("learned", "findings", "temporality", "p_value"), 1.5),
        (("learned", "findings", "temporality", "is_noisy_p"), 7),
        (("learned", "findings", "temporality", "n_units"), 10**400),
        (("learned", "findings", "temporality", "per_class", 0, 1), -1),
        (("n_features",), 10**300),
    ],
    ids=lambda part: str(part)[:60],
)
def test_numbers_that_cannot_be_are_refused(indices, value, saved, tmp_path):
    about, tensors = saved
    with pytest.raises(ValueError, match="cannot be loaded: ") as caught:
        load(change(about, indices, value), tensors, tmp_path / "file")
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("part", ["model.", "judges."])
def test_weights_so_large_that_answers_are_nan_are_refused(part, saved, tmp_path):
    about, tensors = saved
    huge = {name: torch.full_like(tensor, 3e38) for name, tensor in tensors.items() if name.startswith(part)}
    with pytest.raises(ValueError, match="do not give finite numbers"):
        load(about, tensors | huge, tmp_path / "file")
