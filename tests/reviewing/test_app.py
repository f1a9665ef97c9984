from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from labeltide.reviewing import app as app_module
from reviewing.fake_review import TOKEN, change_audit, open_page, write_review


def test_an_item_shows_signals_labels_and_what_the_model_thinks(opened):
    session, page = opened()
    position = next(item.position for item in session.queue if item.kind == "suspect")
    view = page.get(f"item/{position}")
    assert view["status"] == 200
    window = view["window"]
    n = len(window["times"])
    assert {len(track["recorded"]) for track in window["tracks"]} == {n}
    assert {len(signal["values"]) for signal in window["signals"]} == {n}
    assert [track["annotator"] for track in window["tracks"]] == ["Ada", "Ben"]
    assert view["stretch"][0] <= view["target"] <= view["stretch"][1]
    assert view["model"]["kind"] == "suspect"
    assert view["model"]["right"] < 0.5
    assert view["model"]["reason"]


def test_signals_are_those_of_the_table_rows_shown(opened):
    session, page = opened()
    view = page.get("item/0")
    own = next(track for track in view["window"]["tracks"] if track["is_own"])
    row = own["rows"][view["target"]]
    assert row == session.queue[0].target
    expected = session.signals.read(np.array([row]))["acc_x"][0]
    first_of_step = view["window"]["signals"][0]["values"][view["target"]]
    if view["annotator"] == "Ada":  # whose row is the first of each step
        assert first_of_step == pytest.approx(expected, rel=1e-4)


def test_a_decision_is_kept_with_all_that_belongs_to_it(opened):
    session, page = opened()
    answer = page.decide(3, "label", **{"class": 1, "comment": "<b>late</b>"})
    assert answer["status"] == 200
    assert answer["progress"]["done"] == 1
    assert 3 not in answer["progress"]["open"]
    (kept,) = session.store.all()
    item = session.queue[3]
    assert (kept.item_id, kept.audit, kept.reviewer) == (item.item_id, session.audit.identity, "Ada")
    assert (kept.label, kept.comment, kept.probability) == ("walk", "<b>late</b>", item.probability)
    assert (kept.first_row, kept.last_row) == (item.target, item.target)
    shown = json.loads(kept.shown)
    assert shown["blind"] is False
    assert shown["recorded"] in session.audit.classes
    assert 0 <= shown["quality"] <= 1


def test_a_stretch_is_kept_whole(opened):
    session, page = opened()
    item = next(item for item in session.queue if item.last_row > item.first_row)
    page.decide(item.position, unit="stretch")
    (kept,) = session.store.all()
    assert (kept.first_row, kept.last_row) == (item.first_row, item.last_row)


def test_a_step_beside_the_mark_is_an_item_of_its_own(opened):
    session, page = opened()
    view = page.get("item/0")
    own = next(track for track in view["window"]["tracks"] if track["is_own"])
    other = next(row for row in own["rows"] if row >= 0 and row != session.queue[0].target)
    answer = page.decide(0, "label", **{"class": 0, "row": other})
    assert answer["progress"]["done"] == 0
    (kept,) = session.store.all()
    assert (kept.first_row, kept.last_row, kept.probability) == (other, other, None)


def test_undo_goes_back_to_the_item(opened):
    _, page = opened()
    page.decide(0)
    page.decide(1)
    answer = page.post("undo")
    assert answer["position"] == 1
    assert answer["progress"]["next"] == 1
    assert page.post("undo")["position"] == 0
    assert page.post("undo")["undone"] is None


