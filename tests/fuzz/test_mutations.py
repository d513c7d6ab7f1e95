"""Mutated encodings, corpora and checkpoints, a few hundred of each.

Fails if one ends in an exception that is not ours, or in a message as long as the input.
"""

import pytest
from scripts import load_scripts

(mutations,) = load_scripts("tests/fuzz", "mutations")


@pytest.mark.parametrize(
    ("target", "times"), [("encodings", 150), ("corpora", 250), ("checkpoints", 250)]
)
@pytest.mark.filterwarnings("ignore")
def test_nothing_foreign_comes_out(target, times, tmp_path):
    counts = mutations.fuzz(target, tmp_path, seed=1, times=times, seconds=0)
    assert counts.total() >= times
    assert counts["accepted"] < times
