"""The metadata of a GGUF file, by the names that llama.cpp reads; errors name the key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.checks import shown

SCALING = "rope.scaling"


class GgufValues:
    """Metadata of one architecture. `get` and the others take keys without the architecture."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields
        architecture = fields.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise ValueError(
                f"general.architecture must name the model's architecture, got "
                f"{shown(architecture)}; a file of a vocabulary or an adapter has no rope"
            )
        self.architecture = architecture

    def key(self, name: str) -> str:
        """Return the complete key of a name."""
        return f"{self.architecture}.{name}"

    def get(self, name: str) -> Any:
        """Return a value, or None if the file does not have it."""
        return self.fields.get(self.key(name))

    def integer(self, name: str) -> int | None:
        """Return an integer of at least 0; of a list by layers, the largest."""
        value = self.get(name)
        if isinstance(value, list) and value:
            value = max((each for each in value if isinstance(each, int)), default=None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{self.key(name)} must be an integer, got {shown(value)}")
        return value

    def number(self, name: str) -> float | None:
        """Return a finite number; 0 is the same as none, as in llama.cpp."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{self.key(name)} must be a number, got {shown(value)}")
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{self.key(name)} must be finite and not negative, got {value}")
        return float(value) or None

    def text(self, name: str) -> str | None:
        """Return a string."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{self.key(name)} must be a string, got {shown(value)}")
        return value

    def required(self, *names: str) -> int:
        """Return the first of these integers that the file has."""
        for name in names:
            value = self.integer(name)
            if value:
                return value
        raise ValueError(f"{self.key(names[0])} must be given, got none")

    def sections(self) -> Sequence[int] | None:
        """Return the pairs of each axis of M-RoPE, or None."""
        value = self.get("rope.dimension_sections")
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise ValueError(
                f"{self.key('rope.dimension_sections')} must be a list of integers, "
                f"got {shown(value)}"
            )
        return [each for each in value if each] or None
