"""What `inspect` reports, as frozen dataclasses of plain data, and the same as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ropewalk.rotary.spec import RotarySpec


@dataclass(frozen=True)
class Turns:
    """Which pairs make a full turn within a length.

    context: "original" or "extended". rule: whether the frequencies are those of the rule.
    full: pairs whose wavelength is at most the length. less: pairs that never make a full turn.
    still: pairs that do not rotate at all (p-RoPE).
    """

    context: str
    length: int
    rule: bool
    full: tuple[int, ...]
    less: tuple[int, ...]
    still: tuple[int, ...]


@dataclass(frozen=True)
class RopeFacts:
    """One rope.

    spec: the same as a `RotarySpec`; `to_plain` writes the call that makes it.
    pairing: "half" or "interleaved", or None if the file does not state it.
    origins: where each value was read, by the names of `RotarySpec`'s fields.
    rule: the name of the scaling rule, or None. rule_fields: its fields that are given.
    pairs_by_axis: the number of pairs that follow each axis; one number if there is one axis.
    original_length, extended_length: the context before and after the rule, or None if the file
        does not tell. Without a rule there is only the first.
    amplitude: the factor of cos and sin at the longest context.
    plain_wavelengths, wavelengths: positions per full turn of each pair, without the rule and
        with it (at the longest context); inf if a pair does not rotate.
    float32_error: radians by which an angle can be off within the longest context, if frequency
        and product are each rounded to float32, as most models compute them. None if the context
        is not known.
    """

    spec: RotarySpec
    head_dim: int
    rotary_dim: int
    start: int
    pairing: str | None
    write_pairing: str | None
    theta: float
    origins: Mapping[str, str]
    rule: str | None
    rule_fields: Mapping[str, Any]
    amplitude: float
    reverse: bool
    pairs_by_axis: tuple[int, ...]
    original_length: int | None
    extended_length: int | None
    plain_wavelengths: tuple[float, ...]
    wavelengths: tuple[float, ...]
    turns: tuple[Turns, ...]
    float32_error: float | None


@dataclass(frozen=True)
class LayerKind:
    """Layers that have the same rope.

    layers: their numbers within the stack; empty if the file does not say which they are.
    rope: None if the layers have none (NoPE). softmax_factor: a factor of the scores, on top of
    the usual 1/sqrt(head_dim). query_temperature: its fields, or None. indexer: the rope of sparse
    attention's indexer, or None.
    """

    stack: str
    layers: tuple[int, ...]
    layer_types: tuple[str, ...]
    rope: RopeFacts | None
    softmax_factor: float = 1.0
    query_temperature: Mapping[str, float] | None = None
    indexer: RopeFacts | None = None


@dataclass(frozen=True)
class Caution:
    """Something that a user should know before the model is served, trained or merged.

    id: a stable name, such as "theta-default". where: a stack, a key or an engine, or "".
    """

    id: str
    where: str
    cause: str
    way_out: str


@dataclass(frozen=True)
class ModelReport:
    """What a model's ropes do.

    source: the file or the name. form: "config.json" or "GGUF". max_length: the context that the
    file states, under `max_length_key`; None if it states none.
    """

    source: str
    form: str
    model_type: str | None
    max_length: int | None
    max_length_key: str | None
    kinds: tuple[LayerKind, ...]
    warnings: tuple[Caution, ...] = field(default=())

    def kind_of(self, layer: int, stack: str = "text") -> LayerKind | None:
        """Return the kind of a layer, counted from 0, or None if the file does not tell."""
        return next((k for k in self.kinds if k.stack == stack and layer in k.layers), None)


def to_plain(value: Any) -> Any:
    """Return a report, or a part of it, as dict, list, str, float, int, bool and None.

    A wavelength of inf is None. A rope's `spec` is the call that makes it.
    """
    if isinstance(value, RotarySpec):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
