"""A model of random numbers that answers the explorer as an open model does."""

from __future__ import annotations

import base64

import numpy as np


def packed(values, kind):
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def softmax(scores, visible, cap=None, sink=None):
    """Attention weights; what is not visible is NaN."""
    scores = np.where(visible, scores if cap is None else cap * np.tanh(scores / cap), -np.inf)
    powers = np.exp(scores)
    total = powers.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink))
    return np.where(visible, powers / total, np.nan)


class ModelDouble:
    """Layer 1 has a cap, layer 2 a sink and a window, and the last layer no split.

    Head 0 of each layer is positional: scores are highest one token before the query.
    """

    def __init__(self, tokens=24, layers=4, heads=4, pairs=8, rest=3):
        words = ["▁The", "▁cat", "▁sat", "▁on", "▁the", "▁mat", "▁and", "▁slept"]
        self.tokens = ["<s>", *(words * tokens)[: tokens - 1]]
        self.layers, self.heads, self.pairs, self.rest = layers, heads, pairs, rest
        self.speeds = 10_000.0 ** (-np.arange(pairs)[::-1] / pairs)

    def vectors(self, layer, head):
        """q and k in float32, and what each query sees."""
        rng, places = np.random.default_rng([layer, head]), np.arange(len(self.tokens))
        shared, found = np.abs(rng.normal(size=self.pairs)) * (0.3 if head else 1.5), []
        for ahead in (1, 0):
            own = rng.normal(size=(2, len(places), self.pairs)) * 0.5
            turn = np.exp(1j * np.outer(places - ahead, self.speeds))
            pairs = (shared + own[0] + 1j * own[1]) * turn
            turning = np.stack([pairs.real, pairs.imag], -1).reshape(len(places), -1)
            rest = rng.normal(size=(len(places), self.rest))
            found.append((np.hstack([turning, rest]) / self.pairs**0.25).astype("f4"))
        distance = np.subtract.outer(places, places)
        return *found, (distance >= 0) & (distance < 8 if layer == 2 else True)

    def rules(self, layer):
        return {"cap": 2.0 if layer == 1 else None, "sink": 0.5 if layer == 2 else None}

    def head(self, layer, head):
        q, k, visible = self.vectors(layer, head)
        pairs = self.pairs if layer < self.layers - 1 else 0
        told = {"pairs": pairs, "rest": q.shape[1] - 2 * pairs, **self.rules(layer)}
        seen = packed(np.packbits(visible), "u1")
        return {"q": packed(q, "<f4"), "k": packed(k, "<f4"), "visible": seen, **told}

    def overview(self):
        told = {"model": "LlamaForCausalLM", "source": "some/model", "random": True}
        layers = [self._layer(layer) for layer in range(self.layers)]
        return {**told, "tokens": self.tokens, "layers": layers}

    def _layer(self, layer):
        side, rng, found, small = min(32, len(self.tokens)), np.random.default_rng(layer), [], []
        for head in range(self.heads):
            q, k, visible = self.vectors(layer, head)
            shown = softmax(q @ k.T, visible, **self.rules(layer))[:side, :side]
            small.append(packed(np.sqrt(np.nan_to_num(shown)) * 255, "u1"))
            share = rng.uniform(0, 0.5) if head else rng.uniform(0.5, 1)
            found.append({"share": share, "distance": 1, "at_distance": 0.4, "at_first": 0.1})
        found[-1] = dict.fromkeys(found[-1])
        told = {"layer": layer, "layer_type": "full_attention", "side": side, "small": small}
        told |= {
            "heads": self.heads,
            "found": found,
            "queries": [len(self.tokens) // 2, len(self.tokens)],
        }
        if layer == self.layers - 1:
            return {**told, "waves": [], "unsplit": "it adds a bias of its own"}
        waves = [None, *(2 * np.pi / self.speeds[1:]).tolist()]
        return {**told, "waves": waves, "unsplit": None}
