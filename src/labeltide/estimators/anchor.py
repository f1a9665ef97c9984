"""Forward correction with one Q from anchor points (Patrini and others 2017)."""

from labeltide.estimators.anchors import AnchorPointClassifier


class AnchorClassifier(AnchorPointClassifier):
    """Estimate one Q for all times from anchor points, then train with it.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.AnchorClassifier(warm_up=2, epochs=2, random_state=0).fit(data.features, data.labels)
    >>> bool((clf.noise_at([0.0]) == clf.noise_at([1.0])).all())
    True
    """

    name = "anchor"
    is_temporal = False
