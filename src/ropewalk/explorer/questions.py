"""What the page may ask: who answers each question, and how its values are read.

A question and its answer are objects of JSON. A ValueError is a mistake in the question.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.checks import shown
from ropewalk.files import shown_path

if TYPE_CHECKING:
    from ropewalk.explorer.model_room import ModelRoom

MOST_PATH = 500  # characters
MOST_HEADS = 9_999

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def _ask(room: str, function: str, question: dict[str, Any]) -> dict[str, Any]:
    module = import_module(f"ropewalk.explorer.{room}")  # late: it imports torch, for seconds
    answer: dict[str, Any] = getattr(module, function)(question)
    return answer


def about_model(model: ModelRoom | None) -> dict[str, Answer]:
    """Return who answers about the model of the command line."""

    def head_answer(question: dict[str, Any]) -> dict[str, Any]:
        if model is None:
            raise ValueError("there is no model: start ropewalk explore with --model")
        layer, head = (number_of(question, name, 0, MOST_HEADS) for name in ("layer", "head"))
        return model.head(layer, head)

    return {
        "model": lambda _: {"model": None} if model is None else model.overview(),
        "head": head_answer,
    }


ANSWERS: dict[str, Answer] = {
    "extend": partial(_ask, "stretch_room", "extend_answer"),
    "encoding": partial(_ask, "encodings_room", "encoding_answer"),
    "encodings": partial(_ask, "encodings_room", "names_answer"),
    **about_model(None),
}


def about_runs(given: str | None) -> dict[str, Answer]:
    """Return who answers about runs in `given` (RUN) or in this folder; no others are touched."""
    folders, real = [os.path.abspath(given or "."), os.getcwd()], os.path.realpath

    def about(function: str, question: dict[str, Any]) -> dict[str, Any]:
        text = text_of(question, "run", MOST_PATH).strip()
        run = os.path.abspath(os.path.expanduser(text)) if text and "\0" not in text else ""
        near = [folder for folder in folders if Path(run).is_relative_to(folder)]
        if run and not any(Path(real(run)).is_relative_to(real(folder)) for folder in near):
            where = "in the folder in which ropewalk explore was started, or its RUN"
            raise ValueError(f"run must be {where}, got {shown_path(run)}; start it again there")
        return _ask("attention_room", function, {**question, "run": run})

    answers = {"run": partial(about, "run_answer"), "attention": partial(about, "attention_answer")}
    return {**answers, "given": lambda _: {"run": given}}


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
