import csv
import io
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from labeltide._files import csv_text
from labeltide.auditing import page as audit_page
from test_csv_files import TEXTS


def shown(page):
    """The rows of the table of issues, as lists of texts."""
    return page.eval_on_selector_all(
        "#issues-table tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.innerText.trim()))"
    )


def window(page):
    """The share of the sequence that the timeline shows."""
    page.wait_for_timeout(60)
    box, whole = (page.locator(f"#timeline rect.{name}") for name in ("window", "overview"))
    return float(box.get_attribute("width")) / float(whole.get_attribute("width"))


def left(page):
    page.wait_for_timeout(60)
    return float(page.locator("#timeline rect.window").get_attribute("x"))


def downloaded(page):
    with page.expect_download(timeout=60_000) as found:  # a busy machine takes its time
        page.click("#download")
    text = found.value.path().read_text(encoding="utf-8-sig")
    assert found.value.suggested_filename == "issues-selection.csv"
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("name", ["plain", "hostile", "quiet"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_loads_without_a_complaint_or_a_request(visit, name, scheme):
    page = visit(name, color_scheme=scheme).page
    assert page.locator("h1").inner_text() == "wearables.csv"
    assert page.locator("#timeline svg").count() == 1
    assert len(shown(page)) > 0


def test_issues_are_filtered_by_class_annotator_and_confidence(visit, pages):
    page = visit().page
    issues = pq.read_table(pages["plain"].parent / "issues.parquet").to_pylist()
    page.select_option("#filter-recorded", label="walk")
    page.select_option("#filter-annotator", label="Ben")
    page.locator("#filter-sure").fill("90")
    wanted = [
        each
        for each in issues
        if each["recorded"] == "walk" and each["annotator"] == "Ben" and round(each["probability_right"], 4) <= 0.1
    ]
    assert page.locator("#issues-count").inner_text() == f"{len(wanted)} of {len(issues):,} labels chosen"
    rows = shown(page)
    assert len(rows) == min(50, len(wanted))
    assert {row[1] for row in rows} == {"walk"}
    assert {row[6] for row in rows} == {"Ben"}
    assert [int(row[0].replace(",", "")) for row in rows] == [each["rank"] for each in wanted[:50]]
    page.fill("#filter-sequence", "no such sequence")
    assert shown(page) == []
    assert page.locator("#download").is_disabled()
    page.click("button[type=reset]")
    page.wait_for_timeout(50)
    assert len(shown(page)) == 50


def test_pages_of_issues_turn(visit):
    page = visit().page
    first = shown(page)[0][0]
    page.click("[data-page=on]")
    assert shown(page)[0][0] == "51" != first
    page.click("[data-page=last]")
    assert page.locator("[data-page=on]").is_disabled()
    page.click("[data-page=first]")
    assert shown(page)[0][0] == first


def test_the_selection_is_downloaded_as_it_is_chosen(visit, pages):
    page = visit().page
    page.select_option("#filter-recorded", label="sleep")
    rows = downloaded(page)
    issues = [
        each
        for each in pq.read_table(pages["plain"].parent / "issues.parquet").to_pylist()
        if each["recorded"] == "sleep"
    ]
    assert [int(row["row"]) for row in rows] == [each["row"] for each in issues]
    assert [row["time"] for row in rows] == [each["time"] for each in issues]
    assert {row["recorded"] for row in rows} == {"sleep"}


def test_no_downloaded_cell_is_a_formula_and_numbers_stay_numbers(visit):
    rows = downloaded(visit("hostile").page)
    texts = {value for row in rows for value in row.values()}
    assert any(text.startswith("'=HYPERLINK") for text in texts)
    assert not any(re.match(r"\s*[=+@\t\r-]", text) for text in texts)
    assert all(0 <= float(row["probability_right"]) <= 1 for row in rows)


def test_the_download_guards_what_our_files_guard(visit):
    script = (Path(audit_page.__file__).parent / "templates" / "audit_issues.js").read_text()
    guard = script[script.index("const FORMULA") : script.index("function csv(rows)")]
    cells = visit("hostile").page.evaluate(f"texts => {{ {guard} return texts.map(csvCell); }}", TEXTS)
    assert cells == [csv_text([[text]]).removesuffix("\n") for text in TEXTS]


def test_timelines_zoom_and_scroll_by_button(visit):
    page = visit().page
    assert window(page) == pytest.approx(1, abs=0.01)
    page.click("[data-do=in]")
    page.click("[data-do=in]")
    assert window(page) == pytest.approx(0.25, abs=0.01)
    before = left(page)
    page.click("[data-do=right]")
    assert left(page) > before
    page.click("[data-do=all]")
    assert window(page) == pytest.approx(1, abs=0.01)
    page.click("[data-do=next]")
    assert "to check" in page.locator("#timeline-readout").inner_text()


def test_timelines_zoom_and_scroll_by_keyboard(visit):
    page = visit().page
    page.focus("#timeline")
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert window(page) == pytest.approx(0.25, abs=0.01)
    before = left(page)
    page.keyboard.press("ArrowLeft")
    assert left(page) < before
    page.keyboard.press("n")
    readout = page.locator("#timeline-readout").inner_text()
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator("#timeline-readout").inner_text() != readout
    page.keyboard.press("0")
    assert window(page) == pytest.approx(1, abs=0.01)


def test_timelines_zoom_and_scroll_by_mouse_and_leave_the_page_alone_until_clicked(visit):
    page = visit().page
    page.locator("#timeline").scroll_into_view_if_needed()
    area = page.locator("#timeline").bounding_box()
    x, y = area["x"] + area["width"] / 2, area["y"] + 60
    page.mouse.move(x, y)
    scrolled = page.evaluate("scrollY")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(150)
    assert window(page) == pytest.approx(1, abs=0.01)
    assert page.evaluate("scrollY") < scrolled
    page.locator("#timeline").scroll_into_view_if_needed()
    area = page.locator("#timeline").bounding_box()
    y = area["y"] + 60
    page.mouse.click(x, y)
    page.mouse.wheel(0, -300)
    assert window(page) < 0.6
    before = left(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 200, y, steps=4)
    page.mouse.up()
    assert left(page) > before


def test_pointing_at_a_curve_reads_it(visit, pages):
    page = visit().page
    curve = json.loads((pages["plain"].parent / "audit.json").read_text())["noise"]
    page.locator("#clock .panel.wide svg").scroll_into_view_if_needed()
    area = page.locator("#clock .panel.wide svg").bounding_box()
    page.mouse.move(area["x"] + area["width"] * (44 + 0.5 * (900 - 44 - 18)) / 900, area["y"] + 80)
    text = page.locator("#clock .panel.wide .reading text").text_content().replace("\u00a0", " ")
    at = curve["clock"].index(12.0)
    found = [float(number) for number in re.fullmatch(r"12:00: ([\d.]+) % \(([\d.]+) to ([\d.]+) %\)", text).groups()]
    wanted = [100 * curve["curves"][0][name][at] for name in ("rate", "rate_lower", "rate_upper")]
    assert found == pytest.approx(wanted, abs=0.15)
    page.mouse.move(2, 2)
    assert page.locator(".reading").count() == 0


def test_an_issue_is_shown_in_its_timeline(visit):
    page = visit().page
    row = page.locator("#issues-table tbody tr", has=page.locator("button")).first
    cells = row.locator("td").all_inner_texts()
    row.locator("button").click()
    readout = page.locator("#timeline-readout")
    assert re.sub("[\u2068\u2069]", "", readout.inner_text()).startswith(cells[5])
    assert "to check" in readout.inner_text()
    assert page.evaluate("document.activeElement.id") == "timeline"


def test_hostile_names_stay_text(visit):
    page = visit("hostile").page
    assert page.title() == "wearables.csv: label audit"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    options = page.locator("#filter-recorded option").all_inner_texts()
    assert "<script>document.title = 'taken'</script>" in options
    for option in page.locator("#timeline-choice option").all():
        page.select_option("#timeline-choice", value=option.get_attribute("value"))
        page.click("[data-do=next]")
    assert page.title() == "wearables.csv: label audit"


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_screen_never_scrolls_sideways(visit, name, width):
    page = visit(name, width=width, height=800).page
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".panel.narrow").first.is_visible() == (width < 740)


def test_dark_mode_is_dark_and_its_text_is_readable(visit):
    read = "getComputedStyle(document.querySelector(arguments_[0]))[arguments_[1]]".replace("arguments_", "a")
    for scheme in ("light", "dark"):
        page = visit(color_scheme=scheme).page
        ground = brightness(page.evaluate(f"a => {read}", ["body", "backgroundColor"]))
        assert (ground < 0.1) == (scheme == "dark")
        for index in ("body", ".lead", ".card h3", "a", "#clock svg text", "button.main"):
            own = "fill" if "svg" in index else "color"
            behind = page.evaluate(f"a => {read}", [".card" if "card" in index else "body", "backgroundColor"])
            behind = page.evaluate(f"a => {read}", ["button.main", "backgroundColor"]) if "button" in index else behind
            assert contrast(page.evaluate(f"a => {read}", [index, own]), behind) >= 4.5, (scheme, index)


def brightness(colour):
    """Relative luminance as accessibility guidelines define it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def test_everything_is_reached_by_keyboard_in_a_visible_way(visit):
    page = visit().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.do || ''"))
    assert {
        "timeline-choice",
        "in",
        "out",
        "left",
        "right",
        "next",
        "timeline",
        "filter-recorded",
        "filter-sure",
        "download",
    } <= reached


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_page_prints_to_a4(visit, name):
    page = visit(name, color_scheme="dark").page
    printed = page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    boxes = set(re.findall(rb"/MediaBox \[([\d. ]+)\]", printed))
    assert all([round(float(end)) for end in box.split()] in ([0, 0, 595, 842], [0, 0, 596, 842]) for box in boxes)
    assert boxes
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#filters").is_visible()
    assert page.locator(".reason summary").first.is_visible()


def test_without_scripts_the_verdict_and_the_curves_are_there(visit):
    page = visit(java_script_enabled=False).page
    assert page.locator(".headline").is_visible()
    assert page.locator("#clock svg").first.is_visible()
    assert "need JavaScript" in page.locator("noscript").inner_text()


def test_fifty_labels_to_check_take_less_than_2500_pixels(visit):
    """They took 7,000 pixels when reasons were wrapped."""
    page = visit().page
    assert len(shown(page)) == 50
    assert page.locator("#issues-table").bounding_box()["height"] < 2500
    reason = page.locator(".folded").first
    reason.locator("summary").click()
    assert reason.evaluate("each => each.open")


def test_labels_to_check_are_cards_on_a_phone(visit):
    page = visit(width=390, height=800).page
    cards = page.locator("#issues-table tbody tr")
    assert cards.count() == 25
    assert page.locator("#issues-table").bounding_box()["height"] < 2500
    box = cards.first.bounding_box()
    assert box["width"] <= 390
    assert page.locator("#issues-table tbody tr td.reason").first.bounding_box()["x"] < 390


def test_every_stretch_of_the_plan_is_shown_in_a_timeline(visit):
    page = visit().page
    buttons = page.locator("#plan button[data-stretch]")
    assert buttons.count() == page.locator("#plan tbody tr").count() == 5
    for index in range(5):
        first = page.locator("#plan tbody tr").nth(index).locator("td.time").first.inner_text()
        buttons.nth(index).click()
        page.wait_for_timeout(60)
        assert page.locator("#timeline rect.stretch").count() == 1
        assert first in re.sub("[\u2068\u2069]", "", page.locator("#timeline-readout").inner_text())


def test_rows_are_numbered_as_in_a_spreadsheet(visit, pages):
    page = visit().page
    issues = pq.read_table(pages["plain"].parent / "issues.parquet").to_pylist()
    numbers = page.locator("#issues-table td.row").all_inner_texts()
    assert [int(text.replace(",", "")) for text in numbers] == [each["row"] + 2 for each in issues[:50]]
    assert "the heading is row 1" in page.locator("#issues").inner_text()
