"""Tide: cross-fitted networks and a hidden Markov model with time-dependent noise Q(t), fitted by EM and distilled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from labeltide import _validation
from labeltide._clock import Cells, Period, one_period
from labeltide._fleet import stack
from labeltide.chain.em import NoiseMixture, choose_noise, flat_chain, join_evidence, label_chain
from labeltide.chain.passes import (
    Chain,
    ChainData,
    ChainParameters,
    Members,
    TrainingEvidence,
    cat_parameters,
    expect,
    informedness,
    posteriors,
    predictive_log_likelihood,
)
from labeltide.data.clusters import count_clusters, deal_units, splitting_units
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.cross_fit import (
    TrainingRows,
    cross_fit,
    digest_rows,
    every_weight,
    hold_out_folds,
    repeat,
    small_batches,
)
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.inference.audit import QUALITY_GRID, LabelCodes, small_softmax
from labeltide.inference.bands import (
    NoiseEstimate,
    ShareInterval,
    agree_share,
    estimate_annotators,
    presence_p,
    share_test,
)
from labeltide.inference.checks import diagnose
from labeltide.inference.conclusion import Diagnostic, Finding, NoiseWarning, conclude_noise, named_pairs
from labeltide.inference.shifts import Change, find_own_shifts, move_labels, settle_changes, soften_changes
from labeltide.inference.temporality import (
    PartTemporality,
    Temporality,
    estimate_clocks,
    judge_clocks,
    judge_presence,
    judge_temporality,
    read_findings,
    write_findings,
)
from labeltide.kernels.library import torch_on_one_thread
from labeltide.models.base import SequenceModel
from labeltide.noise.functions import FixedNoise, NoiseFunction
from labeltide.training import FleetData, History, reversal, stages_bar
from labeltide.training.objective import Objective

CROSS_FIT_FOLDS = 5  # by hand (docs/decisions/006-cross-fitting.md)
# Classes, and moments at which Q is estimated with at most so many; linear interpolation between them. With many
# classes each has few labels at a moment, and Q has the square of their number of entries
# (docs/decisions/007-families-of-q.md).
CHAIN_POINTS = ((12, 128), (39, 48), (127, 24))  # by hand
CLEAN_ERROR_RATE = 0.1  # by hand: by the labels alone, below which bursts of errors are suspected


# From a Q, and the name of the stage, to out-of-fold log-probabilities, those of this and later steps alone, and the
# networks.
Predict = Callable[[FixedNoise, str], tuple[Tensor, Tensor | None, tuple[SequenceModel, ...]]]


def find_posterior(
    data: ChainData,
    folds: Tensor,
    grid: np.ndarray,
    period: Period,
    clusters: Tensor | None,
    predict: Predict | None = None,
) -> tuple[Tensor, FixedNoise, list[dict[str, Any]]]:
    """Estimate the true labels and Q(t) from recorded labels and evidence.

    `data` holds out-of-sample evidence; otherwise `predict` trains networks with a first Q and gives theirs. Returns
    the posterior (forward-backward smoothing), (fits, rows, steps, classes) and zero on padding; Q of the average of
    all families; and more attributes for each estimator.
    """
    index = torch.arange(len(folds), device=folds.device)
    fits = Members(index, index, torch.ones_like(folds, dtype=torch.float32))
    networks: tuple[SequenceModel, ...] = ()
    shares = data.label_shares().cpu()
    annotators = data.labels.shape[-1] if bool((shares > 0).sum(1).max() > 1) else 1
    chain = label_chain(data, fits, grid, period, annotators)
    all_known = data.trusted is not None and bool((data.trusted >= 0)[data.mask].all())
    taught, looks_clean = chain.matrices, torch.zeros_like(index, dtype=torch.bool)
    if predict is not None and not all_known:
        # Labels that look clean by themselves may be clean, or have errors in bursts, which persist as true labels do.
        # Networks that are trained as if a quarter were wrong let the features decide
        # (docs/decisions/002-training-noise.md).
        looks_clean = _error_rates(chain) < CLEAN_ERROR_RATE
        wary = flat_chain(len(folds), chain.matrices.shape[1], data).matrices
        taught = torch.where(looks_clean[:, None, None, None, None], wary, taught)
    rounds: list[tuple[ChainData, tuple[SequenceModel, ...], NoiseMixture]] = []
    again = torch.zeros_like(looks_clean)
    for stage in ("cross-fit", "cross-fit again"):
        if predict is not None and not all_known:
            noise = _noise_function(data, chain._replace(matrices=taught), grid, period).to(folds.device)
            log_probs, future, networks = predict(noise, stage)
            data = data.with_evidence(log_probs, informedness(taught), future)
        joined = chain if data.evidence is None else join_evidence(data, fits, chain, grid, period, clusters)
        chosen = choose_noise(data, fits, joined, folds, grid, period)
        rounds.append((data, networks, chosen))
        if again.any():  # of two rounds that counts by which the recorded labels are likelier
            first, second = (_score(data, fits, chosen.parameters) for data, _, chosen in rounds)
            again &= second > first
            break
        # Where labels that looked clean turn out to be wrong, networks learn once more, from the Q that was found.
        again = looks_clean & (_error_rates(chosen.parameters) >= CLEAN_ERROR_RATE)
        if not again.any():
            break
        taught = torch.where(again[:, None, None, None, None], chosen.parameters.matrices, taught)
    counts = [rounds[int(twice)] for twice in again.tolist()]  # the round of each fit
    posterior = [posteriors(data, fits, chosen.parameters) for data, _, chosen in rounds]
    labels = torch.stack([posterior[int(twice)][fit] for fit, twice in enumerate(again.tolist())])
    chains: list[ChainParameters] = []
    learned: list[dict[str, Any]] = []
    for fit, (data, networks, chosen) in enumerate(counts):
        chains.append(chosen.parameters.take(torch.tensor([fit], device=folds.device)))
        parameters, count = chains[fit].cpu(), networks[0].members // len(folds) if networks else 0
        start, transition, power = (tensor[0].double().numpy() for tensor in parameters[:3])
        bursts = 0.0 if parameters.bursts is None else parameters.bursts.tolist()[0]
        evidence = TrainingEvidence(
            data.of_fit(fit),
            parameters,
            folds[fit : fit + 1].cpu(),
            grid,
            shares=shares[fit],
            period=period,
            families=chosen.weighted(fit),
            clusters=clusters,
        )
        of_fit = [fleet.member(fit * count, count).cpu().eval() for fleet in networks]
        learned.append(
            {
                "chain_": Chain(start, transition, float(power), bursts),
                "families_": {tried.name: tried.weight for tried in evidence.families},
                "training_": evidence,
                "fold_model_": stack(of_fit) if networks else None,
                "findings_": {},
            }
        )
    return labels, _noise_function(data, cat_parameters(chains), grid, period).to(folds.device), learned


def _score(data: ChainData, fits: Members, chain: ChainParameters) -> Tensor:
    """The predictive log-likelihood of the recorded labels of each fit."""
    reached = expect(data, fits, chain).log_likelihood
    return predictive_log_likelihood(data, fits, chain, reached, fits.weights > 0).sum(1)


def _error_rates(chain: ChainParameters) -> Tensor:
    """The mean rate of wrong labels of each fit."""
    return 1 - chain.matrices.diagonal(dim1=-2, dim2=-1).mean((1, 2, 3))


def align_labels(fleet_fit: FleetFit) -> tuple[FleetFit, np.ndarray, list[list[Change]]]:
    """Fits with labels moved to the signals, the usual lag of each source, and with one source its late changes."""
    data, changes = fleet_fit.data, []
    features, mask, labels = (tensor.cpu().numpy() for tensor in (data.features, data.mask, data.labels))
    moved, lags = np.empty_like(labels), np.zeros((len(labels), labels.shape[-1]), int)
    for fit in range(len(labels)):
        shifts = find_own_shifts(features, mask, labels[fit], fleet_fit.clusters)
        moved[fit], found = _settle(features, labels[fit], shifts, mask)
        lags[fit] = np.median(shifts, axis=0)
        changes.append(found[0] if len(found) == 1 else [])
    return replace(fleet_fit, data=replace(data, labels=torch.from_numpy(moved).to(data.labels.device))), lags, changes


def _settle(
    features: np.ndarray, labels: np.ndarray, shifts: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, list[list[Change]]]:
    """Codes (rows, steps, sources) moved by shifts (rows, sources), -1 on padding; then as `settle_changes` does."""
    moved = np.where(mask[..., None], move_labels(labels, shifts), np.int8(-1))
    rows, codes = ([row[:count] for row, count in zip(each, mask.sum(1), strict=True)] for each in (features, moved))
    moved[mask], changes = settle_changes(rows, codes, np.median(shifts, axis=0))
    return moved, changes


def make_folds(labels: Tensor, clusters: np.ndarray | None, seeds: Sequence[int]) -> Tensor:
    """The fold of every row, drawn from the seed of each fit, in whole clusters: (fits, rows).

    Folds are balanced by their labelled rows, and those without labels are spread evenly. Where fewer than five
    clusters have labels, there are as many folds.
    """
    labelled = (labels >= 0).any(-1).any(-1).cpu().numpy()  # (fits, rows)
    n_labelled = int(labelled.sum(1).min())
    if n_labelled < 2:
        raise ValueError(
            "tide needs at least two sequences with labels, to judge one by the other. "
            f"Got {n_labelled}. Cut a long sequence into windows."
        )
    units = [splitting_units(clusters, rows) for rows in labelled]
    count = min(CROSS_FIT_FOLDS, *map(count_clusters, units, labelled))
    folds = [
        deal_units(unit, rows, count, np.random.default_rng([seed, 3]))
        for unit, rows, seed in zip(units, labelled, seeds, strict=True)
    ]
    return torch.from_numpy(np.stack(folds)).to(labels.device)


def chain_data(data: FleetData, n_classes: int, cells: Cells | None = None) -> tuple[ChainData, np.ndarray]:
    """The data of the hidden Markov model, and the moments at which it estimates Q."""
    grid, points = data.grid.double().cpu().numpy() if cells is None else cells.grid, data.points
    max_points = next(points for classes, points in CHAIN_POINTS if n_classes <= classes)
    if cells is None and len(grid) > max_points:
        coarse = np.linspace(grid[0], grid[-1], max_points)
        nearest = np.searchsorted((coarse[1:] + coarse[:-1]) / 2, grid)
        index = torch.from_numpy(nearest).to(data.mask.device)
        points = index.expand_as(data.mask) if points is None else index[points]
        grid = coarse
    labels = ChainData(data.labels, data.mask, points, len(grid), n_classes, trusted=data.trusted)
    return labels.with_gaps(None if data.gaps is None else data.gaps.cpu().numpy()), grid


def _noise_function(data: ChainData, chain: ChainParameters, grid: np.ndarray, period: Period) -> FixedNoise:
    """Q of each annotator, and the common Q: their mean weighted by shares of the labels."""
    # With several clocks, the indices of cells stand for moments.
    moments, length = (grid, one_period(period)) if grid.ndim == 1 else (np.arange(len(grid)), None)
    matrices = chain.matrices.double().cpu()  # (fits, annotators, points, classes, classes)
    if matrices.shape[1] == 1:
        return FixedNoise(matrices[:, 0].numpy(), moments, period=length)
    common = torch.einsum("ja,ja...->j...", data.label_shares().cpu(), matrices)
    return FixedNoise(matrices.numpy(), moments, common.numpy(), length)


DISTILLATION_PATIENCE = 30  # by hand: epochs without a better held-out loss, after which a network stops
KINDS = ("stopped", "whole")  # of networks: with early stopping on a held-out fold, and on all rows for all epochs


def distill(
    fleet_fit: FleetFit, labels: Tensor, folds: Tensor, ensemble: bool
) -> tuple[SequenceModel, History, list[int]]:
    """Train an ensemble for each fit on the posterior, (fits, rows, steps, classes), or a single network on it.

    One network for each fold leaves it out and is stopped on it; as many are trained on all rows to the end. How long
    decisions improve differs between data sets, and the two kinds make different errors
    (docs/decisions/004-distillation.md). Returns the networks of all fits, those of a fit next to each other; their
    history; and their number in each fit.
    """
    count = int(folds.max()) + 1
    fleets = []
    if "stopped" in KINDS:
        stopped = _with_targets(hold_out_folds(fleet_fit, folds, first_seed=60), labels)
        fleets.append(_train(stopped, "stopped", patience=DISTILLATION_PATIENCE))
    if "whole" in KINDS:
        whole = _with_targets(repeat(fleet_fit, count, first_seed=100), labels)
        fleets.append(_train(whole, "whole", cosine=True))
    model, history = _side_by_side(fleets, fleet_fit.members)
    counts = [len(fleets) * count] * fleet_fit.members
    if ensemble:
        return model, history, counts
    members = fleet_fit.log_probs(model).exp().split(counts)
    ensemble_probs = torch.stack([networks.mean(0) for networks in members]) * fleet_fit.data.mask[..., None]
    single = _with_targets(replace(fleet_fit, data=every_weight(fleet_fit.data)), ensemble_probs)
    return *_train(single, "single", cosine=True), [1] * fleet_fit.members


def _with_targets(networks: FleetFit, targets: Tensor) -> FleetFit:
    """The same with the soft targets (fits, rows, steps, classes) of each fit for all its networks."""
    data, trusted = networks.data, () if networks.data.trusted is None else (networks.data.trusted,)
    if data.sets is None and len(targets) < data.members:
        targets = targets.repeat_interleave(data.members // len(targets), 0)
    return replace(networks, data=replace(data, targets=targets, trusted=None), extra_inputs=trusted)


def _train(networks: FleetFit, stage: str, **schedule: Any) -> tuple[SequenceModel, History]:
    model = networks.new_model()
    history = networks.train(model, None, Objective(), stage=stage, batch_size=small_batches(networks), **schedule)
    return model, history


def _side_by_side(fleets: list[tuple[SequenceModel, History]], fits: int) -> tuple[SequenceModel, History]:
    """Join the networks of several fleets, those of a fit next to each other, and average their histories."""
    histories = [history for _, history in fleets]
    longest = max(len(history.loss) for history in histories)

    def networks(name: str) -> np.ma.MaskedArray:
        """A value for each epoch, fit and network, masked where it has stopped."""
        values = [getattr(history, name).astype(float) for history in histories]
        if values[0].ndim == 2:  # of each epoch
            values = [np.pad(v, ((0, longest - len(v)), (0, 0)), constant_values=np.nan) for v in values]
        return np.ma.masked_invalid(np.concatenate([v.reshape(*v.shape[:-1], fits, -1) for v in values], -1))

    names = ("loss", "held_out", "linear", "quadratic")
    means = {name: networks(name).mean(-1).filled(np.nan) for name in names}
    best = networks("best_epoch").max(-1).filled(0).astype(np.int64)
    history = History(best_epoch=best, restarts=networks("restarts").sum(-1).filled(0).astype(np.int64), **means)
    order = torch.arange(len(fleets) * len(histories[0].best_epoch)).reshape(len(fleets), fits, -1)
    return stack([model for model, _ in fleets]).take(order.movedim(1, 0).flatten()), history


STEPS_AT_ONCE = 50_000  # of rows that one call of the networks takes


class FoldNetworks:
    """The cross-fitted networks of a fit, on a device.

    Predictions of one fold are a normalised geometric mean over its networks and both directions of time, in which the
    normalising constants cancel: it is the softmax of their mean logit. For rows outside the training set, folds are
    averaged.
    """

    def __init__(self, model: SequenceModel, rows: TrainingRows, device: str) -> None:
        self.device, self.n_folds = device, int(rows.folds.max()) + 1
        reads_both_ways = model.is_causal and model.members // self.n_folds % 2 == 0
        halves = torch.arange(model.members).chunk(2 if reads_both_ways else 1)
        self.directions = [model.take(half).eval().to(device) for half in halves]  # onwards and, if any, backwards

    def predict(self, features: np.ndarray, mask: np.ndarray, folds: np.ndarray, each: Any = map) -> Tensor:
        """Probabilities of the true labels: float32 of shape (n, steps, classes), zero on padding.

        `folds` are those of training rows, -1 for others. `each` maps a function over batches. All is computed on the
        device, and the result is transferred once.
        """
        size = max(8, STEPS_AT_ONCE // features.shape[1] // 8 * 8)

        def predict(start: int) -> Tensor:
            some = slice(start, start + size)
            with torch_on_one_thread():
                return self._predict(
                    *(torch.from_numpy(part[some]).to(self.device) for part in (features, mask, folds))
                )

        return torch.cat(list(each(predict, range(0, len(features), size)))).cpu()

    @torch.no_grad()
    def _predict(self, features: Tensor, mask: Tensor, folds: Tensor) -> Tensor:
        def logits(model: SequenceModel, inputs: Tensor) -> Tensor:
            """The mean of the networks of each fold: (folds, n, steps, classes)."""
            every = model(inputs.expand(model.members, -1, -1, -1), mask.expand(model.members, -1, -1))
            return every.unflatten(0, (-1, self.n_folds)).mean(0)

        onwards, *backwards = self.directions
        mean = logits(onwards, features)
        if backwards:
            order, index = reversal(mask), torch.arange(len(mask), device=mask.device)[:, None]
            mean = (mean + logits(backwards[0], features[index, order])[:, index, order]) / 2
        every = small_softmax(mean)
        result, known = every.mean(0), torch.nonzero(folds >= 0)[:, 0]
        result[known] = every[folds[known], known]
        return result * mask[..., None]


SHARE, WARNED = "share", "warned"  # what files do not hold: the estimates have what is needed of the first
FALSE_ALARMS = "false_alarms"  # what they hold of it where there are no estimates


Found = TypeVar("Found")


class InferenceResults:
    """Bands, tests and checks of a method that keeps the evidence from which it learned Q."""

    classes_: np.ndarray
    families_: dict[str, float]
    noise_: NoiseFunction
    cells_: Cells | None
    training_: TrainingEvidence
    findings_: dict[str, Any]
    random_state: Any

    @property
    def noise_estimate_(self) -> NoiseEstimate:
        """The common Q over the clock with 95 % bootstrap bands; diagnostics that fail warn once.

        Once `is_noisy_p_` is computed, the interval of the total share begins at zero where that test does not reject.
        """
        self._check_one_clock("noise_estimate_", "clock_estimates_")
        estimate: NoiseEstimate = self._find("noise_estimate", lambda: self._estimate()["noise_estimate"])
        self._warn()
        return self._agree(estimate, "noise_estimate")

    @property
    def annotator_estimates_(self) -> tuple[NoiseEstimate, ...]:
        """The same for each annotator; with one annotator `noise_estimate_` alone."""
        self._check_one_clock("annotator_estimates_", "noise_at(clock, annotator)")
        if self.noise_.annotators == 1:
            return (self.noise_estimate_,)
        return tuple(self._find("annotator_estimates", lambda: self._estimate()["annotator_estimates"]))

    @property
    def temporality_(self) -> Temporality:
        """Whether the noise changes over the clock, whose, whether there is any, and whether classes differ in it."""
        self._check_one_clock("temporality_", "clock_temporality_")
        return self._find("temporality", self._judge)

    @property
    def clock_estimates_(self) -> tuple[NoiseEstimate, ...]:
        """Q along each clock with 95 % bands, averaged over the other clocks (partial dependence)."""
        if self.cells_ is None:
            return (self.noise_estimate_,)
        seed = self._inference_seed()
        estimates = self._find("clock_estimates", lambda: estimate_clocks(self.training_, self._share, seed=seed))
        self._warn()
        return self._agree(estimates, "clock_estimates")

    @property
    def clock_temporality_(self) -> tuple[PartTemporality, ...]:
        """Tests of a change of the noise over each clock, with free change over the others."""
        if self.cells_ is None:
            whole = self.temporality_
            test = (whole.statistic, whole.p_value, self.noise_estimate_.change, whole.method, whole.n_units)
            return (PartTemporality(*test),)
        seed = self._inference_seed()
        return self._find("clock_temporality", lambda: judge_clocks(self.training_, self.clock_estimates_, seed=seed))

    @property
    def is_noisy_p_(self) -> float:
        """p-value of the null hypothesis that labels have no errors, with one clock or several."""
        return self._find("is_noisy_p", self._judge_presence)

    @property
    def conclusion_(self) -> Finding:
        """Whether labels are wrong: "shown", "not shown" or "cannot be told", with the reason."""
        return conclude_noise(self.is_noisy_p_, self._checks)

    def _may_name_labels(self) -> bool | np.ndarray:
        """Whether the fit shows that labels are wrong, so that an audit may name them: by recorded and likeliest class.

        Classes that a check excludes are not named.
        """
        pairs = named_pairs(self.conclusion_, self._checks, len(self.classes_))
        return pairs if pairs.any() and not pairs.all() else bool(pairs.all())

    def _false_alarms(self) -> np.ndarray | None:
        """Expected shares of false alarms, by which the flags of an audit are limited (`false_alarm_curve`)."""
        if (estimate := self._first_estimate()) is not None:
            return estimate.false_alarms
        if hasattr(self, "training_") and self.training_.data.evidence is not None:
            return self._share.false_alarms
        return self.findings_.get(FALSE_ALARMS)

    @property
    def diagnostics_(self) -> tuple[Diagnostic, ...]:
        """Model checks of the estimated noise, passed or not."""
        self._warn()
        return self._checks

    def _twin(self, **learned: Any) -> Self:
        """A copy with other fitted attributes, such as `training`, and findings of its own; networks are shared."""
        twin = copy(self)
        vars(twin).update({f"{name}_": value for name, value in learned.items()})
        return twin._take_findings(self)

    def _take_findings(self, other: Any) -> Self:
        """Take over the bands, tests and checks that another one has computed so far."""
        self.findings_ = dict(other.findings_)
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "findings_"):
            check_is_fitted(self, "model_")

    def _agree(self, found: Any, name: str) -> Any:
        """Estimates whose interval of the share agrees with the test of "no label is wrong", once that is made."""
        if "is_noisy_p" in self.findings_ and hasattr(self, "training_"):
            p_value, several = self.findings_["is_noisy_p"], isinstance(found, tuple)
            agreed = tuple(agree_share(each, p_value, self.training_) for each in (found if several else (found,)))
            self.findings_[name] = agreed if several else agreed[0]
        return self.findings_[name]

    def _first_estimate(self) -> NoiseEstimate | None:
        """That of the only or the first clock, if it has been computed."""
        estimates = [self.findings_.get("noise_estimate"), *self.findings_.get("clock_estimates", ())]
        return next((estimate for estimate in estimates if estimate is not None), None)

    def _find(self, name: str, compute: Callable[[], Found]) -> Found:
        self._check_fitted()
        if name not in self.findings_:
            if not hasattr(self, "training_"):
                raise AttributeError(
                    f"{name}_ was not computed before this {type(self).__name__} was saved, and a file does not hold "
                    f"the training data. Ask for {name}_ before saving, or fit again."
                )
            with torch_on_one_thread():
                self.findings_[name] = compute()
        return self.findings_[name]

    def _estimate(self) -> dict[str, Any]:
        """The common estimate and those of annotators, from one bootstrap."""
        common, annotators = estimate_annotators(self.training_, self._share, seed=self._inference_seed())
        self.findings_["noise_estimate"] = common
        if len(annotators) > 1:
            self.findings_["annotator_estimates"] = annotators
        return self.findings_

    def _judge_presence(self) -> float:
        tested = judge_presence(self.training_, seed=self._inference_seed())
        estimate = self._first_estimate()
        of_share = None if estimate is None else estimate.total_p
        return presence_p(tested, self._share.p_value if of_share is None else of_share, self.training_)

    @property
    def _share(self) -> ShareInterval:
        """Interval and test of the share of wrong labels, computed once for bands and the conclusion."""
        return self._find(SHARE, lambda: share_test(self.training_))

    def _check_one_clock(self, name: str, instead: str) -> None:
        self._check_fitted()
        if self.cells_ is not None:
            raise AttributeError(f"{name} is for one clock, and this was fitted with several. See {instead}.")

    def _judge(self) -> Temporality:
        estimate, annotators = self.noise_estimate_, self.findings_.get("annotator_estimates", ())
        tested, seed = self.is_noisy_p_, self._inference_seed()
        return judge_temporality(self.training_, estimate, annotators, is_noisy_p=tested, seed=seed)

    @property
    def _checks(self) -> tuple[Diagnostic, ...]:
        names = [str(name) for name in self.classes_]
        return self._find("diagnostics", lambda: diagnose(self.training_, names))

    def _warn(self) -> None:
        """Warn of checks that fail, once, when the estimates that they doubt are first asked for."""
        for check in self._checks if hasattr(self, "training_") and WARNED not in self.findings_ else ():
            if check.is_warning:
                warnings.warn(f"{check.sentence} {check.advice}", NoiseWarning, stacklevel=3)
        self.findings_[WARNED] = True

    def _inference_seed(self) -> int:
        return int(self.random_state) if isinstance(self.random_state, int | np.integer) else 0


class TideClassifier(InferenceResults, NoisyLabelClassifier):
    r"""Learn from wrong labels with nothing to tune and no clean label.

    1. A hidden Markov model of the recorded labels alone, fitted by EM, gives a first Q(t). Where it finds hardly any
       errors, networks are trained as if a quarter of the labels were wrong: errors in bursts look like the truth.
       Where step 4 then finds such errors, networks are trained once more, with the Q(t) that was found.
    2. Cross-fitting: networks are trained with the forward loss (Patrini and others 2017), each without a fifth of the
       sequences, on whose recorded labels it is stopped. With `clusters` in `fit`, each leaves out whole clusters.
    3. Their out-of-fold predictions P enter the hidden Markov model as evidence,
       :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`. Labels alone (k = 0) and the paper's model (equal
       rows of A, k = 1) are special cases; A and k are estimated by EM from the likelihood of the recorded labels.
       No class is recorded more often as another than as itself.
       Errors come in bursts where that is clearly likelier than networks that fail in runs.
    4. Families of Q(t) are averaged by cross-validated likelihood.
    5. Distillation (Hinton and others 2015): a last ensemble is trained on the posterior of the true labels, half of
       its networks with early stopping on a held-out fifth of the sequences, the others on all for all epochs.

    Prediction uses features only. Several annotators have a Q(t) each, with partial pooling whose strength is chosen
    too. Models of several annotators are compared by leave-one-annotator-out predictive log-likelihood, which errors
    that annotators share mislead less than the likelihood.

    Parameters
    ----------
    ensemble : bool, default True
        Predict with the average of ten networks, or fewer where fewer than five clusters have labels. With False
        the ensemble is distilled into a single network, for small devices and streams.
    period : float, or one for each of several clocks, optional
        The period of the clock, such as 24 for hours of the day: the noise just before midnight is then close to that
        just after. A clock may run on beyond it. Of hours since the start and hours of the day,
        ``clock`` of shape (n, steps, 2), it is ``(None, 24)``; their effects on the noise add up on the logit scale.
    align : bool, default True
        Learn from labels moved to the signals where `labeltide.find_shifts` finds them late or early (p < 0.05), or
        finds single sequences shifted (p < 0.05). Where the lag varies, changes of label are moved one by one, and
        networks learn them as uncertain in time. Predictions then follow the signals.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`
        `early_stopping` and `validation_fraction` have no effect here: every network that is trained on recorded labels
        is stopped on its held-out fold.

    Attributes
    ----------
    chain_ : labeltide.chain.passes.Chain
        The fitted hidden Markov model: start, transition matrix A, power k of the evidence, and bursts.
    families_ : dict of str to float
        The weight of each family of Q(t), by cross-validated likelihood.
    noise_estimate_ : labeltide.NoiseEstimate
        Q over the clock with pointwise and simultaneous 95 % bands. This, `temporality_` and `diagnostics_` are
        computed when first asked for. With several annotators it is the common one.
    annotator_estimates_ : tuple of labeltide.NoiseEstimate
        The same for each annotator.
    clock_estimates_, clock_temporality_ : tuples, one for each of several clocks
        Q along it with bands, averaged over the others (partial dependence), and whether the noise changes over it.
        They stand in place of `noise_estimate_` and `temporality_`, which are for one clock.
    is_noisy_p_ : float
        p-value of the null hypothesis that labels have no errors, with one clock or several.
    conclusion_ : labeltide.inference.conclusion.Finding
        Whether labels are wrong: "shown", "not shown" or "cannot be told", with the reason. Labels are flagged and
        corrected only where it is "shown", apart from labels at a wrong time. Runs in which labels and signals disagree
        are flagged, too, where they are the reason that it cannot be told.
    temporality_ : labeltide.inference.temporality.Temporality
        Whether the noise changes over the clock, whose, by how much, whether there is any, and whether classes differ.
    diagnostics_ : tuple of labeltide.inference.checks.Diagnostic
        Reasons to doubt the above; those that warn are a `labeltide.NoiseWarning`, once.
    lags_ : array of shape (sources,)
        By how many steps the labels of each annotator were late, and were moved; negative where they were early.
    fold_model_ : fleet of networks, each trained without one fold; None where every label was trusted
    training_rows_ : labeltide.estimators.cross_fit.TrainingRows
        A digest of each training row and its fold, by which an audit predicts it out of fold.

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.predict(data.features).shape, clf.noise_matrices_.shape
    ((20, 10), (10, 2, 2))
    >>> clf.audit(data.features, data.labels).quality.shape  # probability that each label is right
    (20, 10, 1)
    """

    name = "tide"
    members_per_fit: ClassVar[int] = CROSS_FIT_FOLDS
    cross_fits: ClassVar[bool] = True
    several_clocks: ClassVar[bool] = True
    distils: ClassVar[bool] = True  # whether an ensemble is trained on the posterior; refits for planted errors do not

    ensemble: bool = True
    period: Period = None  # type: ignore[misc]
    align: bool = True

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        stages = 2 + len(KINDS) + (0 if self.ensemble else 1)  # two directions of cross-fitting, and distillation
        with stages_bar(self.name, stages, self.epochs, bool(self.verbose)):
            return self._fit_stages(fleet_fit)

    def _fit_stages(self, fleet_fit: FleetFit) -> FittedFleet:
        fleet_fit, lags, changes = align_labels(fleet_fit) if self.align else (fleet_fit, None, [])
        folds = make_folds(fleet_fit.data.labels, fleet_fit.clusters, fleet_fit.seeds)
        data, grid = chain_data(fleet_fit.data, fleet_fit.n_classes, fleet_fit.cells)
        clusters = None if fleet_fit.clusters is None else torch.from_numpy(fleet_fit.clusters)
        predict = partial(cross_fit, fleet_fit, folds)
        labels, noise, learned = find_posterior(data, folds, grid, self.period, clusters, predict)
        digests = digest_rows(fleet_fit.data.features.cpu().numpy(), fleet_fit.data.mask.cpu().numpy())
        for fit, attributes in enumerate(learned):
            attributes["lags_"] = np.zeros(fleet_fit.data.labels.shape[-1], int) if lags is None else lags[fit]
            attributes["training_rows_"] = TrainingRows(digests, attributes["training_"].folds[0].numpy())
        if not self.distils:
            folds_of_fits = [attributes["fold_model_"] for attributes in learned]
            none, zeros = np.zeros((0, fleet_fit.members)), np.zeros(fleet_fit.members, np.int64)
            history = History(none, none, zeros, zeros, none, none)
            counts = [model.members for model in folds_of_fits]
            return FittedFleet(stack(folds_of_fits), noise, history, learned, counts)
        if fleet_fit.data.trusted is None:
            for posterior, uncertain in zip(labels, changes, strict=self.align):
                soften_changes(posterior, fleet_fit.data.mask.to(posterior.device), uncertain)
        model, history, networks = distill(fleet_fit, labels, folds, self.ensemble)
        return FittedFleet(model, noise, history, learned, networks)

    def _evidence(self, features: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if self.fold_model_ is None:  # every label was trusted: nothing was cross-fitted
            return super()._evidence(features, mask)
        networks = FoldNetworks(self.fold_model_, self.training_rows_, _validation.check_device(self.device))
        folds = self.training_rows_.find_folds(features, mask)
        signal = networks.predict(np.asarray(features, dtype=np.float32), mask, folds).double()
        return signal.clamp_min(1e-30).log().numpy(), folds >= 0

    def _align(
        self, features: np.ndarray, mask: np.ndarray, recorded: LabelCodes
    ) -> tuple[np.ndarray, int | np.ndarray]:
        """Labels of an audit moved to the signals: by the lags of the fit, and by shifts of single rows."""
        if not self.align:
            return recorded.labels, 0
        labels = recorded.labels
        lags = np.zeros((len(labels), labels.shape[-1]), int)  # (n, annotators)
        if recorded.sources is not None:
            lags = self.lags_[recorded.sources]
        elif len(self.lags_) in (1, lags.shape[1]):
            lags = lags + self.lags_
        own = find_own_shifts(features, mask, np.where(mask[..., None], move_labels(labels, lags), np.int8(-1)), None)
        own[own == np.median(own, axis=0)] = 0
        return _settle(features, labels, lags + own, mask)[0], np.where(own == 0, -lags, 0).clip(0)[:, None]

    def save(self, path: str | Path) -> None:
        """Write the fitted method and its conclusion to one file (safetensors with a JSON header), whole or not at all.

        The file does not hold the training data, so what is to be read from it is concluded before.
        """
        check_is_fitted(self, "model_")
        self._may_name_labels()
        self.save_fit(path)

    def save_fit(self, path: str | Path) -> None:
        """Write the fitted method and what was inferred from it so far, for an audit that goes on."""
        super().save(path)

    def _may_name_labels(self) -> bool | np.ndarray:
        """As above; where every label was trusted, the wrong ones are known."""
        return self.fold_model_ is None or super()._may_name_labels()

    def _persistence(self) -> Chain:
        return self.chain_

    def _learned(self) -> dict[str, Any]:
        if "is_noisy_p" in self.findings_:
            for name in {"noise_estimate", "clock_estimates"} & set(self.findings_):
                self._agree(self.findings_[name], name)
        kept = {name: found for name, found in self.findings_.items() if name not in (SHARE, WARNED, FALSE_ALARMS)}
        start, transition, power, bursts = self.chain_
        chain = {"start": start.tolist(), "transition": transition.tolist(), "power": power, "bursts": bursts}
        learned = {"chain": chain, "families": self.families_, "findings": write_findings(kept)}
        if not {"noise_estimate", "clock_estimates"} & set(self.findings_):
            share = self.findings_.get(SHARE)
            curve = self.findings_.get(FALSE_ALARMS) if share is None else share.false_alarms
            learned |= {} if curve is None else {FALSE_ALARMS: curve.tolist()}
        return learned | {"lags": self.lags_.tolist()}

    def _take_learned(self, learned: Any) -> None:
        n_classes = len(self.classes_)
        try:
            chain, families, findings = learned["chain"], learned["families"], learned["findings"]
            start, transition = np.asarray(chain["start"], float), np.asarray(chain["transition"], float)
            weights = np.asarray(list(families.values()), float)
            power, bursts = float(chain["power"]), float(chain["bursts"])
            lags = np.asarray(learned["lags"], int)
            curve = np.asarray(learned.get(FALSE_ALARMS, QUALITY_GRID), float)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError("its chain or its families of Q are malformed.") from None
        sound = all(np.all((values >= 0) & (values < np.inf)) for values in (start, transition, weights, power, bursts))
        if start.shape != (n_classes,) or transition.shape != (n_classes, n_classes) or not sound:
            raise ValueError(f"its chain must hold finite numbers for {n_classes} classes.")
        if abs(start.sum() - 1) > 1e-3 or (np.abs(transition.sum(1) - 1) > 1e-3).any():
            raise ValueError("the probabilities of its chain must sum to one.")
        if curve.shape != QUALITY_GRID.shape or not ((curve >= 0) & (curve <= 1)).all():
            raise ValueError("its expected shares of false alarms are malformed.")
        self.chain_, self.families_ = Chain(start, transition, power, bursts), dict(families)
        self.lags_ = lags
        self.findings_ = read_findings(findings, n_classes)
        if FALSE_ALARMS in learned:
            self.findings_[FALSE_ALARMS] = curve
