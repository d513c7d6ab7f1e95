"""Fragments for engines that read config.json: transformers, TensorRT-LLM, ONNX Runtime GenAI."""

from __future__ import annotations

from typing import Any

from ropewalk.rotary.scaling import LongRoPE, YaRN
from ropewalk.tools.extend.block import at_path, removed_keys
from ropewalk.tools.extend.facts import Fragment
from ropewalk.tools.extend.request import Request, is_nested, pretty
from ropewalk.tools.inspect.cautions import GENAI_LLAMA

YARN_ONLY = ("attention_factor", "truncate")  # fields of YaRN that two engines ignore
GENAI_LONGROPE = ("phi3", "phi3_v", "phimoe")
#: Model types of the text that its builder has (builder.py, create_model).
GENAI_TYPES = frozenset(
    """
    chatglm ernie4_5 gemma gemma2 gemma3_text gemma4_text gpt_oss granite granitemoehybrid
    hunyuan_v1_dense internlm2 lfm2 lfm2_moe ministral3 mistral olmo phi qwen2 qwen2_5_vl_text qwen3
    qwen3_5_moe_text qwen3_5_text qwen3_vl_text
    """.split()  # noqa: SIM905
) | {*GENAI_LLAMA, *GENAI_LONGROPE}


def transformers(request: Request) -> Fragment:
    """Return the keys of config.json for transformers 5: the whole block."""
    rule, method = request.result.rule, request.result.method
    warnings = []
    if method == "dynamic":
        warnings.append(
            "max_position_embeddings stays at the original length, because transformers computes "
            "the rule from it. Results for a sequence depend on longer ones before it, and cached "
            "keys keep the angles of their time"
        )
    if isinstance(rule, YaRN) and not rule.truncate and is_nested(request.rope_parameters):
        warnings.append("transformers ignores truncate inside the fields of a layer type")
    if isinstance(rule, LongRoPE):
        warnings.append(
            "keys that were cached within the original length do not fit beyond it; transformers "
            "computes them again for Phi-3 only"
        )
    removed = removed_keys(request.text)
    if "rope_scaling" in removed:
        warnings.append(
            "if rope_scaling stays in config.json, transformers uses it and silently ignores "
            "rope_parameters"
        )
    return Fragment(
        engine="transformers",
        version="5",
        source="transformers 5.23, modeling_rope_utils.py",
        place="config.json",
        text=pretty(at_path(request.text.path, request.result.section)),
        remove=removed,
        warnings=tuple(warnings),
        run=True,
    )


def tensorrt_llm(request: Request) -> Fragment:
    """Return the keys for TensorRT-LLM: the earlier form, which its `RopeParams` reads."""
    rule, written = request.result.rule, request.rope_parameters
    common: dict[str, Any] = {
        "engine": "tensorrt-llm",
        "version": "commit 000a01d",
        "source": "_torch/attention_backend/interface.py, RopeParams.from_config",
        "place": f"config.json; then: trtllm-serve DIR --max_seq_len {request.to}",
    }
    if is_nested(written):
        why = "it reads one rope for all layers, and this model has ropes by type of layer"
        return Fragment(**common, text=None, warnings=(why,))
    fields = dict(written)
    keys: dict[str, Any] = {}
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in fields:
            keys[name] = fields.pop(name)
    warnings = []
    mrope = "mrope_section" in fields
    if fields["rope_type"] == "default" and not mrope:
        keys["rope_scaling"] = None
    else:
        keys["rope_scaling"] = {**fields, "type": fields["rope_type"]}
    if mrope and fields["rope_type"] == "default":
        keys["rope_scaling"]["type"] = "mrope"
    elif mrope:
        warnings.append(
            "it has one type for the rule and for M-RoPE, so it silently drops mrope_section here"
        )
    others = {key: value for key, value in request.result.section.items() if key not in keys}
    keys |= {key: value for key, value in others.items() if key != "rope_parameters"}
    if isinstance(rule, YaRN):
        if rule.amplitude(None) != rule.sharpening(1.0) and not rule.mscale_all_dim:
            warnings.append(
                f"it ignores attention_factor and uses the amplitude {rule.sharpening(1.0):.6g}"
            )
        if not rule.truncate:
            warnings.append("it ignores truncate = false and rounds the band of blended pairs")
    if request.result.method == "dynamic":
        warnings.append("it computes the rule once, for one length: short inputs change too")
    return Fragment(
        **common,
        text=pretty(at_path(request.text.path, keys)),
        remove=("rope_parameters",) if "rope_parameters" in request.text.section else (),
        ignores=("rope_parameters", *YARN_ONLY * isinstance(rule, YaRN)),
        warnings=tuple(warnings),
    )


def onnx_genai(request: Request) -> Fragment:
    """Return the keys for the model builder of ONNX Runtime GenAI."""
    rule, method = request.result.rule, request.result.method
    model_type = request.text.model_type or ""
    common: dict[str, Any] = {
        "engine": "onnxruntime-genai",
        "version": "0.18",
        "source": "onnxruntime_genai/models/builders/base.py, make_rope_init",
        "place": "config.json; then: python -m onnxruntime_genai.models.builder -i DIR -o OUT "
        "-p int4 -e cpu -c CACHE",
    }
    none = _genai_refuses(method, model_type, is_nested(request.rope_parameters))
    if none is not None:
        return Fragment(**common, text=None, warnings=(none,))
    section = dict(request.result.section)
    if isinstance(rule, LongRoPE):  # its code reads `type` here
        section["rope_parameters"] = {**request.rope_parameters, "type": "longrope"}
    warnings: list[str] = []
    ignores: list[str] = []
    if isinstance(rule, YaRN):
        ignores += YARN_ONLY
        warnings.append(
            "beta_fast and beta_slow must be stated, as here: without them it computes with 0. It "
            "never rounds the band of blended pairs, so some of them differ from transformers"
        )
        if "mrope_section" in request.rope_parameters:
            warnings.append("with YaRN it silently drops mrope_section: images get wrong positions")
    return Fragment(
        **common,
        text=pretty(at_path(request.text.path, section)),
        remove=removed_keys(request.text),
        ignores=tuple(ignores),
        warnings=tuple(warnings),
        run=method != "longrope" and "alpha" not in request.rope_parameters,
    )


def _genai_refuses(method: str, model_type: str, nested: bool) -> str | None:
    if model_type not in GENAI_TYPES:
        return f"its builder does not know model type {model_type}"
    if nested:
        return "it reads one rope for all layers, and this model has ropes by type of layer"
    if method == "dynamic":
        return "it stops with an error: it has no dynamic rule"
    if model_type in GENAI_LLAMA and method in ("yarn", "linear"):
        return (
            f"for model type {model_type} it silently ignores {method}: its builder knows only "
            f"the rule of Llama 3. Use --method llama3 or ntk"
        )
    if method == "llama3" and model_type not in GENAI_LLAMA:
        return "it stops with an error: only its builder for Llama knows this rule"
    if method == "ntk" and model_type in GENAI_LONGROPE:
        return "its builder requires LongRoPE of a Phi-3 whose context exceeds the original one"
    if method == "longrope" and model_type not in GENAI_LONGROPE:
        return "only its builders for Phi know this rule"
    return None
