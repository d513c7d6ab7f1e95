"""What `ModelSpec.from_config` reads in config.json files that were really published.

These fail when a published file is read otherwise than its model's own code would, when reading
needs another library than torch, and when the origin of a value is noted wrong, or makes layers
differ.
"""

import copy
import json
import math
import re
import subprocess
import sys

import pytest
from published import FOLDER, GONE, PUBLISHED, READ, REFUSED, changed

from ropewalk import LayerSpec, ModelSpec, QueryTemperature, RotaryEmbedding, RotarySpec, scaling
from ropewalk.rotary.config.reader import CLASS_DEFAULT


def test_every_file_has_a_source():
    sources = json.loads((FOLDER / "sources.json").read_text())
    assert sources.keys() == PUBLISHED.keys()
    assert len(PUBLISHED) >= 120


@pytest.mark.parametrize("name", READ)
def test_reads(name):
    spec = ModelSpec.from_config(PUBLISHED[name])
    text = PUBLISHED[name].get("text_config", PUBLISHED[name])
    count = next(
        (text[key] for key in ("num_hidden_layers", "n_layer", "num_layers") if key in text), None
    )
    assert len(spec.layers) == count
    assert any(layer.rope is not None for layer in spec.layers)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        ModelSpec.from_config(PUBLISHED[name])


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


@pytest.mark.parametrize(
    ("name", "layer", "rope"),
    [
        ("llama-2-7b", 0, standard(128, 1e4)),
        ("llama-3-8b", 31, standard(128, 5e5)),
        ("llama-3.1-8b-instruct", 0, standard(128, 5e5, scaling=llama3(8.0))),
        ("llama-3.2-1b-instruct", 0, standard(64, 5e5, scaling=llama3(32.0))),
        (
            "llama-4-scout-17b-16e-instruct",
            0,
            standard(128, 5e5, "interleaved", scaling=llama3(16.0, high=1.0)),
        ),
        ("llama-4-scout-17b-16e-instruct", 3, None),
        ("codellama-7b", 0, standard(128, 1e6)),
        ("vicuna-13b-v1.5-16k", 0, standard(128, 1e4, scaling=scaling.Linear(4.0))),
        ("mistral-7b-v0.1", 0, standard(128, 1e4)),
        ("mistral-nemo-12b-merge", 0, standard(128, 1e6)),
        ("ministral-3-3b-reasoning-2512", 0, standard(128, 1e6, scaling=MINISTRAL)),
        ("gpt-j-6b", 0, standard(256, 1e4, "interleaved", rotary_dim=64)),
        ("gpt-neox-20b", 0, standard(96, 1e4, rotary_dim=24)),
        ("pythia-6.9b", 0, standard(128, 1e4, rotary_dim=32)),
        ("phi-2", 0, standard(80, 1e4, rotary_dim=32)),
        ("persimmon-8b-base", 0, standard(64, 25e3, rotary_dim=32)),
        ("stablelm-3b-4e1t", 0, standard(80, 1e4, rotary_dim=20)),
        ("nemotron-mini-4b-instruct", 0, standard(128, 1e4, rotary_dim=64)),
        ("glm-4-9b-chat-hf", 0, standard(128, 1e4, "interleaved", rotary_dim=64)),
        ("glm-4-9b-chat", 0, standard(128, 5e6, "interleaved", rotary_dim=64)),
        ("command-r-plus", 0, standard(128, 75e6, "interleaved")),
        ("ernie-4.5-0.3b", 0, standard(128, 5e5, "interleaved")),
        ("falcon-7b", 0, standard(64, 1e4)),
        ("gemma-2-2b-it", 0, standard(256, 1e4)),
        ("gemma-3-4b-it", 0, standard(256, 1e4)),
        ("gemma-3-4b-it", 5, standard(256, 1e6, scaling=scaling.Linear(8.0))),
        ("gemma-4-12b", 0, standard(256, 1e4)),
        ("gemma-4-12b", 5, standard(512, 1e6, scaling=scaling.Proportional(0.25))),
        ("modernbert-base", 0, standard(64, 16e4)),
        ("modernbert-base", 1, standard(64, 1e4)),
        ("olmo-3.1-32b-instruct", 0, standard(128, 5e5)),
        ("olmo-3.1-32b-instruct", 3, standard(128, 5e5, scaling=OLMO)),
        ("exaone-4.0-32b", 3, None),
        ("smollm3-3b", 3, None),
        ("smollm3-3b", 4, standard(128, 5e6)),
        ("qwen3-0.6b", 0, standard(128, 1e6)),
        ("qwen3-next-80b-a3b-thinking", 0, None),
        ("qwen3-next-80b-a3b-thinking", 3, standard(256, 1e7, rotary_dim=64)),
        (
            "deepseek-v2-lite",
            0,
            standard(192, 1e4, "interleaved", rotary_dim=64, start=128, scaling=DEEPSEEK_V2),
        ),
        (
            "deepseek-v3",
            0,
            RotarySpec(
                192,
                rotary_dim=64,
                start=128,
                pairing="interleaved",
                write_pairing="half",
                scaling=DEEPSEEK_V3,
            ),
        ),
        (
            "kimi-k2-instruct",
            0,
            RotarySpec(
                192,
                rotary_dim=64,
                theta=5e4,
                start=128,
                pairing="interleaved",
                write_pairing="half",
                scaling=KIMI,
            ),
        ),
        ("gpt-oss-20b", 0, standard(64, 15e4, scaling=OSS)),
        (
            "internlm2.5-7b-chat",
            0,
            standard(128, 1e6, scaling=scaling.DynamicNTK(2.0, original_length=32768)),
        ),
        ("hunyuan-7b-instruct", 0, standard(128, 1e4, scaling=scaling.NTKAware(1000.0))),
        ("roformer-chinese-base", 0, standard(64, 1e4, "interleaved")),
    ],
)
def test_known_ropes(name, layer, rope):
    assert ModelSpec.from_config(PUBLISHED[name]).layer(layer).rope == rope


