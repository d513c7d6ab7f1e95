"""Initial parameters, each drawn from the seed and its own name alone."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from ropewalk.encodings.absolute import PositionTable
from ropewalk.model.features import RandomFeatures


@torch.no_grad()
def initialize(model: nn.Module, seed: int) -> None:
    """Draw every parameter from its own generator, seeded by `seed` and the parameter's name.

    So a model with additional parameters (a learned position table) starts with all others the
    same. Linear weights are N(0, 1/fan_in) with zero bias, embeddings N(0, 1/width), norms the
    identity. Rows of `PositionTable` are N(0, 1), the size of a word after the model has scaled it
    by sqrt(width). A parameter of any other module keeps the value from its constructor. The random
    features of linear attention, which are not learned, are drawn in the same way.

    Example:
        >>> from ropewalk.model import Attention, initialize
        >>> first, second = Attention(16, heads=2), Attention(16, heads=2)
        >>> initialize(first, seed=1)
        >>> initialize(second, seed=1)
        >>> bool((first.query.weight == second.query.weight).all())
        True
    """
    for path, module in model.named_modules():
        if isinstance(module, RandomFeatures):
            module.draw(_generator(seed, f"{path}.projection"))
        for name, parameter in module.named_parameters(prefix=path, recurse=False):
            generator = _generator(seed, name)
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif name.endswith("bias") and isinstance(module, nn.Linear):
                parameter.zero_()
            elif isinstance(module, (nn.Linear, nn.Embedding)):
                values = torch.randn(parameter.shape, generator=generator)
                spread = 1.0 if isinstance(module, PositionTable) else parameter.shape[1] ** -0.5
                parameter.copy_(values * spread)


def _generator(seed: int, name: str) -> torch.Generator:
    number = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(number)
