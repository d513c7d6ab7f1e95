"""What to paste into each engine: keys of config.json or of a GGUF file, or a command line.

Each function from `transformers` to `onnx_genai` returns one `Fragment`; `ENGINES` lists them. What
engines read and ignore was found in their source, at the version that the fragment names.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    def yarn(self) -> YaRN | None:
        """The rule, if it is YaRN."""
        return self.result.rule if isinstance(self.result.rule, YaRN) else None

    @property
    def rope_parameters(self) -> dict[str, Any]:
        """The complete dictionary of the rope."""
        written: dict[str, Any] = self.result.section["rope_parameters"]
        return written

    @property
    def is_nested(self) -> bool:
        """Whether the dictionary has the rope of each type of layer."""
        return any(isinstance(value, Mapping) for value in self.rope_parameters.values())

    @property
    def factor(self) -> float:
        """The target length divided by the original one."""
        return self.to / self.original

    @property
    def larger_theta(self) -> float:
        """The theta of the NTK-aware rule, which config.json has as theta or as alpha."""
        numbers = self.result.numbers[0]
        dims = 2 * len(numbers.growth)
        return float(numbers.theta * self.factor ** (dims / (dims - 2)))

    @property
    def architecture(self) -> str:
        """The architecture of the model's GGUF file, or ARCH."""
        return ARCHITECTURES.get(self.text.model_type or "", "ARCH")

    def in_section(self, keys: Mapping[str, Any]) -> str:
        """Return keys of the text's section as JSON, each list of numbers on one line."""
        text = json.dumps(at_path(self.text.path, keys), indent=2)
        return re.sub(r"\[[^][{}\"]*\]", lambda match: json.dumps(json.loads(match[0])), text)


def fragments(text: TextConfig, result: RuleResult, original: int, to: int) -> tuple[Fragment, ...]:
    """Return what to paste for one rule, for each engine."""
    if not result.usable:
        return ()
    request = Request(text, result, original, to)
    return tuple(make(request) for make in ENGINES.values())


