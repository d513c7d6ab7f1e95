"""A config.json as plain JSON, loaded from any source, and checks of its values.

Errors name the key. No other library is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ropewalk.checks import as_python, shown
from ropewalk.files import json_problem, read_text

JsonObject = Mapping[str, Any]

# Keys of the context, in positions, that a model states; the first that is present counts.
LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length",
    "model_max_length", "n_ctx",
)  # fmt: skip

# Bounds, each many times what published models have, so that no config causes endless work.
MAX_SIZE = 2**24  # widths and counts: 16,777,216; the widest have some 20,000
MAX_LENGTH = 2**31  # in positions; the longest have 10,000,000
LEAST_NUMBER, MOST_NUMBER = 1e-9, 1e9  # of factors; published ones have 0.1 to 100,000
LEAST_THETA, MOST_THETA = 1.0, 1e15  # published models have 100 to 100,000,000


# Bounds of a file, too: each many times what published files have.
MAX_BYTES = 4 * 2**20  # a few have 1 MB, of labels
MAX_DEPTH = 64  # of nested objects and lists; they have 6
MAX_VALUES = 3_000_000  # in all objects and lists together
MAX_BITS = 10_000  # of an integer; Python refuses more than 4,300 digits
MAX_KEYS = 10_000  # of one section; they have 200


def load_config(source: str | PathLike[str] | JsonObject) -> JsonObject:
    """Load the JSON of a path, a model's folder, a dictionary, or an object of another library.

    That is a transformers config, or a model of diffusers, which has its class in its JSON.
    """
    if isinstance(source, Mapping):
        config: Any = source
    elif hasattr(source, "to_json_string") and not hasattr(source, "to_dict"):
        config = parse_config(source.to_json_string(), type(source).__name__)
    elif hasattr(source, "to_dict") and not isinstance(source, type):
        config = source.to_dict()
        if isinstance(config, Mapping) and not config.get("model_type"):  # Evolla's SaProt
            config = {**config, "model_type": type(source).__name__}
    elif isinstance(source, (str, PathLike)):
        config = _read(fspath(source))
    else:
        raise TypeError(
            f"config must be a path, a dictionary or a transformers config (or a diffusers model), "
            f"got {shown(source)}"
        )
    if not isinstance(config, Mapping):
        raise ValueError(
            f"config must be a JSON object, got {type(config).__name__} in {shown(source, 200)}"
        )
    check_bounds(config)
    return config


def _read(path: str) -> Any:
    try:
        # A path with a NUL is not a folder; `read_text` raises for it.
        file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
        if not file.exists() and (index := file.with_name("model_index.json")).is_file():
            file = index  # a pipeline of diffusers, whose reader names the model's folder
        text = read_text(file, MAX_BYTES)
    except (ValueError, OSError) as error:
        # An error of `read_text` names the file; an OSError of `is_dir` does not.
        reason = f"{shown(path, 200)}: {error.strerror}" if isinstance(error, OSError) else error
        raise UnreadableConfigError("be a config.json or its folder", str(reason)) from None
    return parse_config(text, str(file))


def parse_config(text: str, name: str) -> Any:
    """Return the JSON of a config. Raises ValueError with its name and the reason."""
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_without_doubles)
    except DoubledKeyError:
        raise
    except RecursionError:
        raise ValueError(
            f"config must be at most {MAX_DEPTH} objects and lists deep, "
            f"got more in {shown(name, 200)}"
        ) from None
    except ValueError as error:
        reason = json_problem(error)
    raise UnreadableConfigError(
        "be a readable JSON file, or its contents as a dictionary", f"{shown(name, 200)}: {reason}"
    ) from None


class UnreadableConfigError(ValueError):
    """No config.json can be read there. got: what is there, for other interfaces to word."""

    def __init__(self, rule: str, got: str) -> None:
        super().__init__(f"config must {rule}, got {got}")
        self.got = got


class DoubledKeyError(ValueError):
    """A key that one object has twice, with different values."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a file's object; raise if it has a key twice, with different values."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    for key, value in pairs:
        if value != values[key] and not (value != value and values[key] != values[key]):
            raise DoubledKeyError(
                f"{named(key)} must be given once, got {shown(value)} and {shown(values[key])} "
                f"in the same object"
            )
    return values


