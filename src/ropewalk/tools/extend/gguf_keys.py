"""Fragments for llama.cpp: flags of its server, and keys of a GGUF file."""

from __future__ import annotations

import shlex
from typing import Any

from ropewalk.rotary.scaling import YaRN
from ropewalk.tools.extend.facts import Fragment
from ropewalk.tools.extend.request import Request, is_nested, pretty

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
NO_ARCHITECTURE = "replace ARCH by the file's general.architecture"
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
