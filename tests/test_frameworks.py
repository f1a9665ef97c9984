"""`TemporalNoise` in loops of others: Lightning, where it is installed, and models as Hugging Face trains."""

import numpy as np
import pytest
import torch

import labeltide as lt

N, STEPS = 80, 30


def make_data():
    study = lt.make_sequences(n=N, n_steps=STEPS, n_features=4, stay=0.9, random_state=1)
    y = lt.corrupt(study.clean_labels, lt.make_noise("growth", n_steps=STEPS, rate=0.3), random_state=2)
    clock = torch.linspace(0, 1, STEPS).expand(N, -1)
    return torch.tensor(study.features).float(), torch.tensor(np.asarray(y).reshape(N, STEPS)).long(), clock


def new_network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def assert_noise_grows(noise):
    with torch.no_grad():
        wrong = 1 - noise(torch.tensor([0.0, 1.0])).diagonal(dim1=-2, dim2=-1).mean(-1)
    assert wrong[1] > wrong[0] + 0.15


def test_temporal_noise_is_a_noise_matrix_at_every_moment_and_constant_with_one_point():
    noise = lt.TemporalNoise(n_classes=3, points=4, bounds=(10, 20))
    torch.nn.init.normal_(noise.logits)
    matrices = noise(torch.tensor([[-5.0, 10.0], [13.0, 99.0]]))
    assert matrices.shape == (2, 2, 3, 3)
    torch.testing.assert_close(matrices.sum(-1), torch.ones(2, 2, 3))
    assert (matrices.diagonal(dim1=-2, dim2=-1) > 0.5).all()
    torch.testing.assert_close(matrices[0, 0], matrices[0, 1])  # constant before the first moment
    static = lt.TemporalNoise(2, points=1)(torch.linspace(0, 1, 5))
    torch.testing.assert_close(static, static[:1].expand(5, -1, -1))
    with pytest.raises(ValueError, match="n_classes"):
        lt.TemporalNoise(1)


class TokenClassifier(torch.nn.Module):
    """A model by the conventions of Hugging Face: `forward` gives the loss and the logits, -100 is no label."""

    def __init__(self):
        super().__init__()
        self.network, self.noise = new_network(), lt.TemporalNoise(n_classes=2)

    def forward(self, inputs, clock, labels=None):
        logits = self.network(inputs)
        if labels is None:
            return {"logits": logits}
        known = labels.masked_fill(labels == -100, -1)
        losses = lt.forward_loss(logits.log_softmax(-1), known, self.noise(clock))
        return {"loss": losses.sum() / (known >= 0).sum(), "logits": logits}


def test_a_model_that_computes_its_own_loss_learns_the_noise():
    features, labels, clock = make_data()
    model = TokenClassifier()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    labels[:, ::7] = -100
    for _ in range(120):
        optimiser.zero_grad()
        model(features, clock, labels)["loss"].backward()
        optimiser.step()
    assert_noise_grows(model.noise)


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_learns_the_noise_and_gives_probabilities(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Audited(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.noise = new_network(), lt.TemporalNoise(n_classes=2)

        def training_step(self, batch, _):
            features, labels, clock = batch
            return lt.forward_loss(self.network(features).log_softmax(-1), labels, self.noise(clock)).mean()

        def predict_step(self, batch, _):
            return self.network(batch[0]).softmax(-1)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.02)

    data = torch.utils.data.TensorDataset(*make_data())
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=120, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    module = Audited()
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=N))
    assert_noise_grows(module.noise)
    assert torch.cat(trainer.predict(module, torch.utils.data.DataLoader(data, batch_size=N))).shape == (N, STEPS, 2)
