"""What the page asks Python, by name: each answer is a function from a question to JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _extend(question: dict[str, Any]) -> dict[str, Any]:
    from ropewalk.explorer.stretch import extend_answer  # torch takes seconds

    return extend_answer(question)


def _encoding(question: dict[str, Any]) -> dict[str, Any]:
    from ropewalk.explorer.encodings import encoding_answer

    return encoding_answer(question)


def _encodings(question: dict[str, Any]) -> dict[str, Any]:
    from ropewalk.explorer.encodings import names_answer

    return names_answer(question)


def _run(question: dict[str, Any]) -> dict[str, Any]:
    from ropewalk.explorer.attention import run_answer

    return run_answer(question)


def _attention(question: dict[str, Any]) -> dict[str, Any]:
    from ropewalk.explorer.attention import attention_answer

    return attention_answer(question)


def _given(question: dict[str, Any]) -> dict[str, Any]:
    return {"run": None}  # `serve` knows the RUN of the command line


#: A question and its answer are objects of JSON. A ValueError is a mistake in the question.
ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "extend": _extend,
    "encoding": _encoding,
    "encodings": _encodings,
    "run": _run,
    "attention": _attention,
    "given": _given,
}
