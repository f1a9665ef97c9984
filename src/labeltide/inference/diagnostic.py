"""What a check of the estimated noise says."""

from __future__ import annotations

from dataclasses import dataclass


class NoiseWarning(UserWarning):
    """A diagnostic of the estimated noise failed.

    Examples
    --------
    >>> import labeltide as lt
    >>> import warnings
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", lt.NoiseWarning)
    ...     estimate = clf.noise_estimate_  # else it says what twenty short sequences cannot tell
    """


@dataclass(frozen=True)
class Diagnostic:
    """The result of one check.

    Attributes
    ----------
    name : str
    is_warning : bool
    sentence, advice : str
    denies : bool
        Whether the warning means that the share of wrong labels cannot be told at all.
    """

    name: str
    is_warning: bool
    sentence: str
    advice: str
    denies: bool = False
