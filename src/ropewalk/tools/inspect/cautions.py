"""Warnings about a model's ropes; each has a stable id, a cause and a way out.

Sources of what engines do: transformers 5.23, modeling_rope_utils.py; TensorRT-LLM,
attention_backend/interface.py, `RopeParams.from_config`; ggml, `ggml_rope_yarn_corr_dims`; vLLM,
`_get_and_verify_max_len` and pull requests 53634 and 56446; ONNX Runtime GenAI
0.18, models/builders/base.py, `make_rope_init`.

A key that changes no rope is found by trying: its value is changed, and the ropes are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import getitem
from typing import Any

from ropewalk.checks import ranges
from ropewalk.rotary.config.config_json import JsonObject, named
from ropewalk.rotary.config.conventions import (
    CLASS_DEFAULT,
    CONVERTED_PAIRING_KEY,
    DEFAULT_THETA,
    RopeConventions,
)
from ropewalk.rotary.config.reader import read_layers
from ropewalk.rotary.config.rope_fields import ORIGINAL_LENGTH
from ropewalk.rotary.config.sections import RawSections
from ropewalk.rotary.config.unknown_keys import HARMLESS_VALUES, POSITION_KEYS, is_about_rope
from ropewalk.rotary.scaling import DynamicNTK, Linear, Llama3, LongRoPE, YaRN
from ropewalk.tools.inspect.grids import AxisFacts
from ropewalk.tools.inspect.rope_facts import Caution, LayerKind, RopeFacts


def find_cautions(
    kinds: tuple[LayerKind, ...],
    sections: RawSections,
    longest: int | None,
    assumptions: tuple[Caution, ...],
) -> tuple[Caution, ...]:
    """Return the warnings about a model that was read from a config.json, each once."""
    found: list[Caution] = list(assumptions)
    for kind in kinds:
        if kind.rope is not None:
            found += _theta(kind, kind.rope)
            found += _indexer(kind, kind.rope)
            found += _amplitude(kind, kind.rope)
            if not is_missing_original(assumptions):
                found += _unstated_length(kind, kind.rope, longest)
                found += factor_cautions(kind, kind.rope, longest)
    found += [*_context(kinds, longest), *without_rope(kinds)]
    for stack, (section, conventions) in sections.items():
        ropes = [kind.rope for kind in kinds if kind.stack == stack]
        pairs = sum(rope.spec.pairs for rope in ropes if rope is not None)
        found += [
            Caution(
                "other-positions",
                f"{stack}: {key}",
                f"{key} is not a part of the rope, which is that of plain positions: {effect}",
                "beyond the original length, trust only an engine that reads this key",
            )
            for key, effect in POSITION_KEYS.items()
            if section.get(key) is not None
        ]
        found += [
            Caution(
                "unused-key",
                f"{stack}: {key}",
                f"{key} changes nothing: no layer of this model has a rope that depends on it",
                f"remove {key}; if it should have an effect, check the model type, the types of "
                f"layers and the rule",
            )
            for key in unused_keys(section, conventions, pairs)
        ]
    found += _mscale_of_port(sections)
    found += _converted(sections)
    found += _documented_only(sections)
    found += engine_cautions(kinds, sections)
    return tuple(dict.fromkeys(found))


def place_of(kind: LayerKind) -> str:
    """Return a short name of a kind of layer: "text layers 0-31"."""
    return f"{kind.stack} layers {ranges(kind.layers)}" if kind.layers else f"{kind.stack} layers"


def _theta(kind: LayerKind, rope: RopeFacts) -> Iterator[Caution]:
    if rope.origins.get("theta") == CLASS_DEFAULT and kind.stack == "text":
        yield Caution(
            "theta-default",
            place_of(kind),
            f"the config states no theta, so {rope.theta:,.10g} is the default of the model's "
            f"class. Some conversions lose it: a model that was trained with another theta then "
            f"produces nonsense",
            "compare with the config that the model was trained with, and state theta",
        )


def _context(kinds: tuple[LayerKind, ...], longest: int | None) -> Iterator[Caution]:
    if longest is None and any(kind.stack == "text" and kind.rope for kind in kinds):
        yield Caution(
            "context-missing",
            "text",
            "the config states no context, so this report cannot tell which pairs make a full turn "
            "within it; engines use a default of the model's class",
            "state max_position_embeddings",
        )


def _indexer(kind: LayerKind, rope: RopeFacts) -> Iterator[Caution]:
    indexer, own = kind.indexer, (rope.pairing, rope.write_pairing)
    if indexer is not None and (indexer.pairing, indexer.write_pairing) != own:
        yield Caution(
            "indexer-pairing",
            place_of(kind),
            f"the indexer's pairs are {pairing_words(indexer)}, the attention's are "
            f"{pairing_words(rope)}. Code that uses one rotation for both chooses wrong keys; "
            f"short prompts hide it, because all keys are chosen",
            "rotate the indexer's queries and keys with a rope of their own (LayerSpec.indexer)",
        )


def pairing_words(rope: RopeFacts) -> str:
    """Return a pairing as text: "half", or "read interleaved and written half"."""
    if rope.pairing is None:
        return "not stated by the file"
    if rope.pairing == rope.write_pairing:
        return rope.pairing
    return f"read {rope.pairing} and written {rope.write_pairing}"


def _amplitude(kind: LayerKind, rope: RopeFacts) -> Iterator[Caution]:
    """Yield warnings about YaRN's amplitude, which three fields can state."""
    rule = rope.spec.scaling
    if not isinstance(rule, YaRN):
        return
    if rule.mscale and rule.mscale_all_dim:
        ratio = rule.sharpening(rule.mscale) / rule.sharpening(rule.mscale_all_dim)
        if rule.attention_factor is not None and not _close(rule.attention_factor, ratio):
            yield Caution(
                "amplitude-contradiction",
                place_of(kind),
                f"attention_factor states the amplitude {rule.attention_factor:.6g}, and mscale "
                f"with mscale_all_dim states {ratio:.6g}. transformers uses attention_factor; code "
                f"that does not know this field uses the other",
                "keep the one that the model was trained with, and remove the other",
            )
    elif rule.attention_factor is None:
        mscale = 1.0 if rule.mscale is None else rule.mscale  # the defaults of DeepSeek's code
        own = rule.sharpening(mscale) / rule.sharpening(rule.mscale_all_dim or 0.0)
        given = [name for name in ("mscale", "mscale_all_dim") if getattr(rule, name) is not None]
        if given and not _close(own, rope.amplitude):
            yield Caution(
                "mscale-alone",
                place_of(kind),
                f"the amplitude is {rope.amplitude:.6g}, since transformers ignores "
                f"{' and '.join(given)} unless mscale and mscale_all_dim are both given and not 0. "
                f"DeepSeek's own code then has the amplitude {own:.6g}",
                "state attention_factor, the amplitude itself",
            )


