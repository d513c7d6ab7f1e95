"""A handful of kills of parent, cell and both, at random moments, of a run of a few seconds.

Fails if what a run ends in differs in one bit from an uninterrupted run, or if a ``.part`` file, a
lock or a process is left. ``kills.py`` beside this file makes as many kills as one likes.
"""

import sys

import pytest
from scripts import load_scripts

(kills,) = load_scripts("tests/fuzz", "kills")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="cells are found in /proc")
def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path):
    wanted, seconds = kills.uninterrupted(tmp_path)
    counts = kills.trial(tmp_path, kills=4, seed=0, wanted=wanted, seconds=seconds)
    assert sum(counts[f"{who} {by.name}"] for who, by in kills.KINDS) == 4
