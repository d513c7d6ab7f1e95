"""Reading of what the page asks: each value is checked, and a mistake names the field."""

from __future__ import annotations

from typing import Any

from ropewalk.checks import shown


def text_of(question: dict[str, Any], name: str, most: int) -> str:
    """Return a text of at most `most` characters. Raises ValueError otherwise."""
    value = question.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {shown(value)}")
    if len(value) > most:
        raise ValueError(f"{name} must have at most {most:,} characters, got {len(value):,}")
    return value


def number_of(question: dict[str, Any], name: str, least: int, most: int) -> int:
    """Return a whole number within its limits. Raises ValueError otherwise."""
    value = question.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"{name} must be a whole number from {least:,} to {most:,}, got {shown(value)}"
        )
    return value
