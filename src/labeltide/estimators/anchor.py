"""Forward correction with one Q from anchor points (Patrini and others 2017)."""

from labeltide.estimators.anchors import AnchorPointClassifier


class AnchorClassifier(AnchorPointClassifier):
    """Estimate one Q for all times from anchor points, then train with it."""

    name = "anchor"
    is_temporal = False
