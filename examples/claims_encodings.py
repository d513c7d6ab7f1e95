"""Encodings for claims that no built-in encoding tests: rotation in one layer, clipped distances.

`ropewalk compare --import examples/claims_encodings.py --encodings "rotary,rotary_only"` imports
this file by name, so results contain no path.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.encodings import REGISTRY, AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.relative import ScoringSite, distances
from ropewalk.encodings.rotary import RotarySite
from ropewalk.rotary import RotaryEmbedding, RotarySpec

LAYERS = {"first": 0, "last": -1}


class RotaryOnly(Encoding):
    """Rotation of queries and keys in only one layer, the first or the last.

    Source: written here, for the claim that positions must enter at every layer.
    """

    def __init__(self, shape: StackShape, layer: str = "first") -> None:
        super().__init__()
        if layer not in LAYERS:
            raise ValueError(f"layer must be first or last, got {layer!r}")
        self.chosen = LAYERS[layer] % shape.layers
        self.site = RotarySite(RotaryEmbedding(RotarySpec(head_dim=shape.head_dim)))

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.site if layer == self.chosen else AttentionEncoding()


class RotaryClippedSite(ScoringSite):
    """Scores of rotary, with every larger distance treated as the limit `distance`."""

    name = "rotary_clipped"

    def __init__(self, shape: StackShape, distance: int) -> None:
        super().__init__(shape)
        self.distance = distance
        self.rope = RotaryEmbedding(RotarySpec(head_dim=shape.head_dim))

    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        q, away = q * self.scale, distances(placement)
        near_q, near_k = self.rope(q, k, placement.queries, placement.keys)
        scores: Tensor = near_q @ near_k.mT
        for far, shift in ((away < -self.distance, -1), (away > self.distance, 1)):
            # A query rotated by -(j - i), with a key that is not rotated, has the score of j - i.
            rotated, _ = self.rope(q, q, torch.full_like(placement.queries, self.distance * -shift))
            far = far if far.ndim == 2 else far.unsqueeze(1)
            scores = torch.where(far, rotated @ k.mT, scores)
        return scores


class RotaryClipped(Encoding):
    """Rotation up to a distance; all larger distances count as that distance.

    Source: J. Su 2023, kexue.fm/archives/9708 (ReRoPE), there for longer contexts; here in training
    too, as Shaw et al. 2018 (arXiv 1803.02155, section 3.2) clip their distances.
    """

    def __init__(self, shape: StackShape, distance: int = 16) -> None:
        super().__init__()
        if type(distance) is not int or distance < 1:
            raise ValueError(f"distance must be an int of at least 1, got {distance!r}")
        self.site = RotaryClippedSite(shape, distance)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.site


REGISTRY["rotary_only"] = RotaryOnly
REGISTRY["rotary_clipped"] = RotaryClipped
