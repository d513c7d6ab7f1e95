"""What `ModelSpec.from_config` reads in config.json files that were really published.

These fail when a published file is read otherwise than its model's own code would, and when the
origin of a value is noted wrong, or makes layers differ.
"""

import copy
import json
import math

import pytest
import torch
from published import FOLDER, GONE, PUBLISHED, READ, REFUSED, changed, published_spec
from refusals import check_refused

from ropewalk import (
    LayerSpec,
    ModelSpec,
    QueryTemperature,
    RotaryEmbedding,
    RotarySpec,
    scaling,
    tools,
)
from ropewalk.rotary.config.reader import CLASS_DEFAULT
from ropewalk.rotary.config.sections import text_key


def test_every_file_has_a_source():
    sources = json.loads((FOLDER / "sources.json").read_text())
    assert sources.keys() == PUBLISHED.keys()
    assert len(PUBLISHED) >= 120


def test_what_is_read_has_the_files_layers_and_names_its_keys():
    wrong = []
    for name in READ:
        text = PUBLISHED[name].get(text_key(PUBLISHED[name]), PUBLISHED[name])
        keys = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        count = next((text[key] for key in keys if key in text), None)
        layers = published_spec(name).layers
        if len(layers) != count or all(layer.rope is None for layer in layers):
            wrong.append((name, len(layers)))
        wrong += [(name, i) for i, x in enumerate(layers) if (x.rope is None) != (not x.origins)]
        for origin in {origin for layer in layers for origin in layer.origins.values()}:
            for key in origin.replace(" + ", " / ").split(" / "):
                elsewhere = key in (CLASS_DEFAULT, "model_type", "whole head")
                if not elsewhere and key.partition(".")[0] not in text:
                    wrong.append((name, origin))
    assert wrong == []


def test_refuses():
    calls = [(lambda name=name: published_spec(name), why) for name, why in REFUSED.items()]
    check_refused(ValueError, *calls)


LLAMA, SCOUT = "llama-2-7b", "llama-4-scout-17b-16e-instruct"


def standard(head_dim: int, theta: float, pairing: str = "half", **others) -> RotarySpec:
    return RotarySpec(head_dim, theta=theta, pairing=pairing, **others)


def yarn(factor: float, original_length: int, **others) -> scaling.YaRN:
    return scaling.YaRN(factor=factor, original_length=original_length, **others)


def llama3(factor: float, high: float = 4.0) -> scaling.Llama3:
    return scaling.Llama3(factor, low_freq_factor=1.0, high_freq_factor=high, original_length=8192)