def _mscale_of_port(sections: RawSections) -> Iterator[Caution]:
    """Yield a warning if transformers' port has another amplitude than DeepSeek's own code."""
    for stack, (section, conventions) in sections.items():
        fields = section.get("rope_parameters") or section.get("rope_scaling") or {}
        given = [name for name in ("mscale", "mscale_all_dim") if fields.get(name)]
        if conventions.yarn_ratio and len(given) == 1 and not fields.get("attention_factor"):
            yield Caution(
                "mscale-alone",
                f"{stack}: {given[0]}",
                f"the amplitude is that of DeepSeek's own code, which vLLM, SGLang and MLX have "
                f"too; transformers ignores {given[0]} unless mscale and mscale_all_dim are both "
                f"given and not 0",
                "state attention_factor, the amplitude itself, for transformers",
            )


def _unstated_length(kind: LayerKind, rope: RopeFacts, longest: int | None) -> Iterator[Caution]:
    """Yield a warning about a rule that has a factor, but no original length."""
    rule, place = rope.spec.scaling, place_of(kind)
    if longest is not None and isinstance(rule, (Linear, DynamicNTK)) and rule.factor != 1:
        name, scaled = type(rule).__name__, round(longest * rule.factor)
        yield Caution(
            "length-scaled-twice",
            place,
            f"the rule {name} does not state whether the context of {longest:,} is the one before "
            f"or after the factor {rule.factor:g}, and published files differ. vLLM multiplies, "
            f"and serves {scaled:,}. If {longest:,} is already the extended length, the length is "
            f"scaled twice",
            "check the length that the model was trained with before the rule, and limit the "
            "engine's context to what was trained (vLLM: --max-model-len)",
        )


