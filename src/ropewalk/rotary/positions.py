"""Positions of tokens, as tensors that `RotaryEmbedding` takes.

If each token has one coordinate, positions are (S,) or (B, S). If it has A coordinates (such as row
and column), these come as the first dimension: (A, S). A tensor has at most 2^31 positions; their
values may be greater.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from ropewalk.checks import check_bool, check_factor, check_int, check_number, shown
from ropewalk.rotary.shape_checks import INTEGERS

__all__ = [
    "Scheme",
    "context_parallel",
    "coordinates",
    "crop",
    "fractions",
    "grid",
    "left_padded",
    "multimodal",
    "offset",
    "packed",
    "resized",
    "text",
    "video",
]

MOST = 2**31  # positions in one tensor (16 GiB); the longest contexts have about ten million

Scheme = Literal["contiguous", "zigzag", "round-robin"]


def offset(start: int | Tensor, length: int) -> Tensor:
    """Return start, start + 1, …: (S,), or (B, S) if each sequence of the batch has its own start.

    Example:
        >>> import torch
        >>> from ropewalk import positions
        >>> positions.offset(5, 4)
        tensor([5, 6, 7, 8])
        >>> positions.offset(torch.tensor([0, 7]), 3)
        tensor([[0, 1, 2],
                [7, 8, 9]])
    """
    check_int("length", length, 0)
    _check_count("length", length, length)
    if isinstance(start, Tensor):
        if start.ndim != 1 or start.is_floating_point() or start.dtype == torch.bool:
            raise ValueError(f"start must be an int or integers (B,), got {shown(start)}")
        _check_count("length", length, len(start) * length)
        return start.to(torch.int64)[:, None] + torch.arange(length, device=start.device)
    _check_start("start", start)
    return torch.arange(start, start + length)


def packed(cu_seqlens: Tensor | Sequence[int]) -> Tensor:
    """Return positions of documents packed in one sequence; each document starts at 0: (S,).

    cu_seqlens: where each document begins, then the end of the last one: 0, n_1, n_1 + n_2, …, S.

    Example:
        >>> from ropewalk import positions
        >>> positions.packed([0, 3, 5])  # documents of 3 and 2 tokens
        tensor([0, 1, 2, 0, 1])
    """
    try:
        given = torch.as_tensor(cu_seqlens)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(
            f"cu_seqlens must be an integer tensor or a list of ints below 2^63, "
            f"got {shown(cu_seqlens)}"
        ) from None
    wrong = given.dtype not in INTEGERS or given.ndim != 1 or len(given) < 1
    ends = given if wrong else given.to(torch.int64)
    if wrong or ends[0] != 0 or (ends.diff() < 0).any():
        raise ValueError(
            f"cu_seqlens must be a one-dimensional tensor or list of integers, cumulative lengths "
            f"that begin at 0 and never decrease, got {shown(given.tolist())}"
        )
    _check_count("cu_seqlens", int(ends[-1]), int(ends[-1]))
    everything = torch.arange(int(ends[-1]), device=ends.device)
    return everything - ends[:-1].repeat_interleave(ends.diff())


def left_padded(mask: Tensor) -> Tensor:
    """Return positions of left-padded sequences; the first real token of each is at 0: (B, S).

    mask: (B, S), True or 1 at real tokens. All padding must come first and gets position 0.

    Example:
        >>> import torch
        >>> from ropewalk import positions
        >>> positions.left_padded(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 3]])
    """
    if not isinstance(mask, Tensor) or ((mask != 0) & (mask != 1)).any():
        raise TypeError(
            f"mask must be a tensor of 0 and 1, or of False and True, got {shown(mask)}"
        )
    real = mask.to(torch.bool)
    if mask.ndim != 2 or (real.to(torch.int8).diff(dim=-1) < 0).any():
        raise ValueError(
            "mask must be (B, S) with padding only on the left, got "
            + (f"shape {tuple(mask.shape)}" if mask.ndim != 2 else "padding after a real token")
        )
    return (real.cumsum(-1) - 1).clamp(min=0)


def grid(height: int, width: int, *, merge: int = 1) -> Tensor:
    """Return row and column of each patch of an image, row by row: (2, height * width).

    merge: patches come in blocks of merge x merge, which the model merges to one token each; blocks
    come row by row, and so do the patches of a block. The vision towers of Qwen2-VL and later and
    of GLM-V have this order (`spatial_merge_size`), for each frame of a video again.
    Source: transformers' modeling_qwen2_vl.py and modeling_glm4v.py, `rot_pos_emb`.

    Example:
        >>> from ropewalk import positions
        >>> positions.grid(2, 3)
        tensor([[0, 0, 0, 1, 1, 1],
                [0, 1, 2, 0, 1, 2]])
        >>> positions.grid(2, 4, merge=2)
        tensor([[0, 0, 1, 1, 0, 0, 1, 1],
                [0, 1, 0, 1, 2, 3, 2, 3]])
    """
    check_int("merge", merge, 1)
    row_by_row = _lattice(height, width)
    if height % merge or width % merge:
        raise ValueError(
            f"height and width must be multiples of merge={merge}, got {height} and {width}"
        )
    blocks = row_by_row.view(2, height // merge, merge, width // merge, merge)
    return blocks.transpose(2, 3).reshape(2, -1)


def video(
    frames: int,
    height: int,
    width: int,
    *,
    start: Sequence[int] = (0, 0, 0),
    centered: bool = False,
    fps: float | None = None,
    base_fps: float = 24.0,
) -> Tensor:
    """Return frame, row and column of each patch of a video, frame by frame: (3, T * H * W).

    An image is a video of one frame.
    start: the position of the first patch: (L, 0, 0) for an image after L tokens of text
        (Lumina 2, Z-Image).
    centered: rows and columns count from -(n - n // 2) to n // 2 - 1 (Qwen-Image).
    fps: frames per second; frames are then base_fps / fps apart, and positions are float64
        coordinates (Cosmos).
    Source: diffusers' transformer_wan.py, transformer_qwenimage.py, transformer_cosmos.py.

    Example:
        >>> from ropewalk import positions
        >>> positions.video(2, 1, 2)
        tensor([[0, 0, 1, 1],
                [0, 0, 0, 0],
                [0, 1, 0, 1]])
        >>> positions.video(1, 2, 2, start=(5, 0, 0), centered=True)
        tensor([[ 5,  5,  5,  5],
                [-1, -1,  0,  0],
                [-1,  0, -1,  0]])
    """
    check_bool("centered", centered)
    patches = _lattice(frames, height, width)
    if not isinstance(start, Sequence) or len(start) != 3:
        raise ValueError(f"start must be three integers: frame, row, column, got {shown(start)}")
    for name, first in zip(("frame", "row", "column"), start, strict=True):
        _check_start(f"the {name} of start", first)
    middle = (0, height - height // 2, width - width // 2) if centered else (0, 0, 0)
    first_patch = [first - half for first, half in zip(start, middle, strict=True)]
    patches += torch.tensor(first_patch)[:, None]
    if fps is None:
        return patches
    check_factor("fps", fps)
    check_factor("base_fps", base_fps)
    return patches * torch.tensor([[base_fps / fps], [1.0], [1.0]], dtype=torch.float64)


def text(length: int, axes: int = 3, *, along: Sequence[int] = (), start: int = 0) -> Tensor:
    """Return the positions of text tokens of an image or video model: (A, length).

    along: the axes on which tokens count start, start + 1, …; on the others they are at 0. None of
    the axes in Flux, whose text does not rotate; the first in Lumina 2, the last of four in Flux 2,
    all of them in Qwen-Image. Join text and image by `torch.cat((text, image), -1)`.

    Example:
        >>> from ropewalk import positions
        >>> positions.text(3, along=(0,), start=1)
        tensor([[1, 2, 3],
                [0, 0, 0],
                [0, 0, 0]])
    """
    check_int("length", length, 0)
    check_int("axes", axes, 1)
    _check_start("start", start)
    _check_count("length", length, length * axes)
    if not isinstance(along, Sequence) or not set(along) <= set(range(axes)):
        raise ValueError(f"along must be axes in 0..{axes - 1}, got {shown(along)}")
    counts = torch.tensor([axis in along for axis in range(axes)])
    return torch.arange(start, start + length) * counts[:, None]


def crop(height: int, width: int, *, base: Sequence[int], frames: int | None = None) -> Tensor:
    """Return row and column of patches, in steps of a grid of the trained size: float64 (2, H * W).

    The image is scaled to the largest size of its shape that the grid has room for, and placed in
    the middle. base: height and width of that grid, in patches. frames: a video; the first of then
    three rows is the frame. For a spec with `continuous`.
    Trap: if the first position is not 0, steps are shorter than the scale, as in that code.
    Source: diffusers' `get_resize_crop_region_for_grid` and `get_3d_rotary_pos_embed` (CogVideoX,
    EasyAnimate, HunyuanDiT, whose rope has width first).

    Example:
        >>> from ropewalk import positions
        >>> positions.crop(2, 3, base=(2, 2))
        tensor([[0.0000, 0.0000, 0.0000, 0.5000, 0.5000, 0.5000],
                [0.0000, 0.6667, 1.3333, 0.0000, 0.6667, 1.3333]], dtype=torch.float64)
    """
    sizes = _grid_sizes("base", base)
    patches = _lattice(*(() if frames is None else (frames,)), height, width).double()
    scale = min(sizes[0] / height, sizes[1] / width)
    for axis, (count, room) in enumerate(zip((height, width), sizes, strict=True), -2):
        extent = min(round(count * scale), room)
        first = round((room - extent) / 2)
        last = (first + extent) * (count - 1) / count
        patches[axis] = first + patches[axis] * (last - first) / max(count - 1, 1)
    return patches


def resized(
    height: int, width: int, *, base: Sequence[int], start: int = 0, rounded: bool = True
) -> Tensor:
    """Return row and column of patches on a grid of the trained size: (2, H * W).

    base: height and width of that grid, in patches. start: rows and columns count from there before
    they are resized: 1 in most Perception Encoders. rounded: round down to integers (CogView4);
    otherwise float64, for a spec with `continuous` (EVA-02, Perception Encoder).
    Source: diffusers' transformer_cogview4.py; timm's pos_embed_sincos.py (`ref_feat_shape`,
    `grid_offset`).

    Example:
        >>> from ropewalk import positions
        >>> positions.resized(1, 3, base=(256, 256))
        tensor([[  0,   0,   0],
                [  0,  85, 170]])
        >>> positions.resized(1, 3, base=(2, 2), rounded=False)
        tensor([[0.0000, 0.0000, 0.0000],
                [0.0000, 0.6667, 1.3333]], dtype=torch.float64)
    """
    check_int("start", start, 0)
    if start > MOST:
        raise ValueError(f"start must be at most 2^31, got {start}")
    check_bool("rounded", rounded)
    sizes = torch.tensor(_grid_sizes("base", base))[:, None]
    patches, counts = (_lattice(height, width) + start) * sizes, torch.tensor([[height], [width]])
    return patches // counts if rounded else patches.double() / counts


def fractions(coordinates: Tensor, sizes: Sequence[float]) -> Tensor:
    """Return coordinates as parts of the trained sizes, on [-1, 1], times π/2: float64 (A, S).

    coordinates: (A, S), in pixels and seconds; sizes: of the A axes, in the same units. For a spec
    with `continuous` and `axes.geometric`. Source: diffusers' transformer_ltx.py, `forward`.

    Example:
        >>> import torch
        >>> from ropewalk import positions
        >>> positions.fractions(torch.tensor([[0, 1024, 2048]]), (2048,))
        tensor([[-1.5708,  0.0000,  1.5708]], dtype=torch.float64)
    """
    if not isinstance(sizes, Sequence):
        raise TypeError(f"sizes must be a list of a number for each axis, got {shown(sizes)}")
    if not isinstance(coordinates, Tensor) or coordinates.shape[:1] != (len(sizes),):
        got = tuple(coordinates.shape) if isinstance(coordinates, Tensor) else shown(coordinates)
        raise ValueError(f"coordinates must be ({len(sizes)}, S), a row for each size, got {got}")
    for i, size in enumerate(sizes):
        check_factor(f"sizes[{i}]", size)
    of_axes = torch.tensor(sizes, dtype=torch.float64, device=coordinates.device)
    of_axes = of_axes.reshape(-1, *(1,) * (coordinates.ndim - 1))
    return (2 * coordinates.double() / of_axes - 1) * (torch.pi / 2)


def multimodal(segments: Sequence[int | Sequence[float]], *, start: int = 0) -> Tensor:
    """Return M-RoPE's positions of text, images and videos: time, height and width, (3, S).

    segments: in the order of the sequence: an int n for n tokens of text, (H, W) for an image, (T,
    H, W) for a video; (T, H, W, step) if the time grows by `step` per frame, rounded down if it is
    no whole number (in Qwen2.5-VL, `second_per_grid_ts` times `tokens_per_second`). H and W count
    the patches that the language model sees, after merging: in Qwen, those of `image_grid_thw` or
    `video_grid_thw` divided by `spatial_merge_size`. For a text token, the three numbers are the
    same. Each segment begins one after the greatest position so far.
    Source: Wang et al. 2024, Qwen2-VL, arXiv 2409.12191, section 2.1; Qwen2.5-VL for `step`.

    Example:
        >>> from ropewalk import positions
        >>> positions.multimodal([2, (2, 2), 1])  # two tokens, an image of 2 x 2 patches, a token
        tensor([[0, 1, 2, 2, 2, 2, 4],
                [0, 1, 2, 2, 3, 3, 4],
                [0, 1, 2, 3, 2, 3, 4]])
    """
    check_int("start", start, 0)
    _check_start("start", start)
    given: object = segments
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TypeError(
            f"segments must be a list of ints (text) and of (H, W), (T, H, W) or (T, H, W, step), "
            f"got {shown(segments)}"
        )
    listed = list(segments)
    _check_count("segments", listed, sum(map(_tokens, listed)))
    parts, here = [torch.zeros(3, 0, dtype=torch.int64)], start
    for segment in listed:
        if isinstance(segment, int):
            part = torch.arange(segment).expand(3, -1)
        else:
            part = _patches(segment)
        parts.append(part + here)
        here = int(parts[-1].max()) + 1 if part.numel() else here
    return torch.cat(parts, -1)


def coordinates(height: int, width: int) -> Tensor:
    """Return the row and column of each patch's center, on [-1, 1], times 2π: float64 (2, H * W).

    For a spec with `continuous`. DINOv3's angles are 2π · c / theta^e for a center c in [-1, 1];
    the result includes the factor 2π. Source: Siméoni et al. 2025, arXiv 2508.10104; transformers'
    modeling_dinov3_vit.py.

    Example:
        >>> from ropewalk import positions
        >>> positions.coordinates(1, 2)  # vertical, then horizontal
        tensor([[ 0.0000,  0.0000],
                [-3.1416,  3.1416]], dtype=torch.float64)
    """
    sizes = torch.tensor([[height], [width]], dtype=torch.float64)
    return 2 * torch.pi * (2 * (grid(height, width) + 0.5) / sizes - 1)


def context_parallel(length: int, rank: int, world: int, scheme: Scheme) -> Tensor:
    """Return the positions of a sequence's tokens on one of `world` ranks: (length / world,).

    `contiguous`: block `rank` of `world` blocks. `zigzag`: the sequence is cut into 2 * world
    blocks, and this rank gets block `rank` and block `2 * world - 1 - rank`, so that causal
    attention costs each rank the same (Megatron, Llama 3). `round-robin`: every world-th token,
    from `rank` on (striped attention, arXiv 2311.09431).

    Example:
        >>> from ropewalk import positions
        >>> positions.context_parallel(8, rank=0, world=2, scheme="zigzag")
        tensor([0, 1, 6, 7])
    """
    check_int("world", world, 1)
    check_int("rank", rank, 0)
    check_int("length", length, 0)
    _check_count("length", length, length)
    if rank >= world:
        raise ValueError(f"rank must be below world={world}, got {rank}")
    if scheme not in get_args(Scheme):
        raise ValueError(
            f'scheme must be "contiguous", "zigzag" or "round-robin", got {shown(scheme)}'
        )
    parts = 2 * world if scheme == "zigzag" else world
    if length % parts:
        raise ValueError(f"length must be a multiple of {parts} for {scheme}, got {length}")
    everything = torch.arange(length)
    if scheme == "contiguous":
        return everything.chunk(world)[rank] if length else everything
    if scheme == "round-robin":
        return everything[rank::world]
    blocks = everything.unflatten(0, (parts, length // parts))
    return torch.cat((blocks[rank], blocks[parts - 1 - rank]))


def _tokens(segment: int | Sequence[float]) -> int:
    """Return the number of tokens of a segment; raise if it is not a valid segment."""
    if isinstance(segment, int):
        check_int("each text segment", segment, 0)
        return segment
    sizes = tuple(segment) if isinstance(segment, Sequence) else ()
    if len(sizes) not in (2, 3, 4):
        raise ValueError(
            f"each segment must be an int of text tokens, (H, W), (T, H, W) or (T, H, W, step), "
            f"got {shown(segment)}"
        )
    for name, size in zip(("frames", "height", "width")[len(sizes) == 2 :], sizes, strict=False):
        check_int(name, size, 1)
    if len(sizes) == 4:
        check_number("step", sizes[3])
        if sizes[3] > MOST:
            raise ValueError(f"step must be at most 2^31, got {sizes[3]}")
    return math.prod(int(size) for size in sizes[:3])


def _patches(sizes: Sequence[float]) -> Tensor:
    """Return the positions of an image's or a video's patches; `_tokens` has checked the sizes."""
    frames, height, width = map(int, sizes[:3] if len(sizes) > 2 else (1, *sizes))
    patches = video(frames, height, width)
    if len(sizes) == 4:  # a float is multiplied in float32, as in Qwen2.5-VL's code
        patches[0] = (patches[0] * sizes[3]).to(torch.int64)
    return patches


def _check_start(name: str, value: int) -> None:
    """Raise unless 2^31 positions after a first one, and what is subtracted from it, are int64."""
    check_int(name, value, -(2**62))
    if value > 2**62:
        raise ValueError(f"{name} must be at most 2^62, got {shown(value)}")


def _check_count(name: str, value: object, count: int) -> None:
    """Raise if an argument requests more than 2^31 positions."""
    if count > MOST:
        raise ValueError(f"{name} must give at most 2^31 positions, got {shown(value)}")


def _grid_sizes(name: str, given: Sequence[int]) -> tuple[int, int]:
    if not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"{name} must be a height and a width in patches, got {shown(given)}")
    for side, size in zip(("height", "width"), given, strict=True):
        check_int(f"the {side} of {name}", size, 1)
        _check_count(f"the {side} of {name}", size, size)
    return given[0], given[1]


def _lattice(*sizes: int) -> Tensor:
    for name, size in zip(("width", "height", "frames"), reversed(sizes), strict=False):
        check_int(name, size, 1)
    _check_count("the product of sizes", sizes, math.prod(sizes))
    return torch.cartesian_prod(*(torch.arange(size) for size in sizes)).T.contiguous()
