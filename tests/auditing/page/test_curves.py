import json
import re

import numpy as np
import pytest

from auditing.page.fake import write_audit
from labeltide.auditing.page.draw import PAIRS, Drawer, top_of


@pytest.fixture
def audit(tmp_path):
    return json.loads((write_audit(tmp_path, sequences=3, steps=40) / "audit.json").read_text())


def heights(drawing, look):
    path = re.search(rf'class="{look}" d="([^"]*)"', drawing)[1]
    return [float(number) for number in re.findall(r"[\d.]+ ([\d.]+)", path)]


def test_bands_hold_their_line_and_the_outer_the_inner(audit):
    for panel in Drawer(audit).by_class():
        line, near, far = (heights(panel.drawing, look) for look in ("line", "band near", "band far"))
        assert min(far) <= min(near) <= min(line)
        assert max(far) >= max(near) >= max(line)


def test_classes_share_one_scale(audit):
    drawer = Drawer(audit)
    marks = {tuple(re.findall(r">([\d.]+ %)</text>", panel.drawing)) for panel in drawer.by_class()}
    assert len(marks) == 1


def test_moments_without_an_estimate_leave_a_gap_in_line_and_band(audit):
    for name in ("rate", "rate_lower", "rate_upper"):
        audit["noise"]["curves"][0][name][10:20] = [None] * 10
    drawing = Drawer(audit).overall()[0].drawing
    assert re.search(r'class="line" d="([^"]*)"', drawing)[1].count("M") == 2
    assert re.search(r'class="band near" d="([^"]*)"', drawing)[1].count("Z") == 2
    assert "nan" not in drawing


def test_the_worst_moment_is_marked_only_where_the_change_is_sure(audit):
    assert "worst: 48" in Drawer(audit).overall()[0].drawing
    audit["temporality"]["p_value"] = 0.2
    assert "worst" not in re.sub(r'aria-label="[^"]*"', "", Drawer(audit).overall()[0].drawing)


def test_many_classes_show_their_largest_mistakes(tmp_path):
    folder = write_audit(tmp_path, sequences=3, steps=40, classes=tuple(f"class {n}" for n in range(9)))
    found = Drawer(json.loads((folder / "audit.json").read_text())).multiples()[0]
    assert not found["grid"]
    assert len(found["pairs"]) == PAIRS
    assert all(true != recorded for true, recorded, _ in found["pairs"])


def test_the_axis_of_shares_is_round_and_never_past_the_whole():
    assert top_of(np.array([0.31])) == pytest.approx(0.4)
    assert top_of(np.array([0.001])) == pytest.approx(0.05)
    assert top_of(np.array([0.99])) == 1.0
    assert top_of(np.array([np.nan])) == pytest.approx(0.05)
