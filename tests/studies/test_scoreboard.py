"""The page of libraries on the conformance vectors is that of its files.

These fail if the page or a count was changed by hand, or a failure has no reason.
"""

import json

import pytest
from scripts import load_scripts

(scoreboard,) = load_scripts("studies", "scoreboard")
FOUND = {path.stem: path for path in (scoreboard.HOME / "found").glob("*.json")}


def test_the_page_is_that_of_the_results(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    before = (scoreboard.HOME / "README.md").read_text("utf-8")
    written = {}
    monkeypatch.setattr(
        scoreboard, "write_bytes", lambda path, data: written.update({path.name: data})
    )
    monkeypatch.setattr(scoreboard, "write_pictures", lambda folder, pictures: None)
    scoreboard.page()
    assert written["README.md"].decode() == before


def test_ten_libraries_were_asked_and_ropewalk_is_right():
    assert set(FOUND) == set(scoreboard.LIBRARIES)
    assert len(FOUND) > 10
    (right,) = {r["result"] for r in json.loads(FOUND["ropewalk"].read_text("utf-8"))["records"]}
    assert right == "valid"


def test_a_failure_without_a_reason_is_refused():
    record = {"area": "far", "name": "new", "level": "rotate", "result": "invalid", "trap": None}
    with pytest.raises(ValueError, match="each failure must have a reason"):
        scoreboard.explained("litgpt", [record], [])
