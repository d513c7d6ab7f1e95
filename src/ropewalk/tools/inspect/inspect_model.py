"""`inspect`: from what names a model (a config, file, folder or hub name) to a report.

A config that `ModelSpec` refuses is repaired if transformers reads it with a silent assumption. Two
such mistakes are common: a rule without its original length, and a field that no rule has. Others
stay errors, since it is not known what a model's code makes of them.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.checks import closest, needing, shown
from ropewalk.files import open_regular, shown_path
from ropewalk.rotary.config.config_json import (
    LENGTH_KEYS,
    MAX_BYTES,
    MAX_LENGTH,
    JsonObject,
    load_config,
    named,
)
from ropewalk.rotary.config.conventions import NONE
from ropewalk.rotary.config.diffusers_types import MODELS
from ropewalk.rotary.config.rope_fields import (
    COMMON_FIELDS,
    EARLIER_ROPE_TYPES,
    JSON_NAMES,
    MAX_FIELDS,
    ORIGINAL_LENGTH,
    RULES_BY_ROPE_TYPE,
    UNUSED_BY_YARN,
)
from ropewalk.rotary.config.sections import RawSections, find_sections, model_type_of
from ropewalk.rotary.config.unknown_keys import OtherPositionsWarning
from ropewalk.rotary.layer_spec import LayerSpec, QueryTemperature
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.inspect.cautions import as_mapping, find_cautions, size_cautions
from ropewalk.tools.inspect.gguf_report import inspect_gguf
from ropewalk.tools.inspect.grids import Sizes, axes_of
from ropewalk.tools.inspect.rope_facts import (
    Caution,
    LayerKind,
    ModelReport,
    RopeFacts,
    contexts,
    rope_facts,
)


def inspect(
    config: str | PathLike[str] | JsonObject, *, pairing: str | None = None, sizes: Sizes = NONE
) -> ModelReport:
    """Return what a model's ropes do, with warnings.

    config: a config.json, a model's folder, a GGUF file (needs `gguf`), a name on the Hugging Face
    hub (needs `huggingface_hub`), the contents of a config.json, or a transformers config.
    pairing: "half" or "interleaved", for a model type that is not known.
    sizes: of an image or video, by "frames", "height" and "width", in latent frames and pixels.

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
        tuple(axes_of({}, "a GGUF file", None, sizes))
        return inspect_gguf(source.gguf, source.name, pairing)
    assert source.config is not None
    reading = read_with_repairs(source.config, pairing)
    sections: RawSections = {}
    with suppress(ValueError):  # a type that is read only because of `pairing`
        sections = find_sections(reading.config, model_type_of(reading.config))
    longest, key = _max_length(reading.config, sections)
    model_type = reading.model.model_type
    kinds = layer_kinds(reading.model, longest)
    ropes = [kind.rope.spec for kind in kinds if kind.rope and kind.rope.spec.axis_count > 1]
    axes = tuple(axes_of(reading.config, model_type, next(iter(ropes), None), sizes))
    rows = MODELS.get(model_type or "", {})  # which tell of layers without a rope by design
    told = tuple(kind for kind in kinds if kind.stack not in rows or rows[kind.stack].rope)
    cautions = (*find_cautions(told, sections, longest, reading.assumptions), *size_cautions(axes))
    return ModelReport(source.name, "config.json", model_type, longest, key, kinds, cautions, axes)


def _max_length(config: JsonObject, sections: RawSections) -> tuple[int, str] | tuple[None, None]:
    """Return the context that the text's section states, or the file itself, and its key."""
    text = sections["text"][0] if "text" in sections else {}
    for section in (text, config, as_mapping(config.get("text_config"))):
        for key in LENGTH_KEYS:
            value: Any = section.get(key)
            whole = isinstance(value, (int, float)) and not isinstance(value, bool)
            if whole and 1 <= value <= MAX_LENGTH and value == int(value):
                return int(value), key
    return None, None


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
        for numbers in grouped.values():
            layer = layers[numbers[0]]
            types = dict.fromkeys(layers[i].layer_type for i in numbers)
            temperature = layer.query_temperature
            kind = LayerKind(
                stack=stack,
                layers=tuple(numbers),
                layer_types=tuple(name for name in types if name is not None),
                rope=_facts(layer.rope, layer, length),
                softmax_factor=layer.softmax_factor,
                query_temperature=None if temperature is None else _temperature(temperature),
                indexer=_facts(layer.indexer, layer, length),
            )
            kinds.append(kind)
    return tuple(kinds)


