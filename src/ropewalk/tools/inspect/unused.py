"""Find keys of a config that do not change its ropes: each is changed, and the ropes compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ropewalk.rotary.config.config_json import JsonObject, named
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.reader import read_layers
from ropewalk.rotary.config.rope_fields import ORIGINAL_LENGTH
from ropewalk.rotary.config.sections import ABOUT_ROPE, HARMLESS_VALUES

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
    value: Any = section
    for key in path:
        value = value[key]
    others = list(_other_values(value))
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
        about = ABOUT_ROPE.search(key) or (key == ORIGINAL_LENGTH and not same)
        if not about or key in HARMLESS_VALUES:
            continue
        if key not in ("rope_parameters", "rope_scaling"):
            yield (key,)
        elif isinstance(value, Mapping):
            for path in _fields(value):
                yield (key, *path)


def _fields(written: Mapping[str, Any]) -> Iterator[Path]:
    for key, value in written.items():
        if isinstance(value, Mapping):
            yield from ((key, name) for name in value)
        else:
            yield (key,)


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
