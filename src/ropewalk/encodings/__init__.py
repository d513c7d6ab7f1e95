"""Every position encoding, with one interface; `build` makes one, or several joined by +."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.encodings.interface import (
    Attended,
    AttentionEncoding,
    Encoding,
    Placement,
    StackShape,
)
from ropewalk.encodings.outside import (
    ImportedSource,
    add_installed,
    import_encodings,
    installed_names,
    make_foreign,
)
from ropewalk.encodings.parsing import check_arguments, name_of, read_call, split_at, split_names
from ropewalk.encodings.registry import OWN, REGISTRY


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Read `name` or `name(key=value, …)` and return the name and its checked arguments.

    Values are Python literals; a bare word is a string: `rotary(pairing=interleaved, theta=1e6)`.
    Raises ValueError if the name or an argument is unknown.

    Example:
        >>> from ropewalk.encodings import parse
        >>> parse("rotary(pairing=interleaved, theta=1e6)")
        ('rotary', {'pairing': 'interleaved', 'theta': 1000000.0})
    """
    names = list(REGISTRY)
    if (typed := name_of(text)) is not None and typed not in REGISTRY:
        add_installed(typed)
        names = list(dict.fromkeys([*REGISTRY, *installed_names()]))
    name, arguments = read_call("encoding", text, names)
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    known = [p.name for p in parameters if p.name != "shape" and p.kind is not p.VAR_KEYWORD]
    # Some arguments add others: rotary's rule has fields.
    if (further := getattr(REGISTRY[name], "further_arguments", None)) is not None:
        known += further(arguments)
    check_arguments("encoding", name, arguments, [*known, "cross"])
    cross = arguments.get("cross", False)
    if not isinstance(cross, bool):
        raise ValueError(f"cross must be True or False, got {shown(cross)} for encoding {name!r}")
    return name, arguments


def trains_each_position(encoding: str) -> bool:
    """Return whether an encoding, or a part of it, has separate parameters for each position."""
    names = [name_of(part) for part in split_at(encoding, "+")]
    return any(getattr(REGISTRY.get(name or ""), "trained_rows", False) for name in names)


def build(encoding: str, shape: StackShape) -> Encoding:
    """Build an encoding for a stack from its name, such as `rotary` or `rotary(theta=1e6)`.

    Names joined by + act together, as in `sinusoidal+rotary`.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import StackShape, build
        >>> from ropewalk.model import Attention
        >>> shape = StackShape(1, heads=2, kv_heads=2, head_dim=8, width=16, causal=True)
        >>> site = build("rotary(theta=1e6)", shape).for_layer(0)
        >>> attention = Attention(16, heads=2, encoding=site)
        >>> attention(torch.randn(1, 5, 16), causal=True).output.shape
        torch.Size([1, 5, 16])
    """
    parts = _parts(encoding)
    if any("cross" in arguments for _, arguments in parts):
        raise ValueError(
            f"cross belongs to an encoder-decoder, not to one stack, got {shown(encoding)}"
        )
    return _made(parts, shape)


class EncoderDecoder(NamedTuple):
    """An encoding built for both stacks of an encoder-decoder and, on request, for cross-attention.

    Example:
        >>> from ropewalk.encodings import EncoderDecoder, Encoding
        >>> EncoderDecoder(encoder=Encoding(), decoder=Encoding(), cross=None).cross is None
        True
    """

    encoder: Encoding
    decoder: Encoding
    cross: Encoding | None


def build_encoder_decoder(
    encoding: str, encoder: StackShape, decoder: StackShape
) -> EncoderDecoder:
    """Build an encoding for an encoder-decoder; `rotary(cross=True)` acts in cross-attention too.

    Every encoding that acts inside attention has the argument `cross`. By default, nothing acts in
    cross-attention. The encoding for cross-attention is built for a stack that is not causal.

    Example:
        >>> from dataclasses import replace
        >>> from ropewalk.encodings import StackShape, build_encoder_decoder
        >>> decoder = StackShape(2, heads=2, kv_heads=2, head_dim=8, width=16, causal=True)
        >>> encoder = replace(decoder, causal=False)
        >>> built = build_encoder_decoder("rotary(cross=True)", encoder, decoder)
        >>> type(built.cross).__name__
        'Rotary'
        >>> build_encoder_decoder("rotary", encoder, decoder).cross is None
        True
    """
    parts = _parts(encoding)
    crossing = [(name, arguments) for name, arguments in parts if arguments.pop("cross", False)]
    shape = replace(decoder, causal=False)
    for name, arguments in crossing:
        part = _make(name, arguments, shape)
        if not acts_in_attention(part):
            raise ValueError(
                f"cross must be False for {name!r}, got True: it does not act in attention"
            )
        if not part.crosses:
            raise ValueError(
                f"cross must be False for {name!r} with {arguments}, got True: at some target "
                f"positions, some heads would see no source at all"
            )
    between = _made(crossing, shape) if crossing else None
    return EncoderDecoder(_made(parts, encoder), _made(parts, decoder), between)


def _parts(encoding: str) -> list[tuple[str, dict[str, Any]]]:
    return [parse(part) for part in split_at(encoding, "+")]


def _made(parts: list[tuple[str, dict[str, Any]]], shape: StackShape) -> Encoding:
    made = [_make(name, arguments, shape) for name, arguments in parts]
    return made[0] if len(made) == 1 else Combined([name for name, _ in parts], made)


def _make(name: str, arguments: dict[str, Any], shape: StackShape) -> Encoding:
    if name in OWN:
        return REGISTRY[name](shape, **arguments)
    return make_foreign(name, shape, arguments)


__all__ = [
    "REGISTRY",
    "Attended",
    "AttentionEncoding",
    "EncoderDecoder",
    "Encoding",
    "ImportedSource",
    "Placement",
    "StackShape",
    "build",
    "build_encoder_decoder",
    "import_encodings",
    "parse",
    "split_names",
]


class Combined(Encoding):
    """Apply several encodings: all of them act on embeddings, at most one acts in attention.

    performer-pytorch uses `sinusoidal+rotary`. Raises ValueError if more than one acts in
    attention: no published model says how to combine two there.
    """

    def __init__(self, names: Sequence[str], parts: Sequence[Encoding]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        acting = [i for i, part in enumerate(parts) if acts_in_attention(part)]
        if len(acting) > 1:
            said = " and ".join(names[i] for i in acting)
            raise ValueError(
                f"encodings joined by + must have at most one that acts in attention, got {said}"
            )
        self._acting = parts[acting[0]] if acting else Encoding()
        ends = [part.max_positions for part in parts if part.max_positions is not None]
        self.max_positions = min(ends, default=None)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        for part in self.parts:
            x = part.embed(x, positions)  # type: ignore[operator]
        return x

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self._acting.for_layer(layer)


def acts_in_attention(encoding: Encoding) -> bool:
    """Return whether an encoding does anything inside attention."""
    return type(encoding.for_layer(0)) is not AttentionEncoding
