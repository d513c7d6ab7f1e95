"""The simulation of equal systems: these fail if trials are in the wrong third, or in none."""

import json

import pytest
from scripts import load_scripts

(rejections,) = load_scripts("studies", "rejections")


def test_comparisons_are_sorted_by_how_far_their_seeds_lie_apart():
    agree = [(0.1 + i / 1e3, 0.01) for i in range(10)]
    middle = [(0.5 + i / 1e3, 0.2) for i in range(10)]
    apart = [(0.9 + i / 1e3, 0.01 if i < 5 else 0.9) for i in range(11)]
    trials = [
        rejections.Trial(tuple(some), rejected, found, gain)
        for some, rejected, found, gain in (
            (apart, True, False, 1.0), (agree, False, False, 2.0), (middle, True, True, 6.0)
        )
    ]  # fmt: skip
    found = rejections.rejections(trials)
    assert found["seeds agree"] == 1
    assert found["middle"] == 0
    assert found["seeds lie apart"] == pytest.approx(5 / 11)
    assert found["all"] == pytest.approx(15 / 31)
    assert found["any, Holm"] == pytest.approx(2 / 3)
    assert found["found, Holm"] == pytest.approx(1 / 3)
    assert found["gain"] == 3


def test_every_setting_has_its_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rejections, "SENTENCES", 20)
    monkeypatch.setattr(rejections, "RESAMPLES", 99)
    rejections.main(["--trials", "2", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [(row["seeds"], row["seed_spread"]) for row in rows] == rejections.SETTINGS
    assert (tmp_path / "README.md").read_text(encoding="utf-8").count("\n| ") == 1 + 1 + len(rows)
    with pytest.raises(SystemExit):
        rejections.main(["--trials", "0"])
    assert "--trials must be at least 1" in capsys.readouterr().err
