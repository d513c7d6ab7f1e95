"""How the ropes of two models differ.

These fail if a difference is passed over, if equal ropes are said to differ, or if the drift is
another than that of the tables that both models rotate by.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published import PUBLISHED, READ, changed

import ropewalk as rw
from ropewalk.tools.inspect.inspect_report import comparison_blocks

SMALL = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 32, "rope_theta": 10_000.0}
SMALL |= {"max_position_embeddings": 4096}


def fields_of(found):
    return {field.name for layers in found.layers for field in layers.fields}


@pytest.mark.parametrize("name", READ[::12])
def test_a_model_has_the_ropes_of_itself(name):
    found = rw.tools.compare_ropes(PUBLISHED[name], PUBLISHED[name])
    assert found.same
    assert (found.layers, found.notes) == ((), ())


@settings(max_examples=25)
@given(first=st.floats(100.0, 1e7), second=st.floats(100.0, 1e7))
def test_the_drift_is_that_of_the_tables(first, second):
    """The outside reference: the angle between the rotations of both, by atan2 of their tables."""
    one, two = {**SMALL, "rope_theta": first}, {**SMALL, "rope_theta": second}
    found = rw.tools.compare_ropes(one, two)
    if found.same:
        assert first == pytest.approx(second, rel=1e-5)
        return
    (layers,) = found.layers
    at_one = next(angle for angle in layers.angles if angle.distance == 1)
    ropes = (rw.RotaryEmbedding(rw.RotarySpec(32, theta=theta)) for theta in (first, second))
    tables = (rope.tables(torch.ones(1, dtype=torch.int)) for rope in ropes)
    (cos, sin), (cos2, sin2) = ([table.double() for table in pair] for pair in tables)
    turned = torch.atan2(sin * cos2 - cos * sin2, cos * cos2 + sin * sin2).abs()[0]
    assert at_one.radians == pytest.approx(turned.max().item(), abs=1e-6)
    assert turned[at_one.pair] == pytest.approx(at_one.radians, abs=1e-6)
    if layers.one_radian_at is not None:
        assert (layers.one_radian_at - 1) * at_one.radians < 1.0001
        assert layers.one_radian_at * at_one.radians > 0.9999
    else:
        assert at_one.radians * 4096 < 1


def test_models_to_merge_with_other_thetas():
    found = rw.tools.compare_ropes(PUBLISHED["llama-2-7b"], PUBLISHED["codellama-7b"])
    assert not found.same
    assert fields_of(found) == {"theta"}
    assert found.layers[0].layers == tuple(range(32))
    assert found.layers[0].one_radian_at < 10
    assert "the stated contexts are 4,096 and 16,384" in found.notes


def test_a_rule_that_only_one_has():
    found = rw.tools.compare_ropes(PUBLISHED["llama-3-8b"], PUBLISHED["llama-3.1-8b-instruct"])
    assert fields_of(found) == {"rule", "rule_fields"}
    assert all(angle.radians > 0 for angle in found.layers[0].angles)


def test_pairings_and_parts_cannot_be_compared_by_angle():
    pairs = rw.tools.compare_ropes(PUBLISHED["command-r-v01"], PUBLISHED["llama-3-8b"])
    assert {"pairing", "write_pairing"} <= fields_of(pairs)
    parts = rw.tools.compare_ropes(PUBLISHED["phi-2"], PUBLISHED["llama-2-7b"])
    assert "32 and 128 dimensions rotate" in parts.layers[0].reason
    assert parts.layers[0].angles == ()


def longrope(longest=8192, **fields):
    """Phi-3 with LongRoPE from 4,096 positions on, and these fields."""
    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
    lengths = {"max_position_embeddings": longest, "original_max_position_embeddings": 4096}
    lists = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    rule = {"rope_type": "longrope", "factor": 2.0, **lists, **fields}
    return {"model_type": "phi3", **sizes, **lengths, "rope_scaling": rule}


def test_an_amplitude_that_only_short_sequences_have():
    """Fails if amplitudes are compared at the longest context only."""
    one, two = (longrope(short_mscale=m, long_mscale=1.1) for m in (1.0, 1.2))
    found = rw.tools.compare_ropes(one, two)
    assert not found.same
    fields = {f.name: (f.first, f.second) for f in found.layers[0].fields}
    assert fields["amplitude_at(1)"] == (1.0, 1.2)
    assert not {"amplitude", "amplitude_at(4097)"} & set(fields)


def test_one_amplitude_that_is_written_in_two_ways():
    """Fails if fields of the rule count although both ropes are the same at every length."""
    both = longrope(short_mscale=1.1, long_mscale=1.1)
    found = rw.tools.compare_ropes(longrope(attention_factor=1.1), both)
    assert found.same
    assert "rotate the same" in found.notes[0]


def test_divisors_that_apply_beyond_the_stated_context():
    """Fails if the longest stated context, 4,096, hides the divisors from 4,097 on."""
    one, two = (longrope(4096, factor=1.0, long_factor=[f] * 8) for f in (2.0, 4.0))
    found = rw.tools.compare_ropes(one, two)
    assert not found.same
    angles = {angle.distance: angle.radians for angle in found.layers[0].angles}
    assert angles.pop(4096) == pytest.approx(4096 / 4)  # pair 0: 1/2 and 1/4 radian per position
    assert set(angles.values()) == {0.0}


def test_layers_that_only_one_has():
    found = rw.tools.compare_ropes(SMALL, {**SMALL, "num_hidden_layers": 3})
    assert not found.same
    assert found.notes == ("the stack 'text' has 2 and 3 layers",)


def test_only_the_layers_that_differ_are_named():
    gemma = PUBLISHED["gemma-3-12b-it-text-only"]
    other = changed("gemma-3-12b-it-text-only", {"rope_scaling": None})
    (layers,) = rw.tools.compare_ropes(gemma, other).layers
    assert layers.layers == (5, 11, 17, 23, 29, 35, 41, 47)


def test_layers_with_and_without_a_rope_differ():
    all_layers = changed("smollm3-3b", {"no_rope_layers": [1] * 36})
    found = rw.tools.compare_ropes(PUBLISHED["smollm3-3b"], all_layers)
    assert fields_of(found) == {"rope"}
    assert found.layers[0].fields[0].first == "none"


def test_an_indexer_that_differs():
    one = changed("deepseek-v3", {"model_type": "deepseek_v32"})
    two = changed("deepseek-v3", {"model_type": "glm_moe_dsa", "index_topk_freq": 1})
    assert "indexer.pairing" in fields_of(rw.tools.compare_ropes(one, two))


@pytest.mark.parametrize("other", ["codellama-7b", "phi-2", "gemma-3-12b-it-text-only"])
def test_the_text_has_a_row_for_each_difference(other):
    found = rw.tools.compare_ropes(PUBLISHED["llama-2-7b"], PUBLISHED[other])
    rows = [row for _, block in comparison_blocks(found) for row in block]
    assert fields_of(found) <= {name for name, _ in rows}
