"""The room of a model: what the page asks about its heads, answered from `tools.attention`."""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from ropewalk.tools.attention import LayerAttention, ModelAttention

FOUND = {  # of each head, by the page's words
    "share": "position_share", "distance": "distance", "at_distance": "at_distance",
    "at_first": "at_first",
}  # fmt: skip
SIDE = 32  # of a small map, whose cells are the largest weights of what they cover


@dataclass(frozen=True)
class ModelRoom:
    """What the page shows of a model and a text. random: whether the weights are."""

    found: ModelAttention
    words: tuple[str, ...]
    source: str
    random: bool

    def overview(self) -> dict[str, Any]:
        """Return the tokens, and for each layer its pairs, what its heads do, and small maps."""
        return self._overview

    @cached_property
    def _overview(self) -> dict[str, Any]:
        return {
            "model": self.found.model,
            "source": self.source,
            "random": self.random,
            "tokens": list(self.words),
            "layers": [_layer(layer) for layer in self.found.layers],
        }

    def head(self, layer: int, head: int) -> dict[str, Any]:
        """Return what the scores of one head are made of. Raises ValueError without such a head."""
        found = next((each for each in self.found.layers if each.layer == layer), None)
        if found is None:
            raise ValueError(f"layer must be one with attention, got {layer}")
        q, k = found.vectors(head)
        pairs = len(found.wavelengths)
        return {
            "q": _packed(q),
            "k": _packed(k),
            "pairs": pairs,
            "rest": q.shape[-1] - 2 * pairs,
            "cap": found.cap,
            "sink": None if found.sinks is None else float(found.sinks[head]),
            "visible": b64encode(np.packbits(found.visible.numpy()).tobytes()).decode(),
        }


def _layer(layer: LayerAttention) -> dict[str, Any]:
    side = min(SIDE, len(layer.visible))
    small = []
    for head in range(len(layer.heads)):
        cells = adaptive_max_pool2d(layer.weights(head)[None], side)[0]
        small.append(b64encode((255 * cells.sqrt()).round().byte().numpy().tobytes()).decode())
    return {
        "layer": layer.layer,
        "layer_type": layer.layer_type,
        "heads": len(layer.heads),
        "waves": [wave if math.isfinite(wave) else None for wave in layer.wavelengths],
        "unsplit": layer.unsplit,
        "found": [
            {key: getattr(head, name) for key, name in FOUND.items()} for head in layer.heads
        ],
        "queries": [layer.queries.start, layer.queries.stop],
        "small": small,
        "side": side,
    }


def _packed(vectors: Tensor) -> str:
    """Return float32 numbers (S, C), little-endian, in base 64."""
    return b64encode(vectors.contiguous().numpy().astype("<f4").tobytes()).decode()
