"""Mutated encodings, corpora, vocabularies and checkpoints, a few hundred of each format.

The first fails if one ends in an exception that is not ours, in a message as long as the input, in
something unsound, or beyond 2 s of CPU or 500 MB; the second if the fuzzer would not notice.
"""

import sys

import pytest
from scripts import load_scripts

if sys.platform != "linux":
    pytest.skip("needs limits of Linux", allow_module_level=True)

(mutations,) = load_scripts("tests/fuzz", "mutations")

TIMES = {"checkpoints": 100, "gzip": 60}


@pytest.mark.parametrize("target", mutations.TARGETS)
@pytest.mark.filterwarnings("ignore:.*without a checksum")
def test_each_is_read_or_refused_in_words(target, tmp_path):
    times = TIMES.get(target, 250)
    found = mutations.fuzz(target, tmp_path, seed=1, times=times, seconds=0)
    assert not found.faults
    assert found.counts["accepted"] > times / 20, "inputs are too far from what is read"
    assert found.counts["refused"] > times / 20


def _unsound(data, folder):
    raise AssertionError("an output is not finite")


def _foreign(data, folder):
    int("of another library")


def _raw(data, folder):
    b"\xff".decode()


def _slow(data, folder):
    while True:
        pass


def _large(data, folder):
    bytearray(600_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "said"),
    [
        (_unsound, "not finite"),
        (_foreign, "ValueError at"),
        (_raw, "UnicodeDecodeError at"),
        (_slow, "stopped"),
        (_large, "MB, accepted"),
    ],
)
def test_the_fuzzer_notices(read, said, tmp_path):
    target = mutations.Target(lambda draw: b"", read)
    outcome = mutations.trial(target, b"", tmp_path, mutations.Found())
    assert outcome.startswith("fault")
    assert said in outcome
