"""The page of libraries on the conformance vectors is that of its files.

These fail if the page or a count was changed by hand, or a failure has no reason.
"""

import json

import pytest
from scripts import load_scripts

(scoreboard,) = load_scripts("studies", "scoreboard")
FOUND = {path.stem: path for path in (scoreboard.HOME / "found").glob("*.json")}


def test_the_pages_and_pictures_are_those_of_the_results(monkeypatch):
    pytest.importorskip("matplotlib", "3.11", reason="older ones draw the pictures otherwise")
    written = {}
    monkeypatch.setattr(scoreboard, "write_bytes", written.__setitem__)
    scoreboard.page()
    assert written == {path: path.read_bytes() for path in written}
    assert {scoreboard.ROOT / "README.md", scoreboard.HOME / "README.md"} < set(written)


def test_ten_libraries_were_asked_and_ropewalk_is_right():
    assert set(FOUND) == set(scoreboard.LIBRARIES)
    assert len(FOUND) > 10
    (right,) = {r["result"] for r in json.loads(FOUND["ropewalk"].read_text("utf-8"))["records"]}
    assert right == "valid"


def test_a_failure_without_a_reason_is_refused():
    record = {"area": "far", "name": "new", "level": "rotate", "result": "invalid", "trap": None}
    with pytest.raises(ValueError, match="each failure must have a reason"):
        scoreboard.explained("litgpt", [record], [])
