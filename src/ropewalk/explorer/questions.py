"""What the page may ask: who answers each question, and how its values are read.

A question and its answer are objects of JSON. A ValueError is a mistake in the question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from ropewalk.checks import shown

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def _ask(room: str, function: str, question: dict[str, Any]) -> dict[str, Any]:
    module = import_module(f"ropewalk.explorer.{room}")  # late: it imports torch, for seconds
    answer: dict[str, Any] = getattr(module, function)(question)
    return answer


#: `serve` replaces "given": it knows the RUN of the command line.
ANSWERS: dict[str, Answer] = {
    "extend": partial(_ask, "stretch_room", "extend_answer"),
    "encoding": partial(_ask, "encodings_room", "encoding_answer"),
    "encodings": partial(_ask, "encodings_room", "names_answer"),
    "run": partial(_ask, "attention_room", "run_answer"),
    "attention": partial(_ask, "attention_room", "attention_answer"),
    "given": lambda _: {"run": None},
}


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
