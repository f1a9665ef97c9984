"""Forward loss correction (Patrini and others 2017) with a known Q(t) in your own training loop."""

import torch

import labeltide as lt

study = lt.make_sequences(n=200, n_steps=30, n_features=6, stay=0.9)
noise = lt.make_noise("growth", n_steps=30, rate=0.3)
recorded = torch.from_numpy(lt.corrupt(study, noise).labels[..., 0]).long()
features, clean = torch.from_numpy(study.features), torch.from_numpy(study.clean_labels)
matrices = noise(torch.linspace(0, 1, 30))[0]  # (steps, classes, classes)


def train(corrected: bool) -> float:
    """Train a small network and give its error on clean labels."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    q = matrices if corrected else torch.eye(2)
    for _ in range(150):
        optimiser.zero_grad()
        lt.forward_loss(network(features).log_softmax(-1), recorded, q).mean().backward()
        optimiser.step()
    return float((network(features).argmax(-1) != clean).float().mean())


print(f"error on clean labels, recorded labels taken for true: {train(corrected=False):.1%}")
print(f"error on clean labels, through the forward loss:       {train(corrected=True):.1%}")
