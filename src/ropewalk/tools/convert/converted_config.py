"""What config.json says about the model to convert, and the config of the converted one.

A config.json is edited as text: one member of an object changes, and no other byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ropewalk.checks import ArgumentNeededError, shown
from ropewalk.files import read_bytes
from ropewalk.rotary.config.config_json import MAX_BYTES, load_config, positive_int
from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY, PAIRING_KEYS, RopeConventions
from ropewalk.rotary.config.head_layouts import HEAD_COUNT_KEYS
from ropewalk.rotary.config.reader import read_config
from ropewalk.rotary.config.sections import find_sections, normalize_section
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.spec import Pairing
from ropewalk.tools.convert.row_permutation import Heads, Place
from ropewalk.tools.convert.weight_layouts import LAYOUTS, TEXT_TYPES, Layout, text_layout

MOST_DRAFTS = 64  # layers that predict further tokens; published models have 1 to 3
MOST_HEADS = 16_384  # many times those of published models; bounds the work


@dataclass(frozen=True)
class Stack:
    """The text stack of a model: its layers, the layout of its tensors and its heads.

    drafts: how many layers the config has that predict further tokens, after the others.
    """

    layers: tuple[LayerSpec, ...]
    drafts: int
    layout: Layout
    moved: Mapping[str, Place]
    heads: Heads


@dataclass(frozen=True)
class KeyChange:
    """A key of config.json that states the pairing, and its new value; None if it is removed."""

    key: str
    value: str | bool | None

    def __str__(self) -> str:
        if self.value is None:
            return f"without {self.key}"
        return f"{json.dumps(self.key)}: {json.dumps(self.value)}"


@dataclass(frozen=True)
class ModelToConvert:
    """The text model of a config.json, the pairings, and the new config.json."""

    model_type: str
    before: Pairing
    after: Pairing
    own: Pairing
    stack: Stack
    config: bytes
    key_changes: tuple[KeyChange, ...]


def read_model(folder: Path, *, to: str, read_as: str | None) -> ModelToConvert:
    """Read a model's config.json. Raises ValueError if it cannot be converted, and says why."""
    path = folder / "config.json"
    config = load_config(path)
    place = text_layout(config)
    if place is None:
        raise _not_supported(config)
    model_type = str(config["model_type"])
    section_path, layout = place
    stacks = read_config(config).stacks
    section, conventions = find_sections(config, model_type)["text"]
    _check_quantization(config)
    _check_quantization(section)
    if config.get("auto_map") and read_as is None:
        raise ArgumentNeededError(
            f"config.json names code of its own (auto_map), which may pair dimensions in another "
            f"way than {model_type}",
            "; state the pairing of the weights with {argument}",
            "read_as",
        )
    settings = {**conventions.defaults, **normalize_section(section, conventions)[0]}
    reason = layout.refused(settings)
    if reason is not None:
        raise ValueError(f"this {model_type} model cannot be converted: {reason}")
    layers = stacks["text"]
    stated = next((layer.rope.pairing for layer in layers if layer.rope is not None), None)
    if stated is None:
        raise ValueError("this model has no rope in any layer, so there is nothing to convert")
    before = cast(Pairing, stated if read_as is None else read_as)
    after = cast(Pairing, to)
    if before == after:
        raise _nothing_to_do(before, stated, conventions, read_as)
    heads = _heads(settings, layout)
    moved = {**layout.moved, **layout.from_config(settings)}
    stack = Stack(layers, _drafts(settings, layers, layout), layout, moved, heads)
    content = read_bytes(path, MAX_BYTES)
    written, changes = new_config(content, conventions, after, section_path)
    _check_written(written, stacks, after)
    return ModelToConvert(model_type, before, after, conventions.pairing, stack, written, changes)


def new_config(
    content: bytes, conventions: RopeConventions, to: Pairing, path: str = ""
) -> tuple[bytes, tuple[KeyChange, ...]]:
    """Return config.json with another pairing in the section at `path`, and the keys that change.

    The pairing that the model type's code uses by default needs no key. Removing a key that this
    function added restores every byte.
    """
    text = content.decode("utf-8")
    before = _section(text, path)
    stated = _statement(to, conventions)
    is_own_key = stated.key == CONVERTED_PAIRING_KEY
    written = text if is_own_key else remove_member(text, path, CONVERTED_PAIRING_KEY)
    if to != conventions.pairing:
        written = set_member(written, path, stated.key, stated.value)
    elif stated.key in before:
        # A last key of the family may be one that this function added.
        if is_own_key or _members(written, path)[-1].key == stated.key:
            written = remove_member(written, path, stated.key)
        else:
            written = set_member(written, path, stated.key, stated.value)
    after = _section(written, path)
    changes = tuple(
        KeyChange(key, after.get(key))
        for key in (CONVERTED_PAIRING_KEY, *PAIRING_KEYS)
        if before.get(key, ...) != after.get(key, ...)
    )
    return written.encode("utf-8"), changes


