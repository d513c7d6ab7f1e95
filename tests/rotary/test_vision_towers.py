"""The ropes of vision towers outside transformers are the specs of docs/vision-towers.md.

These fail when a row of that page's table gives other tables, or another q, than timm or RoPE-ViT.
"""

import importlib
import math
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from ropewalk import LearnedRotaryEmbedding, RotaryEmbedding, RotarySpec, axes, positions

PAGE = (Path(__file__).parents[2] / "docs" / "vision-towers.md").read_text("utf-8")
ROW = re.compile(r"^\| ([^|`]+) \| `(RotarySpec.+)`(?:, learned)? \| `(.+)` \|$", re.M)
TOWERS = {tower: codes for tower, *codes in ROW.findall(PAGE)}
EVA, XY = {"in_pixels": False}, {"in_pixels": False, "grid_indexing": "xy"}
IN_TIMM = {  # the end of its class's name, and arguments as its models pass them
    "EVA-02": ("Cat", EVA | {"ref_feat_shape": (16, 16)}),
    "Perception Encoder": ("Cat", XY | {"ref_feat_shape": (24, 24), "grid_offset": 1.0}),
    "RoPE-ViT, axial": ("Cat", XY | {"temperature": 100.0}),
    "DINOv3": ("DinoV3", {}),
    "DINOv3, periods 0.5 to 90": ("DinoV3", {"min_period": 0.5, "max_period": 90.0}),
    "M-RoPE": ("MRope", {}),
    "Qwen3-VL, DeepSeek": ("Cat", EVA | {"rotate_half": True}),
    "pixels": ("Cat", {}),
    "pixels, linear": ("Cat", {"linear_bands": True}),
}
assert set(TOWERS) == {*IN_TIMM, "RoPE-ViT, mixed"}  # each row of the page is compared
on_two_grids = pytest.mark.parametrize("grid", [(14, 14), (9, 20)])


@pytest.fixture(scope="module")
def timm():
    """Its file of sines and cosines alone, since `import timm` needs torchvision."""
    found = find_spec("timm")
    if found is None:
        pytest.skip("timm is not installed, the outside reference: pip install --no-deps timm")
    layers = ModuleType("layers_of_timm")
    layers.__path__ = [str(Path(found.origin).parent / "layers")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, layers.__name__, layers)
        yield importlib.import_module("layers_of_timm.pos_embed_sincos")


def stated(tower: str, h: int, w: int) -> tuple:
    names = {"RotarySpec": RotarySpec, "axes": axes, "positions": positions, "math": math}
    return tuple(eval(code, names, {"h": h, "w": w}) for code in TOWERS[tower])


def check(rope: RotaryEmbedding, where: Tensor, cos: Tensor, sin: Tensor, turn) -> None:
    """Equal but for float32 products of positions and frequencies, which round an angle."""
    furthest = (where.abs().amax(1).sum() * rope.spec.inverse_frequencies().max()).item()
    atol = torch.finfo(torch.float32).eps * (1 + furthest)
    for ours, theirs in zip(rope.tables(where), (cos, sin), strict=True):
        torch.testing.assert_close(ours.reshape(theirs.shape), theirs, rtol=0, atol=atol)
    q = 2 * torch.rand(2, 3, where.shape[1], 64) - 1
    torch.testing.assert_close(rope.rotate(q, where), turn(q), rtol=0, atol=2 * atol)


def check_as_timm(timm: ModuleType, rope: RotaryEmbedding, where: Tensor, embed: Tensor) -> None:
    half = rope.spec.pairing == "half"
    sin, cos = (t[..., :32] if half else t[..., ::2] for t in embed.chunk(2, -1))
    check(rope, where, cos, sin, lambda q: timm.apply_rot_embed_cat(q, embed, half=half))


@on_two_grids
@pytest.mark.parametrize("tower", IN_TIMM)
def test_towers_of_timm(timm, tower, grid):
    spec, where = stated(tower, *grid)
    name, arguments = IN_TIMM[tower]
    module = getattr(timm, f"RotaryEmbedding{name}")(64, **arguments)
    check_as_timm(timm, RotaryEmbedding(spec), where, module.get_embed(grid))


@on_two_grids
def test_mixed_frequencies_of_timm(timm, grid):
    spec, where = stated("RoPE-ViT, mixed", *grid)
    theirs = timm.RotaryEmbeddingMixed(3 * 64, depth=2, num_heads=3)
    for layer, embed in enumerate(theirs.get_embed(grid)):
        rope = LearnedRotaryEmbedding(spec, heads=3)
        rope.load_state_dict({"frequencies": theirs.freqs[:, layer]})
        check_as_timm(timm, rope, where, embed)


@on_two_grids
@pytest.mark.parametrize("tower", ["RoPE-ViT, axial", "RoPE-ViT, mixed"])
def test_rope_vit_by_its_formula(tower, grid):
    """arXiv 2403.13298, section 3.2: pairs as complex numbers, times e^i(x·f_x + y·f_y)."""
    spec, where = stated(tower, *grid)
    if "mixed" in tower:
        rope = LearnedRotaryEmbedding(spec, heads=3, mixed=True).requires_grad_(False)
        f_x, f_y = rope.frequencies[:, :, None]
    else:  # eq. 7; all pairs of x come first
        rope, f, zeros = RotaryEmbedding(spec), 100.0 ** (-torch.arange(16) / 16), torch.zeros(16)
        f_x, f_y = torch.cat((f, zeros)), torch.cat((zeros, f))
    y, x = (c.reshape(-1, 1) for c in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    turns = torch.exp(1j * (x * f_x + y * f_y))

    def turn(q: Tensor) -> Tensor:
        turned = torch.view_as_complex(q.unflatten(-1, (32, 2))) * turns
        return torch.view_as_real(turned).flatten(-2)

    check(rope, where, turns.real, turns.imag, turn)