def applying(texts: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the texts whose condition holds."""
    return tuple(text for text, applies in texts.items() if applies)


YARN_ONLY = ("attention_factor", "truncate")  # fields of YaRN that two engines ignore
ONE_ROPE = "it reads one rope for all layers, and this model has ropes by type of layer"


def transformers(request: Request) -> Fragment:
    """Return the keys of config.json for transformers 5: the whole block."""
    rule, removed = request.result.rule, removed_keys(request.text)
    warnings = {
        "max_position_embeddings stays at the original length, because transformers computes the "
        "rule from it. Results for a sequence depend on longer ones before it, and cached keys "
        "keep the angles of their time": request.result.method == "dynamic",
        "transformers ignores truncate inside the fields of a layer type": (
            isinstance(rule, YaRN) and not rule.truncate and request.is_nested
        ),
        "keys that were cached within the original length do not fit beyond it; transformers "
        "computes them again for Phi-3 only": isinstance(rule, LongRoPE),
        "if rope_scaling stays in config.json, transformers uses it and silently ignores "
        "rope_parameters": "rope_scaling" in removed,
    }
    return Fragment(
        engine="transformers",
        version="5",
        source="transformers 5.23, modeling_rope_utils.py",
        place="config.json",
        text=request.in_section(request.result.section),
        remove=removed,
        warnings=applying(warnings),
        run=True,
    )


def vllm(request: Request) -> Fragment:
    """Return a command line for vLLM. A dictionary at the top level replaces the config's."""
    text, method = request.text, request.result.method
    keys = {"rope_parameters": request.rope_parameters, **_lengths(request)}
    command = ["vllm", "serve", "MODEL", "--hf-overrides", _json(at_path(text.path, keys))]
    command += ["--max-model-len", str(request.to)]
    prefix = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 " if text.path else ""
    own_warnings = {
        "vLLM computes the rule once, for the target length: short inputs change too, and the "
        "results differ from those of transformers": method == "dynamic",
        "vLLM uses long_factor for all inputs if --max-model-len exceeds the original length": (
            method == "longrope"
        ),
    }
    return Fragment(
        engine="vllm",
        version="0.11.1 and later",
        source="docs.vllm.ai, features/context_extension; rotary_embedding/__init__.py of 07b12f1; "
        "for models with vision, Qwen3.5's model card",
        place="shell",
        text=prefix + shlex.join(command),
        ignores=_ignored_by_servers(request),
        warnings=(*_warnings_of_servers(request, "vLLM"), *applying(own_warnings)),
    )


def sglang(request: Request) -> Fragment:
    """Return a command line for SGLang; theta is inside the rope's dictionary."""
    text, method = request.text, request.result.method
    # `rope_scaling` also reaches versions on transformers 4; version 5 accepts it too.
    name = "rope_parameters" if text.path else "rope_scaling"
    keys = {name: request.rope_parameters, **_lengths(request)}
    command = ["python", "-m", "sglang.launch_server", "--model-path", "MODEL"]
    command += ["--json-model-override-args", _json(at_path(text.path, keys))]
    command += ["--context-length", str(request.to)]
    own_warnings = {
        "SGLang on transformers 4 ignores rope_theta inside rope_scaling; there, set rope_theta in "
        "config.json": method == "ntk" and "alpha" not in request.rope_parameters,
        "SGLang computes the rule once, for one length: short inputs change too, and the results "
        "differ from those of transformers": method == "dynamic",
        "ropes by type of layer reach only models whose code in SGLang reads them; check with a "
        "prompt beyond the original length": request.is_nested,
    }
    return Fragment(
        engine="sglang",
        version="commit 108c36c",
        source="Qwen's deployment guide and model cards; rotary_embedding/factory.py",
        place="shell",
        text="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 " + shlex.join(command),
        ignores=_ignored_by_servers(request),
        warnings=(*_warnings_of_servers(request, "SGLang"), *applying(own_warnings)),
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
    return ("attention_factor",) if request.yarn else ()


def _warnings_of_servers(request: Request, engine: str) -> Iterator[str]:
    """Yield a warning if axes of M-RoPE are dropped, and if YaRN has an unusual amplitude."""
    plain = request.rope_parameters.get("rope_type") in ("default", "yarn")
    if "mrope_section" in request.rope_parameters and not plain:
        yield (
            f"{engine} silently drops mrope_section with this rule: images and video get wrong "
            f"positions. Use yarn or ntk"
        )
    if request.yarn is None or request.text.is_latent:
        return
    usual, own = request.yarn.sharpening(1.0), request.yarn.amplitude(None)
    if not math.isclose(usual, own, rel_tol=1e-4):
        yield (
            f"{engine} computes the amplitude {usual:.6g}, and the config says {own:.6g}; add "
            f'"attn_factor": {own / usual:.6g} to the rope\'s dictionary, which multiplies it'
        )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


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
LLAMA_CPP = Fragment(
    engine="llama.cpp",
    version="commit 00dc805",
    source="tools/server/README.md of 00dc805; gguf-py, constants.py",
    place="shell",
    text=None,
)
GGUF = replace(LLAMA_CPP, engine="gguf", place="keys of the GGUF file")
CONVERT = (
    "edit config.json as for transformers, and convert the model again with convert_hf_to_gguf.py, "
    "which writes the rule into the file"
)
NAME_IT = "replace ARCH by general.architecture of the file; ropewalk inspect reads it"
ROUNDED = "truncate: the band of blended pairs is always rounded"


def llama_cpp(request: Request) -> Fragment:
    """Return a command line for llama.cpp, which has flags for linear, YaRN and a larger theta."""
    method, yarn = request.result.method, request.yarn
    flags = ["llama-server", "-m", "MODEL.gguf", "-c", str(request.to)]
    longer = ["--override-kv", f"{request.architecture}.context_length=int:{request.to}"]
    if method == "yarn" and yarn is not None:
        flags += ["--rope-scaling", "yarn", "--rope-scale", _number(request.factor)]
        flags += ["--yarn-orig-ctx", str(request.original)]
        if yarn.beta_fast != 32 or yarn.beta_slow != 1:
            flags += ["--yarn-beta-fast", _number(yarn.beta_fast)]
            flags += ["--yarn-beta-slow", _number(yarn.beta_slow)]
        # In latent attention, llama.cpp computes it from yarn_log_multiplier of the file.
        if yarn.amplitude(None) != yarn.sharpening(1.0) and not request.text.is_latent:
            ratio = yarn.amplitude(None) / yarn.sharpening(1.0)
            flags += ["--yarn-attn-factor", _number(ratio)]
    elif method == "linear":
        flags += ["--rope-scaling", "linear", "--rope-scale", _number(request.factor), *longer]
    elif method == "ntk" and not request.is_nested:
        theta = _number(request.larger_theta)
        flags += ["--rope-scaling", "none", "--rope-freq-base", theta, *longer]
    elif method == "dynamic":
        why = "llama.cpp has no dynamic rule; use --method yarn or ntk"
        return replace(LLAMA_CPP, warnings=(why,))
    else:
        return replace(LLAMA_CPP, warnings=(f"llama.cpp has no flag for this rule: {CONVERT}",))
    truncated = "llama.cpp ignores truncate = false: the blended pairs differ a little"
    named = {truncated: yarn is not None and not yarn.truncate, NAME_IT: "ARCH" in " ".join(flags)}
    ignores = (ROUNDED,) if yarn else ()
    return replace(LLAMA_CPP, text=shlex.join(flags), ignores=ignores, warnings=applying(named))


def gguf(request: Request) -> Fragment:
    """Return the keys of a GGUF file that describe the rule, with their values."""
    method, yarn, name = request.result.method, request.yarn, request.architecture
    rule: dict[str, Any]
    if method == "yarn" and yarn is not None:
        rule = {"type": "yarn", "factor": request.factor}
        rule["original_context_length"] = request.original
        if yarn.beta_fast != 32 or yarn.beta_slow != 1:
            rule |= {"yarn_beta_fast": yarn.beta_fast, "yarn_beta_slow": yarn.beta_slow}
    elif method == "linear":
        rule = {"type": "linear", "factor": request.factor}
    elif method == "ntk" and not request.is_nested:
        rule = {"type": "none"}
    elif method == "dynamic":
        return replace(GGUF, warnings=("GGUF has no dynamic rule",))
    else:
        why = f"the rule is in tensors of the file, not in keys: {CONVERT}"
        return replace(GGUF, warnings=(why,))
    keys: dict[str, Any] = {f"{name}.context_length": request.to}
    keys |= {f"{name}.rope.scaling.{key}": value for key, value in rule.items()}
    if method == "ntk":
        keys[f"{name}.rope.freq_base"] = request.larger_theta
    log = "deepseek2 also needs rope.scaling.yarn_log_multiplier: 0.1 · mscale_all_dim"
    warnings = {NAME_IT: name == "ARCH", log: name == "deepseek2" and yarn is not None}
    return replace(
        GGUF,
        text=json.dumps(keys, indent=2),
        ignores=(ROUNDED,) if yarn else (),
        warnings=applying(warnings),
    )


def _number(value: float) -> str:
    return f"{value:.10g}"


def tensorrt_llm(request: Request) -> Fragment:
    """Return the keys for TensorRT-LLM: the earlier form, which its `RopeParams` reads."""
    yarn, fields = request.yarn, dict(request.rope_parameters)
    nothing = Fragment(
        engine="tensorrt-llm",
        version="commit 000a01d",
        source="_torch/attention_backend/interface.py, RopeParams.from_config",
        place=f"config.json; then: trtllm-serve DIR --max_seq_len {request.to}",
        text=None,
    )
    if request.is_nested:
        return replace(nothing, warnings=(ONE_ROPE,))
    outside = ("rope_theta", "partial_rotary_factor")
    keys: dict[str, Any] = {name: fields.pop(name) for name in outside if name in fields}
    has_rule, has_axes = fields["rope_type"] != "default", "mrope_section" in fields
    keys["rope_scaling"] = None
    if has_rule or has_axes:
        keys["rope_scaling"] = {**fields, "type": fields["rope_type"] if has_rule else "mrope"}
    others = {key: value for key, value in request.result.section.items() if key not in keys}
    keys |= {key: value for key, value in others.items() if key != "rope_parameters"}
    warnings = {
        "it has one type for the rule and for M-RoPE, so it silently drops mrope_section here": (
            has_axes and has_rule
        )
    }
    if yarn is not None:
        usual = yarn.sharpening(1.0)
        amplitude = f"it ignores attention_factor and uses the amplitude {usual:.6g}"
        warnings[amplitude] = yarn.amplitude(None) != usual and not yarn.mscale_all_dim
        rounded = "it ignores truncate = false and rounds the band of blended pairs"
        warnings[rounded] = not yarn.truncate
    once = "it computes the rule once, for one length: short inputs change too"
    warnings[once] = request.result.method == "dynamic"
    return replace(
        nothing,
        text=request.in_section(keys),
        remove=("rope_parameters",) if "rope_parameters" in request.text.section else (),
        ignores=("rope_parameters", *YARN_ONLY * (yarn is not None)),
        warnings=applying(warnings),
    )


GENAI_LONGROPE = ("phi3", "phi3_v", "phimoe")
#: Model types of the text that its builder has (builder.py, create_model).
GENAI_TYPES = frozenset(
    """
    chatglm ernie4_5 gemma gemma2 gemma3_text gemma4_text gpt_oss granite granitemoehybrid
    hunyuan_v1_dense internlm2 lfm2 lfm2_moe ministral3 mistral olmo phi qwen2 qwen2_5_vl_text qwen3
    qwen3_5_moe_text qwen3_5_text qwen3_vl_text
    """.split()  # noqa: SIM905
) | {*GENAI_LLAMA, *GENAI_LONGROPE}


def onnx_genai(request: Request) -> Fragment:
    """Return the keys for the model builder of ONNX Runtime GenAI."""
    nothing = Fragment(
        engine="onnxruntime-genai",
        version="0.18",
        source="onnxruntime_genai/models/builders/base.py, make_rope_init",
        place="config.json; then: python -m onnxruntime_genai.models.builder -i DIR -o OUT "
        "-p int4 -e cpu -c CACHE",
        text=None,
    )
    refusal = _genai_refuses(request)
    if refusal is not None:
        return replace(nothing, warnings=(refusal,))
    section = dict(request.result.section)
    if isinstance(request.result.rule, LongRoPE):  # its code reads `type` here
        section["rope_parameters"] = {**request.rope_parameters, "type": "longrope"}
    warnings = {
        "beta_fast and beta_slow must be stated, as here: without them it computes with 0. It "
        "never rounds the band of blended pairs, so some of them differ from transformers": (
            request.yarn is not None
        ),
        "with YaRN it silently drops mrope_section: images get wrong positions": (
            request.yarn is not None and "mrope_section" in request.rope_parameters
        ),
    }
    return replace(
        nothing,
        text=request.in_section(section),
        remove=removed_keys(request.text),
        ignores=YARN_ONLY if request.yarn else (),
        warnings=applying(warnings),
        run=request.result.method != "longrope" and "alpha" not in request.rope_parameters,
    )


def _genai_refuses(request: Request) -> str | None:
    method, model_type = request.result.method, request.text.model_type or ""
    is_llama, is_phi = model_type in GENAI_LLAMA, model_type in GENAI_LONGROPE
    refusals = {
        f"its builder does not know model type {model_type}": model_type not in GENAI_TYPES,
        ONE_ROPE: request.is_nested,
        "it stops with an error: it has no dynamic rule": method == "dynamic",
        f"for model type {model_type} it silently ignores {method}: its builder knows only the "
        f"rule of Llama 3. Use --method llama3 or ntk": is_llama and method in ("yarn", "linear"),
        "it stops with an error: only its builder for Llama knows this rule": (
            method == "llama3" and not is_llama
        ),
        "its builder requires LongRoPE of a Phi-3 whose context exceeds the original one": (
            method == "ntk" and is_phi
        ),
        "only its builders for Phi know this rule": method == "longrope" and not is_phi,
    }
    return next(iter(applying(refusals)), None)


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
