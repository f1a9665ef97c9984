"""The scikit-learn interface that all methods share."""

from __future__ import annotations

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from labeltide import _validation
from labeltide._clock import Cells, Period, check_clocks, check_gaps
from labeltide.data.clusters import Sources
from labeltide.estimators.fleet import (
    FittedFleet,
    FleetFit,
    find_moments,
    fit_fleet,
    predict_fleet,
    predict_scaled,
    scale_features,
)
from labeltide.estimators.scoring import refuse_scorers_by_name
from labeltide.models.base import SequenceModel

if TYPE_CHECKING:  # what an audit needs is loaded by the first audit
    from labeltide.chain.passes import Chain
    from labeltide.estimators.cross_fit import TrainingRows
    from labeltide.inference.audit import LabelAudit, LabelCodes


SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
COPY = re.compile(r"<(i|button)\b[^>]*\bcopy-paste-icon\b[^>]*>\s*</\1>")  # buttons of that script


ModelChoice = str | torch.nn.Module | Callable[..., Any]
RandomState = int | np.random.RandomState | None


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(kw_only=True, repr=False, eq=False)
class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):
    """Classifies every step of a sequence, learning from labels that are sometimes wrong.

    Parameters
    ----------
    model : {"gru", "tcn", "transformer", "linear"}, torch module or factory, default "gru"
        The network. A module or factory of yours is passed through `labeltide.wrap`.
    hidden_size : int, default 32
    causal : bool, default True
        Whether a prediction depends on the step itself and earlier steps only.
    epochs, batch_size, learning_rate : the paper's 150, 64 and 0.01
    early_stopping : bool, default False
        Hold out `validation_fraction` of the sequences, in whole clusters, and keep the epoch at which their
        *recorded* labels are most likely. No clean label is needed. The paper trains for all epochs.
    validation_fraction : float, default 0.2
    clip : float or None, default 5
        The largest norm of a gradient (gradient clipping, Pascanu and others 2013).
    max_restarts : int, default 8
        How often a fit whose gradient is not finite goes back by an epoch and on at half the learning rate.
    standardize : bool, default True
        Centre and scale every feature by what the training rows show, robustly: extreme values are pulled in. The
        scaling is part of the fit. Pass False for a network of yours that needs raw values, such as indices.
    device : str, default "auto"
        "auto" takes a GPU where there is one.
    checkpoint : path, optional
        A folder for the checkpoints of a running fit; fitting again after a kill, with the same whole number as
        `random_state`, resumes from there. Our files in it are removed when the fit is done.
    verbose : bool, default False
        Draw a progress bar on a terminal, and write lines to the log elsewhere.
    random_state : int, RandomState or None
        The same seed gives the same numbers.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    noise_matrices_ : array of shape (points, classes, classes)
        Q over `clock_grid_`: row i is the distribution of the recorded label when i is true. Where each annotator has
        a Q, the common one.
    annotator_matrices_ : array of shape (sources, points, classes, classes), or None where all share one Q
    sources_ : list of (annotator, group)
        Who stands where along the first axis of `annotator_matrices_`: the number of the annotator in `y` and the
        group, None without groups.
    clock_grid_ : array of shape (points,), or of several clocks (points, clocks)
        The distinct moments of the training clock; with the default clock, one for each step.
    model_, noise_ : the trained network, or the ensemble that is averaged, and the noise function, as fleets
    scaling_ : array of shape (4, features), or None without `standardize`
        Lowest and highest value, centre and scale of each feature.
    history_ : labeltide.training.History
    """

    name: ClassVar[str]
    members_per_fit: ClassVar[int] = 1  # networks that one fit trains at once
    several_clocks: ClassVar[bool] = False  # whether `clock` may hold several clocks
    period: ClassVar[Period] = None  # of the clock; a parameter of methods for periodic clocks
    cross_fits: ClassVar[bool] = False  # whether fit leaves fold_model_ and training_rows_, for out-of-fold audits

    model: ModelChoice = "gru"
    hidden_size: int = 32
    causal: bool = True
    epochs: int = 150
    batch_size: int = 64
    learning_rate: float = 0.01
    early_stopping: bool = False
    validation_fraction: float = 0.2
    clip: float | None = 5.0
    max_restarts: int = 8
    standardize: bool = True
    device: str = "auto"
    checkpoint: str | Path | None = None
    verbose: bool = False
    random_state: RandomState = None

    cells_: Cells | None = field(init=False)  # of several clocks
    scaling_: np.ndarray | None = field(init=False)
    fold_model_: SequenceModel | None = field(init=False)
    training_rows_: TrainingRows = field(init=False)

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the constructor of a method from its annotated parameters and those that all methods share."""
        super().__init_subclass__(**options)
        dataclass(kw_only=True, repr=False, eq=False)(cls)

    @abstractmethod
    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        """Train all members of a fleet: the only step in which methods differ."""

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        clock: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        trusted: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        gaps: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
    ) -> Self:
        """Learn from recorded labels.

        Parameters
        ----------
        X : array of shape (n, steps, features)
        y : array of shape (n, steps) or (n, steps, annotators)
            Labels of any hashable type; missing = -1 for whole numbers, None or NaN otherwise. `tide`, `continuous`
            and `discontinuous` estimate Q of each annotator with partial pooling; the other methods take all to have
            the same Q.
        clock : array of shape (n, steps) or (steps,), or for `tide` (n, steps, clocks), optional
            The moments on which the noise depends; from 0 at the first step to 1 at the last column when left out.
        lengths : array of shape (n,), optional
            Steps beyond a sequence's length are padding and never count.
        trusted : array of shape (n, steps), optional
            Labels known to be right, missing elsewhere.
        groups : array of shape (n,), optional
            The site, device or type of person of each sequence, of any hashable type, where mistakes may differ among
            them: every annotator then counts as another in each group.
        gaps : array of shape (n, steps) or (steps,), optional
            How many steps of time lie between a step and the one before; 1 where it follows at once, anything for the
            first. `tide` takes the transition matrix to this power; the other methods ignore gaps.
        clusters : array of shape (n,), optional
            The person, night or recording each sequence or window belongs to, of any hashable type. Those of one are
            alike: they never lie on both sides of a split, and bands and tests take people, not windows, as the units.
        """
        more = {"trusted": trusted, "groups": groups, "gaps": gaps, "clusters": clusters}
        fit_fleet([self], X, [y], clock=clock, lengths=lengths, **more)
        return self

    def predict_proba(self, X: ArrayLike, lengths: ArrayLike | None = None) -> np.ndarray:
        """The probability of each true label at every step: shape (n, steps, classes), zero on padding."""
        check_is_fitted(self, "model_")
        refuse_scorers_by_name()
        return predict_fleet([self], X, lengths)[0]

    def stream(self) -> Stream:
        """An object whose ``push(features)`` predicts one step at a time, as `predict_proba` does for whole sequences.

        For causal models. A GRU carries its state, so that a step costs the same at any length.
        """
        check_is_fitted(self, "model_")
        return Stream(self)

    def predict(self, X: ArrayLike, lengths: ArrayLike | None = None) -> np.ndarray:
        """The most likely true label at every step: shape (n, steps), missing on padding."""
        probabilities = self.predict_proba(X, lengths)
        labels, padding = self.classes_[probabilities.argmax(-1)], probabilities.sum(-1) == 0
        if padding.any():
            if not np.issubdtype(labels.dtype, np.number):
                labels = labels.astype(object)
            labels[padding] = -1 if np.issubdtype(labels.dtype, np.integer) else None
        return labels

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Accuracy over all steps with a label in `y`; missing labels and padding do not count."""
        labels = self.predict_proba(X, lengths).argmax(-1)[..., None]
        codes = self.encode(_validation.check_labels(y, *labels.shape[:2]), lengths)
        weights = _validation.check_sample_weight(sample_weight, len(codes))[:, None, None] + np.zeros(codes.shape)
        counted = (codes >= 0) & (weights > 0)
        if not counted.any():
            raise ValueError("y holds no label to score: every step is missing, beyond `lengths` or without weight.")
        return float(np.average((labels == codes)[counted], weights=weights[counted]))

    def encode(self, y: ArrayLike, lengths: ArrayLike | None = None) -> np.ndarray:
        """Labels as codes into `classes_`, shape (n, steps, annotators), -1 where there is none."""
        check_is_fitted(self, "classes_")
        shape = np.shape(y)
        labels = _validation.check_labels(y, *(shape[:2] if len(shape) > 1 else (-1, -1)))
        counts = _validation.check_lengths(lengths, *labels.shape[:2])
        present = _validation.steps_mask(counts, labels.shape[1])[..., None] & ~_validation.missing_labels(labels)
        return _validation.encode_labels(labels, present, self.classes_.tolist())

    def noise_at(self, clock: ArrayLike, annotator: int | None = None, group: Hashable = None) -> np.ndarray:
        """Q at any moments of the clock, in common or of one annotator (in one group): (..., classes, classes).

        Of several clocks, (..., clocks), it is that of the nearest cell of `clock_grid_`."""
        check_is_fitted(self, "noise_")
        moments = find_moments(self, clock)
        index = Sources.of(self.sources_).column(annotator, group)
        if index is None or self.noise_.annotators == 1:
            return self.noise_.common_at(moments)
        return self.noise_.at(moments)[index]

    def audit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        clock: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        fdr: float = 0.1,
        *,
        trusted: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        gaps: ArrayLike | None = None,
        spend_fdr: bool = False,
        may_name: bool | np.ndarray | None = None,
    ) -> LabelAudit:
        """Probability that each recorded label is right, the most likely label, and flags at a false discovery rate.

        `tide` smooths by forward-backward and predicts the rows it was fitted to out of fold. It recognises them by
        their features (`LabelAudit.out_of_fold`) and warns of rows that it does not recognise. All other methods take
        each step by itself with the network trained on it, overconfident about what it has memorised. Where the fit of
        `tide` does not show that labels are wrong (`conclusion_`), none is flagged; if it cannot tell because labels
        and signals disagree in runs, these are flagged, but not corrected.

        Parameters
        ----------
        X, y, clock, lengths, trusted, groups, gaps : as `fit` takes them, of training rows or others
        fdr : float, the false discovery rate: the expected share of right labels among flagged ones is at most this
        spend_fdr : bool, flag until that share is reached, also where no other label is likelier; finds more errors
        may_name : bool, whether labels may be flagged; where the fit shows that labels are wrong when left out
        """
        from labeltide.estimators.cross_fit import TrainingRowsWarning
        from labeltide.inference.audit import LabelCodes, audit_labels

        check_is_fitted(self, "model_")
        features, counts = self._check_features(X, lengths)
        shape = features.shape[:2]
        labels = self.encode(_validation.check_labels(y, *shape), counts)
        mask = _validation.steps_mask(counts, shape[1])
        clocks = check_clocks(clock, counts, shape[1])
        if (clocks.ndim == 3) != (self.cells_ is not None):
            raise ValueError(f"clock must hold as many clocks as in fit. Got shape {clocks.shape}.")
        moments = find_moments(self, clocks)
        between = check_gaps(gaps, counts, shape[1])
        known = None if trusted is None else self.encode(_validation.check_labels(trusted, *shape), counts)[..., 0]
        recorded = LabelCodes(labels, mask, moments, known, self._find_sources(labels, groups), between)
        evidence, out_of_fold = self._evidence(features, mask)
        aligned, ahead = self._align(features, mask, recorded)
        may_name = self._may_name_labels() if may_name is None else may_name
        audit = audit_labels(
            recorded._replace(labels=aligned),
            evidence,
            self._persistence(),
            self.noise_,
            self.classes_,
            fdr=fdr,
            spend_fdr=spend_fdr,
            has_annotators=_validation.as_labels(y).ndim == 3,
            may_name=may_name,
            false_alarms=self._false_alarms() if np.any(may_name) else None,
            fit=self,
        )
        if out_of_fold is not None and not out_of_fold.all():
            warnings.warn(
                f"{int(out_of_fold.sum()) or 'None'} of the {len(out_of_fold)} rows are recognised as training rows "
                "and judged by networks that have not seen them. The others are judged as new rows. If they are "
                "training rows that were rounded or changed since fit, pass X as it was in fit: networks that have "
                "memorised a wrong label do not find it.",
                TrainingRowsWarning,
                stacklevel=2,
            )
        moved = None if (aligned == labels).all() else aligned
        clock = moments if self.cells_ is None else clocks[..., 0]
        return replace(audit, clock=clock, out_of_fold=out_of_fold, labels=labels, aligned=moved, ahead=ahead)

    def corrected_labels(
        self,
        X: ArrayLike,
        y: ArrayLike,
        clock: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        min_confidence: float | None = None,
        *,
        groups: ArrayLike | None = None,
        gaps: ArrayLike | None = None,
    ) -> np.ndarray:
        """The labels `y` with the suggested label in place of each label that `audit` flags; missing ones stay.

        With `min_confidence`, labels whose suggestion has at least this probability are replaced instead. Labels in a
        pandas frame, one row for each sequence, come back in a frame with the same index and columns.
        """
        from labeltide.tables.columns import like_given

        codes = self.audit(X, y, clock, lengths, groups=groups, gaps=gaps).corrected(min_confidence)
        recorded = _validation.as_labels(y)
        plain = recorded.dtype != object and self.classes_.dtype != object
        labels = recorded.astype(np.promote_types(recorded.dtype, self.classes_.dtype) if plain else object)
        changed = codes != self.encode(y, lengths).reshape(codes.shape)
        labels[changed] = self.classes_[codes[changed]]
        return like_given(labels, y)

    def plot_reliability(
        self, X: ArrayLike, trusted: ArrayLike, lengths: ArrayLike | None = None, ax: Any = None, *, bins: int = 10
    ) -> Any:
        """Draw how often the predicted label is right against its probability, on labels that you trust.

        Parameters
        ----------
        X : array of shape (n, steps, features), not seen in `fit`
        trusted : array of shape (n, steps)
            Labels known to be right; missing where none is known.
        lengths : array of shape (n,), optional
        ax : matplotlib Axes, optional
        bins : int, default 10
        """
        from labeltide.inference.display import plot_reliability, trusted_codes

        chances = self.predict_proba(X, lengths)
        codes = trusted_codes(trusted, chances.sum(-1) > 0, self.classes_)
        top = chances.max(-1)
        top[codes < 0] = float("nan")
        return plot_reliability(top, chances.argmax(-1) == codes, ax, bins=bins)

    def save(self, path: str | Path) -> None:
        """Write the fitted method to one file (safetensors with a JSON header, no pickle), whole or not at all."""
        from labeltide.estimators.storage import save

        save(self, Path(path))

    def _networks_at_once(self, annotators: int) -> tuple[int, int]:
        """The number of classifiers, and of networks for Q(t), that one fit with so many annotators trains at once."""
        return self.members_per_fit, self.members_per_fit

    def _evidence(self, features: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Log-probabilities of the true labels given the features, (n, steps, classes), for an audit.

        And which rows, (n,), are predicted out of fold; None where the method does not cross-fit.
        """
        return np.log(predict_scaled([self], features, mask)[0].clip(1e-30)), None

    def _align(
        self, features: np.ndarray, mask: np.ndarray, recorded: LabelCodes
    ) -> tuple[np.ndarray, int | np.ndarray]:
        """The labels of an audit, moved to the signals where the fit did so, and how early they seem as usual."""
        return recorded.labels, 0

    def _find_sources(self, labels: np.ndarray, groups: ArrayLike | None) -> np.ndarray | None:
        """The source of the labels of each sequence, (n, annotators), as an index into Q; None where all share one."""
        sources, shared = Sources.of(self.sources_), self.noise_.annotators == 1
        if shared and groups is None:
            return None
        indices = sources.columns(groups, len(labels))
        if shared:
            return None
        if labels.shape[2] != sources.annotators:
            raise ValueError(
                f"y must hold labels of the {sources.annotators} annotators of fit, each with their own Q: shape "
                f"{(*labels.shape[:2], sources.annotators)}, -1 or None where one is missing. Got {labels.shape[2]}."
            )
        return indices

    def _may_name_labels(self) -> bool | np.ndarray:
        """Whether an audit may flag and correct single labels; by recorded and likeliest class where that differs."""
        return True

    def _false_alarms(self) -> np.ndarray | None:
        """Expected shares of false alarms among flags (`LabelAudit.false_alarms`); None where they are not known."""
        return None

    def _persistence(self) -> Chain:
        """The hidden Markov model of the true labels, for an audit; here steps are independent."""
        from labeltide.inference.audit import no_persistence

        return no_persistence(len(self.classes_))

    def _learned(self) -> dict[str, Any]:
        """Fitted attributes beyond those that all methods have, as plain JSON values."""
        return {}

    def _take_learned(self, learned: Any) -> None:
        """Check and restore what `_learned` gave."""
        if learned != {}:
            raise ValueError(f"it holds more than a {type(self).__name__} learns.")

    def _check_features(self, X: ArrayLike, lengths: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
        """Features as the networks take them, standardised and zero on padding, and lengths."""
        features, counts = _validation.check_features(X, lengths)
        if features.shape[2] != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} features, as in fit. Got {features.shape[2]}.")
        mask = _validation.steps_mask(counts, features.shape[1])
        return scale_features(X, features, mask, self.scaling_), counts

    def __dir__(self) -> list[str]:
        """Names of attributes. scikit-learn's own asks for each value, which would compute bands and tests."""
        lazy = {name for cls in type(self).__mro__ for name, value in vars(cls).items() if isinstance(value, property)}
        return [name for name in object.__dir__(self) if name in lazy or hasattr(self, name)]

    def _html_repr(self) -> str:
        """scikit-learn's diagram without its script, and once fitted what was learned."""
        diagram = COPY.sub("", SCRIPT.sub("", estimator_html_repr(self)))
        if not hasattr(self, "noise_matrices_"):
            return diagram
        from labeltide.inference.display import estimator_html

        return diagram + estimator_html(self)

    def _repr_html_inner(self) -> str:
        """What scikit-learn's `_repr_html_` gives; before 1.7 it did not ask `_html_repr`."""
        return self._html_repr()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        plain = {"text/plain": repr(self)}
        return plain | {"text/html": self._html_repr()} if get_config()["display"] == "diagram" else plain

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.target_tags.two_d_labels = tags.target_tags.multi_output = True
        return tags


class Stream:
    """Follows one sequence, or several side by side, and predicts every step as it comes.

    The probabilities are those that `predict_proba` gives for whole sequences.

    Attributes
    ----------
    n_steps : int
        Steps seen so far.
    """

    def __init__(self, estimator: NoisyLabelClassifier) -> None:
        if not estimator.model_.is_causal:
            raise ValueError(
                "stream needs a model that judges a step by itself and earlier steps only. This one looks ahead: "
                "fit it with causal=True, or give whole sequences to predict_proba."
            )
        self.estimator, self.model = estimator, estimator.model_
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next step is the first of new sequences."""
        self.n_steps = 0
        self._state: torch.Tensor | None = None

    def push(self, features: ArrayLike) -> np.ndarray:
        """The probability of each true label at the next step.

        Parameters
        ----------
        features : array of shape (features,), or (streams, features) for several sequences at once

        Returns
        -------
        array of shape (classes,) or (streams, classes)
        """
        shape = np.shape(features)
        if len(shape) not in (1, 2) or 0 in shape:
            raise ValueError(
                "push takes one step: shape (features,), or (streams, features) for several sequences at once. "
                f"Got shape {shape}."
            )
        values, _ = self.estimator._check_features(np.reshape(features, (-1, 1, shape[-1])), None)
        if self._state is None:
            self.n_streams, self._state = len(values), self.model.start(len(values))
        if len(values) != self.n_streams:
            raise ValueError(
                f"This stream follows {self.n_streams} sequences, one row of features for each. "
                f"Got {len(values)}. Call reset, or start another stream."
            )
        logits, self._state = self.model.advance(torch.from_numpy(values[:, 0]), self._state)
        self.n_steps += 1
        probabilities = logits.log_softmax(-1).exp().mean(0).double().numpy()  # over the networks of an ensemble
        return probabilities if len(shape) == 2 else probabilities[0]
