"""Read the ropes of a diffusers model from its config.json, by the rows of `diffusers_types`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary import axes
from ropewalk.rotary.config.config_json import (
    JsonObject,
    as_list,
    named,
    positive_float,
    positive_int,
    positive_theta,
)
from ropewalk.rotary.config.conventions import CLASS_DEFAULT, CLASS_NAME, WHOLE_HEAD
from ropewalk.rotary.config.diffusers_types import (
    MODELS,
    NOT_OF_THE_ROPE,
    UNSTATED,
    Blocks,
    Key,
    RopeOfBlocks,
)
from ropewalk.rotary.config.unknown_keys import is_about_rope
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.scaling import Scaling
from ropewalk.rotary.spec import MAX_HEAD_DIM, Axes, RotarySpec

MAX_BLOCKS = 10_000
MAX_AXES = 8  # published models have at most 4
#: LTX-2's key for the pairs of each head: halves, or neighbors over all heads.
SPLIT_KEY = Key("rope_type", "interleaved")


def is_diffusers(config: JsonObject) -> bool:
    """Return whether a config is one of diffusers, by its keys."""
    return config.get(CLASS_NAME) is not None and config.get("model_type") is None


def read_diffusers(config: JsonObject) -> tuple[dict[str, tuple[LayerSpec, ...]], str]:
    """Return the layers of each kind of blocks by their name in the model, and its class."""
    name = config[CLASS_NAME]
    _check_class(name, config)
    rows = MODELS[name]
    _check_keys(config, rows)
    stacks = {}
    for stack, blocks in rows.items():
        count = blocks.made(_count(config, blocks.number))
        if count > 0:
            stacks[stack] = (_layer(config, blocks.rope),) * count
    return stacks, name


def _check_class(name: object, config: JsonObject) -> None:
    parts = {  # a pipeline's model in model_index.json is a library and a class
        key: value[1]
        for key, value in config.items()
        if isinstance(value, (list, tuple)) and [*map(type, value)] == [str, str]
    }
    if parts:
        folders = [key for key, cls in parts.items() if cls in {*MODELS, *UNSTATED}]
        raise ValueError(
            f"config must be that of one model, got the index of a pipeline, {shown(name)}; "
            f"the folder with a rope is {' or '.join(folders) or 'none of ' + ', '.join(parts)}"
        )
    if isinstance(name, str) and name in UNSTATED:
        raise ValueError(
            f"{CLASS_NAME} must be one whose rope a spec states, got {name}: {UNSTATED[name]}"
        )
    if not isinstance(name, str) or name not in MODELS:
        guess = did_you_mean(str(name)[:80], MODELS)
        raise ValueError(
            f"{CLASS_NAME} must be a class of diffusers with a rope that is known, "
            f"got {shown(name)}{guess}"
        )


def _keys(rope: RopeOfBlocks) -> Iterator[str]:
    """Return the keys at the top of a config that a rope is read from."""
    yield from rope.other_keys
    for key in (rope.dims, rope.rotary, rope.theta, *rope.rule_keys, *(rope.only_if or ())[:1]):
        for path in key.name.split("|") if isinstance(key, Key) else ():
            yield path.partition(".")[0]


def _check_keys(config: JsonObject, rows: Mapping[str, Blocks]) -> None:
    """Raise for a key about ropes that the class's code does not read."""
    ropes = [blocks.rope for blocks in rows.values() if blocks.rope is not None]
    known = {key for rope in ropes for key in _keys(rope)} | NOT_OF_THE_ROPE
    for key, value in config.items():
        if is_about_rope(str(key)) and key not in known and value is not None:
            raise ValueError(
                f"{named(key)} must be absent for {config[CLASS_NAME]}, whose code does not read "
                f"it, got {shown(value)}{did_you_mean(str(key), known)}"
            )


def _value(config: JsonObject, key: Key) -> tuple[Any, str]:
    """Return the value of a key and the path that has it, or the default and `CLASS_DEFAULT`."""
    for path in key.name.split("|"):
        found: Any = config
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found, path
    if key.default is None:
        raise ValueError(f"{key.name.replace('|', ' or ')} must be given for this class, got none")
    return key.default, CLASS_DEFAULT


def _count(config: JsonObject, key: str) -> int:
    """Return how many blocks there are: a number that may be 0, or the length of a list."""
    value, _ = _value(config, Key(key))
    if isinstance(value, (list, tuple)):
        value = len(value)
    if value == 0 and type(value) is int:
        return 0
    return positive_int({key: value}, key, most=MAX_BLOCKS)


def _layer(config: JsonObject, row: RopeOfBlocks | None) -> LayerSpec:
    if row is None:
        return LayerSpec(None)
    if row.only_if is not None and _value(config, row.only_if[0])[0] != row.only_if[1]:
        return LayerSpec(None)
    theta, theta_from = (row.theta, CLASS_DEFAULT)
    if isinstance(row.theta, Key):
        theta, theta_from = _value(config, row.theta)
        positive_theta(row.theta.name, theta)
    scaling, scaling_from = _scaling(config, row)
    rope, origins = _geometric(config, row) if row.order == "geometric" else _axial(config, row)
    rope |= {"theta": theta, "scaling": scaling, "continuous": row.continuous}
    origins |= {"theta": theta_from, "pairing": CLASS_NAME, "scaling": scaling_from}
    return LayerSpec(RotarySpec(**rope), origins=origins)