def _statement(pairing: str, conventions: RopeConventions) -> KeyChange:
    """Return the key that states a pairing to the model type's code or to ropewalk."""
    if conventions.pairing_key is None:
        return KeyChange(CONVERTED_PAIRING_KEY, pairing)
    return KeyChange(conventions.pairing_key, pairing == "interleaved")


def _section(text: str, path: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(text.removeprefix("\ufeff"))
    return config[path] if path else config


def _check_written(
    content: bytes, stacks: Mapping[str, tuple[LayerSpec, ...]], to: Pairing
) -> None:
    """Raise if the new config would not be read as the same ropes with the new pairing."""
    read = read_config(_section(content.decode("utf-8"), "")).stacks
    assert {**read, "text": ()} == {**stacks, "text": ()}
    for layer, (new, old) in enumerate(zip(read["text"], stacks["text"], strict=True)):
        if old.rope is None or new.rope is None:
            assert old.rope is new.rope, layer
            continue
        assert new.rope.pairing == to, (layer, new.rope)
        same = replace(new.rope, pairing=old.rope.pairing, write_pairing=old.rope.write_pairing)
        assert same == old.rope, (layer, new.rope)


def _heads(settings: Mapping[str, Any], layout: Layout) -> Heads:
    heads = positive_int(settings, *HEAD_COUNT_KEYS, most=MOST_HEADS)
    kv_heads = layout.key_heads(settings, heads)
    if heads % kv_heads:
        raise ValueError(
            f"the number of heads must be a multiple of that of keys, got {heads} and {kv_heads}"
        )
    return Heads(heads, kv_heads)


def _drafts(settings: Mapping[str, Any], layers: tuple[LayerSpec, ...], layout: Layout) -> int:
    """Return how many layers predict further tokens; config.json may leave out a single one."""
    if not layout.drafts or len({layer.rope for layer in layers if layer.rope is not None}) > 1:
        return 0
    for key in ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"):
        if settings.get(key):
            return positive_int(settings, key, most=MOST_DRAFTS)
    return 0 if layout.drafts in layout.layers else 1


def _check_quantization(config: Mapping[str, Any]) -> None:
    for key in ("quantization_config", "compression_config"):
        if config.get(key) is not None:
            raise ValueError(
                f"{key} must be absent, got {shown(config[key])}: quantized weights have scales "
                f"that would have to move with their rows; convert the model before it is "
                f"quantized"
            )


def _not_supported(config: Mapping[str, Any]) -> ValueError:
    text = config.get("text_config")
    inside = text.get("model_type") if isinstance(text, Mapping) else None
    return ValueError(
        f"model_type must be one of the {len({*LAYOUTS, *TEXT_TYPES})} that are tested to compute "
        f"the same after a conversion, got {shown(config.get('model_type'))}"
        f"{'' if inside is None else f' with the text model {shown(inside)}'}; see LAYOUTS and "
        f"TEXT_TYPES in ropewalk.tools.convert.weight_layouts"
    )


def _nothing_to_do(
    before: Pairing, stated: Pairing, conventions: RopeConventions, read_as: str | None
) -> ValueError:
    if read_as is None:
        return ArgumentNeededError(
            f"there is nothing to do: config.json says that the weights are {before} already",
            "; if they are not, say what they are with {argument}",
            "read_as",
        )
    if read_as == stated:
        return ValueError(
            f"there is nothing to do: the weights are {before} already, as config.json says"
        )
    return ValueError(
        f"there is nothing to do: weights that are {before} already need only "
        f"{_statement(before, conventions)} in config.json"
    )


_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Member:
    """A member of a JSON object, and where its key and its value are in the text."""

    key: str
    begin: int
    value: int
    end: int


def set_member(text: str, path: str, key: str, value: object) -> str:
    """Return the text with a member of the section at a path, added at its end if missing.

    Example:
        >>> set_member('{"a": 1}', "", "b", "half")
        '{"a": 1, "b": "half"}'
    """
    written = json.dumps(value)
    members = _members(text, path)
    for member in members:
        if member.key == key:
            return text[: member.value] + written + text[member.end :]
    last, before = members[-1], members[-2].end if len(members) > 1 else None
    gap = " " if before is None else text[before : last.begin].replace(",", "", 1) or " "
    return f"{text[: last.end]},{gap}{json.dumps(key)}: {written}{text[last.end :]}"


def remove_member(text: str, path: str, key: str) -> str:
    """Return the text without a member of the section at a path, if it has it.

    Example:
        >>> remove_member('{"a": 1, "b": "half"}', "", "b")
        '{"a": 1}'
    """
    members = _members(text, path)
    for index, member in enumerate(members):
        if member.key == key:
            if index:
                return text[: members[index - 1].end] + text[member.end :]
            after = members[1].begin if len(members) > 1 else member.end
            return text[: member.begin] + text[after:]
    return text


def _members(text: str, path: str) -> list[Member]:
    """Return the members of the section at a path, of one key or none; the text is valid JSON."""
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if path:
        at = next(member.value for member in _members(text, "") if member.key == path)
    members = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)  # after the colon
        end = _DECODER.raw_decode(text, value)[1]
        members.append(Member(key, at, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return members


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()