def _temperature(temperature: QueryTemperature) -> dict[str, float]:
    """Return its fields; `steps` only if it has none."""
    return {name: value for name, value in asdict(temperature).items() if value is not True}


def _facts(rope: RotarySpec | None, layer: LayerSpec, longest: int | None) -> RopeFacts | None:
    if rope is None:
        return None
    return rope_facts(rope, layer.origins, *contexts(rope.scaling, longest))


WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SECONDS = 10.0  # within which the hub must answer


class Source(NamedTuple):
    """A model's description: the contents of its config.json, or the path of a GGUF file."""

    name: str
    config: JsonObject | None
    gguf: Path | None


def find_source(config: str | PathLike[str] | JsonObject) -> Source:
    """Return what the argument names. Raises ValueError that names the file and the reason."""
    if not isinstance(config, (str, PathLike)):
        return Source("the config", load_config(config), None)
    text = fspath(config)
    if not isinstance(text, str) or not text:
        raise ValueError(f"config must be a path or a name on the hub, got {shown(text)}")
    if os.path.isdir(text):
        return _in_folder(Path(text))
    if os.path.isfile(text):
        return _file(Path(text))
    if HUB_NAME.fullmatch(text) and not os.path.lexists(text):
        return Source(text, load_config(_from_hub(text)), None)
    return Source(shown_path(text), load_config(text), None)


def _in_folder(folder: Path) -> Source:
    for name in ("config.json", "model_index.json"):  # the reader names the index's folders
        if (folder / name).exists():
            return Source(shown_path(folder / name), load_config(folder / name), None)
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ".gguf")
    except OSError as error:
        raise ValueError(f"{shown_path(folder)}: {error.strerror}") from None
    if len(found) == 1:
        return _file(found[0])
    none = "neither a config.json nor a .gguf file"
    has = f"{len(found)} .gguf files; name one of them" if found else none
    raise ValueError(
        f"config must be a folder with a config.json or one .gguf file, got {shown_path(folder)}, "
        f"which has {has}"
    )


def _file(path: Path) -> Source:
    if path.suffix in WEIGHTS:
        raise ValueError(
            f"config must be a config.json, its folder or a GGUF file, got {shown_path(path)}: "
            f"weights do not describe the rope; pass the folder that has their config.json"
        )
    with open_regular(path) as file:
        magic = file.read(4)
    if magic == b"GGUF" or path.suffix == ".gguf":
        return Source(shown_path(path), None, path)
    return Source(shown_path(path), load_config(path), None)


def _from_hub(name: str) -> Path:
    """Return the cached config.json of a model on the hub; download it if it is not cached."""
    rule = "config must be a file, or a name on the Hugging Face hub"
    got = f"got {shown(name)}: no such file, and"
    with needing(f"{rule}, {got} the hub"):
        import huggingface_hub as hub
    client: Any = hub
    with suppress(Exception):  # not cached; the exception depends on the client's version
        return Path(client.hf_hub_download(name, "config.json", local_files_only=True))
    try:
        address = client.hf_hub_url(name, "config.json")
        size = client.get_hf_file_metadata(address, timeout=SECONDS).size
        if size is None or size > MAX_BYTES:
            has = "no known size" if size is None else f"{size:,} bytes"
            raise ValueError(f"it has {has}, at most {MAX_BYTES:,} bytes are allowed")
        return Path(client.hf_hub_download(name, "config.json", etag_timeout=SECONDS))
    except Exception as error:
        reason = shown((str(error).strip() or type(error).__name__).splitlines()[0], 200)
        unread = f"its config.json cannot be read from the hub ({reason})"
        raise ValueError(f"{rule}, {got} {unread}") from None


CONTEXT_KEY = "max_position_embeddings"
NEEDS_ORIGINAL = ("yarn", "llama3", "longrope")


class Reading(NamedTuple):
    """A model, the config that it was read from, and what had to be assumed."""

    model: ModelSpec
    config: JsonObject
    assumptions: tuple[Caution, ...]


class RopePlace(NamedTuple):
    """A rope's fields in a config, the section that they are in, and their path."""

    fields: dict[str, Any]
    section: dict[str, Any]
    path: str


