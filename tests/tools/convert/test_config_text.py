"""Edits of config.json: one member changes, and removing it restores every byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.tools.convert.converted_config import new_config, remove_member, set_member

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.text(max_size=9), VALUES, min_size=1, max_size=4)


@given(OBJECTS, st.sampled_from([None, 1, 2, 4, "\t"]), st.booleans())
def test_an_added_member_is_read_and_its_removal_restores_every_byte(facts, indent, newline):
    facts.pop("rope_pairing", None)
    facts["model_type"] = "llama"
    text = json.dumps(facts, indent=indent) + "\n" * newline
    written = set_member(text, "", "rope_pairing", "half")
    assert json.loads(written) == {**facts, "rope_pairing": "half"}
    assert remove_member(written, "", "rope_pairing") == text


@pytest.mark.parametrize(
    ("text", "path", "removed"),
    [
        ('{"a": 1}', "", "{}"),
        ('{"a": 1, "b": 2}', "", '{"b": 2}'),
        ('{\n  "b": {"c": 3, "a": 1e5} }', "b", '{\n  "b": {"c": 3} }'),
        ('\ufeff{"b": 2 , "a" : [1, {"a": 2}] }', "", '\ufeff{"b": 2 }'),
        ('{"b": 2}', "", '{"b": 2}'),
    ],
)
def test_a_member_is_removed_wherever_it_is(text, path, removed):
    assert remove_member(text, path, "a") == removed


def test_an_existing_member_changes_in_its_place():
    text = '{"rope_interleave": true,\n "x": 1}'
    assert set_member(text, "", "rope_interleave", False) == text.replace("true", "false")


@pytest.mark.parametrize(
    ("model_type", "facts", "to", "change"),
    [
        ("llama", {"x": 1}, "interleaved", '"rope_pairing": "interleaved"'),
        ("llama", {"x": 1, "rope_pairing": "interleaved"}, "half", "without rope_pairing"),
        ("gptj", {"x": 1}, "half", '"rope_pairing": "half"'),
        ("llama", {"x": 1}, "half", ""),
        ("deepseek_v3", {"x": 1}, "half", '"rope_interleave": false'),
        ("deepseek_v3", {"rope_interleave": True, "x": 1}, "half", '"rope_interleave": false'),
        ("deepseek_v3", {"rope_interleave": False, "x": 1}, "interleaved",
         '"rope_interleave": true'),
        ("deepseek_v3", {"x": 1, "rope_interleave": False}, "interleaved",
         "without rope_interleave"),
        ("deepseek_v3", {"x": 1, "rope_pairing": "half"}, "interleaved", "without rope_pairing"),
    ],
)  # fmt: skip
def test_the_pairing_is_stated_only_if_the_code_does_not_read_it_anyway(
    model_type, facts, to, change
):
    content = json.dumps(facts, indent=2).encode()
    written, changes = new_config(content, CONVENTIONS[model_type], to)
    assert " and ".join(map(str, changes)) == change
    assert (written == content) is (change == "")
    assert json.loads(written).items() >= {"x": 1}.items()
