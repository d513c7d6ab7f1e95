"""Model types that were read in their own code: published files against that code's formulas.

The formulas are written here once more, as the repositories in each entry's `code` have them. These
fail when a file is read as another rotation or another factor of queries than its code computes,
when another name of the text's section is missed, or when what the code does not know is read.
"""

import json
import math

import pytest
import torch
from published import GONE, PUBLISHED, changed, published_spec
from refusals import check_refused
from torch import Tensor

from ropewalk import ModelSpec, RotaryEmbedding
from ropewalk.rotary.config.model_types import CONVENTIONS


def frequencies(theta: float, rotary_dim: int) -> Tensor:
    return theta ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)


def rotate_half(x: Tensor, angles: Tensor) -> Tensor:
    """q or k (S, D), of which as many first dimensions rotate as there are angles (S, R)."""
    turned, rest = x.split([angles.shape[-1], x.shape[-1] - angles.shape[-1]], dim=-1)
    first, second = turned.chunk(2, dim=-1)
    turned = turned * angles.cos() + torch.cat((-second, first), -1) * angles.sin()
    return torch.cat((turned, rest), -1)


def one_axis(theta: float, rotary_dim: int):
    def angles(positions: Tensor, length: int) -> Tensor:
        half = positions[0, :, None] * frequencies(theta, rotary_dim)
        return torch.cat((half, half), -1)

    return angles


def qwen(positions: Tensor, length: int) -> Tensor:
    """get_ntk_alpha and RotaryEmbedding of modeling_qwen.py, with a seq_length of 8,192."""
    alpha = max(2 ** math.ceil(math.log(length / 8192, 2) + 1) - 1, 1)
    return one_axis(1e4 * alpha ** (128 / 126), 128)(positions, length)


def hunyuan(positions: Tensor, length: int) -> Tensor:
    """HunYuanVLRotaryEmbedding: the list of sections twice, so that both halves have its axes."""
    twice = [16, 16, 16, 16] * 2
    inv_freq = frequencies(1e4 * 1000 ** (128 / 126), 128)
    per_axis = [torch.cat((row[:, None] * inv_freq,) * 2, -1).split(twice, -1) for row in positions]
    return torch.cat([per_axis[i % 4][i] for i in range(8)], -1)


def dots_vision(positions: Tensor, length: int) -> Tensor:
    """VisionRotaryEmbedding of half a head for the row, then for the column, and both again."""
    half = [row[:, None] * frequencies(1e4, 64) for row in positions]
    return torch.cat((*half, *half), -1)


ROTATIONS = [
    ("hunyuan-ocr-1.5", "text", hunyuan),
    ("qwen-1.8b", "text", qwen),
    ("qwen-72b-chat", "text", one_axis(1e6, 128)),
    ("grok-1", "text", one_axis(1e4, 128)),
    ("grok-2", "text", one_axis(208533496.0, 128)),
    ("dots.mocr", "text", one_axis(1e6, 128)),
    ("dots.mocr", "vision", dots_vision),
    ("minicpm-v-2.6", "text", one_axis(1e6, 128)),
    ("minicpm-v-4.5", "text", one_axis(1e6, 128)),
    ("minicpm-o-4.5", "text", one_axis(1e6, 128)),
    ("deepseek-ocr", "text", one_axis(1e4, 128)),
    ("deepseek-vl-7b", "text", one_axis(1e4, 128)),
]


@pytest.mark.parametrize(("name", "stack", "angles"), ROTATIONS)
def test_a_published_file_rotates_as_its_code(name, stack, angles):
    rope = published_spec(name).layer(0, stack).rope
    for length in (100, 8_192, 8_193, 16_384, 20_000, 32_769):
        positions = torch.randint(length, (rope.axis_count, 16))
        x = torch.randn(16, rope.head_dim, dtype=torch.float64)
        at = positions if rope.axis_count > 1 else positions[0]
        given = {"length": length} if rope.needs_length else {}
        ours = RotaryEmbedding(rope).rotate(x[None, None], at, **given)[0, 0]
        assert (ours - rotate_half(x, angles(positions, length))).abs().max() < 1e-5


def test_a_part_of_qwens_heads_may_rotate():
    rope = ModelSpec.from_config(changed("qwen-72b-chat", {"rotary_pct": 0.25})).layer(0).rope
    assert (rope.head_dim, rope.rotary_dim, rope.start) == (128, 32, 0)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        # math.log(i, seq_length) for the i-th token, from 1 on, in QWenAttention.
        ("qwen-1.8b", lambda p: math.log(p + 1, 8192) if p + 1 > 8192 else 1.0),
        ("qwen-72b-chat", None),
        # xai_temperature_reg in SGLang's kernels: log2 of the position.
        ("grok-2", lambda p: math.log2(p) / math.log2(1024) if p > 1024 else 1.0),
        ("grok-1", None),
    ],
)
def test_queries_grow_with_the_logarithm_of_their_position(name, factor):
    temperature = published_spec(name).layer(0).query_temperature
    if factor is None:
        assert temperature is None
        return
    positions = [0, 1, 1023, 1024, 1025, 8190, 8191, 8192, 8193, 32_767, 131_071]
    expected = [factor(p) for p in positions]
    assert temperature.at(torch.tensor(positions)).tolist() == pytest.approx(expected, rel=1e-6)


