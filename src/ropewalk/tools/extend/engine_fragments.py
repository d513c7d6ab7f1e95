"""What to paste into each engine: keys of config.json or of a GGUF file, or a command line.

Each function from `transformers` to `sglang` returns one `Fragment`; `ENGINES` lists them. What
engines read and ignore was found in their source, at the version that the fragment names.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.rotary.config.rope_fields import ORIGINAL_LENGTH
from ropewalk.rotary.scaling import LongRoPE, YaRN
from ropewalk.tools.extend.config_block import TextConfig, at_path, removed_keys
from ropewalk.tools.extend.extension import Fragment, RuleResult
from ropewalk.tools.inspect.cautions import GENAI_LLAMA


@dataclass(frozen=True)
class Request:
    """A rule that the code of the model type follows, and the lengths."""

    text: TextConfig
    result: RuleResult
    original: int
    to: int

    @property
    def rope_parameters(self) -> dict[str, Any]:
        """The complete dictionary of the rope."""
        found: dict[str, Any] = self.result.section["rope_parameters"]
        return found

    @property
    def factor(self) -> float:
        """The target length divided by the original one."""
        return self.to / self.original


def pretty(keys: Mapping[str, Any]) -> str:
    """Return JSON with an indent, and each list of numbers on one line."""
    text = json.dumps(keys, indent=2)
    return re.sub(r"\[[^][{}\"]*\]", lambda found: json.dumps(json.loads(found[0])), text)


def is_nested(rope_parameters: Mapping[str, Any]) -> bool:
    """Return whether a dictionary has the rope of each type of layer."""
    return any(isinstance(each, Mapping) for each in rope_parameters.values())


def mrope_note(request: Request, engine: str) -> Iterator[str]:
    """Yield a warning if a server drops the axes of M-RoPE, which it has only with two rules."""
    plain = request.rope_parameters.get("rope_type") in ("default", "yarn")
    if "mrope_section" in request.rope_parameters and not plain:
        yield (
            f"{engine} silently drops mrope_section with this rule: images and video get wrong "
            f"positions. Use yarn or ntk"
        )


def amplitude_note(request: Request, engine: str) -> Iterator[str]:
    """Yield a warning if YaRN has an amplitude that servers compute otherwise."""
    rule = request.result.rule
    if not isinstance(rule, YaRN):
        return
    usual, own = rule.sharpening(1.0), rule.amplitude(None)
    if not math.isclose(usual, own, rel_tol=1e-4) and not request.text.is_latent:
        yield (
            f"{engine} computes the amplitude {usual:.6g}, and the config says {own:.6g}; add "
            f'"attn_factor": {own / usual:.6g} to the rope\'s dictionary, which multiplies it'
        )


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


# The architecture of a GGUF file by model type, where it is certain (gguf 0.19).
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "phi": "phi2", "phi3": "phi3",
    "cohere": "command-r", "cohere2": "cohere2", "olmo2": "olmo2", "olmo3": "olmo2",
    "starcoder2": "starcoder2", "stablelm": "stablelm", "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss", "granite": "granite", "glm4": "glm4", "smollm3": "smollm3",
    "internlm2": "internlm2", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
}  # fmt: skip
SOURCE = "tools/server/README.md of 00dc805; gguf-py, constants.py"
VERSION = "commit 00dc805"
CONVERT = (
    "edit config.json as for transformers, and convert the model again with convert_hf_to_gguf.py, "
    "which writes the rule into the file"
)


def llama_cpp(request: Request) -> Fragment:
    """Return a command line for llama.cpp, which has flags for linear, YaRN and a larger theta."""
    method, rule = request.result.method, request.result.rule
    warnings, ignores = [], []
    flags = ["llama-server", "-m", "MODEL.gguf", "-c", str(request.to)]
    if method == "yarn" and isinstance(rule, YaRN):
        flags += ["--rope-scaling", "yarn", "--rope-scale", _number(request.factor)]
        flags += ["--yarn-orig-ctx", str(request.original)]
        if rule.beta_fast != 32 or rule.beta_slow != 1:
            flags += ["--yarn-beta-fast", _number(rule.beta_fast)]
            flags += ["--yarn-beta-slow", _number(rule.beta_slow)]
        # In latent attention, llama.cpp computes it from yarn_log_multiplier of the file.
        if rule.amplitude(None) != rule.sharpening(1.0) and not request.text.is_latent:
            ratio = rule.amplitude(None) / rule.sharpening(1.0)
            flags += ["--yarn-attn-factor", _number(ratio)]
        ignores.append("truncate: the band of blended pairs is always rounded")
        if not rule.truncate:
            warnings.append("llama.cpp ignores truncate = false: the blended pairs differ a little")
    elif method == "linear":
        flags += ["--rope-scaling", "linear", "--rope-scale", _number(request.factor)]
        flags += ["--override-kv", f"{_architecture(request)}.context_length=int:{request.to}"]
    elif method == "ntk" and not is_nested(request.rope_parameters):
        flags += ["--rope-scaling", "none", "--rope-freq-base", _number(_larger_theta(request))]
        flags += ["--override-kv", f"{_architecture(request)}.context_length=int:{request.to}"]
    elif method == "dynamic":
        return _none(request, "llama.cpp has no dynamic rule; use --method yarn or ntk")
    else:
        return _none(request, f"llama.cpp has no flag for this rule: {CONVERT}")
    if "ARCH" in " ".join(flags):
        warnings.append(
            "replace ARCH by general.architecture of the file; ropewalk inspect reads it"
        )
    return Fragment(
        engine="llama.cpp", version=VERSION, source=SOURCE, place="shell", text=shlex.join(flags),
        ignores=tuple(ignores), warnings=tuple(warnings),
    )  # fmt: skip


def _none(request: Request, why: str) -> Fragment:
    return Fragment(
        engine="llama.cpp", version=VERSION, source=SOURCE, place="shell", text=None,
        warnings=(why,),
    )  # fmt: skip


def gguf(request: Request) -> Fragment:
    """Return the keys of a GGUF file that describe the rule, with their values."""
    method, rule = request.result.method, request.result.rule
    name, ignores = _architecture(request), []
    keys: dict[str, Any] = {f"{name}.context_length": request.to}
    scaling = f"{name}.rope.scaling"
    if method == "yarn" and isinstance(rule, YaRN):
        keys[f"{scaling}.type"] = "yarn"
        keys[f"{scaling}.factor"] = request.factor
        keys[f"{scaling}.original_context_length"] = request.original
        ignores.append("truncate: the band of blended pairs is always rounded")
        if rule.beta_fast != 32 or rule.beta_slow != 1:
            keys[f"{scaling}.yarn_beta_fast"] = rule.beta_fast
            keys[f"{scaling}.yarn_beta_slow"] = rule.beta_slow
    elif method == "linear":
        keys[f"{scaling}.type"] = "linear"
        keys[f"{scaling}.factor"] = request.factor
    elif method == "ntk" and not is_nested(request.rope_parameters):
        keys[f"{scaling}.type"] = "none"
        keys[f"{name}.rope.freq_base"] = _larger_theta(request)
    else:
        why = (
            "GGUF has no dynamic rule"
            if method == "dynamic"
            else f"the rule is in tensors of the file, not in keys: {CONVERT}"
        )
        return Fragment(
            engine="gguf", version=VERSION, source=SOURCE, place="keys of the GGUF file",
            text=None, warnings=(why,),
        )  # fmt: skip
    warnings = []
    if name == "ARCH":
        warnings.append(
            "replace ARCH by general.architecture of the file; ropewalk inspect reads it"
        )
    if name == "deepseek2" and isinstance(rule, YaRN):
        warnings.append(
            "deepseek2 also needs rope.scaling.yarn_log_multiplier: 0.1 · mscale_all_dim"
        )
    return Fragment(
        engine="gguf", version=VERSION, source=SOURCE, place="keys of the GGUF file",
        text=pretty(keys), ignores=tuple(ignores), warnings=tuple(warnings),
    )  # fmt: skip


def _larger_theta(request: Request) -> float:
    """Return the theta of the NTK-aware rule, which config.json has as theta or as alpha."""
    numbers = request.result.numbers[0]
    dims = 2 * len(numbers.growth)
    return float(numbers.theta * request.factor ** (dims / (dims - 2)))


def _architecture(request: Request) -> str:
    return ARCHITECTURES.get(request.text.model_type or "", "ARCH")


def _number(value: float) -> str:
    return f"{value:.10g}"


def fragments(text: TextConfig, result: RuleResult, original: int, to: int) -> tuple[Fragment, ...]:
    """Return what to paste for one rule, for each engine."""
    if not result.usable:
        return ()
    request = Request(text, result, original, to)
    return tuple(make(request) for make in ENGINES.values())


def vllm(request: Request) -> Fragment:
    """Return a command line for vLLM. A dictionary at the top level replaces the config's."""
    text, method = request.text, request.result.method
    keys = {"rope_parameters": request.rope_parameters, **_lengths(request)}
    warnings = [*mrope_note(request, "vLLM"), *amplitude_note(request, "vLLM")]
    if method == "dynamic":
        warnings.append(
            "vLLM computes the rule once, for the target length: short inputs change too, and the "
            "results differ from those of transformers"
        )
    if method == "longrope":
        warnings.append(
            "vLLM uses long_factor for all inputs if --max-model-len exceeds the original length"
        )
    command = ["vllm", "serve", "MODEL", "--hf-overrides", _json(at_path(text.path, keys))]
    command += ["--max-model-len", str(request.to)]
    prefix = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 " if text.path else ""
    return Fragment(
        engine="vllm",
        version="0.11.1 and later",
        source="docs.vllm.ai, features/context_extension; rotary_embedding/__init__.py of 07b12f1; "
        "for models with vision, Qwen3.5's model card",
        place="shell",
        text=prefix + shlex.join(command),
        ignores=_ignored_by_servers(request),
        warnings=tuple(warnings),
    )


