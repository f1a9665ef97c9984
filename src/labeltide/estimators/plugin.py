"""The paper's Plug-In: forward correction with Q(t) from the anchor points (Patrini and others 2017) of a step."""

from labeltide.estimators.anchors import AnchorPointClassifier


class PlugInClassifier(AnchorPointClassifier):
    """Estimate Q at every moment of the clock from that moment's anchor points, then train with it.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.PlugInClassifier(warm_up=2, epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_matrices_.shape  # a Q for each moment
    (10, 2, 2)
    """

    name = "plugin"
    is_temporal = True
