"""What a config.json that is wrong is answered with: the key, the rule, the value, the way out.

These fail when a mistake in a config is read in silence, when it ends in an error of Python's own,
or when the error does not name the key.
"""

import copy
import json
import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import ModelSpec, RotaryEmbedding
from ropewalk.rotary.config.multimodal_models import TOWERS
from ropewalk.rotary.config.text_models import STACKS

FOLDER = pathlib.Path(__file__).parent / "published_configs"
PUBLISHED = {
    path.stem: json.loads(path.read_text())
    for path in sorted(FOLDER.glob("*.json"))
    if path.stem != "sources"
}
GONE = object()  # in a change: the key is taken out


def changed(name: str, changes: dict) -> dict:
    """A published file with other values at dotted keys."""
    config = copy.deepcopy(PUBLISHED[name])
    for path, value in changes.items():
        section = config
        *parents, last = path.split(".")
        for key in parents:
            section = section[key]
        if value is GONE:
            del section[last]
        else:
            section[last] = value
    return config


LLAMA, LLAMA_3 = "llama-2-7b", "llama-3.1-8b-instruct"
LONG, YARN, QWEN_VL = "phi-3-mini-128k-instruct", "deepseek-v3", "qwen2.5-vl-7b-instruct"
SCOUT, SMOL, GEMMA_4 = "llama-4-scout-17b-16e-instruct", "smollm3-3b", "gemma-4-12b"
FULL, SLIDING = (
    "text_config.rope_parameters." + k for k in ("full_attention", "sliding_attention")
)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # The model's type.
        (LLAMA, {"model_type": GONE}, "model_type must be given, got none"),
        (LLAMA, {"model_type": "lama"}, "got 'lama'; did you mean 'llama'?"),
        (LLAMA, {"model_type": "lama"}, 'or state pairing="half" or "interleaved"'),
        (LLAMA, {"model_type": ["llama"]}, "model_type must be a string, got ['llama']"),
        (LLAMA, {"model_type": "vjepa2"}, "must be one whose rope a RotarySpec can say"),
        ("voxtral-mini-3b-2507", {"text_config": []}, "text_config must be a dictionary, got []"),
        ("pixtral-12b", {"text_config.model_type": "qwen"}, "text_config.model_type must be one"),
        (LLAMA, {"model_type": "gemma4"}, "layer_types must be given"),
        ("hunyuan-7b-instruct", {"attention_head_dim": 64}, "head_dim and attention_head_dim must"),
        ("llama-2-7b", {"model_type": "sam3"}, "vision_config.backbone_config must be given"),
        # Sizes.
        (LLAMA, {"num_hidden_layers": GONE}, "num_hidden_layers must be given"),
        (LLAMA, {"num_hidden_layers": 0}, "num_hidden_layers must be an integer above 0, got 0"),
        (LLAMA, {"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 10,000"),
        (LLAMA, {"num_attention_heads": GONE}, "num_attention_heads must be given"),
        (LLAMA, {"num_attention_heads": 0}, "num_attention_heads must be an integer above 0"),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size must be an integer above 0, got '4096'"),
        (LLAMA, {"hidden_size": GONE}, "must be given, got none of embed_dim, hidden_size"),
        (LLAMA, {"head_dim": 127}, "head_dim must be even where all of it turns, got 127"),
        (LLAMA, {"head_dim": 2**70}, "head_dim must be at most"),
        (YARN, {"qk_rope_head_dim": GONE}, "qk_rope_head_dim must be given"),
        (YARN, {"qk_nope_head_dim": GONE}, "qk_nope_head_dim must be given"),
        (LLAMA, {"qk_rope_head_dim": 64}, "qk_rope_head_dim must be absent"),
        ("gpt-j-6b", {"rotary_dim": GONE}, "rotary_dim must be given"),
        ("gpt-j-6b", {"rotary_dim": 512}, "rotary_dim must be at most head_dim=256, got 512"),
        ("gpt-j-6b", {"rotary_dim": "64"}, "rotary_dim must be an integer above 0, got '64'"),
        ("phi-1", {"rotary_dim": 16}, "rotary_dim must be absent or 32"),
        ("pixtral-12b", {"vision_config.head_dim": 66}, "head_dim must be a multiple of 4"),
        # Theta.
        (LLAMA, {"rope_theta": 0}, "rope_theta must be finite and above 0, got 0"),
        (LLAMA, {"rope_theta": "1e4"}, "rope_theta must be a number, got '1e4'"),
        (LLAMA, {"rope_theta": True}, "rope_theta must be a number, got True"),
        (LLAMA, {"rope_theta": [1e4]}, "rope_theta must be a number, got [10000.0]"),
        (LLAMA, {"rope_theta": float("nan")}, "rope_theta must be finite and above 0, got nan"),
        (
            LLAMA,
            {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            "rope_theta must say the same as rope_theta in the rope's own fields, 500000.0",
        ),
        (
            "pythia-6.9b",
            {"rope_theta": 5e5},
            "rotary_emb_base must say the same as rope_theta",
        ),
        ("glm-4-9b-chat", {"rope_theta": 1e4}, "rope_theta must be absent where there is a rope_r"),
        ("persimmon-8b-base", {"rope_theta": GONE}, "rope_theta must be given, got none"),
        # How much of a head turns.
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be absent, for this"),
        ("phi-2", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be above 0 and at m"),
        ("phi-2", {"partial_rotary_factor": 0}, "partial_rotary_factor must be finite and above 0"),
        ("phi-2", {"partial_rotary_factor": "0.4"}, "partial_rotary_factor must be a number"),
        ("phi-2", {"partial_rotary_factor": 0.001}, "partial_rotary_factor must leave at least 2"),
        ("pythia-6.9b", {"partial_rotary_factor": 0.5}, "rotary_pct must say the same as partial"),
        # The rope's dictionary and its type.
        (LLAMA, {"rope_scaling": "linear"}, "rope_scaling must be a dictionary or null"),
        (LLAMA, {"rope_scaling": [4.0]}, "rope_scaling must be a dictionary or null, got [4.0]"),
        (LLAMA, {"rope_parameters": 3}, "rope_parameters must be a dictionary or null, got 3"),
        (
            LLAMA,
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "linear", "factor": 4.0},
            },
            "rope_scaling must be absent where there are rope_parameters that differ from it",
        ),
        (LLAMA, {"rope_scaling": {"factor": 2.0}}, "rope_type must be given beside ['factor']"),
        (LLAMA, {"rope_scaling": {"type": 5}}, "type must be a string, got 5"),
        (LLAMA, {"rope_scaling": {"type": "yarm"}}, "got 'yarm'; did you mean 'yarn'?"),
        (LLAMA, {"rope_scaling": {"type": "ntk_yarn"}}, "rope_type must be one of default"),
        (LLAMA, {"rope_scaling": {"type": "axial"}}, "rope_type must be one of default"),
        (LLAMA, {"rope_scaling": {"type": "mrope"}}, "rope_type must not be 'mrope' here"),
        (
            LLAMA_3,
            {"rope_scaling.type": "yarn"},
            "type must be the same as rope_type, 'llama3', got 'yarn'",
        ),
        # A rule's fields.
        (
            LLAMA,
            {"rope_scaling": {"type": "linear"}},
            "factor must be given for rope_type 'linear'",
        ),
        (LLAMA, {"rope_scaling": {"type": "default", "factor": 2.0}}, "factor must be absent for"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": "4"}, "factor must be a number, got '4'"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": True}, "factor must be a number, got True"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": None}, "factor must be given"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": -4.0}, "factor must be finite and above 0"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.alpha": 2.0}, "'linear' has no field 'alpha'"),
        (LLAMA_3, {"rope_scaling.factor": GONE}, "factor must be given for rope_type 'llama3'"),
        (LLAMA_3, {"rope_scaling.low_freq_factor": GONE}, "low_freq_factor must be given"),
        (LLAMA_3, {"rope_scaling.high_freq_factor": GONE}, "high_freq_factor must be given"),
        (LLAMA_3, {"rope_scaling.high_freq_factr": 4.0}, "has no field 'high_freq_factr'"),
        (LLAMA_3, {"rope_scaling.high_freq_factor": 0.5}, "high_freq_factor must be at least low"),
        (
            LLAMA_3,
            {"rope_scaling.original_max_position_embeddings": GONE},
            "original_max_position_embeddings must be given for rope_type 'llama3'",
        ),
        (
            LLAMA_3,
            {"rope_scaling.original_max_position_embeddings": 8192.5},
            "original_max_position_embeddings must be an integer above 1, got 8192.5",
        ),
        (
            LLAMA_3,
            {"original_max_position_embeddings": 4096},
            "original_max_position_embeddings in the rope's own fields must be the same as",
        ),
        (YARN, {"rope_scaling.beta_fasst": 32}, "rope_type 'yarn' has no field 'beta_fasst'"),
        (YARN, {"rope_scaling.beta_fast": 0.5}, "beta_fast must be at least beta_slow=1"),
        (YARN, {"rope_scaling.truncate": "false"}, "truncate must be true or false, got 'false'"),
        (YARN, {"rope_scaling.mscale": "1"}, "mscale must be a number, got '1'"),
        (YARN, {"rope_scaling.attention_factor": 0}, "attention_factor must be finite and above 0"),
        (
            YARN,
            {"rope_scaling.original_max_position_embeddings": GONE},
            "original_max_position_embeddings must be given for rope_type 'yarn'",
        ),
        (LONG, {"rope_scaling.short_factor": [1.0] * 3}, "long_factor must have as many entries"),
        (
            LONG,
            {"rope_scaling.short_factor": [1.0] * 3, "rope_scaling.long_factor": [1.0] * 3},
            "short_factor must have an entry for each of 48 pairs, got 3",
        ),
        (LONG, {"rope_scaling.long_factor": 2.0}, "long_factor must be a list of numbers, got 2.0"),
        (LONG, {"rope_scaling.long_factor": ["1"] * 48}, "long_factor[0] must be a number"),
        (LONG, {"rope_scaling.short_factor": GONE}, "short_factor must be given"),
        (LONG, {"original_max_position_embeddings": GONE}, "original_max_position_embeddings must"),
        (
            LONG,
            {"max_position_embeddings": GONE},
            "factor or max_position_embeddings must be given",
        ),
        (LONG, {"max_position_embeddings": "128k"}, "max_position_embeddings must be a number"),
        ("internlm2.5-7b-chat", {"max_position_embeddings": GONE}, "max_position_embeddings must"),
        (
            "internlm2.5-7b-chat",
            {"rope_scaling.original_max_position_embeddings": 4096},
            "must be the same as max_position_embeddings at the top level, got 4096 and 32768",
        ),
        ("hunyuan-7b-instruct", {"rope_scaling.factor": 2.0}, "factor must be 1.0 where there is"),
        ("hunyuan-7b-instruct", {"rope_scaling.alpha": "x"}, "alpha must be a number, got 'x'"),
        # Several axes.
        (
            QWEN_VL,
            {"rope_scaling.mrope_section": [16, 24]},
            "mrope_section must hold three numbers",
        ),
        (QWEN_VL, {"rope_scaling.mrope_section": [16, 24, 25]}, "mrope_section must sum to the 64"),
        (QWEN_VL, {"rope_scaling.mrope_section": [40, 24, 0]}, "mrope_section must hold integers"),
        (QWEN_VL, {"rope_scaling.mrope_section": "16"}, "mrope_section must hold three numbers"),
        (
            QWEN_VL,
            {"rope_scaling.mrope_interleaved": True},
            "mrope_interleaved must be false or abs",
        ),
        (LLAMA, {"rope_scaling": {"type": "default", "mrope_section": [64]}}, "mrope_section must"),
        # Types of layers.
        (SMOL, {"no_rope_layers": [1, 0]}, "no_rope_layers must hold one for each of 36 layers"),
        (
            SMOL,
            {"no_rope_layers": [2] * 36},
            "no_rope_layers must hold 1 (rope) or 0 (none), got 2",
        ),
        (SMOL, {"no_rope_layers": 4}, "no_rope_layers must be a list, got 4"),
        (
            SMOL,
            {"no_rope_layers": GONE, "no_rope_layer_interval": 0},
            "no_rope_layer_interval must be an integer above 0, got 0",
        ),
        (LLAMA, {"no_rope_layers": [1] * 31 + [0]}, "no_rope_layers must be absent"),
        (SCOUT, {"text_config.attn_scale": "x"}, "attn_scale must be a number above 0, got 'x'"),
        (SCOUT, {"text_config.floor_scale": 0}, "floor_scale must be an integer above 0, got 0"),
        ("exaone-4.0-32b", {"layer_types": ["full_attention"]}, "layer_types must name each of 64"),
        ("exaone-4.0-32b", {"layer_types": GONE}, "layer_types must be given"),
        ("exaone-4.0-32b", {"layer_types": None}, "layer_types must be given"),
        ("exaone-4.0-32b", {"layer_types": "LLLG"}, "layer_types must be a list, got 'LLLG'"),
        (
            "exaone-4.0-32b",
            {"layer_types": ["sliding_atention"] * 64},
            "got 'sliding_atention'; did you mean 'sliding_attention'?",
        ),
        (
            "gemma-3-1b-it",
            {"sliding_window_pattern": 0},
            "sliding_window_pattern must be an intege",
        ),
        ("olmo-3.1-32b-instruct", {"layer_types": GONE}, "layer_types must"),
        ("deepseek-v4-flash-nvfp4", {"compress_ratios": [0, 4]}, "compress_ratios must hold one"),
        ("deepseek-v4-flash-nvfp4", {"compress_ratios": [7] * 44}, "compress_ratios must be of 0,"),
        ("deepseek-v4-flash-nvfp4", {"compress_ratios": GONE}, "layer_types must be given"),
        (GEMMA_4, {SLIDING: GONE}, "rope_parameters must hold 'sliding_attention', a layer type"),
        (GEMMA_4, {SLIDING: "default"}, "sliding_attention must stand in the fields"),
        (GEMMA_4, {FULL + ".rope_theta": GONE}, "rope_theta must be given, got none"),
        (GEMMA_4, {"text_config.rope_parameters": GONE}, "rope_parameters must hold a dictionary"),
        (GEMMA_4, {"text_config.rope_parameters.factor": 2.0}, "factor must stand in the fields"),
        (GEMMA_4, {"text_config.per_layer_config": 3}, "per_layer_config must be a dictionary"),
        (GEMMA_4, {"text_config.per_layer_config": {"x": {}}}, "per_layer_config must hold a dict"),
        (
            "gemma-3-1b-it",
            {"rope_scaling": GONE, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
            "rope_parameters must hold a dictionary for each type of layer",
        ),
        # What nobody would read.
        (LLAMA, {"rope_interleaved": True}, "rope_interleaved must be false or absent"),
        (LLAMA, {"rope_interleaved": 1}, "rope_interleaved must be true or false, got 1"),
        (LLAMA, {"rope_base": 5e5}, "rope_base must be absent, for it is not known what it means"),
        (LLAMA, {"rope_ratio": 50}, "rope_ratio must be absent"),
        (LLAMA, {"alibi": True}, "alibi must be absent"),
        ("falcon-7b", {"alibi": "no"}, "alibi must be one of (True, False), got 'no'"),
        (LLAMA, {"rope_local_base_freq": 1e4}, "rope_local_base_freq must be absent"),
        ("roformer-chinese-base", {"rotary_value": True}, "rotary_value must be absent"),
        (
            "qwen3-vl-4b-instruct",
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "rope_scaling must be the same at the top level and in text_config, which is read",
        ),
        # Rules that a family's own code has where its file is silent.
        ("gpt-oss-20b", {"rope_scaling": GONE}, "rope_parameters must be given for this model"),
        ("gpt-oss-20b", {"rope_scaling": None}, "rope_parameters must be given for this model"),
        (
            "ministral-3-3b-reasoning-2512",
            {"text_config.rope_parameters": {"rope_theta": 1e6, "llama_4_scaling_beta": 0.1}},
            "rope_type must be given beside ['llama_4_scaling_beta']",
        ),
    ],
)
def test_a_mistake_in_a_published_file(name, changes, message):
    try:
        config = changed(name, changes)
    except KeyError as error:  # the file is not what this test believes
        raise AssertionError(f"{name} has no {error}") from error
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(config)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{", "config must be a readable JSON file, or"),
        ("[1, 2]", "config must hold a JSON object, got list in"),
        ('"llama"', "config must hold a JSON object, got str in"),
        (
            '{"rope_theta": 1e4, "rope_theta": 5e5}',
            "rope_theta must be given once, got 10000.0 and 500000.0 in the same object",
        ),
    ],
)
def test_a_file_that_is_no_config(written, message, tmp_path):
    (tmp_path / "config.json").write_text(written)
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(tmp_path)


