"""Several encodings in one model, such as sinusoids at the input and rotation in attention."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ropewalk.encodings.interface import AttentionEncoding, Encoding


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
