"""Encodings for claims that no encoding of the library tests: in some layers, clipped distances.

``ropewalk compare --import examples/claims_encodings.py --encodings "rotary,rotary_only"``
imports it by name, so that results hold no path.
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
    """Rotate queries and keys in one layer alone, the first or the last.

    Source: made here, for the claim that positions must come in at every layer.
    """

    def __init__(self, shape: StackShape, layer: str = "first") -> None:
        super().__init__()
        if layer not in LAYERS:
            raise ValueError(f"layer must be first or last, got {layer!r}")
        self.chosen = LAYERS[layer] % shape.layers
        self.site = RotarySite(RotaryEmbedding(RotarySpec(head_dim=shape.head_dim)))

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.site if layer == self.chosen else AttentionEncoding()


class RotarySkipping(Encoding):
    """Rotate queries and keys in all layers but every n-th, which has no positions.

    Source: Yang et al. 2025, arXiv 2501.18795, section 3.3, without their window of attention; as
    SmolLM3 has it, with n = 4.
    """

    def __init__(self, shape: StackShape, every: int = 4) -> None:
        super().__init__()
        if type(every) is not int or every < 1:
            raise ValueError(f"every must be an int of at least 1, got {every!r}")
        self.every = every
        self.site = RotarySite(RotaryEmbedding(RotarySpec(head_dim=shape.head_dim)))

    def for_layer(self, layer: int) -> AttentionEncoding:
        return AttentionEncoding() if (layer + 1) % self.every == 0 else self.site


class RotaryClippedSite(ScoringSite):
    """Score by rotation as everywhere up to a distance, and all beyond as if at that distance."""

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
            # A query that is turned by -(j - i) beside a key that is not has the score of j - i.
            turned, _ = self.rope(q, q, torch.full_like(placement.queries, self.distance * -shift))
            far = far if far.ndim == 2 else far.unsqueeze(1)
            scores = torch.where(far, turned @ k.mT, scores)
        return scores


class RotaryClipped(Encoding):
    """Rotate up to a distance, and take all distances beyond for it.

    Source: J. Su 2023, kexue.fm/archives/9708 (ReRoPE), there for longer contexts, here in training
    as Shaw et al. 2018 (arXiv 1803.02155, section 3.2) clip theirs.
    """

    def __init__(self, shape: StackShape, distance: int = 16) -> None:
        super().__init__()
        if type(distance) is not int or distance < 1:
            raise ValueError(f"distance must be an int of at least 1, got {distance!r}")
        self.site = RotaryClippedSite(shape, distance)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.site


REGISTRY["rotary_only"] = RotaryOnly
REGISTRY["rotary_skipping"] = RotarySkipping
REGISTRY["rotary_clipped"] = RotaryClipped
