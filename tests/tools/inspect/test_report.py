"""What `inspect` reports about published and about made configs.

These fail if a fact differs from the spec that the model rotates by, if a pair is said to make a
full turn and does not, if the float32 error is another than torch's, or if a source is misread.
"""

import json
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published import FOLDER, PUBLISHED, READ, REFUSED

import ropewalk as rw
from ropewalk.rotary.config.config_json import LENGTH_KEYS
from ropewalk.tools.inspect import to_plain
from ropewalk.tools.inspect.cautions import place_of
from ropewalk.tools.inspect.inspect_report import report_blocks
from ropewalk.tools.verify.verify import read_like
from ropewalk.tools.verify.verify_report import Check, Place, Report, by_layers

# Their only fault is a field that transformers ignores; `inspect` says so and goes on.
REPAIRED = {"dseek-draft-test"}


@pytest.mark.parametrize("name", READ)
def test_every_layer_of_a_published_model_is_reported(name):
    report = rw.tools.inspect(FOLDER / f"{name}.json")
    model = rw.ModelSpec.from_config(PUBLISHED[name])
    for stack, layers in model.stacks.items():
        assert sum(len(kind.layers) for kind in report.kinds if kind.stack == stack) == len(layers)
        for i, layer in enumerate(layers):
            kind = report.kind_of(i, stack)
            assert (kind.rope.spec if kind.rope else None) == layer.rope
            assert (kind.indexer.spec if kind.indexer else None) == layer.indexer
            assert kind.softmax_factor == layer.softmax_factor
            assert layer.layer_type is None or layer.layer_type in kind.layer_types
            if kind.rope:
                assert kind.rope.origins == layer.origins
    for each in report.warnings:
        assert re.fullmatch(r"[a-z0-9-]+", each.id)
        assert each.where
        assert not (each.cause + each.way_out).endswith(".")  # the text view adds it
    plain = to_plain(report)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert all(len(title) and all(map(any, rows)) for title, rows in report_blocks(report))


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - REPAIRED))
def test_a_refused_config_is_refused_with_its_reason(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        rw.tools.inspect(FOLDER / f"{name}.json")


def test_a_pairing_lets_an_unknown_type_be_read():
    report = rw.tools.inspect(PUBLISHED["minicpm3-4b"] | {"model_type": "minicpm3"})
    assert report.model_type == "minicpm3"
    config = {"model_type": "other", "num_hidden_layers": 1, "head_dim": 64, "rope_theta": 1e4}
    with pytest.raises(ValueError, match='pass pairing="half" or "interleaved"'):
        rw.tools.inspect(config)
    rope = rw.tools.inspect(config, pairing="interleaved").kinds[0].rope
    assert (rope.pairing, rope.origins["pairing"]) == ("interleaved", "argument")


@settings(max_examples=25)
@given(
    theta=st.floats(2.0, 1e9),
    length=st.integers(2, 2**31),
    factor=st.floats(1.0, 64.0),
)
def test_a_pair_makes_a_full_turn_if_its_angle_reaches_one(theta, length, factor):
    """Fails if a pair is on the wrong side, in both sides or in none."""
    rule = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length}
    config = {"model_type": "llama", "num_hidden_layers": 1, "head_dim": 32, "rope_theta": theta}
    linear = {"rope_type": "linear", "factor": factor}
    for extra in ({}, {"rope_scaling": linear}, {"rope_scaling": rule}):
        stated = {**config, **extra, "max_position_embeddings": length}
        try:
            rope = rw.tools.inspect(stated).kinds[0].rope
        except ValueError as error:
            if "must be such that pairs 0 to" not in str(error):  # YaRN's empty band
                raise
            continue
        for turns in rope.turns:
            spec = rope.spec if turns.rule else rw.RotarySpec(32, theta=theta)
            angles = spec.inverse_frequencies() * turns.length
            full = {i for i, angle in enumerate(angles.tolist()) if angle >= 2 * math.pi}
            near = {i for i, a in enumerate(angles.tolist()) if abs(a / 2 / math.pi - 1) < 1e-9}
            assert set(turns.full) - near == full - near
            assert sorted((*turns.full, *turns.less, *turns.still)) == list(range(16))


