"""What `ModelSpec.from_config` reads in config.json files that were really published.

These fail when a published file is read otherwise than its model's own code would, when two forms
of the same config are read as different ropes, when a round trip through `to_config` loses
something, or when reading needs another library than torch.
"""

import copy
import json
import math
import pathlib
import subprocess
import sys

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec, scaling
from ropewalk.rotary.config.text_models import STACKS
from ropewalk.rotary.model_spec import LayerSpec, QueryTemperature

FOLDER = pathlib.Path(__file__).parent / "published_configs"
PUBLISHED = {
    path.stem: json.loads(path.read_text())
    for path in sorted(FOLDER.glob("*.json"))
    if path.stem != "sources"
}

# Files that cannot be read, and why: what they say is unknown, contradictory, or no rope.
REFUSED = {
    # Only the diff that added its rope fields was seen; the whole file has a model_type.
    "alfred-40b-1023": "model_type must be given",
    # Saved by a script of its own; transformers ignores `attn_factor` and takes another amplitude.
    "dseek-draft-test": "rope_type 'yarn' has no field 'attn_factor'",
    "hunyuan-ocr-1.5": "the two halves of a pair follow different axes",
    "minicpm3-4b": "model_type must be given",
    "qwen-1.8b": "its dynamic rule goes by powers of two",
    # A model of its own that has qwen2's name; qwen2's code would leave the sections out.
    "slimm-qwen2-0.5b": "use_mrope must be absent",
    "voxcpm2": "model_type must be given",
}
READ = sorted(PUBLISHED.keys() - REFUSED.keys())
NOT_IN_THE_EARLIER_FORM = {"gemma-4-12b", "gemma-4-e2b", "laguna-xs.2-fp8"}


def ropes(spec: ModelSpec, stack: str = "text") -> list[tuple]:
    return [(each.rope, each.softmax_factor, each.query_temperature) for each in spec.stacks[stack]]


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


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("llama-4-scout-17b-16e-instruct", range(3, 48, 4)),
        ("smollm3-3b", range(3, 36, 4)),
        ("exaone-4.0-32b", range(3, 64, 4)),
        ("tiny-random-smollm3", [0]),
        ("qwen3-next-80b-a3b-thinking", [i for i in range(48) if i % 4 != 3]),
        ("qwen3.5-9b", [i for i in range(32) if i % 4 != 3]),
        ("llama-2-7b", []),
    ],
)
def test_layers_without_rope(name, without):
    layers = ModelSpec.from_config(PUBLISHED[name]).layers
    assert [i for i, layer in enumerate(layers) if layer.rope is None] == list(without)


def test_amplitudes():
    def amplitude(name: str, length: int | None = None) -> float:
        return ModelSpec.from_config(PUBLISHED[name]).layers[-1].rope.amplitude_at(length)

    assert amplitude("gpt-oss-20b") == pytest.approx(1.3465735902799727)
    assert amplitude("deepseek-v3") == 1.0
    assert amplitude("deepseek-v4-flash-nvfp4") == 1.0
    assert amplitude("chinese-alpaca-2-7b-64k") == pytest.approx(1 + 0.1 * math.log(16))
    for length in (100, 100_000):
        assert amplitude("phi-3-mini-128k-instruct", length) == pytest.approx(1.1902380714238083)


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


def test_long_rope_keeps_both_lists():
    rope = ModelSpec.from_config(PUBLISHED["phi-4-mini-instruct"]).layers[0].rope
    assert (rope.head_dim, rope.rotary_dim) == (128, 96)
    given = PUBLISHED["phi-4-mini-instruct"]["rope_scaling"]
    assert rope.scaling.long_factor == tuple(given["long_factor"])
    assert (rope.scaling.original_length, rope.scaling.factor) == (4096, 32.0)


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


# What transformers makes of the same file.