DEEPSEEK_V2 = yarn(40, 4096, beta_fast=32, beta_slow=1, mscale=0.707, mscale_all_dim=0.707)
DEEPSEEK_V3 = yarn(40, 4096, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)
KIMI = yarn(32.0, 4096, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
OLMO = yarn(8.0, 8192, beta_fast=32, beta_slow=1, attention_factor=1.2079441541679836)
OSS = yarn(32.0, 4096, beta_fast=32.0, beta_slow=1.0, truncate=False)
MINISTRAL = yarn(16.0, 16384, mscale=1.0, mscale_all_dim=1.0)


def latent(theta: float, scaling_rule: scaling.YaRN, **others) -> RotarySpec:
    where = {"rotary_dim": 64, "start": 128}
    return standard(192, theta, "interleaved", scaling=scaling_rule, **where, **others)


# File → layer → its rope.
KNOWN = {
    "llama-2-7b": {0: standard(128, 1e4)},
    "llama-3-8b": {31: standard(128, 5e5)},
    "llama-3.1-8b-instruct": {0: standard(128, 5e5, scaling=llama3(8.0))},
    "llama-3.2-1b-instruct": {0: standard(64, 5e5, scaling=llama3(32.0))},
    SCOUT: {0: standard(128, 5e5, "interleaved", scaling=llama3(16.0, high=1.0)), 3: None},
    "codellama-7b": {0: standard(128, 1e6)},
    "vicuna-13b-v1.5-16k": {0: standard(128, 1e4, scaling=scaling.Linear(4.0))},
    "mistral-7b-v0.1": {0: standard(128, 1e4)},
    "mistral-nemo-12b-merge": {0: standard(128, 1e6)},
    "ministral-3-3b-reasoning-2512": {0: standard(128, 1e6, scaling=MINISTRAL)},
    "gpt-j-6b": {0: standard(256, 1e4, "interleaved", rotary_dim=64)},
    "gpt-neox-20b": {0: standard(96, 1e4, rotary_dim=24)},
    "pythia-6.9b": {0: standard(128, 1e4, rotary_dim=32)},
    "phi-2": {0: standard(80, 1e4, rotary_dim=32)},
    "persimmon-8b-base": {0: standard(64, 25e3, rotary_dim=32)},
    "stablelm-3b-4e1t": {0: standard(80, 1e4, rotary_dim=20)},
    "nemotron-mini-4b-instruct": {0: standard(128, 1e4, rotary_dim=64)},
    "glm-4-9b-chat-hf": {0: standard(128, 1e4, "interleaved", rotary_dim=64)},
    "glm-4-9b-chat": {0: standard(128, 5e6, "interleaved", rotary_dim=64)},
    "command-r-plus": {0: standard(128, 75e6, "interleaved")},
    "ernie-4.5-0.3b": {0: standard(128, 5e5, "interleaved")},
    "falcon-7b": {0: standard(64, 1e4)},
    "gemma-2-2b-it": {0: standard(256, 1e4)},
    "gemma-3-4b-it": {0: standard(256, 1e4), 5: standard(256, 1e6, scaling=scaling.Linear(8.0))},
    "gemma-4-12b": {
        0: standard(256, 1e4),
        5: standard(512, 1e6, scaling=scaling.Proportional(0.25)),
    },
    "modernbert-base": {0: standard(64, 16e4), 1: standard(64, 1e4)},
    "olmo-3.1-32b-instruct": {0: standard(128, 5e5), 3: standard(128, 5e5, scaling=OLMO)},
    "exaone-4.0-32b": {3: None},
    "smollm3-3b": {3: None, 4: standard(128, 5e6)},
    "qwen3-0.6b": {0: standard(128, 1e6)},
    "qwen3-next-80b-a3b-thinking": {0: None, 3: standard(256, 1e7, rotary_dim=64)},
    "deepseek-v2-lite": {0: latent(1e4, DEEPSEEK_V2)},
    "deepseek-v3": {0: latent(1e4, DEEPSEEK_V3, write_pairing="half")},
    "kimi-k2-instruct": {0: latent(5e4, KIMI, write_pairing="half")},
    "gpt-oss-20b": {0: standard(64, 15e4, scaling=OSS)},
    "internlm2.5-7b-chat": {0: standard(128, 1e6, scaling=scaling.DynamicNTK(2.0, 32768))},
    "hunyuan-7b-instruct": {0: standard(128, 1e4, scaling=scaling.NTKAware(1000.0))},
    "roformer-chinese-base": {0: standard(64, 1e4, "interleaved")},
}


def test_known_ropes():
    read = {n: {i: published_spec(n).layer(i).rope for i in layers} for n, layers in KNOWN.items()}
    assert read == KNOWN


WITHOUT_ROPE = {
    SCOUT: [*range(3, 48, 4)],
    "smollm3-3b": [*range(3, 36, 4)],
    "exaone-4.0-32b": [*range(3, 64, 4)],
    "tiny-random-smollm3": [0],
    "qwen3-next-80b-a3b-thinking": [i for i in range(48) if i % 4 != 3],
    "qwen3.5-9b": [i for i in range(32) if i % 4 != 3],
    "llama-2-7b": [],
}


def test_layers_without_rope():
    read = {
        name: [i for i, layer in enumerate(published_spec(name).layers) if layer.rope is None]
        for name in WITHOUT_ROPE
    }
    assert read == WITHOUT_ROPE


def test_parts_of_a_model_of_several_stacks():
    spec = published_spec("pixtral-12b")
    assert spec.model_type == "mistral"
    assert spec.stacks.keys() == {"text", "vision"}
    assert spec.layer(0, "vision").rope.axis_count == 2
    rope = published_spec("qwen3-vl-4b-instruct").layer(0).rope
    assert [rope.axis_of_pair.count(axis) for axis in range(3)] == [24, 20, 20]
    assert rope.axis_of_pair[:6] == (0, 1, 2, 0, 1, 2)
    rope = published_spec("qwen2.5-vl-7b-instruct").layer(0).rope
    assert rope.axis_of_pair == (0,) * 16 + (1,) * 24 + (2,) * 24


WRAPPERS = """
    aya_vision got_ocr2 idefics2 idefics3 internvl llava llava_next llava_next_video llava_onevision
    mistral3 paligemma smolvlm video_llava vipllava voxtral of_nobody_yet
""".split()  # noqa: SIM905


def test_a_model_that_wraps_another_reads_its_text_part():
    expected = published_spec("llama-3.1-8b-instruct").layers
    inner = {
        "text_config": PUBLISHED["llama-3.1-8b-instruct"],
        "vision_config": {"model_type": "vit"},
    }
    read = {name: ModelSpec.from_config({"model_type": name, **inner}).layers for name in WRAPPERS}
    assert [name for name, layers in read.items() if layers != expected] == []


def test_amplitudes():
    def amplitude(name: str, length: int | None = None) -> float:
        return published_spec(name).layers[-1].rope.amplitude_at(length)

    assert amplitude("gpt-oss-20b") == pytest.approx(1.3465735902799727)
    assert amplitude("deepseek-v3") == 1.0
    assert amplitude("deepseek-v4-flash-nvfp4") == 1.0
    assert amplitude("chinese-alpaca-2-7b-64k") == pytest.approx(1 + 0.1 * math.log(16))
    for length in (100, 100_000):
        assert amplitude("phi-3-mini-128k-instruct", length) == pytest.approx(1.1902380714238083)


@pytest.mark.parametrize("name", ["deepseek-v2-chat", "deepseek-v3", "kimi-k2-instruct"])
@pytest.mark.parametrize(
    ("mscale", "mscale_all_dim"), [(0.707, None), (None, 0.707), (0.707, 0.0), (0.0, 0.707)]
)
def test_a_lone_mscale_counts_as_in_deepseeks_code(name, mscale, mscale_all_dim):
    """modeling_deepseek.py: m(mscale) / m(mscale_all_dim), by default m(1) and m(0) = 1."""
    fields = {"factor": 40, "mscale": mscale, "mscale_all_dim": mscale_all_dim}
    config = changed(name, {f"rope_scaling.{key}": value for key, value in fields.items()})
    one, other = (1.0 if mscale is None else mscale), mscale_all_dim or 0.0
    expected = (1 + 0.1 * one * math.log(40)) / (1 + 0.1 * other * math.log(40))
    model = ModelSpec.from_config(config)
    assert model.layer(0).rope.amplitude_at() == pytest.approx(expected)
    assert ModelSpec.from_config(model.to_config()).layers == model.layers
    (found,) = (x for x in tools.inspect(config).warnings if x.id == "mscale-alone")
    assert "transformers ignores" in found.cause


def test_gtes_rule_slows_every_pair():
    """Alibaba-NLP/new-impl, modeling.py: base * s, and all frequencies over s^(2/dim)."""
    rope, pairs = published_spec("gte-multilingual-base").layer(0).rope, torch.arange(32)
    expected = 1 / (20_000 * 8) ** (pairs.double() / 32) / 8 ** (2 / 64)
    assert rope == RotarySpec(64, theta=2e4, scaling=scaling.MixedNTK(8.0))
    torch.testing.assert_close(rope.inverse_frequencies(), expected, rtol=1e-12, atol=0)
    without = changed("gte-multilingual-base", {"position_embedding_type": "absolute"})
    assert ModelSpec.from_config(without).layer(0).rope is None


def test_chunked_positions_are_warned_about():
    config = changed("qwen2.5-3b-instruct", {"dual_chunk_attention_config": {"chunk_size": 8}})
    with pytest.warns(UserWarning, match="dual_chunk_attention_config is not a part of the rope"):
        assert ModelSpec.from_config(config).layers == published_spec("qwen2.5-3b-instruct").layers


def test_long_rope_keeps_both_lists():
    rope = published_spec("phi-4-mini-instruct").layers[0].rope
    assert (rope.head_dim, rope.rotary_dim) == (128, 96)
    given = PUBLISHED["phi-4-mini-instruct"]["rope_scaling"]
    assert rope.scaling.long_factor == tuple(given["long_factor"])
    assert (rope.scaling.original_length, rope.scaling.factor) == (4096, 32.0)


def test_softmax_factors():
    def factor(name: str) -> float:
        return published_spec(name).layers[0].softmax_factor

    assert factor("deepseek-v3") == pytest.approx((1 + 0.1 * math.log(40)) ** 2)
    assert factor("deepseek-v2-chat") == pytest.approx((1 + 0.0707 * math.log(40)) ** 2)
    assert factor("kimi-k2-instruct") == pytest.approx((1 + 0.1 * math.log(32)) ** 2)
    assert factor("esft-token-intent-lite") == 1.0  # DeepSeek-V2 without YaRN
    assert factor("gpt-oss-20b") == 1.0


def test_query_temperatures():
    scout = published_spec(SCOUT)
    assert scout.layer(0).query_temperature is None
    assert scout.layer(3).query_temperature == QueryTemperature(0.1, 8192, first=1)
    ministral = published_spec("ministral-3-3b-reasoning-2512")
    assert {layer.query_temperature for layer in ministral.layers} == {QueryTemperature(0.1, 16384)}
    at = torch.tensor([[0, 8190], [8191, 100_000]])
    for steps in (True, False):
        given = QueryTemperature(0.1, 8192, first=1, steps=steps).at(at)
        over = [(p + 1) // 8192 + 1 if steps else max(1, (p + 1) / 8192) for p in at.flatten()]
        wanted = torch.tensor([1 + 0.1 * math.log(each) for each in over]).reshape(2, 2)
        torch.testing.assert_close(given, wanted)
    for wrong in (torch.tensor([1.0]), torch.tensor([3, -1])):
        with pytest.raises(ValueError, match="positions must be integers of at least 0, got tens"):
            QueryTemperature(0.1, 8192).at(wrong)


def of_three_layers(model_type, **keys):
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    return ModelSpec.from_config({"model_type": model_type, **sizes, **keys}).layers


@pytest.mark.parametrize(
    ("model_type", "keys", "rotating"),
    [
        ("lfm2", {"full_attn_idxs": [1]}, [1]),
        ("lfm2", {"full_attn_idxs": []}, []),
        ("bamba", {"attn_layer_indices": [0, 2]}, [0, 2]),
        ("recurrent_gemma", {"block_types": ["attention", "recurrent"]}, [0, 2]),
    ],
)
def test_keys_that_list_the_layers_with_a_rope(model_type, keys, rotating):
    layers = of_three_layers(model_type, **keys)
    assert [i for i, layer in enumerate(layers) if layer.rope is not None] == rotating


def test_a_key_that_lists_the_layers_with_a_rule():
    section = {"rope_type": "linear", "factor": 2.0}
    layers = of_three_layers("molmo2_text", rope_scaling=section, rope_scaling_layers=[0, 2])
    rule = scaling.Linear(2.0)
    assert [layer.rope.scaling for layer in layers] == [rule, None, rule]


def test_lists_of_layers_that_cannot_be():
    check_refused(
        ValueError,
        *(
            (lambda model_type=name, keys=keys: of_three_layers(model_type, **keys), message)
            for name, keys, message in [
                ("lfm2", {"full_attn_idxs": [3]}, "full_attn_idxs must have layers 0..2, got 3"),
                ("lfm2", {"full_attn_idxs": [-1]}, "full_attn_idxs must have layers 0..2, got -1"),
                ("lfm2", {"full_attn_idxs": [True]}, "must have layers 0..2, got True"),
                ("lfm2", {"full_attn_idxs": [0] * 4}, "must list each of 3 layers once, got 4"),
                ("bamba", {"attn_layer_indices": 2}, "attn_layer_indices must be a list, got 2"),
                ("recurrent_gemma", {"block_types": []}, "block_types must name each of 3 layers"),
                (
                    "recurrent_gemma",
                    {"block_types": ["x"]},
                    "must be a known type of layer, got 'x",
                ),
                (
                    "molmo2_text",
                    {"rope_scaling_layers": [5]},
                    "rope_scaling_layers must have layers 0..2, got 5",
                ),
            ]
        ),
    )


def test_a_model_spec_of_something_else():
    check_refused(
        TypeError,
        (lambda: ModelSpec([LayerSpec(None)]), "stacks must be a mapping of name to layers, got ["),
        (lambda: ModelSpec({"text": [None]}), "stacks['text'] must have a LayerSpec for each"),
    )


def test_rope_of_one_layer():
    raw = PUBLISHED["gemma-3-4b-it"]
    assert RotaryEmbedding.from_config(raw).spec.theta == 1e4
    assert RotaryEmbedding.from_config(raw, layer=5).spec.theta == 1e6
    vision = RotaryEmbedding.from_config(PUBLISHED["pixtral-12b"], 0, "vision")
    assert vision.spec.axis_count == 2


def test_a_stated_pairing_reads_an_unknown_type():
    raw = {
        "model_type": "of my own",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "rope_theta": 500.0,
        "partial_rotary_factor": 0.5,
    }
    spec = ModelSpec.from_config(raw, pairing="interleaved")
    rope = RotarySpec(16, rotary_dim=8, theta=500.0, pairing="interleaved")
    assert spec.layers == (LayerSpec(rope),) * 2
    del raw["model_type"]
    assert ModelSpec.from_config(raw, pairing="interleaved").layers == spec.layers


DEFAULT = {"rope_type": "default"}
OWN = {"0": {"rope_theta": 5.0, "head_dim": 64}}


@pytest.mark.parametrize(
    ("name", "changes", "field", "origin"),
    [
        (LLAMA, {"rope_theta": 1e4}, "theta", "rope_theta"),
        (LLAMA, {"rope_parameters": DEFAULT}, "theta", CLASS_DEFAULT),
        (LLAMA, {"rope_parameters": {"rope_theta": 1e4}}, "theta", "rope_parameters.rope_theta"),
        (LLAMA, {}, "theta", CLASS_DEFAULT),
        (LLAMA, {}, "head_dim", "hidden_size / num_attention_heads"),
        (LLAMA, {}, "rotary_dim", "whole head"),
        (LLAMA, {}, "pairing", "model_type"),
        (LLAMA, {}, "scaling", CLASS_DEFAULT),
        (LLAMA, {"rope_interleaved": False}, "pairing", "rope_interleaved"),
        (LLAMA, {"rope_pairing": "interleaved"}, "pairing", "rope_pairing"),
        (LLAMA, {"head_dim": 64}, "head_dim", "head_dim"),
        (LLAMA, {"per_layer_config": OWN}, "theta", "per_layer_config.rope_theta"),
        ("llama-3.1-8b-instruct", {}, "scaling", "rope_scaling"),
        ("pythia-6.9b", {}, "theta", "rotary_emb_base"),
        ("pythia-6.9b", {}, "rotary_dim", "rotary_pct"),
        ("pythia-6.9b", {"rotary_pct": GONE}, "rotary_dim", CLASS_DEFAULT),
        ("gpt-j-6b", {}, "rotary_dim", "rotary_dim"),
        ("glm-4-9b-chat", {}, "theta", "rope_ratio"),
        ("deepseek-v3", {}, "rotary_dim", "qk_rope_head_dim"),
        ("gemma-3-1b-it", {}, "theta", "rope_local_base_freq"),
        ("gemma-3-1b-it", {"rope_local_base_freq": GONE}, "theta", CLASS_DEFAULT),
        ("gemma-4-12b", {}, "theta", "rope_parameters.sliding_attention.rope_theta"),
        ("qwen3-0.6b", {"head_dim": GONE}, "head_dim", CLASS_DEFAULT),
        ("pixtral-12b-no-head-dim", {}, "head_dim", f"hidden_size / {CLASS_DEFAULT}"),
    ],
)
def test_origins(name, changes, field, origin):
    assert ModelSpec.from_config(changed(name, changes)).layer(0).origins[field] == origin


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