def test_pairs_of_p_rope_do_not_rotate():
    full = next(kind for kind in rw.tools.inspect(PUBLISHED["gemma-4-12b"]).kinds
                if "full_attention" in kind.layer_types)  # fmt: skip
    turns = full.rope.turns[0]
    assert turns.still == tuple(i for i, w in enumerate(full.rope.wavelengths) if w == math.inf)
    assert turns.still
    assert None in to_plain(full.rope)["wavelengths"]


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b-instruct", "deepseek-v3", "phi-3-mini-128k-instruct"]
)
def test_the_float32_error_is_that_of_tables_in_float32(name):
    """The outside reference: angles as models compute them, against this package's exact tables."""
    rope = rw.tools.inspect(PUBLISHED[name]).kinds[0].rope
    length = rope.extended_length
    positions = torch.arange(length - 64, length)
    frequencies = rope.spec.inverse_frequencies(length if rope.rule == "LongRoPE" else None)
    angles = positions.float()[:, None] * frequencies.float()
    spec = rope.spec.for_rotary_part()
    cos, sin = rw.RotaryEmbedding(spec).tables(positions, length=length)
    wrong = torch.hypot(angles.cos() * rope.amplitude - cos, angles.sin() * rope.amplitude - sin)
    assert wrong.max() <= rope.amplitude * rope.float32_error + 1e-6
    assert wrong.max() >= rope.float32_error / 8  # the last 64 positions are nearly the worst


def test_wavelengths_stand_for_both_contexts():
    llama = rw.tools.inspect(PUBLISHED["llama-3.1-8b-instruct"])
    rope = llama.kinds[0].rope
    assert (rope.original_length, rope.extended_length) == (8192, 131_072)
    turns = [(each.context, each.rule) for each in rope.turns]
    assert turns == [("original", False), ("extended", True)]
    slower = [b / a for a, b in zip(rope.plain_wavelengths, rope.wavelengths, strict=True)]
    assert slower[0] == pytest.approx(1)
    assert slower[-1] == pytest.approx(8)
    assert llama.max_length_key == "max_position_embeddings"


def test_longrope_has_its_short_factors_within_the_original_context():
    rope = rw.tools.inspect(PUBLISHED["phi-3-mini-128k-instruct"]).kinds[0].rope
    assert (rope.original_length, rope.extended_length) == (4096, 131_072)
    long = [b / a for a, b in zip(rope.plain_wavelengths, rope.wavelengths, strict=True)]
    assert long == pytest.approx(rope.rule_fields["long_factor"])
    assert rope.turns[0].rule


def test_the_model_without_a_context_has_no_turns():
    report = rw.tools.inspect(PUBLISHED["falcon-7b"])
    assert report.max_length is None
    assert report.kinds[0].rope.turns == ()
    assert report.kinds[0].rope.float32_error is None


def test_layers_without_rope_and_their_temperature():
    report = rw.tools.inspect(PUBLISHED["llama-4-scout-17b-16e-instruct"])
    nope = report.kind_of(3)
    assert nope.rope is None
    assert nope.query_temperature == {"beta": 0.1, "length": 8192, "first": 1}
    assert report.kind_of(3, "audio") is None


LLAMA = {"model_type": "llama", "num_hidden_layers": 5, "head_dim": 32, "rope_theta": 1e4}


@pytest.mark.parametrize("key", LENGTH_KEYS)
def test_each_key_of_the_context_is_read_by_inspect_and_verify(key):
    later = LENGTH_KEYS[LENGTH_KEYS.index(key) + 1 :]
    config = {**LLAMA, **dict.fromkeys(later, 4096), key: 8192}
    report = rw.tools.inspect(config)
    assert (report.max_length, report.max_length_key) == (8192, key)
    assert read_like(config).max_positions == 8192


def test_layers_are_named_as_by_verify():
    (kind,) = rw.tools.inspect(LLAMA).kinds
    checks = tuple(Check("sign", "right", "as specified", places=(Place(i),)) for i in range(5))
    (line,) = by_layers(Report("M", "model", checks))
    assert place_of(kind) == f"text {line.where}" == "text layers 0-4"
