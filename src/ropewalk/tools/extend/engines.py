"""What to paste into each engine: config.json for libraries, command lines for servers.

Each function returns one `Fragment`. What engines read and ignore was found in their source, at the
version that the fragment names.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.rotary.config.rope_fields import ORIGINAL_LENGTH
from ropewalk.rotary.scaling import YaRN
from ropewalk.tools.extend.block import TextConfig, at_path
from ropewalk.tools.extend.engine_configs import onnx_genai, tensorrt_llm, transformers
from ropewalk.tools.extend.facts import Fragment, RuleResult
from ropewalk.tools.extend.gguf_keys import gguf, llama_cpp
from ropewalk.tools.extend.request import Request, amplitude_note, is_nested, mrope_note


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
