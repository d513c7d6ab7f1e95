"""Checks JSON against a schema (draft 2020-12) that has only the keywords below.

A library for it would bring five packages that nothing else here needs.
"""

from __future__ import annotations

import re
from typing import Any

ANNOTATIONS = {"$schema", "$id", "$defs", "version", "title", "description"}
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
LEAST = {"minItems": len, "minLength": len, "minProperties": len, "minimum": lambda value: value}
KEYWORDS = {
    "type", "const", "enum", "required", "properties", "additionalProperties", "items", "anyOf",
    "$ref", "pattern", "maxItems", *LEAST,
}  # fmt: skip


def mistakes(value: Any, schema: Any, root: Any, path: str = "") -> list[str]:
    """Return what is wrong with a value, each with its path; [] if nothing is.

    Raises ValueError for a keyword that is not implemented here.
    """
    if unknown := schema.keys() - KEYWORDS - ANNOTATIONS:
        raise ValueError(f"{path}: the schema has keywords that are not checked: {unknown}")
    found = []
    if "$ref" in schema:
        found += mistakes(value, _target(schema["$ref"], root), root, path)
    if "type" in schema and not any(_is(value, name) for name in _list(schema["type"])):
        return [*found, f"{path}: must be {schema['type']}, got {value!r:.60}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: must be {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: must be one of {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path}: must match {schema['pattern']}")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        found.append(f"{path}: has too many items")
    for keyword, size in LEAST.items():
        if keyword in schema and size(value) < schema[keyword]:
            found.append(f"{path}: {keyword} is {schema[keyword]}")
    if "anyOf" in schema:
        each = [mistakes(value, inner, root, path) for inner in schema["anyOf"]]
        found += [] if [] in each else [mistake for inner in each for mistake in inner]
    if isinstance(value, list):
        for i, item in enumerate(value):
            found += mistakes(item, schema.get("items", {}), root, f"{path}[{i}]")
    if isinstance(value, dict):
        found += _of_object(value, schema, root, path)
    return found


def _of_object(value: dict[str, Any], schema: Any, root: Any, path: str) -> list[str]:
    found = [f"{path}: lacks {key}" for key in schema.get("required", ()) if key not in value]
    properties, other = schema.get("properties", {}), schema.get("additionalProperties", {})
    for key, item in value.items():
        inner = properties.get(key, other)
        if inner is False:
            found.append(f"{path}: has an unknown field {key}")
        else:
            found += mistakes(item, inner, root, f"{path}.{key}")
    return found


def _target(reference: str, root: Any) -> Any:
    for key in reference.removeprefix("#/").split("/"):
        root = root[key]
    return root


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):  # True is an int in Python, but not in JSON
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