def named(key: object) -> str:
    """Return a key as a message shows it: bare if it is a plain word, cut if it is long."""
    plain = isinstance(key, str) and len(key) <= 80 and key.isascii() and key.isprintable()
    return str(key) if plain else shown(key)


def check_bounds(config: JsonObject) -> None:
    """Raise if a config is deeper or larger than that of any model."""
    level: list[Any] = [config]
    count = 0
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for collection in level:
            count += len(collection)
            if count > MAX_VALUES:
                raise ValueError(f"config must have at most {MAX_VALUES:,} values, got more")
            values = collection.values() if isinstance(collection, Mapping) else collection
            if any(type(value) is int and value.bit_length() > MAX_BITS for value in values):
                raise ValueError(
                    f"config must have integers of at most {MAX_BITS:,} bits, got more"
                )
            inner.extend(value for value in values if isinstance(value, (Mapping, list, tuple)))
        if not inner:
            return
        level = inner
    raise ValueError(f"config must be at most {MAX_DEPTH} objects and lists deep, got more")


def by_usual_names(
    values: JsonObject, names: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values that are not null by their usual names, and those that had another name.

    names: other names, and the usual name of each. Raises ValueError if a value is there by two
    names and differs.
    """
    usual_values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, value in values.items():
        usual = names.get(name, name)
        if value is None:
            continue
        if usual in usual_values and usual_values[usual] != value:
            raise ValueError(
                f"{named(name)} must be the same as {written.get(usual, usual)}, "
                f"{shown(usual_values[usual])}, got {shown(value)}; remove one of them"
            )
        usual_values[usual] = value
        if usual != name:
            written[usual] = name
    return usual_values, written


def first_present(values: JsonObject, keys: tuple[str, ...]) -> str | None:
    """Return the first of these keys that has a value, or None if none has."""
    return next((key for key in keys if values.get(key) is not None), None)


def positive_int(values: JsonObject, *keys: str, most: int = MAX_SIZE) -> int:
    """Return the value of the first of these keys that is present, an integer above 0."""
    key = first_present(values, keys)
    if key is None:
        others = f", got none of {', '.join(keys)}" if len(keys) > 1 else ""
        raise ValueError(f"{keys[0]} must be given{others}")
    return _bounded_int(key, values[key], 1, most)


def positive_float(
    key: str,
    value: Any,
    *,
    zero: bool = False,
    least: float = LEAST_NUMBER,
    most: float = MOST_NUMBER,
) -> float:
    """Return this value of a key: from `least` to `most`, or 0 if `zero` allows it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} must be a number, got {shown(value)}{_as_python(key, value)}")
    if not (0 < value <= sys.float_info.max or (zero and value == 0)):
        bounds = "finite and not negative" if zero else "finite and above 0"
        raise ValueError(f"{key} must be {bounds}, got {shown(value)}")
    if value and not least <= value <= most:
        raise ValueError(f"{key} must lie between {least:g} and {most:g}, got {shown(value)}")
    return value


def positive_theta(key: str, value: Any) -> float:
    """Return this value of a key: a base of frequencies."""
    return positive_float(key, value, least=LEAST_THETA, most=MOST_THETA)


def positive_length(key: str, value: Any, least: int = 1) -> int:
    """Return this value of a key: a number of positions; 4096.0 is one, as some files have it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _bounded_int(key, value, least, MAX_LENGTH)


def _bounded_int(key: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"{key} must be an integer above {least - 1}, got {shown(value)}"
            f"{_as_python(key, value)}"
        )
    if value > most:
        raise ValueError(f"{key} must be at most {most:,}, got {shown(value)}")
    return value


def _as_python(key: str, value: object) -> str:
    """Return what is wrong with a number of another library, which JSON never has; else ""."""
    way_out = as_python(key, value)
    kind = type(value).__name__
    return f", of type {kind}, which is not a Python number{way_out}" if way_out else ""


def as_list(key: str, value: Any) -> Sequence[Any]:
    """Return this value of a key, which must be a list."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{key} must be a list, got {shown(value)}")
    return value