def test_a_section_of_the_text_has_three_names():
    inside = {"model_type": "qwen2", "num_hidden_layers": 2, "head_dim": 64, "rope_theta": 1e6}
    expected = ModelSpec.from_config(inside)
    for key in ("text_config", "llm_config", "language_config"):
        assert ModelSpec.from_config({"model_type": "a chat model", key: inside}) == expected
        with pytest.raises(ValueError, match=f"top level and in {key}"):
            ModelSpec.from_config({"model_type": "a chat model", key: inside, "rope_theta": 1e4})
    internvl = published_spec("internvl2-8b")
    assert internvl == ModelSpec.from_config(PUBLISHED["internvl2-8b"]["llm_config"])


def test_latent_attention_of_deepseek_vl2():
    sizes = {"use_mla": True, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    raw = changed("deepseek-ocr", {f"language_config.{key}": size for key, size in sizes.items()})
    assert ModelSpec.from_config(raw).layers == ModelSpec.from_config(
        {**raw["language_config"], "model_type": "deepseek_v2"}
    ).layers  # fmt: skip


def test_heads_without_latent_attention_have_the_yarn_of_llama():
    yarn = {"type": "yarn", "factor": 4.0, "mscale_all_dim": 1.0}
    for latent, amplitude in ((False, 0.1 * math.log(4) + 1), (True, 1.0)):
        sizes = {"use_mla": latent, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64 * latent}
        fields = {**sizes, "rope_scaling": {**yarn, "original_max_position_embeddings": 2048}}
        changes = {f"language_config.{key}": value for key, value in fields.items()}
        rope = ModelSpec.from_config(changed("deepseek-ocr", changes)).layers[0].rope
        rotated = RotaryEmbedding(rope).rotate(torch.ones(1, 1, 1, rope.head_dim), torch.arange(1))
        assert float(rotated.max()) == pytest.approx(amplitude)


def test_hunyuan_vl_has_earlier_names_and_places():
    new = PUBLISHED["hunyuan-ocr-1.5"]["text_config"]
    rope = new["rope_parameters"]
    usual = {**rope, "rope_type": "dynamic", "mrope_section": [16] * 4}
    usual = {name: value for name, value in usual.items() if name not in ("type", "xdrope_section")}
    first = {**new, "model_type": "hunyuan_vl", "rope_theta": rope["rope_theta"]}
    del first["rope_parameters"]
    fields = ("alpha", "type", "xdrope_section")
    first["rope_scaling"] = {"factor": 1.0, "mscale": 1.0, **{name: rope[name] for name in fields}}
    for raw in ({**new, "model_type": "hunyuan_vl", "rope_parameters": usual}, first):
        assert ModelSpec.from_config(raw).layers == published_spec("hunyuan-ocr-1.5").layers


@pytest.mark.parametrize("model_type", ["olmo3", "gemma3n_text", "kolibri1", "afmoe"])
def test_types_of_layers_that_a_file_leaves_out(model_type):
    transformers = pytest.importorskip("transformers", reason="the outside reference")
    saved = json.loads(transformers.CONFIG_MAPPING[model_type]().to_json_string())
    left_out = {key: value for key, value in saved.items() if key != "layer_types"}
    spec = ModelSpec.from_config(left_out)
    assert [layer.layer_type for layer in spec.layers] == saved["layer_types"]
    assert len(set(saved["layer_types"])) == 2
    assert spec == ModelSpec.from_config(saved)


def test_a_published_olmo3_without_types_of_layers():
    raw = changed("olmo-3.1-32b-instruct", {"layer_types": GONE})
    assert ModelSpec.from_config(raw) == published_spec("olmo-3.1-32b-instruct")


REFUSALS = [
    ("minicpm-v-2.6", {"version": 5.0}, "version must be absent or one of 2.0, 2.5, 2.6"),
    ("minicpm-o-4.5", {"version": "5"}, "version must be absent or one of 2.6, 4.5"),
    ("grok-2", {"rope_type": "yarn"}, "rope_type must be absent or one of 'original' for this"),
    ("grok-2", {"attn_temperature_len": 1.5}, "attn_temperature_len must be an integer"),
    ("grok-2", {"architectures": GONE}, "'git', which has none: it adds positions"),
    ("qwen-1.8b", {"seq_length": GONE}, "seq_length must be an integer above"),
    ("qwen-1.8b", {"use_dynamic_ntk": "true"}, "use_dynamic_ntk must be true or false, got 'true'"),
    ("qwen-1.8b", {"use_logn_attn": 1}, "use_logn_attn must be true or false, got 1"),
    ("hunyuan-ocr-1.5", {"text_config.rope_parameters.alpha": GONE}, "alpha must be"),
    (
        "hunyuan-ocr-1.5",
        {"text_config.rope_parameters.xdrope_section": [32, 32]},
        "mrope_section must have 3 or 4 numbers of pairs, one for each axis, got [32, 32]",
    ),
    (
        "hunyuan-ocr-1.5",
        {"text_config.rope_parameters.mrope_section": [22, 21, 21]},
        "must be the same as",
    ),
    ("llama-2-7b", {"rope_scaling": {"type": "xdrope", "alpha": 2.0}}, "got 'xdrope'"),
    ("llama-2-7b", {"use_dynamic_ntk": True}, "use_dynamic_ntk must be false or absent"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSALS)
def test_what_the_code_does_not_know_is_refused(name, changes, message):
    raw = changed(name, changes)
    check_refused(ValueError, (lambda: ModelSpec.from_config(raw), message))


def test_these_entries_name_their_code():
    types = "deepseek_vl_v2 dots_ocr dots_vit grok-1 hunyuan_vl_text minicpmo minicpmv"
    for model_type in [*types.split(), "multi_modality", "qwen"]:
        assert CONVENTIONS[model_type].code, model_type
