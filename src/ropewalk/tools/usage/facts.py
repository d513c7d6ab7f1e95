"""What `usage` reports, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ropewalk.tools.inspect.rope_facts import to_plain

Kind = Literal["position", "content"]

#: A head is position-like from here on, by the share of its scores' variance or by its attention.
POSITION = 0.5
#: A head is content-like up to this share.
CONTENT = 0.1

Norms = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Head:
    """How one query head attends.

    Measured for the queries in the second half of each row and the keys at the nearest S/2
    distances, the query itself included (in a model that also looks ahead: the middle half, and S/4
    distances to each side).

    position_share: the share of the variance of the scores, within each query, that the distance
        alone explains (R²): 1 if scores depend on the distance only. None if attention is not
        known, or if the scores hardly vary.
    distance: the distance with the most attention, mean over queries; 1 is the previous token.
    at_distance: the mean attention there.
    at_first: the mean attention to the first token of the row.
    kind: "position" if `position_share` or `at_distance` is at least 0.5. "content" if
        `position_share` is at most 0.1 and neither `at_distance` nor `at_first` reaches 0.5: what
        is left is content, or content and distance together. None for all other heads.
    """

    position_share: float | None
    distance: int | None
    at_distance: float | None
    at_first: float | None
    kind: Kind | None


@dataclass(frozen=True)
class Layer:
    """The pairs and heads of one layer with a rope. Pairs are ordered from fastest to slowest.

    wavelengths: positions per full turn, `(R/2)`; inf if a pair does not rotate.
    q_norms: `(H, R/2)`, the root mean square norm of each pair over all tokens, times the rope's
        amplitude, as it enters the scores.
    k_norms: the same for key heads, `(K, R/2)`; empty if the layer uses the keys of another one.
    products: `(H, R/2)`, the norm of q times that of its k: a pair cannot change a score, before
        its scale, by more (Cauchy-Schwarz) if all tokens have these norms.
    """

    layer: int
    layer_type: str | None
    wavelengths: tuple[float, ...]
    q_norms: Norms
    k_norms: Norms
    products: Norms
    heads: tuple[Head, ...]


@dataclass(frozen=True)
class Cost:
    """The loss if only the fastest pairs rotate, in all layers: p-RoPE without training.

    fraction: p, the share of pairs that rotate. rotating: how many do, by layer. loss: nats per
    token. difference: from the loss of the model as it is; low, high: its 95 % interval, by a
    bootstrap over blocks of tokens.
    """

    fraction: float
    rotating: tuple[int, ...]
    loss: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Usage:
    """Which frequencies a model's heads use, on one text.

    rows, length: windows of the text, and the tokens of each. losses: how many predicted tokens the
    loss is the mean of. unmeasured: what was not measured, with the reason.
    """

    model: str
    rows: int
    length: int
    losses: int
    layers: tuple[Layer, ...]
    costs: tuple[Cost, ...]
    unmeasured: tuple[str, ...]

    def named(self, kind: Kind) -> tuple[tuple[int, int], ...]:
        """Return the heads of a kind, as (layer, head)."""
        return tuple(
            (layer.layer, place)
            for layer in self.layers
            for place, head in enumerate(layer.heads)
            if head.kind == kind
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the usage as plain data; an infinite wavelength is None."""
        plain: dict[str, Any] = to_plain(self)
        return plain
