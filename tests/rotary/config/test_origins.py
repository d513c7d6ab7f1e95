"""Where the values of a layer's rope came from.

These fail when a value that the model's class has is said to stand in config.json or the other way
round, when the wrong key is named, and when these notes make layers differ.
"""

import copy

import pytest
from published import GONE, PUBLISHED, READ, changed

from ropewalk import LayerSpec, ModelSpec, RotarySpec
from ropewalk.rotary.config.reader import CLASS_DEFAULT

LLAMA = "llama-2-7b"


@pytest.mark.parametrize(
    ("name", "changes", "layer", "field", "origin"),
    [
        (LLAMA, {"rope_theta": 1e4}, 0, "theta", "rope_theta"),
        (
            LLAMA,
            {"rope_parameters": {"rope_type": "default"}},
            0,
            "theta",
            CLASS_DEFAULT,
        ),
        (
            LLAMA,
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
            0,
            "theta",
            "rope_parameters.rope_theta",
        ),
        (LLAMA, {}, 0, "theta", CLASS_DEFAULT),
        (LLAMA, {}, 0, "head_dim", "hidden_size / num_attention_heads"),
        (LLAMA, {}, 0, "rotary_dim", "whole head"),
        (LLAMA, {}, 0, "pairing", "model_type"),
        (LLAMA, {}, 0, "scaling", CLASS_DEFAULT),
        (LLAMA, {"rope_interleaved": False}, 0, "pairing", "rope_interleaved"),
        (LLAMA, {"rope_pairing": "interleaved"}, 0, "pairing", "rope_pairing"),
        (LLAMA, {"head_dim": 64}, 0, "head_dim", "head_dim"),
        (
            LLAMA,
            {"per_layer_config": {"1": {"rope_theta": 5.0, "head_dim": 64}}},
            1,
            "theta",
            "per_layer_config.rope_theta",
        ),
        ("llama-3.1-8b-instruct", {}, 0, "scaling", "rope_scaling"),
        ("pythia-6.9b", {}, 0, "theta", "rotary_emb_base"),
        ("pythia-6.9b", {}, 0, "rotary_dim", "rotary_pct"),
        ("pythia-6.9b", {"rotary_pct": GONE}, 0, "rotary_dim", CLASS_DEFAULT),
        ("gpt-j-6b", {}, 0, "rotary_dim", "rotary_dim"),
        ("glm-4-9b-chat", {}, 0, "theta", "rope_ratio"),
        ("deepseek-v3", {}, 0, "rotary_dim", "qk_rope_head_dim"),
        ("gemma-3-1b-it", {}, 0, "theta", "rope_local_base_freq"),
        ("gemma-3-1b-it", {"rope_local_base_freq": GONE}, 0, "theta", CLASS_DEFAULT),
        ("gemma-4-12b", {}, 5, "theta", "rope_parameters.full_attention.rope_theta"),
        ("qwen3-0.6b", {"head_dim": GONE}, 0, "head_dim", CLASS_DEFAULT),
        ("pixtral-12b-no-head-dim", {}, 0, "head_dim", f"hidden_size / {CLASS_DEFAULT}"),
    ],
)
def test_origins(name, changes, layer, field, origin):
    spec = ModelSpec.from_config(changed(name, changes))
    assert spec.layer(layer).origins[field] == origin


def test_a_pairing_that_was_stated():
    raw = {"head_dim": 8, "num_hidden_layers": 1, "rope_theta": 10.0}
    spec = ModelSpec.from_config(raw, pairing="half")
    assert spec.layer(0).origins["pairing"] == "argument"


def test_origins_take_no_part_in_comparisons():
    rope = RotarySpec(8)
    noted = LayerSpec(rope, origins={"theta": "rope_theta"})
    assert noted == LayerSpec(rope)
    assert hash(noted) == hash(LayerSpec(rope))
    assert repr(noted) == repr(LayerSpec(rope))
    assert copy.deepcopy(noted).origins == noted.origins


@pytest.mark.parametrize("name", READ)
def test_a_key_that_is_named_stands_in_the_config(name):
    text = PUBLISHED[name].get("text_config", PUBLISHED[name])
    for layer in ModelSpec.from_config(PUBLISHED[name]).layers:
        assert (layer.rope is None) == (not layer.origins)
        for origin in layer.origins.values():
            for key in origin.replace(" + ", " / ").split(" / "):
                first = key.partition(".")[0]
                assert first in text or key in (CLASS_DEFAULT, "model_type", "whole head")
