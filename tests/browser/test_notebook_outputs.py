"""Outputs of a notebook in a static page: all are drawn, without a request, and fit a phone."""

import pytest

from notebook_outputs import make_outputs, static_page


@pytest.mark.parametrize("width", [1000, 390])
def test_a_static_export_shows_every_result_offline(browser, tmp_path, width):
    outputs = make_outputs(tmp_path)
    path = tmp_path / "export.html"
    path.write_text(static_page(outputs.values()))
    page, requests = browser.new_page(viewport={"width": width, "height": 900}), []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    boxes = [page.locator(f"#cell-{index}").bounding_box() for index in range(len(outputs))]
    page.close()
    assert requests == [path.as_uri()]
    assert min(box["height"] for box in boxes) > 20  # a title alone is one line
    assert max(box["x"] + box["width"] for box in boxes) <= width
