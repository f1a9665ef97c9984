"""The paper's Plug-In method: anchor points at every step."""

from labeltide.estimators.anchors import AnchorPointClassifier


class PlugInClassifier(AnchorPointClassifier):
    """Estimate Q at every moment of the clock from that moment's anchor points, then train with it."""

    name = "plugin"
    is_temporal = True
