"""Audit labels by out-of-sample probabilities of any model: the hidden Markov model of `tide` without its networks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._clock import Period, check_clocks, check_gaps, check_period
from labeltide.chain.em import POWER_CENTRE, label_chain, power_log_prior
from labeltide.chain.passes import (
    INFERENCE_STEPS,
    TEST_STEPS,
    TrainingEvidence,
    draw_rows,
    expect,
    posteriors,
    same_data,
    thin_evidence,
    thin_for_tests,
)
from labeltide.data.clusters import Sources, deal_units, encode_clusters, splitting_units
from labeltide.estimators.cross_fit import TrainingRows, digest_rows
from labeltide.estimators.fleet import (
    FittedFleet,
    FleetFit,
    find_grid,
    find_moments,
    find_seed,
    store,
)
from labeltide.estimators.tide import TideClassifier, chain_data, find_posterior, make_folds
from labeltide.inference.audit import FDR, LabelAudit, LabelCodes, audit_labels
from labeltide.inference.conclusion import Diagnostic, NoiseWarning
from labeltide.models import LinearModel
from labeltide.tables.features import MIN_PROBABILITY
from labeltide.training import FleetData, History

WINDOW = 100  # by hand: steps of the windows into which long sequences are cut for the fit
FIT_STEPS = 20_000  # by hand: steps that A, k and Q(t) are learned from; every label is judged
MAX_POWER_RATIO = 3.0  # by hand: of the power that calibrates probabilities, either way
POWERS = np.geomspace(0.1, 20, 40)  # by hand: of which the best for the labels is sought
FACTORS = 2.0 ** np.arange(-3, 3.5, 0.5)  # by hand: on the power k of one person
MIN_SPREAD = 1e-3  # of probabilities over steps, below which they are constant
MIN_SUSPECTS = 20  # by hand: labels that their neighbours contradict, by the labels alone
# By hand: the share of them that predictions repeat from which nothing can be told; and the share that seems to be
# right, by the predictions, from which a model may have seen them.
MAX_REPEATED, MAX_SEEN = 0.75, 0.35


class PredictionFit(TideClassifier):
    """`tide` without its networks: the features are logarithms of a model's out-of-sample probabilities."""

    def _fit_stages(self, fleet_fit: FleetFit) -> FittedFleet:
        data, n_classes = fleet_fit.data, fleet_fit.n_classes
        units = np.arange(len(data.mask)) if fleet_fit.clusters is None else fleet_fit.clusters
        labels, grid = chain_data(data, n_classes, fleet_fit.cells)
        # The model has learned the labels as they are, as if Q were the identity.
        labels = labels.with_evidence(data.features.log_softmax(-1)[None], torch.ones(1))
        folds = make_folds(data.labels, units, fleet_fit.seeds[:1])
        _, noise, (learned,) = find_posterior(labels, folds, grid, self.period, torch.from_numpy(units))
        digests = digest_rows(data.features.cpu().numpy(), data.mask.cpu().numpy())
        learned["training_rows_"] = TrainingRows(digests, learned["training_"].folds[0].numpy())
        learned["lags_"] = np.zeros(data.labels.shape[-1], int)
        model = LinearModel(1, n_classes, n_classes)
        with torch.no_grad():
            model.head.weight.copy_(torch.eye(n_classes)), model.head.bias.zero_()
        none, zero = np.zeros((0, 1)), np.zeros(1, np.int64)
        return FittedFleet(model, noise, History(none, none, zero, zero, none, none), [learned], [1])

    def learn(self, fleet_fit: FleetFit) -> None:
        """Fit to data that are prepared. Bands, checks and tests rest on random windows where there are many."""
        store(fleet_fit, self._fit_stages(fleet_fit), None)
        whole, seed = self.training_, fleet_fit.seeds[0]
        self.predictions_ = check_predictions(whole)
        self.training_ = thin_evidence(whole, seed, INFERENCE_STEPS)
        self._for_tests = thin_for_tests(whole, seed, TEST_STEPS)

    def _find(self, name: str, compute: Callable[[], Any]) -> Any:
        bands = self.training_
        if name in ("temporality", "clock_temporality", "is_noisy_p"):
            self.training_ = self._for_tests
        try:
            return super()._find(name, compute)
        finally:
            self.training_ = bands

    @property
    def _checks(self) -> tuple[Diagnostic, ...]:
        return (*self.predictions_, *super()._checks)

    def _may_name_labels(self) -> bool | np.ndarray:
        return super(TideClassifier, self)._may_name_labels()


