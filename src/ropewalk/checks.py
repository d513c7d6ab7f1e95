"""Checks of arguments, with messages that name the mistake; values as messages show them."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import operator
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, TypeVar

T = TypeVar("T")

LARGEST = 2**63 - 1
MOST_NUMBERS = 2**28
MOST_BITS = 10_000  # of an int that is shown in digits; Python refuses more than 4,300 digits


def shown(value: object, limit: int = 80) -> str:
    """Return value as a message shows it: its repr in one line, cut to `limit` characters.

    The work is bounded too: only the beginning of a long string or sequence is read. A value
    without a repr, such as an int of too many digits or lists nested too deep, is described.
    """
    if type(value) is int and value.bit_length() > MOST_BITS:
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, PurePath):
        value = str(value)
    long = isinstance(value, (str, bytes, list, tuple)) and len(value) > limit
    try:
        text = repr(value[:limit] if long else value)  # type: ignore[index]
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too long to show"
    if "\n" in text:
        text = " ".join(text.split())
    return text[: limit - 1] + "…" if long or len(text) > limit else text


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, with runs joined: "0-3, 5, 7-9"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def joined(words: Iterable[str]) -> str:
    """Join words as in a sentence: `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def as_python(name: str, value: object) -> str:
    """Return how to convert another library's number to a Python one, or "" for other values."""
    if isinstance(value, (bool, int, float)) or type(value).__name__ in ("bool", "bool_"):
        return ""
    try:
        operator.index(value)  # type: ignore[arg-type]
        return f"; write int({name})"
    except (TypeError, ValueError, RuntimeError):
        return f"; write float({name})" if hasattr(value, "__float__") else ""


def check_int(name: str, value: Any, least: int, why: str = "") -> None:
    """Raise unless value is an int of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(
            f"{name} must be an int, got {shown(value)} of type {type(value).__name__}"
            f"{as_python(name, value)}"
        )
    if value < least:
        raise ValueError(f"{name} must be at least {least}{why}, got {shown(value)}")
    if value > LARGEST:
        raise ValueError(f"{name} must be at most 2^63 - 1, got {shown(value)}")


def check_number(name: str, value: Any, *, zero: bool = False, why: str = "") -> None:
    """Raise unless value is a finite int or float above 0, or 0 if `zero` allows it."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(
            f"{name} must be a float, got {shown(value)} of type {type(value).__name__}"
            f"{as_python(name, value)}"
        )
    if not (0 < value <= sys.float_info.max or (zero and value == 0)):
        rule = "finite and not negative" if zero else "finite and above 0"
        raise ValueError(f"{name} must be {rule}, got {shown(value)}{why}")


def check_factor(name: str, value: Any, *, zero: bool = False) -> None:
    """Raise unless value is a number by which a frequency may be multiplied or divided.

    The bounds are 1e18 and its inverse. Published factors are 0.1 to 100,000, and decimal
    arithmetic of 60 digits keeps the 20 digits that count. With `zero` there is no lower bound.
    """
    check_number(name, value, zero=zero)
    least = 0.0 if zero else 1e-18
    if not least <= value <= 1e18:
        raise ValueError(f"{name} must lie between {least:g} and 1e18, got {shown(value)}")


def check_amplitude(name: str, value: float) -> None:
    """Raise unless value and its inverse square, which undoes it, are float32 numbers."""
    if not 1e-18 <= value <= 1e18:
        raise ValueError(f"{name} must lie between 1e-18 and 1e18, got {shown(value)}")


def check_table(name: str, value: int, numbers: int) -> None:
    """Raise if an argument makes tables larger than any position encoding needs.

    The bound is 2^28, 1 GiB in float32: ten times the position table of GPT-3.
    """
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"{name} must make tables of at most 2^28 numbers, got {shown(value)}, which makes "
            f"{shown(numbers)}"
        )


def check_bool(name: str, value: Any) -> None:
    """Raise unless value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def check_word(name: str, value: object, known: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of these words; name the most similar one."""
    if not isinstance(value, str) or value not in known:
        nearest = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {shown(value)}{nearest}")


def named_fields(
    elsewhere: Mapping[str, str],
    inner: Callable[..., object] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that answers an unknown argument with the name of a known one.

    elsewhere: names that other code has for arguments, and their names here; those of arguments
    that the class does not have are ignored. inner: the class of the first argument, which may have
    the argument instead. beside: names that other code has for what is not said here at all, and
    the expression that says it.
    """

    def decorate(cls: type[T]) -> type[T]:
        construct = cls.__init__

        @functools.wraps(construct)
        def checked(self: T, *args: Any, **fields: Any) -> None:
            try:
                construct(self, *args, **fields)
            except TypeError:
                known = list(inspect.signature(cls).parameters)
                unknown = next((name for name in fields if name not in known), None)
                if unknown is None:
                    raise
            else:
                return
            guess, ours = did_you_mean(unknown[:80], known), elsewhere.get(unknown, unknown)
            if ours in known:
                guess = f"; it is called {ours} here"
            elif inner is not None and ours in inspect.signature(inner).parameters:
                guess = f"; write {cls.__name__}({inner.__name__}({ours}=…))"
            elif beside is not None and unknown in beside:
                guess = f"; write {beside[unknown]}"
            raise TypeError(
                f"{cls.__name__} has no argument {shown(unknown)}{guess}; it has {', '.join(known)}"
            )

        cls.__init__ = checked  # type: ignore[assignment]
        return cls

    return decorate


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known word closest to this one, or "" if none is."""
    guess = closest(word, known)
    return "" if guess is None else f"; did you mean {guess!r}?"


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to this one, or None if none is close."""
    return next(iter(difflib.get_close_matches(word[:80], list(known), n=1)), None)


#: The extra that brings a module which the core does without.
EXTRAS = {
    **dict.fromkeys(("tokenizers", "sacrebleu", "safetensors", "pydantic", "yaml"), "lab"),
    **dict.fromkeys(("typer", "rich", "matplotlib", "numpy"), "lab"),
    **dict.fromkeys(("starlette", "uvicorn"), "explore"),
    "huggingface_hub": "hub",
    "submitit": "slurm",
    **{name: name for name in ("datasets", "gguf", "ctranslate2", "ray")},
}


def needs(what: str, error: ImportError) -> str:
    """Return which module of an extra `what` lacks, and the command that installs it.

    An error without a module's name was worded before, and stays as it is.
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return f"{what}: {error}" if module else str(error)
    why = "which is not installed" if isinstance(error, ModuleNotFoundError) else f"but {error}"
    return f"{what} needs {module}, {why}: {install_command(EXTRAS[module])}"


@contextmanager
def needing(what: str, raised: type[Exception] = ValueError) -> Iterator[None]:
    """Turn an ImportError of the block into an error with the words of `needs`."""
    try:
        yield
    except ImportError as error:
        raise raised(needs(what, error)) from None


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to ropewalk, from where ropewalk came.

    That is its folder or address. Only what came from an index has its name there.
    """
    from importlib.metadata import distributions  # both take 20 ms
    from urllib.request import url2pathname

    texts = (each.read_text("direct_url.json") for each in distributions(name="ropewalk"))
    root, text = Path(__file__).parents[2], next(filter(None, texts), None)
    origin: dict[str, Any] = json.loads(text) if text else {}
    if not text and (root / "pyproject.toml").exists():  # a clone on the path
        origin = {"url": root.as_uri(), "dir_info": {}}
    url, named = origin.get("url", ""), f"ropewalk[{extra}]"
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        folder = url2pathname(url.removeprefix("file://"))
        return f"pip install {editable}{shlex.quote(f'{folder}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if "subdirectory" in origin:
        url += f"#subdirectory={origin['subdirectory']}"
    return f"pip install {shlex.quote(f'{named} @ {url}' if url else named)}"


class ArgumentNeededError(ValueError):
    """A mistake that an argument mends, which each interface calls by its own name.

    what: what is wrong, complete without the way out. way_out: how the sentence goes on, with
    {argument} in place of the argument's name. argument: its name in Python. words: what to pass,
    if that is one of few words.
    """

    def __init__(self, what: str, way_out: str, argument: str, words: tuple[str, ...] = ()) -> None:
        value = f"={' or '.join(map(json.dumps, words))}" if words else ""
        super().__init__(what + way_out.format(argument=argument + value))
        self.what, self.way_out, self.argument, self.words = what, way_out, argument, words

    def worded(self, argument: str) -> str:
        """Return the message with the argument's name in another interface, such as --from."""
        value = f" {' or '.join(self.words)}" if self.words else ""
        return self.what + self.way_out.format(argument=argument + value)
