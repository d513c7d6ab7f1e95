"""timm's rotary embeddings of a grid (timm.layers): RotaryEmbeddingCat, -DinoV3 and -MRope.

They rotate a whole head, by two axes that share their frequencies; positions are the places of a
grid, so a vector's tokens are picked out of the grid that holds them. DINOv3's coordinates lie in
the middle of patches, from -1 to 1, and M-RoPE's time is 0: only their frequencies can be asked.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

# `import timm` needs torchvision; its file of ropes, which timm.layers exports, does not.
layers, found = ModuleType("layers_of_timm"), find_spec("timm")
if found is None or found.origin is None:
    raise ImportError("timm must be installed")
layers.__path__ = [str(Path(found.origin).parent / "layers")]
sys.modules[layers.__name__] = layers
ropes = importlib.import_module("layers_of_timm.pos_embed_sincos")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def grid_rope(vector: dict[str, Any]) -> Any:
    """Return the module of height, then width, or of width first, in one of both pairings."""
    rope, order = vector["rope"], vector["order"]
    if order not in ("axial", "width first") or len({axis for axis, _, _ in rope["axes"]}) != 2:
        return None
    if rope["rotary_dim"] != rope["head_dim"] or rope["continuous"]:
        return None
    return ropes.RotaryEmbeddingCat(
        rope["head_dim"],
        temperature=rope["theta"],
        in_pixels=False,
        grid_indexing="ij" if order == "axial" else "xy",
        rotate_half=rope["pairing"] == "half",
    )


def embedding(vector: dict[str, Any]) -> Tensor | None:
    """Return the sines and cosines of the vector's tokens, (S, 2D)."""
    module = grid_rope(vector)
    if module is None:
        return None
    rows, columns = torch.tensor(vector["positions"])
    width = int(columns.max()) + 1
    return module.get_embed([int(rows.max()) + 1, width])[rows * width + columns]


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1."""
    rope, module = vector["rope"], grid_rope(vector)
    if module is not None:
        return torch.cat([module.bands, module.bands]), 1.0
    if vector["order"] == "axial" and rope["continuous"] and rope["pairing"] == "half":
        periods = ropes.RotaryEmbeddingDinoV3(rope["head_dim"], temperature=rope["theta"]).periods
        return torch.cat([1 / periods, 1 / periods]), 1.0
    if vector["order"] == "interleaved" and rope["rotary_dim"] == rope["head_dim"]:
        section = [sum(axis == n for axis, _, _ in rope["axes"]) for n in range(3)]
        mrope = ropes.RotaryEmbeddingMRope(
            rope["head_dim"], tuple(section), temperature=rope["theta"]
        )
        return mrope.inv_freq, 1.0
    return None


def tables(vector: dict[str, Any]) -> Any:
    """Level 2."""
    found = embedding(vector)
    if found is None:
        return None
    sin, cos = found.chunk(2, -1)
    if vector["rope"]["pairing"] == "half":
        return cos.chunk(2, -1)[0], sin.chunk(2, -1)[0]
    return cos[:, ::2], sin[:, ::2]


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    found = embedding(vector)
    if found is None:
        return None
    return [
        ropes.apply_rot_embed_cat(
            torch.tensor(vector[name], dtype=DTYPES[vector["dtype"]])[None, None],
            found,
            half=vector["rope"]["pairing"] == "half",
        )[0, 0].float()
        for name in ("q", "k")
    ]