def test_softmax_factors():
    def factor(name: str) -> float:
        return ModelSpec.from_config(PUBLISHED[name]).layers[0].softmax_factor

    assert factor("deepseek-v3") == pytest.approx((1 + 0.1 * math.log(40)) ** 2)
    assert factor("deepseek-v2-chat") == pytest.approx((1 + 0.0707 * math.log(40)) ** 2)
    assert factor("kimi-k2-instruct") == pytest.approx((1 + 0.1 * math.log(32)) ** 2)
    assert factor("esft-token-intent-lite") == 1.0  # DeepSeek-V2 without YaRN
    assert factor("gpt-oss-20b") == 1.0


def test_query_temperatures():
    scout = ModelSpec.from_config(PUBLISHED["llama-4-scout-17b-16e-instruct"])
    assert scout.layer(0).query_temperature is None
    assert scout.layer(3).query_temperature == QueryTemperature(0.1, 8192, first=1)
    ministral = ModelSpec.from_config(PUBLISHED["ministral-3-3b-reasoning-2512"])
    assert {layer.query_temperature for layer in ministral.layers} == {QueryTemperature(0.1, 16384)}


SCOUT = "llama-4-scout-17b-16e-instruct"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (SCOUT, {"text_config.attn_scale": "x"}, "attn_scale must be a number, got 'x'"),
        (SCOUT, {"text_config.floor_scale": 0}, "floor_scale must be an integer above 0, got 0"),
    ],
)
def test_a_mistake_in_a_query_temperature(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))


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


def test_nothing_else_is_imported():
    code = (
        "import sys, json; from ropewalk import ModelSpec; ModelSpec.from_config(sys.argv[1])"
        ".to_config(); print(json.dumps([m for m in sys.modules if '.' not in m]))"
    )
    path = FOLDER / "gemma-3-4b-it.json"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"transformers", "huggingface_hub", "pydantic", "tokenizers"}


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
