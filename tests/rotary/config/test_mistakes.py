"""What a config.json that cannot be is answered with: its key, the rule, and what it has.

These fail when a mistake is read in silence, or one of two keys that contradict each other is; when
a size, a list or a number beyond all models is taken; and when the error does not name the key or
echoes a value whole.
"""

import random
import re
from contextlib import suppress
from pathlib import Path

import pytest
from config_mutations import mutated, read
from hypothesis import given, settings
from hypothesis import strategies as st
from published import GONE, PUBLISHED, changed, published_spec
from refusals import check_refused

from ropewalk import ModelSpec, RotaryEmbedding
from ropewalk.rotary.config.reader import MAX_PAIRS

LISTS = [1.5] * 500_000
ORIGINAL = "original_max_position_embeddings"
SLIDING = "text_config.rope_parameters.sliding_attention"
FULL = "text_config.rope_parameters.full_attention"
DEFAULT = {"rope_type": "default"}

# File → what is changed in it, and a part of the error.
MISTAKES = {
    "llama-2-7b": [
        # The model's type.
        ({"model_type": GONE}, "model_type must be given, got none"),
        ({"model_type": "lama"}, "got 'lama'; did you mean 'llama'? If not, pass pairing=\"half\""),
        ({"model_type": ["llama"]}, "model_type must be a string, got ['llama']"),
        ({"model_type": "llama" * 60_000}, "must be one with a known pairing"),
        ({"model_type": "vjepa2"}, "must be one with a rope that RotarySpec can describe"),
        ({"model_type": "gpt2"}, "a model with a rope, got 'gpt2', which has none: it adds"),
        ({"model_type": "qwen2_5_omni_dit"}, "its code rotates only the first head"),
        ({"model_type": "sam3"}, "vision_config.backbone_config must be given"),
        ({"model_type": "llava", "text_config": 3}, "text_config must be a dictionary, got 3"),
        ({"model_type": "llava", "vision_config": 3}, "vision_config must be a dictionary, got 3"),
        ({"model_type": "llava", "audio_config": 3}, "audio_config must be a dictionary, got 3"),
        # The pairing.
        ({"rope_interleaved": True}, "rope_interleaved must be false or absent"),
        ({"rope_interleaved": 1}, "rope_interleaved must be true or false, got 1"),
        ({"rope_pairing": "neox"}, 'rope_pairing must be "half"'),
        # Theta.
        ({"rope_theta": 0}, "rope_theta must be finite and above 0, got 0"),
        ({"rope_theta": "1e4"}, "rope_theta must be a number, got '1e4'"),
        ({"rope_theta": True}, "rope_theta must be a number, got True"),
        ({"rope_theta": [1e4]}, "rope_theta must be a number, got [10000.0]"),
        ({"rope_theta": float("nan")}, "rope_theta must be finite and above 0, got nan"),
        ({"rope_theta": 5e-324}, "rope_theta must lie between 1 and 1e+15"),
        ({"rope_theta": 1e300}, "rope_theta must lie between 1 and 1e+15, got 1e+300"),
        (
            {"rope_theta": 1e4, "rope_parameters": {**DEFAULT, "rope_theta": 5e5}},
            "rope_theta must be the same as rope_parameters.rope_theta, 500000.0, got 10000.0",
        ),
        # The rope's dictionary and its type.
        ({"rope_scaling": "linear"}, "rope_scaling must be a dictionary or null"),
        ({"rope_scaling": [4.0]}, "rope_scaling must be a dictionary or null, got [4.0]"),
        ({"rope_parameters": 3}, "rope_parameters must be a dictionary or null, got 3"),
        (
            {"rope_scaling": {"type": "linear"}, "rope_parameters": {"rope_type": "yarn"}},
            "rope_scaling must be absent if rope_parameters differs from it",
        ),
        ({"rope_scaling": {"factor": 2.0}}, "rope_type must be given with ['factor']"),
        ({"rope_scaling": {"type": 5}}, "type must be a string, got 5"),
        ({"rope_scaling": {"type": "yarm"}}, "got 'yarm'; did you mean 'yarn'?"),
        ({"rope_scaling": {"type": "ntk_yarn"}}, "rope_type must be one of default"),
        ({"rope_scaling": {"type": "axial"}}, "rope_type must be one of default"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_type must not be 'mrope' here"),
        ({"rope_scaling": {"type": "linear"}}, "factor must be given for rope_type 'linear'"),
        ({"rope_scaling": {"type": "default", "factor": 2.0}}, "factor must be absent for"),
        ({"rope_scaling": {"type": "default", "mrope_section": [64]}}, "mrope_section must"),
        ({"rope_scaling": {str(i): {} for i in range(200_000)}}, "have at most 100 fields"),
        # Sizes.
        ({"num_attention_heads": GONE}, "num_attention_heads must be given"),
        ({"num_attention_heads": 0}, "num_attention_heads must be an integer above 0"),
        ({"num_attention_heads": 1, "hidden_size": 2**20}, "must give heads of at"),
        ({"hidden_size": "4096"}, "hidden_size must be an integer above 0, got '4096'"),
        ({"hidden_size": GONE}, "must be given, got none of embed_dim, hidden_size"),
        ({"head_dim": 127}, "head_dim must be even if all of it rotates, got 127"),
        ({"head_dim": 2**20}, "head_dim must be at most 8,192"),
        ({"head_dim": 2**70}, "head_dim must be at most"),
        ({"partial_rotary_factor": 0.5}, "must be 1 or absent, as the code of this model type"),
        ({"qk_rope_head_dim": 64}, "must belong to a model type with latent attention"),
        *(
            ({"max_position_embeddings": length}, "max_position_embeddings must be")
            for length in (1.5, "4096", True, 0, -1, 2**40, [4096])
        ),
        # Layers.
        ({"model_type": "gemma4"}, "layer_types must be given"),
        ({"layer_types": ["full_attention"] * 500_000}, "layer_types must name each"),
        ({"layer_types": ["full" * 99_000] * 32}, "a known type of layer"),
        ({"num_hidden_layers": GONE}, "num_hidden_layers must be given"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer above 0, got 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1,000"),
        (
            {"per_layer_config": {"9" * 5_000: {}}, "rope_theta": -1},  # named by long numbers
            "rope_theta must be finite and above 0",
        ),
        (
            {
                "num_hidden_layers": 1_000,
                "head_dim": 8_192,
                "per_layer_config": {str(i): {"rope_theta": 1e4 + i} for i in range(1_000)},
            },
            f"at most {MAX_PAIRS:,} pairs in total, got more in layers 0 to 3",
        ),
        # What nobody would read.
        ({str(i): 0 for i in range(100_000)}, "at most 10,000 keys"),
        ({"rope_tetha": 5e5}, "got 500000.0; did you mean 'rope_theta'? If not, and the model's"),
        *(
            ({key: True}, f"{key} must be false or absent")
            for key in ("use_logn_attn", "logn_attention_scale", "use_fope", "use_xpos")
        ),
        ({"rope_scaling": {"type": "linear", "factr": 2}}, "'factr'; did you mean 'factor'?"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2, "attn_factor": 1}},
            "vLLM and SGLang multiply the amplitude and which transformers ignores: write the",
        ),
        ({"hidden_size": 4100}, "hidden_size must be a multiple of the 32 heads, or head_dim be"),
        ({"rope_base": 5e5}, "rope_base must be a key that is known for this model type"),
        ({"rope_ratio": 50}, "rope_ratio must be a key that is known"),
        ({"alibi": True}, "alibi must be false or absent"),
        ({"rope_local_base_freq": 1e4}, "rope_local_base_freq must be a key"),
        ({"no_rope_layers": [1] * 31 + [0]}, "no_rope_layers must be [] or absent"),
    ],
    "llama-3.1-8b-instruct": [
        ({"rope_scaling.type": "yarn"}, "type must be the same as rope_type, 'llama3', got 'yarn'"),
        ({"rope_scaling.factor": GONE}, "factor must be given for rope_type 'llama3'"),
        ({"rope_scaling.low_freq_factor": GONE}, "low_freq_factor must be given"),
        ({"rope_scaling.high_freq_factor": GONE}, "high_freq_factor must be given"),
        ({"rope_scaling.high_freq_factor": 0.5}, "high_freq_factor must be at least low"),
        ({"rope_scaling.high_freq_factr": 4.0}, "has no field 'high_freq_factr'"),
        ({f"rope_scaling.{ORIGINAL}": GONE}, f"{ORIGINAL} must be given for rope_type 'llama3'"),
        ({f"rope_scaling.{ORIGINAL}": 8192.5}, "must be an integer above 1, got 8192.5"),
        ({f"rope_scaling.{ORIGINAL}": 2**40}, f"{ORIGINAL} must be at most 2,147,483,648"),
        ({ORIGINAL: 4096}, f"{ORIGINAL} in the rope's own fields must be the same as"),
    ],
    "vicuna-13b-v1.5-16k": [
        ({"rope_scaling.factor": "4"}, "factor must be a number, got '4'"),
        ({"rope_scaling.factor": True}, "factor must be a number, got True"),
        ({"rope_scaling.factor": None}, "factor must be given"),
        ({"rope_scaling.factor": -4.0}, "factor must be finite and above 0"),
        ({"rope_scaling.alpha": 2.0}, "'linear' has no field 'alpha'"),
    ],
    "minicpm-2b-128k": [
        ({"rope_scaling.factor": 1.7e308}, "factor must lie between 1e-09 and 1e+09, got 1.7e+308"),
    ],
    "internlm2.5-7b-chat": [
        ({"max_position_embeddings": GONE}, "max_position_embeddings must"),
        ({"max_position_embeddings": True}, "max_position_embeddings must be"),
        (
            {f"rope_scaling.{ORIGINAL}": 4096},
            "must be the same as max_position_embeddings at the top level, got 4096 and 32768",
        ),
    ],
    "hunyuan-7b-instruct": [
        ({"rope_scaling.factor": 2.0}, "factor must be 1.0 if there is"),
        ({"rope_scaling.alpha": "x"}, "alpha must be a number, got 'x'"),
        ({"attention_head_dim": 64}, "head_dim and attention_head_dim must"),
    ],
    "phi-3-mini-128k-instruct": [
        ({"rope_scaling.short_factor": [1.0] * 3}, "long_factor must have as many entries"),
        (
            {"rope_scaling.short_factor": [1.0] * 3, "rope_scaling.long_factor": [1.0] * 3},
            "short_factor must have an entry for each of 48 pairs, got 3",
        ),
        ({"rope_scaling.long_factor": 2.0}, "long_factor must be a list of numbers, got 2.0"),
        ({"rope_scaling.long_factor": ["1"] * 48}, "long_factor[0] must be a number"),
        ({"rope_scaling.long_factor": [1.7e308] * 48}, "long_factor[0] must lie between 1e-09 and"),
        ({"rope_scaling.long_factor": LISTS}, "long_factor must have at most 4,096"),
        ({"rope_scaling.short_factor": GONE}, "short_factor must be given"),
        ({ORIGINAL: GONE}, f"{ORIGINAL} must"),
        ({"max_position_embeddings": GONE}, "factor or max_position_embeddings must be given"),
        ({"max_position_embeddings": "128k"}, "max_position_embeddings must be an integer above 0"),
    ],
    "deepseek-v3": [
        # transformers' code of DeepSeek-V3.2 does not read it; that of DeepSeek-V3 does.
        (
            {"model_type": "deepseek_v32", "rope_interleave": False},
            "rope_interleave must be true or absent",
        ),
        ({"qk_rope_head_dim": GONE}, "qk_rope_head_dim must be given"),
        ({"qk_nope_head_dim": GONE}, "qk_nope_head_dim must be given"),
        ({"qk_nope_head_dim": 2**20}, "qk_nope_head_dim must be at most"),
        ({"partial_rotary_factor": 0.5}, "must be absent, or qk_rope_head_dim over the head's"),
        ({"rope_scaling.beta_fasst": 32}, "rope_type 'yarn' has no field 'beta_fasst'"),
        ({"rope_scaling.beta_fast": 0.5}, "beta_fast must be at least beta_slow=1"),
        ({"rope_scaling.truncate": "false"}, "truncate must be true or false, got 'false'"),
        ({"rope_scaling.mscale": "1"}, "mscale must be a number, got '1'"),
        ({"rope_scaling.attention_factor": 0}, "attention_factor must be finite and above 0"),
        ({f"rope_scaling.{ORIGINAL}": GONE}, f"{ORIGINAL} must be given for rope_type 'yarn'"),
    ],
    "deepseek-v4-flash-nvfp4": [
        ({"compress_ratios": [0, 4]}, "compress_ratios must have one"),
        ({"compress_ratios": [7] * 44}, "compress_ratios must be from 0,"),
        ({"compress_ratios": GONE}, "layer_types must be given"),
    ],
    "gpt-j-6b": [
        ({"rotary_dim": GONE}, "rotary_dim must be given"),
        ({"rotary_dim": 512}, "rotary_dim must be at most head_dim=256, got 512"),
        ({"rotary_dim": 2**22}, "rotary_dim must be at most 8,192"),
        ({"rotary_dim": "64"}, "rotary_dim must be an integer above 0, got '64'"),
    ],
    "pythia-6.9b": [
        ({"rope_theta": 5e5}, "rotary_emb_base must be the same as rope_theta, 500000.0, got 1"),
        ({"partial_rotary_factor": 0.5}, "rotary_pct must be the same as partial"),
    ],
    "phi-1": [({"rotary_dim": 16}, "rotary_dim must be absent or 32")],
    "phi-2": [
        ({"partial_rotary_factor": 0}, "partial_rotary_factor must be finite and above 0"),
        ({"partial_rotary_factor": "0.4"}, "partial_rotary_factor must be a number"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor must be above 0 and at m"),
        ({"partial_rotary_factor": 0.001}, "partial_rotary_factor must leave at least 2"),
    ],
    "persimmon-8b-base": [({"rope_theta": GONE}, "rope_theta must be given, got none")],
    "glm-4-9b-chat": [({"rope_theta": 1e4}, "rope_theta must be absent if there is a rope_r")],
    "roformer-chinese-base": [({"rotary_value": True}, "rotary_value must be false or absent")],
    "falcon-7b": [({"alibi": "no"}, "alibi must be one of (True, False), got 'no'")],
    "smollm3-3b": [
        ({"no_rope_layers": [1, 0]}, "no_rope_layers must have one for each of 36 layers"),
        ({"no_rope_layers": [2] * 36}, "no_rope_layers must have 1 (rope) or 0 (none), got 2"),
        ({"no_rope_layers": 4}, "no_rope_layers must be a list, got 4"),
        (
            {"no_rope_layers": GONE, "no_rope_layer_interval": 0},
            "no_rope_layer_interval must be an integer above 0, got 0",
        ),
    ],
    "exaone-4.0-32b": [
        ({"layer_types": GONE}, "layer_types must be given"),
        ({"layer_types": None}, "layer_types must be given"),
        ({"layer_types": ["full_attention"]}, "layer_types must name each of 64"),
        ({"layer_types": "LLLG"}, "layer_types must be a list, got 'LLLG'"),
        (
            {"layer_types": ["sliding_atention"] * 64},
            "got 'sliding_atention'; did you mean 'sliding_attention'?",
        ),
    ],
    "gemma-3-1b-it": [
        ({"sliding_window_pattern": 0}, "sliding_window_pattern must be an intege"),
        (
            {"rope_scaling": GONE, "rope_parameters": {**DEFAULT, "rope_theta": 1e6}},
            "rope_parameters must have a dictionary for each type of layer",
        ),
    ],
    "gemma-4-12b": [
        ({SLIDING: GONE}, "rope_parameters must have 'sliding_attention', a layer type"),
        ({SLIDING: "default"}, "sliding_attention must be in the fields"),
        ({"text_config.rope_parameters": GONE}, "rope_parameters must have a dictionary"),
        ({"text_config.rope_parameters.factor": 2.0}, "factor must be in the fields"),
        ({f"{FULL}.rope_theta": GONE}, "rope_theta must be given, got none"),
        ({"text_config.per_layer_config": 3}, "per_layer_config must be a dictionary"),
        ({"text_config.per_layer_config": {"x": {}}}, "per_layer_config must have a dict"),
    ],
    "gpt-oss-20b": [
        # Rules that a family's own code has where its file is silent.
        ({"rope_scaling": GONE}, "rope_parameters must be given for this model"),
        ({"rope_scaling": None}, "rope_parameters must be given for this model"),
    ],
    "ministral-3-3b-reasoning-2512": [
        (
            {"text_config.rope_parameters": {"rope_theta": 1e6, "llama_4_scaling_beta": 0.1}},
            "rope_type must be given with ['llama_4_scaling_beta']",
        ),
    ],
    "llama-4-scout-17b-16e-instruct": [
        ({"text_config.attn_scale": "x"}, "attn_scale must be a number, got 'x'"),
        ({"text_config.floor_scale": 0}, "floor_scale must be an integer above 0, got 0"),
        ({"text_config.no_rope_layers": LISTS}, "must have one for each"),
    ],
    # Several stacks, several axes.
    "voxtral-mini-3b-2507": [({"text_config": []}, "text_config must be a dictionary, got []")],
    "pixtral-12b": [
        ({"text_config.model_type": "clvp"}, "text_config.model_type must be one"),
        ({"vision_config.head_dim": 66}, "head_dim must be a multiple of 4"),
    ],
    "qwen3-vl-4b-instruct": [
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "rope_scaling must be the same at the top level and in text_config, which is read",
        ),
        (
            {"rope_pairing": "interleaved"},
            "rope_pairing must be the same at the top level and in text_config, which is read",
        ),
    ],
    "qwen2.5-vl-7b-instruct": [
        ({"rope_scaling.mrope_section": [16, 24]}, "mrope_section must have three numbers"),
        ({"rope_scaling.mrope_section": [16, 24, 25]}, "mrope_section must sum to the 64"),
        ({"rope_scaling.mrope_section": [40, 24, 0]}, "mrope_section must have integers"),
        ({"rope_scaling.mrope_section": "16"}, "mrope_section must have three numbers"),
        ({"rope_scaling.mrope_section": [1] * 500_000}, "mrope_section must have at most 4,096"),
        ({"rope_scaling.mrope_interleaved": True}, "mrope_interleaved must be false or abs"),
    ],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_published_file(name):
    check_refused(
        ValueError,
        *[
            (lambda changes=changes: ModelSpec.from_config(changed(name, changes)), message)
            for changes, message in MISTAKES[name]
        ],
    )


SMOLLM, DIT = PUBLISHED["smollm3-3b"], {**PUBLISHED["llama-2-7b"], "model_type": "qwen2_5_omni_dit"}
NEW = {"head_dim": 64, "num_hidden_layers": 1, "model_type": "unpublished"}


def test_a_mistake_in_a_call():
    of, layers = RotaryEmbedding.from_config, published_spec("smollm3-3b")
    model = ModelSpec.from_config
    check_refused(
        ValueError,
        (lambda: of(SMOLLM, layer=3), "that has a rope, got 3, which has none (NoPE)"),
        (lambda: of(SMOLLM, layer=36), "layer must be in 0"),
        (lambda: of(SMOLLM, layer=-1), "layer must be at leas"),
        (lambda: of(SMOLLM, stack="vision"), "that the config describes: text, got 'vision'"),
        (lambda: layers.layer(0, ["text"]), "got ['text']"),
        (lambda: model(SMOLLM, pairing="neox"), 'pairing must be "half"'),
        (lambda: model(SMOLLM, pairing="interleaved"), "must agree with model_type 'smollm3'"),
        (lambda: model({"hidden_size": 64}, pairing="half"), "num_hidden_layers must be given"),
        (lambda: model(NEW, pairing="half"), "rope_theta must be given, got none"),
        (lambda: model(DIT, pairing="half"), "its code rotates only the first head"),
    )
    for layer in ("0", True):
        check_refused(TypeError, (lambda layer=layer: of(SMOLLM, layer), "layer must be an int"))


@settings(max_examples=120)
@given(st.integers(0, 2**32))
def test_any_change_of_values_is_read_or_refused_in_words(seed):
    """A short run of the fuzzer, which changes the text of files too."""
    with suppress(ValueError, TypeError):  # `read` asserts that it has a rule in it
        read(mutated(random.Random(seed), text=False), Path())


# Two keys that say different things of one rope.

SIZES = {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 2, "head_dim": 128}
MUSE = {**SIZES, "layer_types": ["full_attention"] * 2}


@pytest.mark.parametrize("model_type", ["minimax_m2", "minimax_m3_vl_text"])
def test_rotary_dim_and_partial_rotary_factor(model_type):
    config = {"model_type": model_type, **SIZES, "rotary_dim": 64}
    half = {"partial_rotary_factor": 0.5}
    for agree in ({}, half, {"rope_parameters": {**DEFAULT, **half}}):
        assert ModelSpec.from_config(config | agree).layer(0).rope.rotary_dim == 64
    for contradict in (
        {"partial_rotary_factor": 0.25},
        {"partial_rotary_factor": 1.0},
        {"rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.75}},
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
    thetas = [5e5, 1e4]
    config = {"model_type": "granite_swa", **MUSE, "rope_theta": 1e4, "layer_rope_theta": thetas}
    assert [layer.rope.theta for layer in ModelSpec.from_config(config).layers] == thetas
    config["layer_rope_theta"] = [float("nan"), 1e4]
    with pytest.raises(ValueError, match="layer_rope_theta must be finite and above 0, got nan"):
        ModelSpec.from_config(config)


def test_partial_rotary_factor_and_latent_attention():
    """64 of DeepSeek-V3's 192 dimensions rotate."""
    for part in (1.0, 64 / 192):
        config = changed("deepseek-v3", {"partial_rotary_factor": part})
        assert ModelSpec.from_config(config) == published_spec("deepseek-v3")
    stated = {"partial_rotary_factor": 0.25, "head_dim": 256}
    assert ModelSpec.from_config(changed("deepseek-v3", stated)) == published_spec("deepseek-v3")


def test_only_the_vision_part_is_known():
    config = {"model_type": "llava", "text_config": {"model_type": "opt"}}
    with pytest.raises(ValueError, match=r"text_config.model_type must be of a model with a rope"):
        ModelSpec.from_config(config)
    config["vision_config"] = {"model_type": "pixtral", "head_dim": 64}
    spec = ModelSpec.from_config(config)
    assert spec.layer(0, "vision").rope.axis_count == 2
    with pytest.raises(ValueError, match="stack must be one that the config describes: vision"):
        _ = spec.layers


def test_numbers_of_another_library_are_told_how_to_be_python_numbers():
    class Int64:
        def __index__(self) -> int:
            return 16

        def __repr__(self) -> str:
            return "np.int64(16)"

    message = "got np.int64(16), of type Int64, which is not a Python number; write int("
    for key in ("head_dim", "max_position_embeddings", "rope_theta"):
        with pytest.raises(ValueError, match=re.escape(message + key)):
            ModelSpec.from_config({**PUBLISHED["llama-2-7b"], key: Int64()})


def test_values_that_no_json_has():
    for value in (10**5_000, {1: {"a": 10**5_000}}, [[]] * 3):
        for key in ("head_dim", "rope_scaling", "model_type"):
            with pytest.raises(ValueError, match=r"must|has no field") as caught:
                ModelSpec.from_config({**PUBLISHED["llama-2-7b"], key: value})
            assert len(str(caught.value)) < 500
    looped: dict = {}
    looped["x"] = looped
    with pytest.raises(ValueError, match="config must be at most 64 objects and lists deep"):
        ModelSpec.from_config(looped)
