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

from ropewalk.checks import LARGEST, check_int, check_number, shown
from ropewalk.rotary.shape_checks import INTEGERS

__all__ = [
    "Scheme",
    "context_parallel",
    "coordinates",
    "grid",
    "left_padded",
    "multimodal",
    "offset",
    "packed",
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
    check_int("start", start, -(2**62))
    if start + length > LARGEST:
        raise ValueError(f"start must leave all {length} positions below 2^63, got {start}")
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


def video(frames: int, height: int, width: int) -> Tensor:
    """Return frame, row and column of each patch of a video, frame by frame: (3, T * H * W).

    Example:
        >>> from ropewalk import positions
        >>> positions.video(2, 1, 2)
        tensor([[0, 0, 1, 1],
                [0, 0, 0, 0],
                [0, 1, 0, 1]])
    """
    return _lattice(frames, height, width)


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
    if start > 2**62:
        raise ValueError(f"start must be at most 2^62, got {start}")
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


def _check_count(name: str, value: object, count: int) -> None:
    """Raise if an argument requests more than 2^31 positions."""
    if count > MOST:
        raise ValueError(f"{name} must give at most 2^31 positions, got {shown(value)}")


def _lattice(*sizes: int) -> Tensor:
    for name, size in zip(("width", "height", "frames"), reversed(sizes), strict=False):
        check_int(name, size, 1)
    _check_count("the product of sizes", sizes, math.prod(sizes))
    return torch.cartesian_prod(*(torch.arange(size) for size in sizes)).T.contiguous()