def test_no_file(tmp_path):
    for config in (tmp_path, tmp_path / "other.json", str(tmp_path / "config.json")):
        with pytest.raises(
            ValueError, match=r"must be a config.json or its folder, got .* no such"
        ):
            ModelSpec.from_config(config)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="config must be a readable JSON file"):
        ModelSpec.from_config(tmp_path)


@pytest.mark.parametrize("config", [None, 3, ["llama"], ModelSpec])
def test_what_is_no_config(config):
    with pytest.raises(TypeError, match="config must be a path, a dictionary or a transformers"):
        ModelSpec.from_config(config)


SMOLLM = PUBLISHED["smollm3-3b"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, layer=3),
            ValueError,
            "layer must be one that has a rope, got 3, which has none (NoPE)",
        ),
        (lambda: RotaryEmbedding.from_config(SMOLLM, layer=36), ValueError, "layer must lie in 0"),
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, layer=-1),
            ValueError,
            "layer must be at leas",
        ),
        (lambda: RotaryEmbedding.from_config(SMOLLM, layer="0"), TypeError, "layer must be an int"),
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, layer=True),
            TypeError,
            "layer must be an int",
        ),
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, stack="vision"),
            ValueError,
            "stack must be one that the config describes, text, got 'vision'",
        ),
        (lambda: ModelSpec.from_config(SMOLLM).layer(0, ["text"]), ValueError, "got ['text']"),
        (
            lambda: ModelSpec.from_config(SMOLLM, pairing="neox"),
            ValueError,
            'pairing must be "half"',
        ),
        (
            lambda: ModelSpec.from_config(SMOLLM, pairing="interleaved"),
            ValueError,
            "pairing must be left out for model_type 'smollm3', which has 'half'",
        ),
        (
            lambda: ModelSpec.from_config({"hidden_size": 64}, pairing="half"),
            ValueError,
            "num_hidden_layers must be given",
        ),
        (
            lambda: ModelSpec.from_config(
                {"head_dim": 64, "num_hidden_layers": 1, "model_type": "new"}, pairing="half"
            ),
            ValueError,
            "rope_theta must be given, got none",
        ),
        (
            lambda: ModelSpec.from_config(SMOLLM).to_config("rope_params"),
            ValueError,
            'form must be "rope_parameters" or "rope_scaling", got \'rope_params\'',
        ),
        (
            lambda: ModelSpec(ModelSpec.from_config(SMOLLM).stacks).to_config(),
            ValueError,
            "model_type must be set to write a config",
        ),
        (
            lambda: ModelSpec(ModelSpec.from_config(SMOLLM).stacks, "cohere").to_config(),
            ValueError,
            "form must be one that can say these ropes",
        ),
    ],
)
def test_a_mistake_in_a_call(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_only_the_vision_part_is_known():
    config = {"model_type": "llava", "text_config": {"model_type": "opt"}}
    with pytest.raises(ValueError, match=r"text_config.model_type must be one whose pairing"):
        ModelSpec.from_config(config)
    config["vision_config"] = {"model_type": "pixtral", "head_dim": 64}
    spec = ModelSpec.from_config(config)
    assert spec.layer(0, "vision").rope.axis_count == 2
    with pytest.raises(ValueError, match="stack must be one that the config describes, vision"):
        _ = spec.layers


@pytest.mark.parametrize(
    "model_type",
    """
    aya_vision got_ocr2 idefics2 idefics3 internvl llava llava_next llava_next_video llava_onevision
    mistral3 paligemma smolvlm video_llava vipllava voxtral of_nobody_yet
    """.split(),  # noqa: SIM905
)
def test_a_model_that_wraps_another_reads_its_text_part(model_type):
    text = dict(PUBLISHED["llama-3.1-8b-instruct"])
    config = {"model_type": model_type, "text_config": text, "vision_config": {"model_type": "vit"}}
    expected = ModelSpec.from_config(text)
    assert ModelSpec.from_config(config).layers == expected.layers


# Whatever is changed in whatever file: read, or an error in words.

places = st.sampled_from(sorted(PUBLISHED))
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.floats(),
    st.sampled_from(["x", "", "yarn", "full_attention", "1e4", 10**400, 2**70]),
    st.lists(st.one_of(st.integers(-2, 3), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(
        st.sampled_from(["rope_type", "factor", "full_attention", "rope_theta", "a"]),
        st.one_of(st.none(), st.integers(), st.sampled_from(["linear", "yarn"]), st.builds(dict)),
        max_size=3,
    ),
)
keys = st.sampled_from(
    """
    rope_theta rope_scaling rope_parameters partial_rotary_factor layer_types no_rope_layers
    rotary_dim head_dim per_layer_config layer_rope_theta rope_ratio rope_interleave text_config
    vision_config sliding_window_pattern attn_scale floor_scale no_rope_layer_interval
    compress_ratios full_attn_idxs alibi rotary_pct rotary_emb_base factor
    original_max_position_embeddings num_hidden_layers hidden_size num_attention_heads type
    """.split()  # noqa: SIM905
)


def sections(config: dict) -> list[dict]:
    inner = [
        each for value in config.values() if isinstance(value, dict) for each in sections(value)
    ]
    return [config, *inner]


@settings(max_examples=1500)
@given(places, st.data())
def test_any_change_is_read_or_refused_in_words(name, data):
    config = copy.deepcopy(PUBLISHED[name])
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        section = data.draw(st.sampled_from(sections(config)), label="section")
        action = data.draw(st.sampled_from(["drop", "set", "set", "add", "type"]), label="action")
        if action == "type":
            config["model_type"] = data.draw(st.sampled_from([*STACKS, *TOWERS]))
        elif action == "add" or not section:
            section[data.draw(keys)] = data.draw(values)
        else:
            key = data.draw(st.sampled_from(sorted(section)))
            section.pop(key)
            if action == "set":
                section[key] = data.draw(values)
    try:
        spec = ModelSpec.from_config(config)
    except (ValueError, TypeError) as error:
        if not re.search("must|has no field", str(error)):
            raise AssertionError("the error has no rule in it") from error
        return
    for layers in spec.stacks.values():
        assert layers