def in_transformers(name: str):
    transformers = pytest.importorskip(
        "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
    )
    raw = copy.deepcopy(PUBLISHED[name])
    if raw.get("model_type") not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers has no model type {raw.get('model_type')!r}")
    if name == "llama-4-scout-17b-16e":
        raw["text_config"]["attn_temperature_tuning"] = True  # published as 4, now refused there
    transformers.logging.set_verbosity_error()
    return transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(raw)


@pytest.mark.parametrize("name", READ)
def test_transformers_saves_the_same_ropes(name):
    theirs = in_transformers(name)
    ours = ModelSpec.from_config(PUBLISHED[name])
    saved = ModelSpec.from_config(json.loads(json.dumps(theirs.to_dict())))
    assert ropes(ours) == ropes(saved)
    assert ropes(ours) == ropes(ModelSpec.from_config(theirs))


# transformers 5.23 leaves Nemotron's own head_dim out of account, which is the same as published.
TAKEN_BEFORE = {
    ("nemotron-mini-4b-instruct", key) for key in ("hidden_size", "num_attention_heads")
}


@pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", READ)
def test_a_missing_key_stands_for_what_transformers_takes(name):
    """Every key is taken out in turn: what is read then is what transformers reads, or an error."""
    in_transformers(name)
    from transformers import CONFIG_MAPPING

    at = "text_config" if "text_config" in PUBLISHED[name] else None
    keys = PUBLISHED[name].get("text_config", PUBLISHED[name]).keys() - {"model_type"}
    read = 0
    for key in sorted(keys):
        if (name, key) in TAKEN_BEFORE:
            continue
        raw = copy.deepcopy(PUBLISHED[name])
        (raw if at is None else raw[at]).pop(key)
        if name == "llama-4-scout-17b-16e":
            raw["text_config"]["attn_temperature_tuning"] = True
        try:
            ours = ModelSpec.from_config(raw)
        except ValueError:
            continue
        theirs = CONFIG_MAPPING[raw["model_type"]].from_dict(copy.deepcopy(raw)).to_dict()
        saved = ModelSpec.from_config(json.loads(json.dumps(theirs)))
        assert ropes(ours) == ropes(saved), key
        read += 1
    assert read > 0