def power_factors(fleet_fit: FleetFit) -> np.ndarray:
    """The factor on the power k in each cluster by maximum a posteriori, after a fit with one power: (clusters,).

    A model knows some people better than others. The prior is that of k, with the common power as its centre
    (docs/decisions/005-prior-of-k.md).
    """
    (estimator,) = fleet_fit.estimators
    training = estimator._fit_stages(fleet_fit).learned[0]["training_"]
    factors, chain = torch.from_numpy(FACTORS), training.parameters
    chains = chain.take(torch.zeros(len(factors), dtype=torch.int64))
    chains = chains._replace(power=chain.power * factors.to(chain.power))
    members = same_data(torch.ones(len(factors), len(training.clusters)))
    by_row = expect(training.data, members, chains).log_likelihood.double()
    prior = power_log_prior(POWER_CENTRE * factors)[:, None].expand(-1, int(training.clusters.max()) + 1)
    return FACTORS[prior.index_add(1, training.clusters, by_row).argmax(0).numpy()]


def check_predictions(training: TrainingEvidence) -> list[Diagnostic]:
    """Whether probabilities are constant, not calibrated, or of a model that has seen the labels it is to judge."""
    data, chain, grid, period = training.data, training.parameters, training.grid, training.period
    assert data.evidence is not None
    real = data.mask.numpy()
    probabilities = data.evidence[0].exp().numpy()[real]  # (steps in all, classes)
    if probabilities.std(0).max() < MIN_SPREAD:
        sentence = "The probabilities are the same at every step, so they say nothing about single labels."
        return [Diagnostic("constant_predictions", True, sentence, "Give those of a model of the features.", True)]
    several = data.labels.shape[-1] if chain.matrices.shape[1] > 1 else 1
    single = same_data(torch.ones(1, len(real)))
    chain_of_labels = label_chain(data, single, grid, period, several)
    by_labels = posteriors(data.with_evidence(None), single, chain_of_labels)[0].numpy()[real]  # from labels alone
    codes = data.labels[0].numpy()[real]  # (steps in all, annotators)
    step, annotator = np.nonzero(codes >= 0)
    recorded = codes[step, annotator]
    predicted = probabilities.argmax(1)
    agrees, suspect = predicted[step] == recorded, by_labels[step, recorded] < 0.5
    # The expected agreement at suspect labels, if predictions depend on the truth alone and not on its recorded label.
    # Its rows are true and its columns predicted classes.
    confusion = np.stack([by_labels[predicted == code].sum(0) for code in range(data.n_classes)], 1)
    confusion = (confusion + 1e-6) / (confusion + 1e-6).sum(1, keepdims=True)
    sentence = f"The probabilities agree with {100 * agrees.mean():.0f} % of the labels"
    seen = repeated = False
    if suspect.sum() >= MIN_SUSPECTS:
        expected = (by_labels[step[suspect]] * confusion[:, recorded[suspect]].T).sum(1).mean()
        share = agrees[suspect].mean()
        sentence += (
            f", and with {100 * share:.0f} % of the {int(suspect.sum())} labels that their neighbours contradict, "
            f"where {100 * expected:.0f} % were to be expected"
        )
        repeated = bool(share > MAX_REPEATED)
        seen = repeated or bool(share - expected > MAX_SEEN * max(agrees.mean() - expected, 0.0))
    advice = (
        "A model that was trained on these labels repeats their mistakes. Predict each sequence by a model that has "
        "not seen it: scikit-learn's cross_val_predict with groups, or labeltide.cross_predict."
    )
    checks = [Diagnostic("in_sample_predictions", seen, f"{sentence}.", advice if seen else "", repeated)]
    # Models may be calibrated for true labels or, having learned wrong ones, for recorded labels. Neither is a fault.
    which = np.minimum(annotator, chain.matrices.shape[1] - 1)
    columns = chain.matrices[0].numpy()[which, data.grid_index().numpy()[real][step], :, recorded]  # P(recorded | true)
    powered = [probabilities[step] ** power for power in POWERS]
    powered = [values / values.sum(1, keepdims=True) for values in powered]
    recorded_power = POWERS[np.argmax([np.log(values[np.arange(len(step)), recorded]).mean() for values in powered])]
    true_power = POWERS[np.argmax([np.log((values * columns).sum(1)).mean() for values in powered])]
    power = float(np.clip(1.0, *sorted((recorded_power, true_power))))
    bad = not 1 / MAX_POWER_RATIO < power < MAX_POWER_RATIO
    how = "too sure" if power < 1 else "not sure enough"
    sentence = f"The probabilities predict the labels best when taken to the power {power:.2g}"
    sentence += f": the model is {how}." if bad else ", so they are about calibrated."
    advice = "The audit calibrates them. Calibrate the model, or check that columns stand for the classes given."
    return [*checks, Diagnostic("calibration", bad, sentence, advice if bad else "")]


