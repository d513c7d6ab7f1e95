"""The fragments of `extend`, run in the engine where that is possible here.

These fail if transformers computes another rope from a fragment than `ModelSpec` reads, if a
command line is not quoted for the shell, if GGUF keys read back are another rope, if a model's code
ignores a rule that `extend` offers, or if a field that an engine drops has no warning.
"""

import copy
import importlib.util
import json
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from gguf_files import architecture_names, write_gguf
from published import PUBLISHED, changed
from tiny_models import FAMILIES, any_tiny_model

import ropewalk as rw
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS
from ropewalk.tools.extend.engine_fragments import ARCHITECTURES, ENGINES
from ropewalk.tools.extend.recommended_rule import FOLLOWED, METHODS


@cache
def extended(name, to=131_072, method=None):
    """What `extend` answers for a published config."""
    return rw.tools.extend(PUBLISHED[name], to, method)


def pasted(config, fragment):
    """The config after a user followed the fragment: keys removed and the block merged."""
    config = copy.deepcopy(config)
    block = json.loads(fragment.text)
    into = config
    while len(block) == 1 and isinstance(next(iter(block.values())), dict):
        (key,) = block
        if not key.endswith("config"):
            break
        for name in fragment.remove:
            config.pop(name, None)
        into, block = into[key], block[key]
    for key in fragment.remove:
        into.pop(key, None)
    into.update(block)
    return config


def computed_frequencies(model):
    """The buffers with inverse frequencies of a transformers model."""
    return [
        buffer.double().sort().values
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    ]


QUICK = ["llama", "qwen3", "gemma3_text", "gpt_neox", "glm4", "qwen2_vl_text", "deepseek_v3"]


@pytest.mark.parametrize(
    "model_type",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in FAMILIES],
)
def test_transformers_computes_the_rope_of_the_fragment(model_type, monkeypatch):
    """For each rule that `extend` offers: build a tiny model from the edited config.

    Each call of `extend` computes all rules, to recommend one; for equal arguments, once is enough.
    """
    pytest.importorskip("transformers", reason="the outside reference: pip install 'ropewalk[dev]'")
    module = sys.modules["ropewalk.tools.extend.extend"]
    compute, results = module._result, {}

    def once(method, *more):
        if method not in results:
            results[method] = compute(method, *more)
        return results[method]

    monkeypatch.setattr(module, "_result", once)
    tiny = any_tiny_model(model_type)
    config, before = tiny.config, tiny.config.to_dict()
    report = rw.tools.inspect(before)
    ropes = [kind.rope for kind in report.kinds if kind.rope]
    today = [rope.extended_length or rope.original_length or 0 for rope in ropes]
    to = 4 * max([report.max_length or 0, *today])
    tried = 0
    for method in METHODS:
        try:
            found = rw.tools.extend(before, to, method)
        except ValueError as error:
            assert "cannot be used" in str(error)  # noqa: PT017, others pass
            continue
        fragment = found.fragment("transformers")
        assert fragment.run
        after = pasted(before, fragment)
        model = type(tiny)(type(config).from_dict(copy.deepcopy(after)))
        computed = computed_frequencies(model)
        for layer in set(rw.ModelSpec.from_config(after).layers):
            if layer.rope is None:
                continue
            # A dynamic rule starts with the frequencies of the original length.
            start = 1 if layer.rope.needs_length else None
            wanted = layer.rope.inverse_frequencies(start).abs().sort().values
            same_size = [each for each in computed if each.shape == wanted.shape]
            near = [torch.allclose(each, wanted, rtol=1e-4, atol=1e-12) for each in same_size]
            assert any(near), (method, layer.rope)
        tried += 1
    assert tried or model_type in ("codegen", "gptj", "mimo_v2_flash", "roformer")


def modeling_files():
    """The model types of texts that transformers has, and the source of each."""
    import transformers.models

    folder = Path(transformers.models.__file__).parent
    for model_type, conventions in CONVENTIONS.items():
        stacks = MULTIMODAL_MODELS.get(model_type, {"text"})
        if conventions.head_layout != "head" or "text" not in stacks:
            continue
        name = model_type.removesuffix("_text").replace("-", "_")
        sources = list((folder / name).glob("modeling_*.py"))
        if sources:
            yield model_type, "".join(source.read_text("utf-8") for source in sources)