def factor_cautions(kind: LayerKind, rope: RopeFacts, longest: int | None) -> Iterator[Caution]:
    """Yield warnings about a factor that does not fit the lengths that a config states."""
    rule, place = rope.spec.scaling, place_of(kind)
    if longest is None or not isinstance(rule, (YaRN, LongRoPE, Llama3)):
        return
    if isinstance(rule, Llama3) and longest > rule.original_length:
        return  # its factor is no ratio of lengths: Llama 3.1 has 8, for 16 times the length
    original, covered = rule.original_length, round(rule.original_length * rule.factor)
    if _close(covered, longest):
        return
    lengths = f"factor {rule.factor:g} × original {original:,} = {covered:,}"
    if longest < covered:
        twice = f". If {longest:,} is already the extended length, the length is scaled twice"
        lower = f"lower the factor to {longest / original:g}"
        yield Caution(
            "table-shorter-than-context",
            place,
            f"{lengths}, but the stated context is {longest:,}. Engines that build tables of "
            f"{longest:,} positions stop there, or read past the end"
            + (twice if longest == original else ""),
            f"state {covered:,} (max_position_embeddings) to serve it, or "
            + (lower if longest > original else "remove the rule"),
        )
    if longest > covered:
        yield Caution(
            "positions-beyond-factor",
            place,
            f"{lengths}, but the stated context is {longest:,}. The rule does not reach "
            f"the positions from {covered:,} on",
            f"state {covered:,} (max_position_embeddings), or check the factor and the original "
            f"length",
        )
    if longest != original:
        yield Caution(
            "factor-mismatch",
            place,
            f"the factor is {rule.factor:g}, but {longest:,} / {original:,} = "
            f"{longest / original:g}. transformers uses the factor; code that divides the lengths "
            f"uses another rope",
            "make both agree with what the model was trained with",
        )


def without_rope(kinds: tuple[LayerKind, ...]) -> Iterator[Caution]:
    """Yield a warning if some layers with attention have no rope."""
    stacks = {kind.stack for kind in kinds if kind.rope is not None}
    for kind in kinds:
        others = set(kind.layer_types) - {"linear_attention", "conv", "mlp", "moe", "dense"}
        attends = others and any("attention" in name for name in kind.layer_types)
        if kind.rope is None and (attends or not kind.layer_types):
            yield Caution(
                "nope-layers",
                place_of(kind),
                "these layers have no rope"
                + ("" if kind.stack in stacks else ", like all layers of this stack")
                + (", and their queries are multiplied by a factor that grows with the position"
                   if kind.query_temperature else ""),
                "do not rotate q and k in these layers; code that rotates every layer is wrong",
            )  # fmt: skip


def size_cautions(axes: tuple[AxisFacts, ...]) -> Iterator[Caution]:
    """Yield a warning for each size of an image or video that passes one that the config states."""
    for axis in axes:
        for what, stated in (("limit", axis.limit), ("training", axis.trained)):
            if stated is not None and axis.patches > stated[0]:
                size = f"{axis.patches * axis.patch:,} makes {axis.patches:,} patches"
                cause = f"{size}, and {stated[1]} states {stated[0]:,}"
                scaled = f": {axis.scaled}" if axis.scaled else ""
                more = "" if scaled or what == "limit" else "; else see ropewalk extend"
                way_out = f"use at most {stated[0] * axis.patch:,}{more}"
                yield Caution(f"size-beyond-{what}", axis.name, cause + scaled, way_out)