def test_reviewers_who_differ_are_shown_and_counted_once_both_have_decided(opened):
    session, page = opened()
    page.decide(0, "keep")
    page.reviewer = "Ben"
    assert page.get("item/0")["others"] == []
    answer = page.decide(0, "label", **{"class": (page.get("item/0")["recorded"] + 1) % 3})
    assert [other["reviewer"] for other in answer["others"]] == ["Ada"]
    assert answer["is_disputed"]
    assert answer["progress"]["disputed"] == [0]
    assert answer["progress"]["others"] == [{"reviewer": "Ada", "done": 1}]
    assert len(session.store.standing()) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"action": "label", "class": 99}, "There is no class number 99"),
        ({"action": "label", "class": -1}, "There is no class number -1"),
        ({"action": "label", "class": True}, "There is no class number True"),
        ({"action": "label", "class": "walk"}, "There is no class number 'walk'"),
        ({"action": "burn"}, "Unknown action 'burn'"),
        ({"unit": "all"}, "Unknown unit 'all'"),
        ({"row": -5}, "A step must be a table row"),
        ({"row": 10**12}, "A step must be a table row"),
        ({"position": 10_000}, "position must be a whole number"),
        ({"position": None}, "position must be a whole number"),
        ({"reviewer": " "}, "must name its reviewer"),
        ({"reviewer": "x" * 300}, "at most 200 characters"),
        ({"comment": "x" * 10_001}, "at most 10000 characters"),
        ({"comment": 7}, "The comment must be a text"),
        ({"request": None}, "The request must be a text"),
        ({"request": ""}, "The request must be a text"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused_in_a_sentence(opened, body, words):
    session, page = opened()
    answer = page.decide(body.pop("position", 0), body.pop("action", "keep"), **body)
    assert answer["status"] == 400
    assert words in answer["error"]
    assert session.store.all() == []


def test_a_refused_decision_leaves_no_item_behind(opened):
    session, page = opened()
    view = page.get("item/0")
    own = next(track for track in view["window"]["tracks"] if track["is_own"])
    other = next(row for row in own["rows"] if row >= 0 and row != session.queue[0].target)
    before = session.store.items()
    assert page.decide(0, row=other, comment="x" * 10_001)["status"] == 400
    assert session.store.items() == before


def test_a_request_that_was_kept_is_not_taken_for_another_decision(opened):
    session, page = opened()
    first = {"request": "the same"}
    assert page.decide(0, "keep", **first)["status"] == 200
    assert page.decide(0, "keep", **first)["status"] == 200  # sent again, because the answer was lost
    answer = page.decide(1, "keep", **first)
    assert answer["status"] == 400
    assert "was kept before for another decision" in answer["error"]
    assert len(session.store.all()) == 1


@pytest.mark.parametrize("position", ["9" * 5000, "-1", "1e3", "٣", "x"])
def test_an_item_that_cannot_be_is_refused_in_a_sentence(opened, position):
    _, page = opened()
    answer = page.get(f"item/{position}")
    assert answer["status"] == 400
    assert answer["error"].startswith("position must be a whole number")


@pytest.mark.parametrize("context", ["9" * 5000, "60.5", "NaN", "", "6_0"])
def test_a_context_that_is_no_number_is_refused_in_a_sentence(opened, context):
    _, page = opened()
    answer = page.get("item/0", context=context)
    assert answer["status"] == 400
    assert answer["error"].startswith("context must be a whole number")
    assert len(answer["error"]) < 200


def test_an_address_without_a_page_is_refused_in_a_sentence(opened):
    _, page = opened()
    assert page.get("nothing") == {"status": 404, "error": "There is nothing at this address."}
    assert page.get("decide") == {"status": 405, "error": "This address does not answer such a request."}


def test_a_file_that_cannot_be_written_or_read_is_a_sentence(opened, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    _, page = opened()
    monkeypatch.setattr(app_module, "write_json", refuse)
    answer = page.get("summary")
    assert answer["status"] == 400
    assert "No space left on device" in answer["error"]
    assert "Errno" not in answer["error"]


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 50_000, "null", '{"position": NaN}'])
def test_a_body_that_is_no_decision_is_refused(opened, content):
    session, page = opened()
    answer = page.client.post(f"/{TOKEN}/api/decide", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert session.store.all() == []


@pytest.mark.parametrize("content", [b"\xff\xfe", "1" * 6000, '{"position": ' + "1" * 6000 + "}", '"text"'])
def test_a_body_that_json_refuses_is_told_in_our_words(opened, content):
    _, page = opened()
    answer = page.client.post(f"/{TOKEN}/api/undo", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("A request must be a JSON object")


@pytest.mark.parametrize("body", [{"unit": "y" * 50_000}, {"action": "x" * 50_000}, {"position": 10**4000}])
def test_a_refusal_does_not_repeat_all_that_was_sent(opened, body):
    _, page = opened()
    answer = page.decide(body.pop("position", 0), body.pop("action", "keep"), **body)
    assert answer["status"] == 400
    assert len(answer["error"]) <= 500


@pytest.mark.parametrize("content", [None, b"x" * 50])
def test_labels_that_go_while_a_review_is_open_are_told_in_our_words(opened, folder, content):
    _, page = opened()
    (folder / "labels.parquet").unlink()
    if content is not None:
        (folder / "labels.parquet").write_bytes(content)
    answer = page.get("item/0")
    assert answer["status"] == 400
    assert "errno" not in answer["error"].lower()
    assert "magic" not in answer["error"]
    assert "cannot be read or written" in answer["error"] or "is damaged" in answer["error"]


def test_blind_items_tell_nothing_of_the_model_or_of_their_kind(opened):
    session, page = opened(is_blind=True)
    kinds: dict[str, set[str]] = {"suspect": set(), "sample": set()}
    for item in session.queue:
        view = page.get(f"item/{item.position}")
        assert view["model"] is None
        assert view["unit"] == "step"
        assert "suggested" not in view["window"]
        assert all("right" not in track for track in view["window"]["tracks"])
        text = json.dumps(view)
        assert item.item_id not in text
        assert "probability" not in text
        assert "kind" not in text
        kinds[item.kind].add(str(sorted(view)) + str(sorted(view["window"])))
    assert kinds["suspect"] == kinds["sample"]


def test_blind_answers_do_not_tell_which_items_are_of_the_sample(opened):
    session, page = opened(is_blind=True)
    for item in session.queue[:10]:
        answer = page.decide(item.position)
        assert "probability" not in json.dumps(answer)
        (kept,) = session.store.all()[-1:]
        assert kept.first_row == kept.last_row
    found = page.get("summary")
    assert set(found) == {"status", "blind", "items", "decisions", "disputed"}


def test_a_blind_stretch_does_not_depend_on_the_kind(opened):
    session, page = opened(is_blind=True)
    for item in session.queue:
        view = page.get(f"item/{item.position}")
        own = next(track for track in view["window"]["tracks"] if track["is_own"])
        first, last = view["stretch"]
        run = own["recorded"][first : last + 1]
        assert {code for code in run if own["rows"][first] >= 0} <= {view["recorded"], -1}


def test_ten_thousand_classes_can_be_chosen(tmp_path):
    folder = write_review(tmp_path / "many", sequences=3, steps=40)
    change_audit(folder, classes=["rest", "walk", "sleep", *(f"class {number}" for number in range(3, 10_000))])
    session, page = open_page(folder, items=3, sample=3)
    with session.store:
        assert len(page.get("session")["classes"]) == 10_000
        page.decide(0, "label", **{"class": 9_999})
        assert session.store.all()[0].label == "class 9999"


def test_only_files_of_the_page_are_served(opened):
    _, page = opened()
    for name in ("review.js", "review.css", "page.css", "icon.svg"):
        assert page.client.get(f"/{TOKEN}/static/{name}").status_code == 200
    for name in ("../app.py", "%2e%2e%2fapp.py", "..%2f..%2fdecisions.sqlite", "nothing.js", "app.py"):
        assert page.client.get(f"/{TOKEN}/static/{name}").status_code == 404


def test_the_page_names_no_other_address():
    for path in Path(app_module.PAGE).iterdir():
        text = path.read_text()
        assert "https://" not in text
        assert text.count("http://") == (1 if path.suffix == ".svg" else 0)  # the name of the format
        assert "innerHTML" not in text
        assert " style=" not in text
        assert " onclick" not in text
