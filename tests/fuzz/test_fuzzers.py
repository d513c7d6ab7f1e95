"""A few mutated inputs of each format, and a few kills of a run; the scripts beside this make more.

These fail if an input ends in an exception that is not ours, in a message as long as itself, in
something unsound, or beyond 2 s of CPU or 500 MB; if the fuzzer would not notice; and if what a
killed run ends in differs in one bit from an uninterrupted one, or leaves a file or a process.
"""

import random
import sys
from collections import Counter
from dataclasses import replace

import bounds
import pytest
from config_mutations import Mutation, read
from published import changed
from scripts import load_scripts

from ropewalk.rotary.config import head_layouts, rope_fields

if sys.platform != "linux":
    pytest.skip("needs limits and processes of Linux", allow_module_level=True)

mutations, kills = load_scripts("tests/fuzz", "mutations", "kills")

TIMES = {"checkpoints": 40, "configs": 30, "gzip": 25}
SLOW = ["configs"]


@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
     for name in mutations.TARGETS],
)  # fmt: skip
def test_each_is_read_or_refused_in_words(target, tmp_path):
    times = TIMES.get(target, 250)
    outcomes = mutations.fuzz(target, tmp_path, seed=1, times=times, seconds=0)
    assert not outcomes.faults
    assert outcomes.counts["accepted"] > times / 20, "inputs are too far from what is read"
    assert outcomes.counts["refused"] > times / 20


def _unsound(data, folder):
    raise AssertionError("an output is not finite")


def _slow(data, folder):
    while True:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "said"),
    [
        (_unsound, "not finite"),
        (lambda data, folder: int("of another library"), "ValueError at"),
        (lambda data, folder: b"\xff".decode(), "UnicodeDecodeError at"),
        (_slow, "stopped"),
        (lambda data, folder: bytearray(600_000_000), "MB, accepted"),
    ],
)
def test_the_fuzzer_notices(read, said, tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "STOPPED_AFTER", 2.2)  # of CPU; still more than is allowed
    target = mutations.Target(lambda draw: b"", read)
    outcome = mutations.trial(target, b"", tmp_path, mutations.Outcomes())
    assert outcome.startswith("fault")
    assert said in outcome


def test_the_fuzzer_of_configs_notices(monkeypatch, tmp_path):
    huge = Mutation(changed("llama-3-8b", {"rope_theta": 1e300}), nonsense={"rope_theta"})
    with pytest.raises(ValueError, match="rope_theta must lie between"):
        read(huge, tmp_path)
    monkeypatch.setattr(rope_fields, "positive_theta", lambda key, value: value)
    with pytest.raises(AssertionError):
        read(huge, tmp_path)
    monkeypatch.setattr(rope_fields, "positive_theta", lambda key, value: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read(huge, tmp_path)
    monkeypatch.undo()
    text = Mutation(changed("mistral-nemo-12b-merge", {"head_dim": "x"}), nonsense={"head_dim"})
    with pytest.raises(ValueError, match="head_dim must be an integer"):
        read(text, tmp_path)
    monkeypatch.setattr(head_layouts, "positive_int", lambda values, *keys, most: 128)
    with pytest.raises(AssertionError, match="nonsense was read: head_dim"):
        read(text, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["training", "convert"])
def test_a_killed_command_ends_as_an_uninterrupted_one(name, tmp_path, forking):
    target = kills.TARGETS[name]
    fewer = [word.replace("examples=400", "examples=150") for word in target.words]
    counts = Counter()
    trial = kills.Trial(replace(target, words=fewer), tmp_path, random.Random(1), counts)
    while kills.hits({name: counts}) < 2:
        trial(f"run-{sum(counts.values())}", kills=2)