def sglang(request: Request) -> Fragment:
    """Return a command line for SGLang; theta is inside the rope's dictionary."""
    text, method = request.text, request.result.method
    # `rope_scaling` also reaches versions on transformers 4; version 5 accepts it too.
    name = "rope_parameters" if text.path else "rope_scaling"
    keys = {name: request.rope_parameters, **_lengths(request)}
    warnings = [*mrope_note(request, "SGLang"), *amplitude_note(request, "SGLang")]
    if method == "ntk" and "alpha" not in request.rope_parameters:
        warnings.append(
            "SGLang on transformers 4 ignores rope_theta inside rope_scaling; there, set "
            "rope_theta in config.json"
        )
    if method == "dynamic":
        warnings.append(
            "SGLang computes the rule once, for one length: short inputs change too, and the "
            "results differ from those of transformers"
        )
    if is_nested(request.rope_parameters):
        warnings.append(
            "ropes by type of layer reach only models whose code in SGLang reads them; check with "
            "a prompt beyond the original length"
        )
    command = ["python", "-m", "sglang.launch_server", "--model-path", "MODEL"]
    command += ["--json-model-override-args", _json(at_path(text.path, keys))]
    command += ["--context-length", str(request.to)]
    return Fragment(
        engine="sglang",
        version="commit 108c36c",
        source="Qwen's deployment guide and model cards; rotary_embedding/factory.py",
        place="shell",
        text="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 " + shlex.join(command),
        ignores=_ignored_by_servers(request),
        warnings=tuple(warnings),
    )


def _lengths(request: Request) -> dict[str, int]:
    """Return the lengths that servers read next to the rope.

    They multiply the config's context by the factor of linear and dynamic rules, and read YaRN's
    own original length; for other rules the config states the new context.
    """
    keys: dict[str, int] = {}
    if request.result.method in ("linear", "dynamic"):
        keys[request.text.length_key] = request.original
    elif request.result.method != "yarn":
        keys[request.text.length_key] = request.to
    if ORIGINAL_LENGTH in request.result.section:
        keys[ORIGINAL_LENGTH] = request.original
    return keys


def _ignored_by_servers(request: Request) -> tuple[str, ...]:
    if request.result.method == "longrope":
        return ("factor", "attention_factor")
    return ("attention_factor",) if isinstance(request.result.rule, YaRN) else ()


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


#: The engines, in the order in which they are printed.
ENGINES: dict[str, Callable[[Request], Fragment]] = {
    "transformers": transformers,
    "vllm": vllm,
    "sglang": sglang,
    "llama.cpp": llama_cpp,
    "gguf": gguf,
    "tensorrt-llm": tensorrt_llm,
    "onnxruntime-genai": onnx_genai,
}
