"""A short run of the fuzzer of configs; `fuzz_configs.py` beside it runs for minutes.

The first two tests fail when a changed config.json ends in an error that is not ours or in a rope
that cannot be; the third when the fuzzer would not notice.
"""

import random
from pathlib import Path

import pytest
from config_mutations import Mutation, mutated, read
from hypothesis import given, settings
from hypothesis import strategies as st
from published import changed

from ropewalk.rotary.config import head_layouts, rope_fields


@settings(max_examples=250)
@given(st.integers(0, 2**32))
def test_any_change_of_a_value_is_read_or_refused_in_words(seed):
    assert read(mutated(random.Random(seed), text=False), Path()) in ("read", "refused")


@pytest.mark.slow
@settings(max_examples=60)  # tests/fuzz/all.sh tries many more
@given(st.integers(0, 2**32))
def test_any_change_is_read_or_refused_in_words(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("config")
    assert read(mutated(random.Random(seed)), folder) in ("read", "refused")


def test_the_fuzzer_notices(monkeypatch, tmp_path):
    wrong = Mutation(changed("llama-3-8b", {"rope_theta": 1e300}), nonsense={"rope_theta"})
    assert read(wrong, tmp_path) == "refused"
    monkeypatch.setattr(rope_fields, "positive_theta", lambda key, value: value)
    with pytest.raises(AssertionError):
        read(wrong, tmp_path)
    monkeypatch.setattr(rope_fields, "positive_theta", lambda key, value: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read(wrong, tmp_path)
    monkeypatch.undo()
    wrong = Mutation(changed("mistral-nemo-12b-merge", {"head_dim": "x"}), nonsense={"head_dim"})
    assert read(wrong, tmp_path) == "refused"
    monkeypatch.setattr(head_layouts, "positive_int", lambda values, *keys, most: 128)
    with pytest.raises(AssertionError, match="nonsense was read: head_dim"):
        read(wrong, tmp_path)
