"""A small model without transformers, with mistakes to choose from, and what it should do."""

import torch
from torch import nn

from ropewalk import LayerSpec, ModelSpec, RotarySpec


def spec_of(rope: RotarySpec, **fields: object) -> ModelSpec:
    """The specification of two equal layers."""
    return ModelSpec({"text": (LayerSpec(rope, **fields),) * 2})


SPEC = spec_of(RotarySpec(16))  # of a `Port` without mistakes


class Port(nn.Module):
    """A model without transformers: rotates inside its attention, counted from 0."""

    def __init__(self, sign: int = 1, amplitude: float = 1.0):
        super().__init__()
        self.embed = nn.Embedding(8, 64)
        self.blocks = nn.ModuleList(Block(sign, amplitude) for _ in range(2))

    def forward(self, tokens, input_pos):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x, input_pos)
        return x


class Block(nn.Module):
    def __init__(self, sign: int, amplitude: float):
        super().__init__()
        self.amplitude, self.temperature, self.einsum = amplitude, None, None
        self.qkv, self.out, self.sign = nn.Linear(64, 192), nn.Linear(64, 64), sign

    def forward(self, x, positions):
        B, S, _ = x.shape
        q, k, v = self.qkv(x).view(B, S, 3, 4, 16).permute(2, 0, 3, 1, 4)
        angles = positions[:, None, :, None] * 1e4 ** (-torch.arange(8) / 8)
        cos, sin = (f(self.sign * angles) * self.amplitude for f in (torch.cos, torch.sin))
        turned = []
        for y in (q, k):
            a, b = y.chunk(2, -1)
            turned.append(torch.cat((a * cos - b * sin, b * cos + a * sin), -1))
        if self.temperature is not None:
            turned[0] = turned[0] * self.temperature.at(positions)[:, None, :, None]
        if self.einsum is not None:
            return self.out(self.einsum(*turned, v).transpose(1, 2).flatten(2))
        mixed = nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))
