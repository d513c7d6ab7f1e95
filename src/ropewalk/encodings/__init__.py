"""Every position encoding behind one interface; ``build`` makes one from its name."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from ropewalk.encodings.absolute import Learned, Sinusoidal
from ropewalk.encodings.interface import (
    Attended,
    AttentionEncoding,
    Encoding,
    Placement,
    StackShape,
)
from ropewalk.encodings.rotary import Rotary


def _none(shape: StackShape) -> Encoding:
    """No position encoding at all (NoPE): only a causal mask tells order."""
    return Encoding()


#: A new encoding is one class and one line here; every task, plot and report then has it.
REGISTRY: dict[str, Callable[..., Encoding]] = {
    "none": _none,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
}


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``name`` or ``name(key=value, …)`` into the name and its checked arguments.

    Values are Python literals; a bare word is a string: ``rotary(pairing=interleaved, theta=1e6)``.
    """
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", text, flags=re.DOTALL)
    if match is None:
        raise ValueError(f"encoding must read name or name(key=value, ...), got {text!r}")
    name, inside = match.group(1), match.group(2) or ""
    if name not in REGISTRY:
        raise ValueError(
            f"encoding must be one of {', '.join(REGISTRY)}, got {name!r}{_near(name, REGISTRY)}"
        )
    arguments = _read_arguments(name, inside)
    known = [p for p in inspect.signature(REGISTRY[name]).parameters if p != "shape"] + ["cross"]
    for key in arguments:
        if key not in known:
            raise ValueError(
                f"encoding {name!r} has no argument {key!r}; it has {', '.join(known)}"
                f"{_near(key, known)}"
            )
    cross = arguments.get("cross", False)
    if not isinstance(cross, bool):
        raise ValueError(f"cross must be True or False, got {cross!r} for encoding {name!r}")
    return name, arguments


def build(encoding: str, shape: StackShape) -> Encoding:
    """Build an encoding for a stack from its name, such as ``rotary`` or ``rotary(theta=1e6)``."""
    name, arguments = parse(encoding)
    if "cross" in arguments:
        raise ValueError(f"cross belongs to an encoder-decoder, not to one stack, got {encoding!r}")
    return REGISTRY[name](shape, **arguments)


class EncoderDecoder(NamedTuple):
    """One encoding, built for both stacks of an encoder-decoder and, if asked, for between them."""

    encoder: Encoding
    decoder: Encoding
    cross: Encoding | None


def build_encoder_decoder(
    encoding: str, encoder: StackShape, decoder: StackShape
) -> EncoderDecoder:
    """Build an encoding for an encoder-decoder; ``rotary(cross=True)`` acts between both too.

    Every encoding that acts inside attention has the argument ``cross``; by default nothing acts in
    cross-attention. What acts there is built for a stack that is not causal: it looks both ways.
    """
    name, arguments = parse(encoding)
    cross = arguments.pop("cross", False)
    make = REGISTRY[name]
    between = make(replace(decoder, causal=False), **arguments) if cross else None
    if between is not None and type(between.site(0)) is AttentionEncoding:
        raise ValueError(
            f"cross must be False for {name!r}, got {cross!r}: it does not act in attention"
        )
    return EncoderDecoder(make(encoder, **arguments), make(decoder, **arguments), between)


def split_names(text: str) -> list[str]:
    """Split ``sinusoidal,rotary(theta=1e6, pairing=half)`` at the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _read_arguments(name: str, inside: str) -> dict[str, Any]:
    """Read ``key=value, …`` as Python reads the arguments of a call."""
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        arguments = {keyword.arg: _literal(keyword.value) for keyword in call.keywords}
        named = {key: value for key, value in arguments.items() if key is not None}  # no **mapping
        if call.args or len(named) < len(call.keywords):
            raise ValueError
    except (SyntaxError, TypeError, ValueError):
        raise ValueError(
            f"arguments of encoding {name!r} must read key=value, ..., each once, got {inside!r}"
        ) from None
    return named


def _literal(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


__all__ = [
    "REGISTRY",
    "Attended",
    "AttentionEncoding",
    "EncoderDecoder",
    "Encoding",
    "Placement",
    "StackShape",
    "build",
    "build_encoder_decoder",
    "parse",
    "split_names",
]
