"""timm's rotary embeddings of a grid (timm.layers): RotaryEmbeddingCat, -DinoV3 and -MRope.

They rotate a whole head, by two axes that share their frequencies; positions are the places of a
grid, so a vector's tokens are picked out of the grid that holds them. DINOv3's coordinates lie in
the middle of patches, from -1 to 1, and M-RoPE's time is 0: only their frequencies can be asked.
"""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from offered import Offer, Result, Vector, asked, heads, joined, once, sections

# `import timm` needs torchvision; its file of ropes, which timm.layers exports, does not.
layers, found = ModuleType("layers_of_timm"), find_spec("timm")
if found is None or found.origin is None:
    raise ImportError("timm must be installed")
layers.__path__ = [str(Path(found.origin).parent / "layers")]
sys.modules[layers.__name__] = layers
ropes = importlib.import_module("layers_of_timm.pos_embed_sincos")
GRID, MROPE = Offer(orders=("axial", "width first")), Offer(orders=("interleaved",))


def grid_rope(vector: Vector) -> Any:
    """Return the module of height, then width, or of width first, in one of both pairings."""
    rope = vector["rope"]
    if vector not in GRID or len(vector["positions"]) != 2 or rope["continuous"]:
        return None
    return ropes.RotaryEmbeddingCat(
        rope["head_dim"],
        temperature=rope["theta"],
        in_pixels=False,
        grid_indexing="ij" if vector["order"] == "axial" else "xy",
        rotate_half=rope["pairing"] == "half",
    )


def embedding(vector: Vector) -> Result:
    """Return the sines and cosines of the vector's tokens, (S, 2D)."""
    module = grid_rope(vector)
    if module is None:
        return None
    rows, columns = torch.tensor(vector["positions"])
    width = int(columns.max()) + 1
    return module.get_embed([int(rows.max()) + 1, width])[rows * width + columns]


@asked(GRID, MROPE)
def frequencies(vector: Vector) -> Result:
    """Level 1."""
    rope, module = vector["rope"], grid_rope(vector)
    size, theta = rope["head_dim"], rope["theta"]
    if vector in MROPE:
        section = tuple(sections(rope))
        return ropes.RotaryEmbeddingMRope(size, section, temperature=theta).inv_freq, 1.0
    if module is not None:
        return torch.cat([module.bands] * 2), 1.0
    if rope["continuous"] and rope["pairing"] == "half":
        periods = ropes.RotaryEmbeddingDinoV3(size, temperature=theta).periods
        return torch.cat([1 / periods] * 2), 1.0
    return None


def tables(vector: Vector) -> Result:
    """Level 2."""
    both = embedding(vector)
    if both is None:
        return None
    return [once(table, vector["rope"]["pairing"]) for table in both.chunk(2, -1)[::-1]]


def rotate(vector: Vector) -> Result:
    """Level 3."""
    both, half = embedding(vector), vector["rope"]["pairing"] == "half"
    if both is None:
        return None
    turn = ropes.apply_rot_embed_cat
    return joined(vector, [turn(x, both, half=half) for x in heads(vector)])