def _converted(sections: RawSections) -> Iterator[Caution]:
    for stack, (section, conventions) in sections.items():
        pairing = section.get(CONVERTED_PAIRING_KEY)
        if pairing is not None and pairing != conventions.pairing:
            yield Caution(
                "converted-weights",
                f"{stack}: {CONVERTED_PAIRING_KEY}",
                f"the weights were converted to {pairing}, and the code of this model type pairs "
                f"dimensions as {conventions.pairing}. Engines that do not read "
                f"{CONVERTED_PAIRING_KEY} rotate them wrongly",
                f"use an engine that pairs dimensions as {pairing}, or convert the weights back: "
                f"ropewalk convert --to {conventions.pairing}",
            )


def _documented_only(sections: RawSections) -> Iterator[Caution]:
    """Yield a warning about a key that the documentation of a class has, but its code ignores."""
    for stack, (section, _) in sections.items():
        is_read = "partial_rotary_factor" in as_mapping(section.get("rope_parameters"))
        minimax = section.get("model_type") == "minimax_m3_vl_text"
        if minimax and section.get("rotary_dim") and not is_read:
            yield Caution(
                "documented-field-ignored",
                f"{stack}: rotary_dim",
                "transformers 5.23 documents rotary_dim but ignores it, and rotates full heads. "
                "The checkpoints were trained with rotary_dim, which this report uses",
                "in transformers, state partial_rotary_factor in rope_parameters (rotary_dim / "
                "head_dim)",
            )


def _close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-4)


def is_missing_original(cautions: Iterable[Caution]) -> bool:
    """Return whether the original length of a rule was assumed."""
    return any(caution.id == "original-length-missing" for caution in cautions)


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is an object of a config, else an empty one."""
    return value if isinstance(value, Mapping) else {}


_ignores = partial(Caution, "engine-ignores-field")
#: Model types whose builder in ONNX Runtime GenAI knows Llama 3's rule, and ignores all others.
GENAI_LLAMA = ("llama", "nemotron", "smollm3")
EARLIER_FORM = 'for this engine, write the earlier form: ModelSpec.to_config("rope_scaling")'


def engine_cautions(kinds: tuple[LayerKind, ...], sections: RawSections) -> Iterator[Caution]:
    """Yield a warning for each engine that ignores a field of the text's config."""
    section = sections["text"][0] if "text" in sections else {}
    written = as_mapping(section.get("rope_parameters") or section.get("rope_scaling"))
    by_layer_type = [fields for fields in written.values() if isinstance(fields, Mapping)]
    ropes = [kind.rope for kind in kinds if kind.rope is not None and kind.stack == "text"]
    for rope in ropes:
        rule = rope.spec.scaling
        # If both dictionaries are present, they are equal, and the engine reads `rope_scaling`.
        is_today = rope.origins.get("scaling", "").split(".")[0] == "rope_parameters"
        lost = is_today and not section.get("rope_scaling")
        if rule is not None and lost:
            yield _ignores(
                "TensorRT-LLM",
                f"earlier versions of its RopeParams.from_config read rope_scaling, not "
                f"rope_parameters, and ignore the rule {rope.rule}",
                EARLIER_FORM,
            )
        if isinstance(rule, YaRN):
            yield from _yarn(rule, lost=lost, by_layer_type=bool(by_layer_type))
        if isinstance(rule, YaRN | Linear):
            yield from _genai(rule, section.get("model_type"), by_layer_type or [written])
    thetas = {rope.theta for rope in ropes}
    inside = section.get("rope_parameters") and section.get("rope_theta") is None
    if inside and thetas - {DEFAULT_THETA}:
        yield _ignores(
            "TensorRT-LLM",
            "earlier versions of its RopeParams.from_config read rope_theta next to rope_scaling, "
            "not inside rope_parameters, and then use 10,000",
            EARLIER_FORM,
        )


