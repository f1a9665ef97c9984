"""The paper's Plug-In: forward correction with Q(t) from the anchor points (Patrini and others 2017) of a step."""

from labeltide.estimators.anchors import AnchorPointClassifier


class PlugInClassifier(AnchorPointClassifier):
    """Estimate Q at every moment of the clock from that moment's anchor points, then train with it."""

    name = "plugin"
    is_temporal = True