def test_types_whose_code_has_no_rules_are_known():
    """`ROPE_INIT_FUNCTIONS` has the rules of transformers; code without it follows none."""
    pytest.importorskip("transformers", reason="the outside reference: pip install 'ropewalk[dev]'")
    without = {
        model_type
        for model_type, source in modeling_files()
        if "ROPE_INIT_FUNCTIONS" not in source and "apply_rotary" in source
    }
    known = {name for name, each in FOLLOWED.items() if set(each.methods) <= {"ntk"}}
    assert without <= known
    own_code = {"phi-msft", "chatglm", "grok-1", "qwen", "baichuan", "mpt", "stablelm_epoch"}
    assert known - without <= {*own_code, "xlm-roberta", "esm_rotary", "SaProtConfig"}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *(("qwen3-0.6b", method) for method in ("yarn", "ntk", "llama3", "linear")),
        *(("qwen3.5-9b", method) for method in ("yarn", "linear")),
        *(("qwen2-vl-7b-resaved-default", method) for method in ("ntk", "llama3")),
    ],
)
def test_command_lines_survive_the_shell(name, method):
    found = extended(name, 1_048_576, method)
    wanted = pasted(PUBLISHED[name], found.fragment("transformers"))
    for engine, flag in (("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")):
        words = shlex.split(found.fragment(engine).text)
        assert words[-1] == "1048576"
        overrides = json.loads(words[words.index(flag) + 1])
        inner = overrides.get("text_config", overrides)
        rope = inner.get("rope_parameters") or inner["rope_scaling"]
        text = wanted.get("text_config", wanted)
        assert rope == text["rope_parameters"]
        assert ("text_config" in overrides) == (found.section_path == "text_config")
        if "mrope_section" in text["rope_parameters"]:
            dropped = any("drops mrope_section" in each for each in found.fragment(engine).warnings)
            assert dropped == (method in ("llama3", "linear"))
    assert "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1" in found.fragment("sglang").text


def test_vllm_gets_the_context_before_the_factor_where_it_multiplies():
    def overrides(method):
        words = shlex.split(extended("llama-3-8b", 32_768, method).fragment("vllm").text)
        return json.loads(words[words.index("--hf-overrides") + 1])

    assert overrides("linear")["max_position_embeddings"] == 8_192
    assert overrides("dynamic")["max_position_embeddings"] == 8_192
    assert overrides("llama3")["max_position_embeddings"] == 32_768
    assert "max_position_embeddings" not in overrides("yarn")


def test_llama_cpp_has_flags_for_three_rules():
    def words(method):
        return extended("qwen2-7b-instruct", method=method).fragment("llama.cpp").text

    assert words("yarn") == (
        "llama-server -m MODEL.gguf -c 131072 --rope-scaling yarn --rope-scale 4 "
        "--yarn-orig-ctx 32768"
    )
    assert "--rope-scaling linear --rope-scale 4" in words("linear")
    assert "--override-kv qwen2.context_length=int:131072" in words("linear")
    assert "--rope-freq-base 4088994.243" in words("ntk")
    assert words("dynamic") is None
    assert words("llama3") is None


@pytest.mark.parametrize("method", ["yarn", "linear", "ntk"])
def test_gguf_keys_read_back_are_the_rope_of_the_fragment(method, tmp_path):
    config, found = PUBLISHED["qwen2-7b-instruct"], extended("qwen2-7b-instruct", method=method)
    keys = json.loads(found.fragment("gguf").text)
    own = {key.removeprefix("qwen2."): value for key, value in keys.items()}
    sizes = {"rope.dimension_count": 128, "rope.freq_base": 1_000_000.0}
    sizes |= {"embedding_length": 3584, "attention.head_count": 28}
    path = write_gguf(tmp_path / "model.gguf", "qwen2", **{**sizes, **own})
    rope = next(kind.rope for kind in rw.tools.inspect(path).kinds if kind.rope)
    after = rw.ModelSpec.from_config(pasted(config, found.fragment("transformers")))
    wanted = after.layers[0].rope.wavelengths().tolist()
    assert list(rope.wavelengths) == pytest.approx(wanted, rel=1e-5)


def test_an_alpha_becomes_a_larger_theta_in_llama_cpp():
    found = rw.tools.extend(PUBLISHED["hunyuan-7b-instruct"], 2**20, "ntk", original=32_768)
    spec = found.result("ntk").rule
    dims = 128
    theta = 10_000 * spec.factor ** (dims / (dims - 2))
    words = shlex.split(found.fragment("llama.cpp").text)
    assert float(words[words.index("--rope-freq-base") + 1]) == pytest.approx(theta)
    (base,) = (v for k, v in json.loads(found.fragment("gguf").text).items() if "base" in k)
    assert base == pytest.approx(theta)
    assert found.recommendation.method is None
    assert "1000, is not a ratio of lengths" in found.recommendation.reason


def test_the_architectures_are_names_of_gguf():
    assert set(ARCHITECTURES.values()) <= architecture_names()


def test_tensorrt_llm_gets_the_earlier_form():
    name = "qwen3-4b-thinking-2507"
    config, found = PUBLISHED[name], extended(name, 1_048_576)
    fragment = found.fragment("tensorrt-llm")
    both = [pasted(config, each) for each in (fragment, found.fragment("transformers"))]
    first, second = (rw.ModelSpec.from_config(each).layers for each in both)
    assert first == second
    keys = json.loads(fragment.text)
    assert keys["rope_theta"] == 5_000_000.0
    assert keys["rope_scaling"]["type"] == "yarn"
    larger = json.loads(extended(name, 1_048_576, "ntk").fragment("tensorrt-llm").text)
    assert larger["rope_scaling"] is None
    assert larger["rope_theta"] > 5_000_000.0
    vision = extended("qwen3.5-9b", 1_048_576).fragment("tensorrt-llm")
    assert any("drops mrope_section" in each for each in vision.warnings)
    assert extended("gemma-3-1b-it").fragment("tensorrt-llm").text is None