def read_with_repairs(config: JsonObject, pairing: str | None) -> Reading:
    """Read a config as it is, else as transformers would. Raises the error of the first attempt.

    Warnings about the positions are left to the report.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherPositionsWarning)
        return _read_with_repairs(config, pairing)


def _read_with_repairs(config: JsonObject, pairing: str | None) -> Reading:
    try:
        return Reading(ModelSpec.from_config(config, pairing=pairing), config, ())
    except ValueError as error:
        copied = (place._replace(fields=dict(place.fields)) for place in rope_places(dict(config)))
        if not any(list(_repair(place)) for place in copied):
            raise
        changed = copy.deepcopy(dict(config))
        assumptions = [caution for place in rope_places(changed) for caution in _repair(place)]
        try:
            model = ModelSpec.from_config(changed, pairing=pairing)
        except ValueError:
            raise error from None
        return Reading(model, changed, tuple(assumptions))


def rope_places(section: dict[str, Any], path: str = "", depth: int = 3) -> Iterator[RopePlace]:
    """Yield the fields of each rope in a config and in its sections."""
    for key in ("rope_parameters", "rope_scaling"):
        written = section.get(key)
        if not isinstance(written, dict) or len(written) > MAX_FIELDS:
            continue
        by_type = {name: fields for name, fields in written.items() if isinstance(fields, dict)}
        if not by_type:
            yield RopePlace(written, section, f"{path}{key}")
        for name, fields in by_type.items():
            yield RopePlace(fields, section, f"{path}{key}.{named(name)}")
    if depth:
        for key, value in section.items():
            if isinstance(value, dict) and str(key).endswith("config"):
                yield from rope_places(value, f"{path}{named(key)}.", depth - 1)


def _repair(place: RopePlace) -> Iterator[Caution]:
    """Change a rope's fields to what transformers makes of them; yield what was assumed."""
    name = place.fields.get("rope_type", place.fields.get("type"))
    rope_type = EARLIER_ROPE_TYPES.get(name, name) if isinstance(name, str) else None
    rule = RULES_BY_ROPE_TYPE.get(rope_type or "")
    if rule is None:
        return
    yield from _drop_unknown(place, rope_type or "", rule)
    stated = place.fields.get(ORIGINAL_LENGTH) or place.section.get(ORIGINAL_LENGTH)
    longest = place.section.get(CONTEXT_KEY)
    if rope_type in NEEDS_ORIGINAL and stated is None and isinstance(longest, int):
        place.fields[ORIGINAL_LENGTH] = longest
        yield Caution(
            "original-length-missing",
            place.path,
            f"{ORIGINAL_LENGTH} is missing. transformers silently uses {CONTEXT_KEY} = {longest:,} "
            f"instead, and so does this report; TensorRT-LLM uses 1,024. If {longest:,} is already "
            f"the extended length, the length is scaled twice and the wrong pairs are interpolated",
            f"add {ORIGINAL_LENGTH}: the length that the model was trained with before the rule",
        )


def _drop_unknown(place: RopePlace, rope_type: str, rule: type[Any]) -> Iterator[Caution]:
    known = {JSON_NAMES.get(each.name, each.name) for each in dataclasses.fields(rule)}
    known |= {"rope_type", "type", *COMMON_FIELDS, *UNUSED_BY_YARN}
    for key in [key for key in place.fields if key not in known]:
        value = place.fields.pop(key)
        yield Caution(
            "unknown-field",
            f"{place.path}.{named(key)}",
            f"rope_type {rope_type!r} has no field {named(key)}, here {shown(value, 40)}. "
            f"transformers ignores it, and so does this report",
            _way_out(place, key, value, known),
        )


def _way_out(place: RopePlace, key: Any, value: Any, known: set[str]) -> str:
    factor = place.fields.get("factor")
    numbers = [each for each in (value, factor) if isinstance(each, (int, float)) and each > 0]
    if key == "attn_factor" and "attention_factor" in known and len(numbers) == 2:
        # vLLM and llama.cpp multiply YaRN's amplitude by it.
        amplitude = value * (1 + 0.1 * math.log(max(1.0, float(factor or 1))))
        return (
            f"if the model was trained with it, write attention_factor: {amplitude:.6g}, which is "
            f"attn_factor times YaRN's own amplitude"
        )
    guess = closest(str(key), known)
    return f"write {guess!r} if that is meant, or remove it" if guess else f"remove {named(key)}"