SAME_RULE = """
    chinese-alpaca-2-7b-64k deepseek-v3 devstral-small-2-24b-instruct-2512 diffbot-small-xl-2505
    gpt-oss-20b llama-2-7b llama-3.1-8b-instruct llama-3.2-1b-instruct llama2-13b-orca-8k
    luau-coder-v2-3b-base-32k ministral-3-3b-reasoning-2512 phi-3-mini-128k-instruct
    phi-4-mini-instruct qwen2.5-coder-32b-instruct-awq-128k vicuna-13b-v1.5-16k
    yarn-llama-2-70b-32k deepseek-v2-lite auroracap-7b-vid-xtuner
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", SAME_RULE)
def test_transformers_computes_the_same_frequencies(name):
    config = in_transformers(name)
    config = config.get_text_config()
    rope_type = config.rope_parameters["rope_type"]
    rope = ModelSpec.from_config(PUBLISHED[name]).layers[0].rope
    if rope_type == "default":
        assert rope.scaling is None
        return
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for length in (100, 100_000) if rope_type in ("longrope", "dynamic") else (None,):
        if hasattr(config, "qk_rope_head_dim"):
            config.head_dim = config.qk_rope_head_dim
        theirs, amplitude = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=length)
        torch.testing.assert_close(
            rope.inverse_frequencies(length).float(), theirs.float(), rtol=3e-6, atol=0
        )
        assert rope.amplitude_at(length) == pytest.approx(amplitude)


# Written back.


@pytest.mark.parametrize("form", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("name", READ)
def test_round_trip(name, form):
    spec = ModelSpec.from_config(PUBLISHED[name])
    if form == "rope_scaling" and name in NOT_IN_THE_EARLIER_FORM:
        with pytest.raises(ValueError, match=r'form must be one .* try "rope_parameters"'):
            spec.to_config(form)
        return
    written = json.loads(json.dumps(spec.to_config(form)))
    again = ModelSpec.from_config(written)
    assert again.layers == spec.layers
    assert again.model_type == spec.model_type


numbers = st.floats(1.0, 1e3)
lengths = st.integers(2, 2**20)
thetas = st.floats(2.0, 1e9)
divisors = st.lists(numbers, min_size=16, max_size=16).map(tuple)
rules = st.one_of(
    st.none(),
    st.builds(scaling.Linear, numbers),
    st.builds(scaling.DynamicNTK, numbers, lengths),
    st.builds(
        scaling.YaRN,
        numbers,
        lengths,
        beta_fast=st.floats(8.0, 64.0),
        beta_slow=st.floats(0.5, 8.0),
        truncate=st.booleans(),
        attention_factor=st.none() | numbers,
        mscale=st.none() | st.floats(0.0, 2.0),
        mscale_all_dim=st.none() | st.floats(0.0, 2.0),
    ),
    st.builds(
        scaling.LongRoPE,
        divisors,
        divisors,
        lengths,
        numbers,
        attention_factor=st.none() | numbers,
        short_mscale=st.none() | numbers,
        long_mscale=st.none() | numbers,
    ),
    st.builds(scaling.Llama3, numbers, st.floats(0.5, 2.0), st.floats(2.0, 8.0), lengths),
    st.builds(scaling.Proportional, st.floats(0.1, 1.0), numbers),
)


def made_if_possible(size: int, **fields) -> RotarySpec:
    """A spec; what a rule cannot do with a theta (YaRN without a band) is no example."""
    try:
        return RotarySpec(size, **fields)
    except ValueError:
        reject()


@given(
    st.sampled_from(["llama", "qwen3", "cohere", "nanochat", "starcoder2", "of my own"]),
    thetas,
    rules,
    st.integers(1, 6),
    st.sampled_from(["rope_parameters", "rope_scaling"]),
)
def test_round_trip_of_any_rule(model_type, theta, rule, count, form):
    stack = STACKS.get(model_type)
    rope = made_if_possible(
        32,
        theta=theta,
        scaling=rule,
        pairing="half" if stack is None else stack.pairing,
        reverse=stack is not None and stack.reverse,
    )
    spec = ModelSpec({"text": (LayerSpec(rope),) * count}, model_type)
    written = json.loads(json.dumps(spec.to_config(form)))
    pairing = rope.pairing if stack is None else None
    assert ModelSpec.from_config(written, pairing=pairing) == spec


@given(thetas, thetas, rules, st.lists(st.booleans(), min_size=2, max_size=8))
def test_round_trip_of_two_types_of_layers(theta, local, rule, full):
    kinds = [("full_attention" if yes else "sliding_attention") for yes in full]
    made = {
        "full_attention": RotarySpec(256, theta=theta),
        "sliding_attention": RotarySpec(256, theta=local),
    }
    if not isinstance(rule, (scaling.DynamicNTK, scaling.LongRoPE)):
        made["full_attention"] = made_if_possible(256, theta=theta, scaling=rule)
    layers = tuple(LayerSpec(made[kind], kind=kind) for kind in kinds)
    spec = ModelSpec({"text": layers}, "gemma3_text")
    assert ModelSpec.from_config(json.loads(json.dumps(spec.to_config()))) == spec


# In whatever it comes.


@pytest.mark.parametrize("name", ["llama-3.1-8b-instruct", "gemma-3-4b-it", "deepseek-v3"])
def test_path_folder_dictionary_and_object_are_read_alike(name, tmp_path):
    raw = PUBLISHED[name]
    expected = ModelSpec.from_config(raw)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    for config in (
        tmp_path,
        tmp_path / "config.json",
        str(tmp_path),
        str(tmp_path / "config.json"),
    ):
        assert ModelSpec.from_config(config) == expected
    assert ropes(ModelSpec.from_config(in_transformers(name))) == ropes(expected)


@pytest.mark.parametrize("name", READ)
def test_reading_leaves_the_dictionary_as_it_was(name):
    raw = copy.deepcopy(PUBLISHED[name])
    ModelSpec.from_config(raw).to_config()
    assert raw == PUBLISHED[name]


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