def test_onnx_genai_gets_what_its_builder_reads():
    def fragment(name, method):
        return extended(name, method=method).fragment("onnxruntime-genai")

    yarn = json.loads(fragment("qwen2-7b-instruct", "yarn").text)["rope_parameters"]
    assert (yarn["rope_type"], yarn["beta_fast"], yarn["beta_slow"]) == ("yarn", 32.0, 1.0)
    assert fragment("qwen2-7b-instruct", "dynamic").text is None
    assert fragment("qwen2-7b-instruct", "llama3").text is None
    assert fragment("llama-3-8b", "llama3").text is not None
    assert fragment("starcoder2-7b", "yarn").text is None
    silent = fragment("llama-3-8b", "yarn")
    assert silent.text is None
    assert "silently ignores yarn" in silent.warnings[0]


BUILD = """
import copy, dataclasses, json, sys, torch
import onnxruntime_genai.models  # puts its folder on the path
import onnx_ir as ir
from builders import LlamaModel, Qwen3Model
from transformers import LlamaConfig, Qwen3Config
import ropewalk as rw

model_type, method = sys.argv[1:]
builder, config_class = {
    "llama": (LlamaModel, LlamaConfig), "qwen3": (Qwen3Model, Qwen3Config)
}[model_type]
config = {
    "model_type": model_type, "vocab_size": 64, "hidden_size": 512, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
    "rope_theta": 1e6, "max_position_embeddings": 4096, "hidden_act": "silu", "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}
fragment = rw.tools.extend(config, 16_384, method).fragment("onnxruntime-genai")
assert fragment.run
for key in fragment.remove:
    config.pop(key)
config.update(json.loads(fragment.text))
made = config_class.from_dict(copy.deepcopy(config))
made.architectures, made._name_or_path = [model_type], "tiny"
model = builder(made, ir.DataType.FLOAT, ir.DataType.FLOAT, "cpu", "cache", {"hf_token": None})
tables = model.make_rotary_embedding_caches_from_scratch()
spec = rw.ModelSpec.from_config(config).layers[0].rope
if method == "yarn":  # it never rounds the band
    spec = dataclasses.replace(spec, scaling=dataclasses.replace(spec.scaling, truncate=False))
exact = rw.RotaryEmbedding(spec).tables(torch.arange(16_384))
for own, table in zip(tables, exact, strict=True):
    assert own.shape[0] == 16_384
    error = (own[:, :64] - table).abs().max()
    assert error < 0.005, error  # its angles are float32
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "method"),
    [("qwen3", "yarn"), ("qwen3", "linear"), ("qwen3", "ntk"), ("llama", "llama3")],
)
def test_onnx_genai_computes_the_rope_of_the_fragment(model_type, method, tmp_path):
    """Its model builder computes cos and sin of a tiny model from the edited config."""
    if importlib.util.find_spec("onnxruntime_genai") is None:
        pytest.skip("needs onnxruntime-genai: pip install onnxruntime-genai==0.18.0")
    command = [sys.executable, "-c", BUILD, model_type, method]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_an_amplitude_that_servers_compute_otherwise_has_a_warning():
    scaling = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4_096}
    changes = {"rope_scaling": {**scaling, "mscale": 0.7, "mscale_all_dim": 1.0}}
    changes |= {"max_position_embeddings": 8_192, "rope_theta": 1e4}
    found = rw.tools.extend(changed("llama-2-7b", changes), 32_768, "yarn")
    for engine in ("vllm", "sglang"):
        assert any("attn_factor" in each for each in found.fragment(engine).warnings)
    assert "--yarn-attn-factor" in found.fragment("llama.cpp").text
    latent = extended("deepseek-v3", 327_680).fragment("llama.cpp")  # it is in the file
    assert "--yarn-attn-factor" not in latent.text


def test_a_rope_scaling_that_stays_would_win():
    fragment = extended("llama-3.1-8b-instruct", 262_144).fragment("transformers")
    assert {"rope_scaling", "rope_theta"} <= set(fragment.remove)
    assert any("silently ignores rope_parameters" in each for each in fragment.warnings)
    dynamic = extended("llama-2-7b", 8_192, "dynamic").fragment("transformers")
    assert json.loads(dynamic.text)["max_position_embeddings"] == 4_096
    assert any("stays at the original length" in each for each in dynamic.warnings)


def test_each_fragment_names_its_version_and_source():
    found = extended("qwen3-4b-thinking-2507", 1_048_576)
    assert [each.engine for each in found.fragments] == list(ENGINES)
    for each in found.fragments:
        assert each.version
        assert each.source
        assert not any(warning.endswith(".") for warning in each.warnings)
    run = [each.engine for each in found.fragments if each.run]
    assert run == ["transformers", "onnxruntime-genai"]
    with pytest.raises(ValueError, match="engine must be one with a fragment"):
        found.fragment("ollama")
    with pytest.raises(ValueError, match="method must be one that was computed"):
        found.result("xpos")
