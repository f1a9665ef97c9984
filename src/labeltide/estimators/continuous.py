"""The paper's Continuous method: Q(t) as a neural network of time, by the augmented Lagrangian (Hestenes 1969)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from labeltide import _validation
from labeltide._fleet import member_generators
from labeltide.estimators.base import ModelChoice, RandomState
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.estimators.learned import BuildNoise, LearnedNoiseClassifier, code_penalties
from labeltide.noise.base import NoiseFunction
from labeltide.noise.network import WIDTHS, NetworkNoise
from labeltide.objectives.objective import Penalty
from labeltide.objectives.penalties import frobenius
from labeltide.training import AugmentedLagrangian

BOUND_MARGIN, BOUND_SHARE = 0.005, 0.9  # Q(t) stays at its bound if it is this near for this share of the clock
VOLUME_WEIGHT = 1e-4  # of the penalised objective, in the paper's code


class ContinuousClassifier(LearnedNoiseClassifier):
    r"""Learn a smooth Q(t) of least size together with the network.

    Several annotators have a Q(t) each, partially pooled; held-out likelihood chooses the strength.

    The defaults depart from the paper in five ways, each of which can be undone: ``raw_steps=True`` (the paper's code
    reads the step index), ``scaled_weights=False``, ``bounded_logits=False``, ``clip=None`` and ``max_restarts=0``. The
    halving of Q's rate is in the paper's code and not in its text; ``noise_milestones=()`` undoes it.

    Parameters
    ----------
    objective : {"lagrangian", "penalised"}, default "lagrangian"
        The augmented Lagrangian of the paper's section 4.2 and algorithm 1, or what its published code minimises:
        forward loss + 1e-4 mean log|det Q_t| / T + `diagonal_weight` mean ||diag Q_t||.
    diagonal_weight : float, default 0.01
        Used by the penalised objective. The paper's code has .05 for moving, .01 for senior and sleeping, .001 for
        blinking.
    linear, quadratic : float, default 1
        The first values of the multipliers of the augmented Lagrangian, :math:`\lambda` and c.
    gamma, eta : float, default 2
        After a round in which the average loss exceeds `gamma` times that of the round before, c grows by `eta`.
    rounds : int, optional
        After so many rounds the multipliers stay. By default they change until training ends.
    epochs_per_round : int, default 10
        With 150 epochs, the 15 rounds of the paper.
    noise_widths : sequence of int
        Hidden layers of Q's network. The default has the ten of the paper's code.
    noise_learning_rate : float, optional
        Of Q; by default that of the network.
    noise_milestones : sequence of int, default (50, 100)
        Epochs at which the learning rate of Q is halved, as in the paper's code.
    noise_function : callable, optional
        A noise function of your own in place of the network: called with the number of members and of classes, it
        gives a `labeltide.noise.base.NoiseFunction` whose parameters are learned. Its docstring has an example. All
        annotators then share one Q, and the fit cannot be saved.
    raw_steps : bool, default False
        Feed Q's network the step index 0, 1, 2, ... as the paper's code does, instead of a clock scaled to [-1, 1].
    scaled_weights : bool, default True
        Multiply the weights of Q's network by ``1 / sqrt(inputs)`` (NTK parametrisation, Jacot and others 2018). Off:
        PyTorch's own parametrisation, as in the paper's code.
    bounded_logits : bool, default True
        Keep the logits of Q between -4 and 4, so that their softmax never saturates.
    clip : float or None, default 5
        The largest norm of a gradient (gradient clipping, Pascanu and others 2013).
    max_restarts : int, default 8
        How often a fit whose gradient is not finite goes back by an epoch and on at half the learning rate.
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.ContinuousClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_at([0.25, 0.251]).shape  # Q at any moment
    (2, 2, 2)
    """

    name = "continuous"

    def __init__(
        self,
        *,
        objective: str = "lagrangian",
        diagonal_weight: float = 0.01,
        linear: float = 1.0,
        quadratic: float = 1.0,
        gamma: float = 2.0,
        eta: float = 2.0,
        rounds: int | None = None,
        epochs_per_round: int = 10,
        noise_widths: Sequence[int] = WIDTHS,
        noise_learning_rate: float | None = None,
        noise_milestones: Sequence[int] = (50, 100),
        noise_function: Callable[[int, int], NoiseFunction] | None = None,
        raw_steps: bool = False,
        scaled_weights: bool = True,
        bounded_logits: bool = True,
        clip: float | None = 5.0,
        max_restarts: int = 8,
        model: ModelChoice = "gru",
        hidden_size: int = 32,
        causal: bool = True,
        epochs: int = 150,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            model=model,
            hidden_size=hidden_size,
            causal=causal,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            device=device,
            checkpoint=checkpoint,
            verbose=verbose,
            random_state=random_state,
        )
        self.objective = objective
        self.diagonal_weight = diagonal_weight
        self.linear = linear
        self.quadratic = quadratic
        self.gamma = gamma
        self.eta = eta
        self.rounds = rounds
        self.epochs_per_round = epochs_per_round
        self.noise_widths = noise_widths
        self.noise_learning_rate = noise_learning_rate
        self.noise_milestones = noise_milestones
        self.noise_function = noise_function
        self.raw_steps = raw_steps
        self.scaled_weights = scaled_weights
        self.bounded_logits = bounded_logits
        self.clip = clip
        self.max_restarts = max_restarts

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        self._check_settings()
        is_lagrangian = self.objective == "lagrangian"
        penalties = [Penalty("frobenius", frobenius, 1.0)]
        if not is_lagrangian:
            penalties = code_penalties(len(fleet_fit.data.grid), VOLUME_WEIGHT, self.diagonal_weight)
        fitted = self._learn(
            fleet_fit,
            self._build_noise(fleet_fit),
            penalties,
            pooled=self.noise_function is None,
            lagrangian=self._lagrangian() if is_lagrangian else None,
            noise_learning_rate=self.noise_learning_rate,
            noise_milestones=tuple(self.noise_milestones),
            clip=self.clip,
            max_restarts=self.max_restarts,
        )
        _warn_at_bound(fitted.noise.common(fleet_fit.data.grid).detach(), fleet_fit.classes)
        return fitted

    def _check_settings(self) -> None:
        _validation.check_choice("objective", self.objective, ("lagrangian", "penalised"))
        for name in ("raw_steps", "scaled_weights", "bounded_logits"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False. Got {getattr(self, name)!r}.")
        for name in ("diagonal_weight", "linear", "quadratic", "gamma"):
            _validation.check_number(name, getattr(self, name), 0)
        _validation.check_number("eta", self.eta, 1)
        _validation.check_number("epochs_per_round", self.epochs_per_round, 1, whole=True)
        _validation.check_number("max_restarts", self.max_restarts, 0, whole=True)
        _validation.check_whole_numbers("noise_widths", self.noise_widths, 1)
        _validation.check_whole_numbers("noise_milestones", self.noise_milestones, 0, may_be_empty=True)
        if self.rounds is not None:
            _validation.check_number("rounds", self.rounds, 1, whole=True)
        for name in ("noise_learning_rate", "clip"):
            if getattr(self, name) is not None:
                _validation.check_number(name, getattr(self, name), 0, above=True)

    def _lagrangian(self) -> AugmentedLagrangian:
        return AugmentedLagrangian(
            self.epochs_per_round, self.rounds, self.linear, self.quadratic, self.gamma, self.eta
        )

    def _build_noise(self, fleet_fit: FleetFit) -> BuildNoise:
        """Gives the noise function for a number of members and annotators."""
        grid, n_classes = fleet_fit.data.grid, fleet_fit.n_classes
        if self.noise_function is not None:
            return lambda members, _: _own_noise(self.noise_function, members, n_classes, grid.cpu())
        bounds = (float(grid[0]), float(grid[-1]))

        def build(members: int, annotators: int) -> NetworkNoise:
            return NetworkNoise(
                members,
                n_classes,
                bounds,
                len(grid) if self.raw_steps else None,
                annotators,
                tuple(self.noise_widths),
                scaled_weights=self.scaled_weights,
                bounded_logits=self.bounded_logits,
            )

        return build


def _warn_at_bound(matrices: Tensor, classes: Sequence[Any]) -> None:
    """Warn where Q(t), (members, points, classes, classes), of a class stays at its bound of one half."""
    at_bound = (matrices.diagonal(dim1=-2, dim2=-1) < 0.5 + BOUND_MARGIN).double().mean(1) > BOUND_SHARE
    if bool(at_bound.any()):
        names = ", ".join(repr(name) for name, stuck in zip(classes, at_bound.any(0).tolist(), strict=True) if stuck)
        warnings.warn(
            f"Q(t) stays at its bound of one half for the true class {names}, in {int(at_bound.any(1).sum())} of "
            f"{len(at_bound)} fits. Either half of its labels are wrong, or training ended where this class is not "
            "predicted. Compare with noise_learning_rate=0.003 or linear=10.",
            ConvergenceWarning,
            stacklevel=2,
        )


def _own_noise(make: Any, members: int, n_classes: int, grid: Tensor) -> NoiseFunction:
    """The noise function that the user's callable gives, checked on the clock's grid."""
    rule = (
        f"noise_function(members, n_classes) must give a labeltide.noise.base.NoiseFunction with members={members} and "
        f"n_classes={n_classes}, whose docstring has an example."
    )
    if not callable(make) or isinstance(make, nn.Module):
        raise ValueError(f"{rule} Got {type(make).__name__}, which does not make one: pass the class or a function.")
    noise = make(members, n_classes)
    sizes = tuple(getattr(noise, name, None) for name in ("members", "n_classes"))
    if not isinstance(noise, NoiseFunction) or sizes != (members, n_classes):
        raise ValueError(f"{rule} Got {type(noise).__name__} with members={sizes[0]} and n_classes={sizes[1]}.")
    matrices = noise.initialise(member_generators(range(members)))(grid).detach()
    wanted = (members, len(grid), n_classes, n_classes)
    if tuple(matrices.shape) != wanted:
        raise ValueError(
            f"forward(clock) of a noise function must give Q of shape (members, points, classes, classes) = {wanted} "
            f"for {len(grid)} moments. Got {tuple(matrices.shape)}."
        )
    _validation.check_matrices(matrices.numpy(), None)
    return noise
