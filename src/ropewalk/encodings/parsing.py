"""Parser of names and arguments as typed on the command line: `t5,rotary(theta=1e6)`."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from typing import Any

from ropewalk.checks import check_word, did_you_mean, shown

#: Maximum number of characters of a name with its arguments. LongRoPE with two lists of 128
#: numbers takes 5,000 characters.
LONGEST = 20_000

_CALL = r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*"


def name_of(text: str) -> str | None:
    """Return the name in `name` or `name(key=value, …)`, or None if the text has another form."""
    match = re.fullmatch(_CALL, text, flags=re.DOTALL)
    return None if match is None else match.group(1)


def read_call(what: str, text: str, names: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Read `name` or `name(key=value, …)`, with a name in `names`; return name and arguments.

    Values are Python literals; a bare word is a string: `rotary(pairing=interleaved, theta=1e6)`.
    `what` is a noun for error messages, such as "encoding". Raises ValueError.
    """
    if len(text) > LONGEST:
        raise ValueError(
            f"{what} must be of at most {LONGEST} characters, got {len(text)}: {shown(text)}"
        )
    match = re.fullmatch(_CALL, text, flags=re.DOTALL)
    if match is None:
        raise ValueError(
            f"{what} must have the form name or name(key=value, ...), got {shown(text)}"
        )
    name, inside = match.group(1), match.group(2) or ""
    check_word(what, name, list(names))
    return name, _read_arguments(what, name, inside)


def split_names(text: str) -> list[str]:
    """Split `sinusoidal,rotary(theta=1e6, pairing=half)` at the commas outside brackets.

    Example:
        >>> from ropewalk.encodings import split_names
        >>> split_names("sinusoidal,rotary(theta=1e6, pairing=half)")
        ['sinusoidal', 'rotary(theta=1e6, pairing=half)']
    """
    return [part for part in split_at(text, ",") if part]


def split_at(text: str, sign: str) -> list[str]:
    """Split at a sign outside brackets, such as the + of `sinusoidal+rotary(theta=1e6)`."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == sign and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def check_arguments(what: str, name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for the first argument that this name does not have."""
    known = list(known)
    for key in given:
        if key not in known:
            raise ValueError(
                f"{what} {name!r} has no argument {shown(key)}; it has {', '.join(known) or 'none'}"
                f"{did_you_mean(key[:80], known)}"
            )


def _read_arguments(what: str, name: str, inside: str) -> dict[str, Any]:
    """Read `key=value, …` as Python reads the arguments of a call."""
    if not inside:  # also so that no filter of warnings changes, after which all are shown again
        return {}
    try:
        with warnings.catch_warnings():  # Python warns about numbers next to words: 1if
            warnings.simplefilter("ignore", SyntaxWarning)
            call = ast.parse(f"f({inside})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        arguments = {keyword.arg: _literal(keyword.value) for keyword in call.keywords}
        # The key of **mapping is None.
        named = {key: value for key, value in arguments.items() if key is not None}
        if call.args or len(named) < len(call.keywords):
            raise ValueError
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        # Python's parser raises MemoryError or RecursionError on text that is nested too deep.
        raise ValueError(
            f"arguments of {what} {name!r} must have the form key=value, ..., each key once, "
            f"got {shown(inside)}"
        ) from None
    return named


def _literal(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
