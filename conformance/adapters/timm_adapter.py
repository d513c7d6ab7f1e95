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


@asked(GRID)
def grid(vector: Vector) -> Result:
    """Return the bands of a grid, and the sines and cosines of the vector's tokens, (S, 2D).

    Its axes are height, then width, or width first, in one of both pairings.
    """
    rope, at = vector["rope"], torch.tensor(vector["positions"])
    if len(at) != 2 or rope["continuous"]:
        return None
    module = ropes.RotaryEmbeddingCat(
        rope["head_dim"],
        temperature=rope["theta"],
        in_pixels=False,
        grid_indexing="ij" if vector["order"] == "axial" else "xy",
        rotate_half=rope["pairing"] == "half",
    )
    height, width = (int(row.max()) + 1 for row in at)
    return module.bands, module.get_embed([height, width])[at[0] * width + at[1]]


@asked(GRID, MROPE)
def frequencies(vector: Vector) -> Result:
    """Level 1."""
    rope, found = vector["rope"], grid(vector)
    size, theta = rope["head_dim"], rope["theta"]
    if found is not None:
        return torch.cat([found[0]] * 2), 1.0
    if vector in MROPE:
        section = tuple(sections(rope))
        return ropes.RotaryEmbeddingMRope(size, section, temperature=theta).inv_freq, 1.0
    if not rope["continuous"] or rope["pairing"] == "interleaved":
        return None
    return torch.cat([1 / ropes.RotaryEmbeddingDinoV3(size, temperature=theta).periods] * 2), 1.0


def tables(vector: Vector) -> Result:
    """Level 2."""
    found = grid(vector)
    if found is None:
        return None
    return [once(table, vector["rope"]["pairing"]) for table in found[1].chunk(2, -1)[::-1]]


def rotate(vector: Vector) -> Result:
    """Level 3."""
    found, half = grid(vector), vector["rope"]["pairing"] == "half"
    if found is None:
        return None
    turn = ropes.apply_rot_embed_cat
    return joined(vector, [turn(x, found[1], half=half) for x in heads(vector)])
