"""Two keys that say different things of one rope.

These fail when one of two that contradict each other is passed over in silence, and when two that
agree are refused.
"""

import re

import pytest
from published import changed

from ropewalk import ModelSpec

SIZES = {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 2, "head_dim": 128}
SPARSE = {"mlp_layer_types": ["sparse"] * 2}
MUSE = {**SIZES, "layer_types": ["full_attention"] * 2}


@pytest.mark.parametrize("model_type", ["minimax_m2", "minimax_m3_vl_text"])
def test_rotary_dim_and_partial_rotary_factor(model_type):
    config = {"model_type": model_type, **SIZES, "rotary_dim": 64}
    assert ModelSpec.from_config(config).layer(0).rope.rotary_dim == 64
    for agree in (
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ):
        assert ModelSpec.from_config(config | agree).layer(0).rope.rotary_dim == 64
    for contradict in (
        {"partial_rotary_factor": 0.25},
        {"partial_rotary_factor": 1.0},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75}},
    ):
        with pytest.raises(ValueError, match=r"rotary_dim must be the part of head_dim=128 that"):
            ModelSpec.from_config(config | contradict)


@pytest.mark.parametrize("model_type", ["muse_spark_text", "muse_glimmer_text"])
def test_rope_theta_and_layer_rope_theta(model_type):
    config = {"model_type": model_type, **MUSE, "rope_theta": 7e5, "layer_rope_theta": [7e5, 0]}
    layers = ModelSpec.from_config(config).layers
    assert layers[0].rope.theta == 7e5
    assert layers[1].rope is None
    config["layer_rope_theta"] = [5e5, 0]
    with pytest.raises(ValueError, match="layer_rope_theta must be 0 or the model's rope_theta"):
        ModelSpec.from_config(config)


def test_granite_has_a_theta_for_each_layer():
    config = {
        "model_type": "granite_swa",
        **MUSE,
        "rope_theta": 1e4,
        "layer_rope_theta": [5e5, 1e4],
    }
    assert [layer.rope.theta for layer in ModelSpec.from_config(config).layers] == [5e5, 1e4]
    config["layer_rope_theta"] = [float("nan"), 1e4]
    with pytest.raises(ValueError, match="layer_rope_theta must be finite and above 0, got nan"):
        ModelSpec.from_config(config)


def test_partial_rotary_factor_and_latent_attention():
    name = "deepseek-v3"  # 64 of 192 rotate
    expected = ModelSpec.from_config(changed(name, {}))
    assert ModelSpec.from_config(changed(name, {"partial_rotary_factor": 1.0})) == expected
    assert ModelSpec.from_config(changed(name, {"partial_rotary_factor": 64 / 192})) == expected
    stated = {"partial_rotary_factor": 0.25, "head_dim": 256}
    assert ModelSpec.from_config(changed(name, stated)) == expected
    message = re.escape("partial_rotary_factor must be absent, or qk_rope_head_dim over the head's")
    with pytest.raises(ValueError, match=message):
        ModelSpec.from_config(changed(name, {"partial_rotary_factor": 0.5}))


@pytest.mark.parametrize("value", [1.5, "4096", True, 0, -1, 2**40, [4096]])
def test_a_length_that_is_none(value):
    for name in ("llama-2-7b", "phi-3-mini-128k-instruct", "internlm2.5-7b-chat"):
        with pytest.raises(ValueError, match="max_position_embeddings must be"):
            ModelSpec.from_config(changed(name, {"max_position_embeddings": value}))
