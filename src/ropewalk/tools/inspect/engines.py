"""Fields of a model's rope that engines are known to ignore; `cautions` names the sources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ropewalk.rotary.config.conventions import DEFAULT_THETA
from ropewalk.rotary.config.sections import RawSections
from ropewalk.rotary.scaling import Linear, YaRN
from ropewalk.tools.inspect.facts import Caution, LayerKind

ID = "engine-ignores-field"
#: Model types whose builder in ONNX Runtime GenAI knows Llama 3's rule, and ignores all others.
GENAI_LLAMA = ("llama", "nemotron", "smollm3")
EARLIER_FORM = 'for this engine, write the earlier form: ModelSpec.to_config("rope_scaling")'


def engine_cautions(kinds: tuple[LayerKind, ...], sections: RawSections) -> Iterator[Caution]:
    """Yield a warning for each engine that ignores a field of the text's config."""
    section = sections["text"][0] if "text" in sections else {}
    written = _written(section)
    ropes = [kind.rope for kind in kinds if kind.rope is not None and kind.stack == "text"]
    for rope in ropes:
        rule = rope.spec.scaling
        # If both dictionaries are present, they are equal, and the engine reads `rope_scaling`.
        lost = _is_today(rope.origins.get("scaling")) and not section.get("rope_scaling")
        if rule is not None and lost:
            yield Caution(
                ID,
                "TensorRT-LLM",
                f"earlier versions of its RopeParams.from_config read rope_scaling, not "
                f"rope_parameters, and ignore the rule {rope.rule}",
                EARLIER_FORM,
            )
        if isinstance(rule, YaRN):
            if not lost:
                yield from _tensorrt_yarn(rule)
            yield from _yarn(rule, written, nested=_is_nested(written))
        if isinstance(rule, YaRN | Linear):
            yield from _genai(rule, section.get("model_type"), written)
    thetas = {rope.theta for rope in ropes}
    inside = section.get("rope_parameters") and section.get("rope_theta") is None
    if inside and thetas - {DEFAULT_THETA}:
        yield Caution(
            ID,
            "TensorRT-LLM",
            "earlier versions of its RopeParams.from_config read rope_theta next to rope_scaling, "
            "not inside rope_parameters, and then use 10,000",
            EARLIER_FORM,
        )


def _is_today(origin: str | None) -> bool:
    """Return whether a rule was read in `rope_parameters`, for all layers or by layer type."""
    return origin is not None and origin.split(".")[0] == "rope_parameters"


def _tensorrt_yarn(rule: YaRN) -> Iterator[Caution]:
    usual = rule.sharpening(1.0)
    own = rule.attention_factor
    ignored = []
    if own is not None and not math.isclose(own, usual, rel_tol=1e-4):
        ignored.append(f"attention_factor (it uses {usual:.6g} instead of {own:.6g})")
    if not rule.truncate:
        ignored.append("truncate (it rounds the band of blended pairs)")
    if ignored:
        yield Caution(
            ID,
            "TensorRT-LLM",
            f"it ignores {' and '.join(ignored)}",
            "compare its applied q and k with this model's at far positions before serving",
        )


def _yarn(rule: YaRN, written: Mapping[str, object], *, nested: bool) -> Iterator[Caution]:
    if not rule.truncate:
        yield Caution(
            ID,
            "llama.cpp",
            "it ignores truncate = false, and always rounds the band of blended pairs",
            "expect small differences of the blended pairs; no flag changes it",
        )
        if nested:
            yield Caution(
                ID,
                "transformers",
                "it ignores truncate inside the fields of a layer type, and rounds the band",
                "write the rope's fields once for all layers, if all have the same rope",
            )


def _genai(
    rule: YaRN | Linear, model_type: object, written: Mapping[str, object]
) -> Iterator[Caution]:
    if model_type in GENAI_LLAMA:
        yield Caution(
            ID,
            "ONNX Runtime GenAI",
            f"its builder (version 0.18) knows only Llama 3's rule for model type {model_type}, "
            f"and silently ignores {type(rule).__name__}",
            "use another engine, or Llama 3's rule if the model was not trained with this one",
        )
    elif isinstance(rule, YaRN):
        missing = [
            f"{key}: {value:g}"
            for key, value in (("beta_fast", rule.beta_fast), ("beta_slow", rule.beta_slow))
            if not any(key in fields for fields in _all_fields(written))
        ]
        if missing:
            yield Caution(
                ID,
                "ONNX Runtime GenAI",
                "its builder (version 0.18) computes YaRN with 0 in place of a beta_fast or "
                "beta_slow that the config does not state, and earlier versions apply no rule "
                "without beta_fast",
                f"state {' and '.join(missing)}, as other engines assume",
            )


def _written(section: Mapping[str, object]) -> Mapping[str, object]:
    for key in ("rope_parameters", "rope_scaling"):
        value = section.get(key)
        if isinstance(value, Mapping) and value:
            return value
    return {}


def _is_nested(written: Mapping[str, object]) -> bool:
    return any(isinstance(each, Mapping) for each in written.values())


def _all_fields(written: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    inner = [each for each in written.values() if isinstance(each, Mapping)]
    yield from inner or [written]