def audit_predictions(
    pred_probs: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike | Sequence[ArrayLike],
    *,
    clock: Any = None,
    lengths: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    trusted: Any = None,
    period: Period = None,
    gaps: Any = None,
    classes: Sequence[Hashable] | None = None,
    fdr: float = FDR,
    spend_fdr: bool = False,
    random_state: int = 0,
) -> LabelAudit:
    r"""Audit labels by the out-of-sample probabilities of any model, without training.

    The probabilities P enter the hidden Markov model of `TideClassifier`, :math:`p(y_t = j \mid y_{t-1} = i, x) \propto
    A_{ij} P_{tj}^k`, in place of its cross-fitted networks. A, k and Q(t) are estimated by EM. The exponent k
    calibrates the probabilities: a model that was trained on wrong labels is not sure enough, an overfitted one is too
    sure. Only labels that the fit shows to be wrong are flagged.

    Every sequence must be predicted by a model that was not trained on its labels. Probabilities that repeat mistakes
    which the labels alone give away, and constant ones, are reported, and then no label is flagged. Predictions of a
    model that reads earlier *and* later steps count evidence of neighbouring steps more than once; the stated share
    then tends to be about a point low.

    Parameters
    ----------
    pred_probs : array of shape (n, steps, classes), or list of arrays (steps, classes), or array (all steps, classes)
        A flat array holds one sequence after the other, as long as `lengths` says; without `lengths` it is one.
    y : recorded labels of the same form, (n, steps) or (n, steps, annotators), any label type
        -1 among whole numbers, None or NaN otherwise, where nothing was recorded.
    clock, trusted, gaps : of the same form, optional, as in `TideClassifier.fit`
    lengths : whole numbers of shape (n,), optional
    clusters : array of shape (n,), optional
        The person, night or recording of each sequence.
    period : float, optional
        The period of the clock, such as 24 for hours of the day.
    classes : the class of each column, optional
        The sorted distinct labels when left out.
    fdr, spend_fdr : as in `TideClassifier.audit`
    random_state : int
        Folds, and the windows from which much data is learned, are drawn from it.

    Returns
    -------
    LabelAudit
        Its `fit` has Q(t) with bands, tests, checks and conclusion (`PredictionFit`).

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=60, n_steps=20, n_features=1, stay=0.9)
    >>> y = lt.corrupt(data.clean_labels, lt.make_noise("growth", n_steps=20, rate=0.2))
    >>> pred_probs = abs(data.clean_labels[..., None] - [0.8, 0.2])  # of your model, out of sample
    >>> audit = lt.audit_predictions(pred_probs, y)
    >>> audit.is_issue.shape, audit.fit.conclusion_.answer
    ((60, 20), 'shown')
    """
    check_period(period)
    _validation.check_number("fdr", fdr, 0, 1)
    given = {"pred_probs": pred_probs, "y": y, "clock": clock, "trusted": trusted, "gaps": gaps}
    padded, lengths = _pad_sequences(given, lengths)
    try:
        probabilities = np.array(_validation.plain_array(padded["pred_probs"]), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("pred_probs must be numbers of shape (n, steps, classes), of one number of classes.") from None
    if probabilities.ndim != 3 or 0 in probabilities.shape:
        raise ValueError(
            "pred_probs must have shape (n, steps, classes), or be a list of arrays of shape (steps, classes). "
            f"Got shape {probabilities.shape}."
        )
    n, n_steps, n_columns = probabilities.shape
    counts = _validation.check_lengths(lengths, n, n_steps)
    mask = _validation.steps_mask(counts, n_steps)
    probabilities = _validation.check_probabilities("pred_probs", probabilities, mask)
    recorded = _validation.check_labels(padded["y"], n, n_steps)
    present = mask[..., None] & ~_validation.missing_labels(recorded)
    names = _column_classes(recorded, present, n_columns, classes)
    codes = _validation.encode_labels(recorded, present, names)
    known = None if trusted is None else _validation.encode_trusted(padded["trusted"], mask, names)
    clocks, between = check_clocks(padded["clock"], counts, n_steps), check_gaps(padded["gaps"], counts, n_steps)
    people = None if clusters is None else encode_clusters(clusters, n)

    evidence = np.log(probabilities.clip(MIN_PROBABILITY))
    seed = find_seed(random_state)
    grid, points, cells = find_grid(clocks, mask, period, len(names))
    if points is None:
        points = np.broadcast_to(np.arange(n_steps), mask.shape)
    row, step, inside = _cut_windows(counts, np.asarray((codes >= 0).any(-1)))
    units = (np.arange(n) if people is None else people)[row]
    by_person = people is not None
    if len(np.unique(units)) < 2:  # windows of the only sequence
        units, by_person = np.arange(len(row)), False
    most = max(2, FIT_STEPS // inside.shape[1])
    if len(row) > most:
        drawn = draw_rows(units, most, most, np.random.default_rng([seed, 10]))
        row, step, inside, units = row[drawn], step[drawn], inside[drawn], units[drawn]

    def take(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values[row[:, None], step]))

    learned = FleetData(
        features=take(evidence).float(),
        mask=torch.from_numpy(inside),
        labels=torch.where(torch.from_numpy(inside)[..., None], take(codes), -1)[None],
        grid=torch.from_numpy(grid),
        points=take(points),
        weights=torch.ones(1, len(row)),
        held_out=torch.zeros(1, len(row), dtype=torch.bool),
        trusted=None if known is None else torch.where(torch.from_numpy(inside), take(known), -1),
        gaps=None if between is None else take(between),
    )
    fit = PredictionFit(period=period, random_state=seed)
    learned_from, units = np.unique(units, return_inverse=True)
    fleet_fit = FleetFit([fit], learned, names, (seed,), Sources(codes.shape[2], None), cells, units)
    if by_person:
        factors, of_person = power_factors(fleet_fit), np.ones(n)
        of_person[learned_from] = factors
        evidence *= of_person[people][:, None, None]
        features = learned.features * torch.from_numpy(factors)[units, None, None].float()
        fleet_fit = replace(fleet_fit, data=replace(learned, features=features))
    fit.learn(fleet_fit)
    for check in fit.predictions_:
        if check.is_warning:
            warnings.warn(f"{check.sentence} {check.advice}", NoiseWarning, stacklevel=2)
    moments = find_moments(fit, clocks)
    sources = None if fit.noise_.annotators == 1 else np.tile(np.arange(codes.shape[2]), (n, 1))
    return audit_labels(
        LabelCodes(codes, mask, moments, known, sources, between),
        evidence - np.log(np.exp(evidence).sum(-1, keepdims=True)),
        fit.chain_,
        fit.noise_,
        fit.classes_,
        fdr=fdr,
        spend_fdr=spend_fdr,
        has_annotators=_validation.as_labels(padded["y"]).ndim == 3,
        may_name=fit._may_name_labels(),
        false_alarms=fit._false_alarms(),
        fit=fit,
    )


def cross_predict(
    fit: Callable[..., Callable[[Any], ArrayLike]],
    X: ArrayLike,
    y: ArrayLike,
    clusters: ArrayLike | None = None,
    folds: int = 5,
    *,
    random_state: int = 0,
    **more: Any,
) -> LabelAudit:
    """Cross-fit your own model, then audit the labels by its out-of-fold probabilities.

    Parameters
    ----------
    fit : function of (X, y) that trains a new model and returns its function from X to (n, steps, classes)
        The labels of some sequences are left out of every call. Class j of its output is the j-th distinct label.
    X : array of shape (n, ...), the first axis of which is the sequence
    y : array of shape (n, steps) or (n, steps, annotators)
    clusters : array of shape (n,), optional
        The person, night or recording of each sequence; those of one are left out together.
    folds : int
    random_state : int
        From which folds are drawn.
    more : further arguments of `audit_predictions`

    Examples
    --------
    >>> import labeltide as lt
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = lt.make_sequences(n=60, n_steps=20, n_features=3, stay=0.9)
    >>> y = lt.corrupt(data.clean_labels, lt.make_noise("growth", n_steps=20, rate=0.2))
    >>> def fit(X, y):
    ...     model = LogisticRegression().fit(X.reshape(-1, 3), y.ravel())
    ...     return lambda X: model.predict_proba(X.reshape(-1, 3)).reshape(*X.shape[:2], -1)
    >>> lt.cross_predict(fit, data.features, y).quality.shape
    (60, 20)
    """
    values, labels = np.asarray(_validation.plain_array(X)), np.asarray(_validation.plain_array(y))
    n = len(values)
    if labels.ndim < 2 or len(labels) != n:
        raise ValueError(f"y must hold the labels of the {n} sequences of X. Got shape {labels.shape}.")
    _validation.check_number("folds", folds, 2, n, whole=True)
    everyone = np.ones(n, dtype=bool)
    units = splitting_units(None if clusters is None else encode_clusters(clusters, n), everyone)
    count = min(folds, len(np.unique(units)))
    fold = deal_units(units, everyone, count, np.random.default_rng([find_seed(random_state), 3]))
    parts: dict[int, np.ndarray] = {}
    for left_out in range(count):
        rows = np.flatnonzero(fold == left_out)
        predicted = np.asarray(
            _validation.plain_array(fit(values[fold != left_out], labels[fold != left_out])(values[rows]))
        )
        if predicted.ndim != 3 or predicted.shape[:2] != (len(rows), labels.shape[1]):
            raise ValueError(
                f"What fit returns must give probabilities of shape {(len(rows), labels.shape[1], 'classes')} for X of "
                f"shape {values[rows].shape}. Got shape {predicted.shape}."
            )
        parts |= dict(zip(rows.tolist(), predicted, strict=True))
    if len({part.shape for part in parts.values()}) > 1:
        raise ValueError(
            "The models of two folds know different numbers of classes. Use fewer folds, or merge classes."
        )
    together = np.stack([parts[row] for row in range(n)])
    return audit_predictions(together, y, clusters=clusters, random_state=random_state, **more)


def _pad_sequences(given: dict[str, Any], lengths: Any) -> tuple[dict[str, Any], Any]:
    """Lists of sequences, and flat arrays with one sequence after the other, as arrays with steps; and lengths.

    Padding, which lengths tell apart, repeats the last step.
    """
    probabilities = _validation.plain_array(given["pred_probs"])
    is_list = isinstance(probabilities, list | tuple) or np.asarray(probabilities).dtype.kind == "O"
    if is_list and len(probabilities) and all(np.ndim(part) == 2 for part in probabilities):
        if lengths is not None:
            raise ValueError("A list of sequences has the lengths of its arrays. Leave out lengths.")
        counts, ends = [len(part) for part in probabilities], None
        rule = f"must be a list of {len(counts)} sequences as long as those of pred_probs"
    elif np.ndim(probabilities) == 2:
        n_steps = len(probabilities)
        counts = [n_steps] if lengths is None else np.asarray(lengths).tolist()
        _validation.check_whole_numbers("lengths", counts, 1)
        if sum(counts) != n_steps:
            raise ValueError(f"lengths must sum to the {n_steps} steps of pred_probs. They sum to {sum(counts)}.")
        ends, rule = np.cumsum(counts)[:-1], f"must hold {n_steps} steps, as pred_probs does"
    else:
        return given, lengths
    padded = dict(given)
    for name, values in given.items():
        if values is None:
            continue
        parts = values if ends is None else np.split(np.atleast_1d(_validation.plain_array(values)), ends)
        parts = [np.asarray(_validation.plain_array(part)) for part in parts]
        if [len(part) if part.ndim else 0 for part in parts] != counts:
            raise ValueError(f"{name} {rule}.")
        if len({part.shape[1:] for part in parts}) > 1:
            raise ValueError(f"The sequences of {name} must have one shape beyond their steps.")
        padded[name] = np.stack([part[np.minimum(np.arange(max(counts)), len(part) - 1)] for part in parts])
    return padded, counts


def _column_classes(
    labels: np.ndarray, present: np.ndarray, n_columns: int, classes: Sequence[Hashable] | None
) -> tuple[Hashable, ...]:
    """The class of each column of pred_probs."""
    if classes is not None:
        names = _validation.check_classes(list(classes), "classes")
    else:
        names = _validation.find_classes(labels, present)
        if len(names) < n_columns and all(_validation.is_whole(name) and 0 <= name < n_columns for name in names):  # type: ignore[operator]
            names = tuple(range(n_columns))
    if len(names) != n_columns:
        raise ValueError(
            f"pred_probs must have one column for each class. Got {n_columns} columns and {len(names)} classes: "
            f"{', '.join(map(repr, names[:8]))}. Name the class of each column with classes."
        )
    return names


def _cut_windows(counts: np.ndarray, labelled: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows of nearly equal length up to `WINDOW`: their row (w,), steps (w, length) and mask (w, length).

    Windows without labels are left out.
    """
    pieces = -(-counts // WINDOW)
    row = np.repeat(np.arange(len(counts)), pieces)
    piece = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start, end = (counts[row] * (piece + side) // pieces[row] for side in (0, 1))
    step = start[:, None] + np.arange((end - start).max())
    inside = step < end[:, None]
    step = np.minimum(step, end[:, None] - 1)
    some = (labelled[row[:, None], step] & inside).any(1)
    return row[some], step[some], inside[some]