def _scaling(config: JsonObject, row: RopeOfBlocks) -> tuple[Scaling | None, str]:
    if row.rule is None:
        return None, CLASS_DEFAULT
    values, places = zip(*(_value(config, key) for key in row.rule_keys), strict=True)
    read = [tuple(value) if isinstance(value, list) else value for value in values]
    names = ", ".join(key.name for key in row.rule_keys)
    try:
        return row.rule(*read), next((p for p in places if p != CLASS_DEFAULT), CLASS_DEFAULT)
    except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
        raise ValueError(f"{names} must give a scaling rule, got {shown(read)}: {error}") from None


def _head_dim(config: JsonObject, row: RopeOfBlocks) -> tuple[int, str]:
    """Return D and where it is read: a key, a width over heads, or the sum of a list of sizes."""
    if isinstance(row.head_dim, tuple):
        width, heads = (positive_int(config, key) for key in row.head_dim)
        if width % heads:
            raise ValueError(f"{row.head_dim[0]} must be a multiple of {heads} heads, got {width}")
        return width // heads, " / ".join(row.head_dim)
    value, path = _value(config, Key(row.head_dim))
    if isinstance(value, (list, tuple)):
        return sum(_sizes(path, value)), path
    return positive_int({path: value}, path, most=MAX_HEAD_DIM), path


def _sizes(key: str, value: Any) -> list[int]:
    sizes = as_list(key, value)
    if not 1 <= len(sizes) <= MAX_AXES:
        raise ValueError(
            f"{key} must have 1 to {MAX_AXES} sizes, one for each axis, got {len(sizes)}"
        )
    return [positive_int({key: size}, key, most=MAX_HEAD_DIM) for size in sizes]


def _rotary_dim(config: JsonObject, row: RopeOfBlocks, head_dim: int) -> tuple[int, str]:
    """Return R and where it is read: a key of R or of its part of the head, or the class."""
    if not isinstance(row.rotary, Key):
        return int(head_dim * row.rotary), WHOLE_HEAD if row.rotary == 1.0 else CLASS_DEFAULT
    part, path = _value(config, row.rotary)
    whole_number = type(part) is int
    positive_float(path, part, most=float(head_dim) if whole_number else 1.0)
    return part if whole_number else int(head_dim * part), path


def _axial(config: JsonObject, row: RopeOfBlocks) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a rope whose axes share a head, and where they are read."""
    head_dim, head_from = _head_dim(config, row)
    rotary_dim, rotary_from = _rotary_dim(config, row, head_dim)
    if isinstance(row.dims, Key):
        value, rotary_from = _value(config, row.dims)
        if type(row.dims.default) is int:  # pairs of each of three axes; other dimensions rest
            dims = [2 * positive_int({row.dims.name: value}, row.dims.name, most=MAX_HEAD_DIM)] * 3
            rotary_dim = sum(dims)
        else:
            dims = _sizes(row.dims.name, value)
    else:
        dims = list(row.dims(rotary_dim))
    if row.order != "sections" and (sum(dims) != rotary_dim or any(size % 2 for size in dims)):
        key = row.dims.name if isinstance(row.dims, Key) else head_from
        raise ValueError(
            f"{key} must divide the {rotary_dim} dimensions that rotate into an even number for "
            f"each axis, got {shown(dims)}"
        )
    fields = {
        "head_dim": head_dim,
        "rotary_dim": None if row.order == "sections" else rotary_dim,
        "pairing": row.pairing,
        "axes": None if len(dims) == 1 else _axes(row, dims, head_dim),
        "blocks": tuple(dims) if row.blocks else None,
    }
    return fields, {"head_dim": head_from, "rotary_dim": rotary_from}


def _axes(row: RopeOfBlocks, dims: list[int], head_dim: int) -> Axes:
    pairs = [size // 2 for size in dims]
    if row.order == "sections":
        return axes.interleaved(dims, head_dim // 2)
    if row.order == "alternating":
        return axes.alternating(pairs[0])
    return axes.axial(pairs, order=(1, 0) if row.order == "width first" else None)


def _geometric(config: JsonObject, row: RopeOfBlocks) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a rope over all heads, and where they are read."""
    heads, size = (positive_int(config, key, most=MAX_HEAD_DIM) for key in row.head_dim)
    width, origin = heads * size, " * ".join(row.head_dim)
    if width > MAX_HEAD_DIM:
        raise ValueError(
            f"{origin} must be at most {MAX_HEAD_DIM:,}, as the rope spans all heads, got {width:,}"
        )
    assert not isinstance(row.dims, Key)
    count = len(row.dims(width))
    pairs, rest = divmod(width, 2 * count)
    fields: dict[str, Any] = {"head_dim": width}
    split, _ = _value(config, SPLIT_KEY)
    if split not in ("interleaved", "split"):
        raise ValueError(f'rope_type must be "interleaved" or "split", got {shown(split)}')
    if split == "interleaved":
        fields |= {"pairing": "interleaved", "start": rest, "axes": axes.geometric(pairs, count)}
    else:
        idle = axes.geometric(pairs, count, idle=rest // 2)
        fields |= {"pairing": "half", "axes": idle, "blocks": (size,) * heads}
    return fields, {"head_dim": origin, "rotary_dim": origin}
