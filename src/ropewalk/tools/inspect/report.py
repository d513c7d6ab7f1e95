"""`inspect`: from a config to a report."""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from typing import Any, NamedTuple

from ropewalk.rotary.config.config_json import LENGTH_KEYS, MAX_LENGTH, JsonObject
from ropewalk.rotary.config.sections import RawSections, find_sections
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.inspect.cautions import find_cautions
from ropewalk.tools.inspect.facts import LayerKind, ModelReport, RopeFacts
from ropewalk.tools.inspect.gguf_file import inspect_gguf
from ropewalk.tools.inspect.measures import contexts, rope_facts
from ropewalk.tools.inspect.repairs import as_mapping, read_with_repairs
from ropewalk.tools.inspect.source import find_source


def inspect(config: str | PathLike[str] | JsonObject, *, pairing: str | None = None) -> ModelReport:
    """Return what a model's ropes do, with warnings.

    config: a config.json, a model's folder, a GGUF file (needs `gguf`), a name on the Hugging Face
    hub (needs `huggingface_hub`), the contents of a config.json, or a transformers config.
    pairing: "half" or "interleaved", for a model type that is not known.

    Raises ValueError that names the key, the rule and the value if the config contradicts itself,
    has a key whose effect is not known, or is not a readable file.

    Example:
        >>> from ropewalk import tools
        >>> config = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 64}
        >>> report = tools.inspect({**config, "max_position_embeddings": 4096})
        >>> rope = report.kinds[0].rope
        >>> rope.pairing, rope.theta, rope.origins["theta"]
        ('half', 10000.0, "default of the model's class")
        >>> len(rope.turns[0].full), len(rope.turns[0].less)  # pairs that make a full turn or not
        (23, 9)
        >>> [warning.id for warning in report.warnings]
        ['theta-default']
    """
    source = find_source(config)
    if source.gguf is not None:
        return inspect_gguf(source.gguf, source.name, pairing)
    assert source.config is not None
    reading = read_with_repairs(source.config, pairing)
    sections = _sections(reading.config, reading.model, pairing)
    longest = _max_length(reading.config, sections)
    kinds = layer_kinds(reading.model, longest.length)
    cautions = find_cautions(kinds, sections, longest.length, reading.assumptions)
    return ModelReport(
        source.name, "config.json", reading.model.model_type, *longest, kinds, cautions
    )


class _MaxLength(NamedTuple):
    length: int | None
    key: str | None


def _sections(config: JsonObject, model: ModelSpec, pairing: str | None) -> RawSections:
    """Return the section of each stack; {} for a type that is read only because of `pairing`."""
    try:
        return find_sections(config, config.get("model_type"))
    except ValueError:
        assert pairing is not None
        return {}


def _max_length(config: JsonObject, sections: RawSections) -> _MaxLength:
    """Return the context that the text's section states, or the file itself."""
    text = sections["text"][0] if "text" in sections else {}
    for section in (text, config, as_mapping(config.get("text_config"))):
        for key in LENGTH_KEYS:
            value: Any = section.get(key)
            whole = isinstance(value, (int, float)) and not isinstance(value, bool)
            if whole and 1 <= value <= MAX_LENGTH and value == int(value):
                return _MaxLength(int(value), key)
    return _MaxLength(None, None)


def layer_kinds(model: ModelSpec, longest: int | None) -> tuple[LayerKind, ...]:
    """Return the layers of a model by their ropes, in the order of their first layer."""
    kinds = []
    for stack, layers in model.stacks.items():
        grouped: dict[object, list[int]] = {}
        for i, layer in enumerate(layers):
            key = (
                layer.rope, layer.softmax_factor, layer.query_temperature, layer.indexer,
                tuple(sorted(layer.origins.items())),
            )  # fmt: skip
            grouped.setdefault(key, []).append(i)
        length = longest if stack == "text" else None
        kinds += [_kind(stack, layers, numbers, length) for numbers in grouped.values()]
    return tuple(kinds)


def _kind(
    stack: str, layers: tuple[LayerSpec, ...], numbers: list[int], longest: int | None
) -> LayerKind:
    layer = layers[numbers[0]]
    types = dict.fromkeys(layers[i].layer_type for i in numbers)
    temperature = layer.query_temperature
    return LayerKind(
        stack=stack,
        layers=tuple(numbers),
        layer_types=tuple(name for name in types if name is not None),
        rope=_facts(layer.rope, layer, longest),
        softmax_factor=layer.softmax_factor,
        query_temperature=None if temperature is None else asdict(temperature),
        indexer=_facts(layer.indexer, layer, longest),
    )


def _facts(rope: RotarySpec | None, layer: LayerSpec, longest: int | None) -> RopeFacts | None:
    if rope is None:
        return None
    return rope_facts(rope, layer.origins, *contexts(rope.scaling, longest))
