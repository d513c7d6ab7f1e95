"""Which section of a config.json is read for which stack, by which conventions.

These fail when a section is looked for in the wrong place or read by another family's conventions,
when a key that nobody would read is passed over in silence, or when an error does not name it.
"""

import re

import pytest
from published import GONE, PUBLISHED, changed

from ropewalk import ModelSpec

LLAMA = "llama-2-7b"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # The model's type.
        (LLAMA, {"model_type": GONE}, "model_type must be given, got none"),
        (LLAMA, {"model_type": "lama"}, "got 'lama'; did you mean 'llama'? If not, pass p"),
        (LLAMA, {"model_type": "lama"}, '? If not, pass pairing="half" or "interleaved"'),
        (LLAMA, {"model_type": ["llama"]}, "model_type must be a string, got ['llama']"),
        (LLAMA, {"model_type": "vjepa2"}, "must be one with a rope that RotarySpec can describe"),
        ("voxtral-mini-3b-2507", {"text_config": []}, "text_config must be a dictionary, got []"),
        ("pixtral-12b", {"text_config.model_type": "qwen"}, "text_config.model_type must be one"),
        ("llama-2-7b", {"model_type": "sam3"}, "vision_config.backbone_config must be given"),
        # What cannot stand together.
        ("glm-4-9b-chat", {"rope_theta": 1e4}, "rope_theta must be absent if there is a rope_r"),
        # Keys that must be given.
        ("gpt-j-6b", {"rotary_dim": GONE}, "rotary_dim must be given"),
        ("exaone-4.0-32b", {"layer_types": GONE}, "layer_types must be given"),
        ("exaone-4.0-32b", {"layer_types": None}, "layer_types must be given"),
        ("olmo-3.1-32b-instruct", {"layer_types": GONE}, "layer_types must"),
        # The pairing, and what the top level says.
        (LLAMA, {"rope_interleaved": True}, "rope_interleaved must be false or absent"),
        # transformers' code of DeepSeek-V3.2 does not read it; that of DeepSeek-V3 does.
        (
            "deepseek-v3",
            {"model_type": "deepseek_v32", "rope_interleave": False},
            "rope_interleave must be true or absent",
        ),
        (LLAMA, {"rope_interleaved": 1}, "rope_interleaved must be true or false, got 1"),
        (LLAMA, {"rope_pairing": "neox"}, 'rope_pairing must be "half"'),
        (
            "qwen3-vl-4b-instruct",
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "rope_scaling must be the same at the top level and in text_config, which is read",
        ),
        (
            "qwen3-vl-4b-instruct",
            {"rope_pairing": "interleaved"},
            "rope_pairing must be the same at the top level and in text_config, which is read",
        ),
        # A rule that the family's own code has where its file is silent.
        ("gpt-oss-20b", {"rope_scaling": GONE}, "rope_parameters must be given for this model"),
        ("gpt-oss-20b", {"rope_scaling": None}, "rope_parameters must be given for this model"),
    ],
)
def test_a_mistake_in_a_section(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))


def test_parts_of_a_model_of_several_stacks():
    spec = ModelSpec.from_config(PUBLISHED["pixtral-12b"])
    assert spec.model_type == "mistral"
    assert spec.stacks.keys() == {"text", "vision"}
    assert spec.layer(0, "vision").rope.axis_count == 2
    spec = ModelSpec.from_config(PUBLISHED["qwen3-vl-4b-instruct"])
    assert [spec.layer(0).rope.axis_of_pair.count(axis) for axis in range(3)] == [24, 20, 20]
    assert spec.layer(0).rope.axis_of_pair[:6] == (0, 1, 2, 0, 1, 2)
    spec = ModelSpec.from_config(PUBLISHED["qwen2.5-vl-7b-instruct"])
    assert spec.layer(0).rope.axis_of_pair == (0,) * 16 + (1,) * 24 + (2,) * 24


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("gpt2", "model_type must be of a model with a rope, got 'gpt2', which has none: it adds"),
        ("bert", "model_type must be of a model with a rope, got 'bert', which has none: it adds"),
        ("qwen2_5_omni_dit", "got 'qwen2_5_omni_dit': its code rotates only the first head"),
    ],
)
def test_a_type_that_has_no_plain_rope(model_type, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config({**PUBLISHED[LLAMA], "model_type": model_type})


def test_a_dit_is_refused_whatever_pairing_is_stated():
    config = {**PUBLISHED[LLAMA], "model_type": "qwen2_5_omni_dit"}
    with pytest.raises(ValueError, match="its code rotates only the first head"):
        ModelSpec.from_config(config, pairing="half")


def test_only_the_vision_part_is_known():
    config = {"model_type": "llava", "text_config": {"model_type": "opt"}}
    with pytest.raises(ValueError, match=r"text_config.model_type must be of a model with a rope"):
        ModelSpec.from_config(config)
    config["vision_config"] = {"model_type": "pixtral", "head_dim": 64}
    spec = ModelSpec.from_config(config)
    assert spec.layer(0, "vision").rope.axis_count == 2
    with pytest.raises(ValueError, match="stack must be one that the config describes: vision"):
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


@pytest.mark.parametrize("key", ["text_config", "vision_config", "audio_config"])
def test_a_section_that_is_no_dictionary_is_named(key):
    with pytest.raises(ValueError, match=f"{key} must be a dictionary, got 3"):
        ModelSpec.from_config({"model_type": "llava", key: 3})


LLAMA_3 = "llama-3.1-8b-instruct"
YARN = "deepseek-v3"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # A rule's fields.
        ("vicuna-13b-v1.5-16k", {"rope_scaling.alpha": 2.0}, "'linear' has no field 'alpha'"),
        (LLAMA_3, {"rope_scaling.high_freq_factr": 4.0}, "has no field 'high_freq_factr'"),
        (YARN, {"rope_scaling.beta_fasst": 32}, "rope_type 'yarn' has no field 'beta_fasst'"),
        # Types of layers.
        (LLAMA, {"no_rope_layers": [1] * 31 + [0]}, "no_rope_layers must be absent"),
        # What nobody would read.
        (LLAMA, {"rope_base": 5e5}, "rope_base must be absent, since its effect on the rope"),
        (LLAMA, {"rope_ratio": 50}, "rope_ratio must be absent"),
        (LLAMA, {"alibi": True}, "alibi must be absent"),
        (LLAMA, {"rope_local_base_freq": 1e4}, "rope_local_base_freq must be absent"),
        ("roformer-chinese-base", {"rotary_value": True}, "rotary_value must be absent"),
    ],
)
def test_what_nobody_would_read(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))