def _yarn(rule: YaRN, *, lost: bool, by_layer_type: bool) -> Iterator[Caution]:
    """Yield warnings about fields of YaRN. lost: whether TensorRT-LLM ignores the whole rule."""
    usual, own = rule.sharpening(1.0), rule.attention_factor
    ignored = []
    if own is not None and not _close(own, usual):
        ignored.append(f"attention_factor (it uses {usual:.6g} instead of {own:.6g})")
    if not rule.truncate:
        ignored.append("truncate (it rounds the band of blended pairs)")
    if ignored and not lost:
        yield _ignores(
            "TensorRT-LLM",
            f"it ignores {' and '.join(ignored)}",
            "compare its applied q and k with this model's at far positions before serving",
        )
    if not rule.truncate:
        yield _ignores(
            "llama.cpp",
            "it ignores truncate = false, and always rounds the band of blended pairs",
            "expect small differences of the blended pairs; no flag changes it",
        )
    if by_layer_type and not rule.truncate:
        yield _ignores(
            "transformers",
            "it ignores truncate inside the fields of a layer type, and rounds the band",
            "write the rope's fields once for all layers, if all have the same rope",
        )


def _genai(
    rule: YaRN | Linear, model_type: object, written: list[Mapping[str, Any]]
) -> Iterator[Caution]:
    if model_type in GENAI_LLAMA:
        yield _ignores(
            "ONNX Runtime GenAI",
            f"its builder (version 0.18) knows only Llama 3's rule for model type {model_type}, "
            f"and silently ignores {type(rule).__name__}",
            "use another engine, or Llama 3's rule if the model was not trained with this one",
        )
    elif isinstance(rule, YaRN):
        missing = [
            f"{key}: {value:g}"
            for key, value in (("beta_fast", rule.beta_fast), ("beta_slow", rule.beta_slow))
            if not any(key in fields for fields in written)
        ]
        if missing:
            yield _ignores(
                "ONNX Runtime GenAI",
                "its builder (version 0.18) computes YaRN with 0 in place of a beta_fast or "
                "beta_slow that the config does not state, and earlier versions apply no rule "
                "without beta_fast",
                f"state {' and '.join(missing)}, as other engines assume",
            )


MAX_PROBES = 200  # published configs need some 20
MAX_WORK = 20_000  # pairs that all probes together compute; published configs need some 2,000
Path = tuple[str, ...]


def unused_keys(section: JsonObject, conventions: RopeConventions, pairs: int) -> list[str]:
    """Return keys about ropes that this model's code ignores, as dotted paths.

    A key is used if another value makes other ropes, or is refused. pairs: of all ropes together;
    nothing is reported for a config that would take long to read again for each key.
    """
    paths = list(_paths(section))
    if len(paths) > MAX_PROBES or len(paths) * pairs > MAX_WORK:
        return []
    layers = read_layers(section, conventions)
    return [
        ".".join(map(named, path))
        for path in paths
        if not _matters(section, conventions, path, layers)
    ]


def _matters(
    section: JsonObject, conventions: RopeConventions, path: Path, layers: tuple[Any, ...]
) -> bool:
    others = list(_other_values(reduce(getitem, path, section)))
    for other in others:
        try:
            if read_layers(_with(section, path, other), conventions) != layers:
                return True
        except (ValueError, TypeError, ArithmeticError):  # refused, so it is read
            return True
    return not others


def _paths(section: JsonObject) -> Iterator[Path]:
    for key, value in section.items():
        if not isinstance(key, str) or key.startswith("memory_attention_rope_"):
            continue
        # The same as the model's own length says nothing.
        same = key == ORIGINAL_LENGTH and value == section.get("max_position_embeddings")
        about = is_about_rope(key) or (key == ORIGINAL_LENGTH and not same)
        if not about or key in HARMLESS_VALUES:
            continue
        if key not in ("rope_parameters", "rope_scaling"):
            yield (key,)
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                if isinstance(inner, Mapping):
                    yield from ((key, name, field) for field in inner)
                else:
                    yield (key, name)


def _other_values(value: Any) -> Iterator[Any]:
    """Yield other values of the same type that a reader would probably accept."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value * 2 or 1
        yield value // 2 if isinstance(value, int) else value / 2
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float)):
        yield [value[0] * 2 or 1, *value[1:]]


def _with(section: JsonObject, path: Path, value: Any) -> dict[str, Any]:
    """Return a copy of a section with another value at a path."""
    key, *rest = path
    return {**section, key: _with(section[key], tuple(rest), value) if rest else value}
