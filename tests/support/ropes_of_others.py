"""Ropes as other code writes them: right ones, by library, and wrong ones, by fault.

All of it was written for these tests, in the form (arguments, order of axes, tables) of the library
that is named. A wrong one differs from a right one by the one mistake that its name says.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

D, BASE = 64, 10_000.0


def inverse(dim: int = D, base: float = BASE) -> Tensor:
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate_neighbors(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def by_angles(x: Tensor, angles: Tensor) -> Tensor:
    """The plain formula in halves, with x (B, H, S, D) and angles (S, D/2)."""
    angles = torch.cat((angles, angles), -1)
    return (x * angles.cos() + rotate_half(x) * angles.sin()).to(x.dtype)


def half(x: Tensor, positions: Tensor, frequencies: Tensor | None = None) -> Tensor:
    f = inverse(x.shape[-1]) if frequencies is None else frequencies
    return by_angles(x, positions[..., None].float() * f)


def first(x: Tensor, dims: int, positions: Tensor, frequencies: Tensor | None = None) -> Tensor:
    """Only the first dimensions of a head rotate."""
    return torch.cat((half(x[..., :dims], positions, frequencies), x[..., dims:]), -1)


def neighbors(x: Tensor, positions: Tensor) -> Tensor:
    angles = (positions[..., None].float() * inverse(x.shape[-1])).repeat_interleave(2, -1)
    return x * angles.cos() + rotate_neighbors(x) * angles.sin()


# Right ones, in the forms of eight libraries.


class TransformersLlama(nn.Module):
    """Tables of (B, S, D) from hidden states and position_ids (B, S)."""

    def __init__(self, dim: int = D, base: float = BASE) -> None:
        super().__init__()
        self.register_buffer("inv_freq", inverse(dim, base), persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[:, :, None].float() * self.inv_freq[None, None, :]
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


def transformers_llama(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def gptj(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
    """(B, S, H, D) with tables (B, S, D/2)."""
    sin = torch.repeat_interleave(sin[:, :, None, :], 2, 3)
    cos = torch.repeat_interleave(cos[:, :, None, :], 2, 3)
    return tensor * cos + rotate_neighbors(tensor) * sin


class GPTNeoX(nn.Module):
    """Rotates the first quarter of a head; offset counts cached tokens."""

    def __init__(self, rotary_dim: int = D // 4) -> None:
        super().__init__()
        self.rotary_dim = rotary_dim

    def forward(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        positions = torch.arange(offset, offset + q.shape[-2])
        return first(q, self.rotary_dim, positions), first(k, self.rotary_dim, positions)


class Torchtune(nn.Module):
    """(B, S, H, D); a table (length, D/2, 2) in interleaved pairs, indexed by input_pos."""

    def __init__(self, dim: int = D, max_seq_len: int = 131_072) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(max_seq_len), inverse(dim))
        self.register_buffer("cache", torch.stack((angles.cos(), angles.sin()), -1))

    def forward(self, x: Tensor, *, input_pos: Tensor | None = None) -> Tensor:
        table = self.cache[: x.size(1)] if input_pos is None else self.cache[input_pos]
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        table = table.view(-1, pairs.size(1), 1, pairs.size(3), 2)
        a, b, cos, sin = pairs[..., 0], pairs[..., 1], table[..., 0], table[..., 1]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(3).type_as(x)


class RotaryEmbeddingTorch(nn.Module):
    """lucidrains: `rotate_queries_or_keys(t, offset=0)`, interleaved, frequencies a parameter."""

    def __init__(self, dim: int = D) -> None:
        super().__init__()
        self.freqs = nn.Parameter(inverse(dim), requires_grad=False)

    def rotate_queries_or_keys(self, t: Tensor, seq_dim: int | None = None, offset: int = 0):
        positions = torch.arange(offset, offset + t.shape[-2])
        angles = torch.outer(positions.float(), self.freqs).repeat_interleave(2, -1)
        return (t * angles.cos() + rotate_neighbors(t) * angles.sin()).to(t.dtype)


def x_transformers(t: Tensor, freqs: Tensor, scale: float = 1.0) -> Tensor:
    """Angles (S, R), pairs interleaved; the first R dimensions rotate."""
    dim, length = freqs.shape[-1], t.shape[-2]
    freqs = freqs[-length:]
    rotating, rest = t[..., :dim], t[..., dim:]
    rotating = rotating * freqs.cos() * scale + rotate_neighbors(rotating) * freqs.sin() * scale
    return torch.cat((rotating, rest), dim=-1)


def meta_llama(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """(B, S, H, D) as complex numbers."""

    def one(x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        shape = (1, z.shape[1], 1, z.shape[-1])
        return torch.view_as_real(z * freqs_cis.view(shape)).flatten(3).type_as(x)

    return one(xq), one(xk)


def lucidrains_palm(pos: Tensor, t: Tensor) -> Tensor:
    """Angles first, then the vectors; used through a function of t and positions."""
    return by_angles(t, torch.einsum("i , j -> i j", pos.float(), inverse(t.shape[-1])))


def xpos(q: Tensor, k: Tensor, positions: Tensor, base: float = 512.0) -> tuple[Tensor, Tensor]:
    """Queries grow as keys shrink, by a factor of each pair."""
    pairs = torch.arange(0, D, 2).float()
    zeta = ((pairs / D + 0.4) / 1.4) ** (positions[:, None].float() / base)
    zeta = torch.cat((zeta, zeta), -1)
    return half(q, positions) * zeta, half(k, positions) / zeta


# Wrong ones: each name is the identifier of its fault, with _ for -. `half` itself is wrong where
# a spec has another pairing, theta or part.


def cos_sin_mixed(x: Tensor, positions: Tensor) -> Tensor:
    """One table that alternates sines and cosines, as sinusoids do, used as the sine."""
    angles = positions[..., None].float() * inverse(x.shape[-1])
    table = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)
    both = angles.repeat_interleave(2, -1)
    return x * both.cos() + rotate_neighbors(x) * table


def cos_sin_mixed_swapped(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions[..., None].float() * inverse(x.shape[-1])
    both = torch.cat((angles, angles), -1)
    return x * both.sin() + rotate_half(x) * both.cos()


def not_a_rotation_added(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions[..., None].float() * inverse(x.shape[-1])
    return x + torch.cat((angles.sin(), angles.cos()), -1)


def not_a_rotation_matrix(x: Tensor) -> Tensor:
    index = torch.arange(x.shape[-1], dtype=torch.float32)
    return x @ torch.cos(index[:, None] * index * 0.01)


def not_a_rotation_scaled(x: Tensor, positions: Tensor) -> Tensor:
    index = torch.arange(x.shape[-1], dtype=torch.float32)
    return x * torch.cos(positions[..., None].float() * index * 0.01)


def half_precision_angles(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions[..., None].to(torch.bfloat16) * inverse(x.shape[-1]).to(torch.bfloat16)
    return by_angles(x, angles.float())


def table_too_short(x: Tensor, positions: Tensor) -> Tensor:
    return by_angles(x, torch.outer(torch.arange(2_048).float(), inverse(x.shape[-1]))[positions])


class StaleAfterBfloat16(nn.Module):
    """A cached table has the dtype of the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.shape[-2]
        if self.table is None or len(self.table) < end:
            angles = torch.arange(end)[:, None].float() * inverse()
            self.table = torch.cat((angles.cos(), angles.sin()), -1).to(x.dtype)
        cos, sin = (torch.cat((t, t), -1) for t in self.table[offset:end].float().chunk(2, -1))
        return (x * cos + rotate_half(x) * sin).to(x.dtype)


def dynamic_ntk(x: Tensor, positions: Tensor, length: int) -> Tensor:
    """The base grows with the length, beyond 2,048."""
    dim = x.shape[-1]
    base = BASE * (max(length, 2_048) / 2_048) ** (dim / (dim - 2))
    return half(x, positions, inverse(dim, base))


class History(nn.Module):
    """Dynamic NTK: the base grows with the longest call, and stays so."""

    longest = 0

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        self.longest = max(self.longest, int(positions.max()) + 1)
        return dynamic_ntk(x, positions, self.longest)


def history_of_this_call(x: Tensor) -> Tensor:
    return dynamic_ntk(x, torch.arange(x.shape[-2]), x.shape[-2])


def wrong_exponent_of_part(x: Tensor, positions: Tensor) -> Tensor:
    """The rotary part is right, and its exponents are divided by the size of the head."""
    rotary = D // 4
    return first(x, rotary, positions, BASE ** (-torch.arange(0, rotary, 2).float() / D))


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        return half(x, positions)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return half(grad, ctx.saved_tensors[0]), None


def wrong_gradient(x: Tensor, positions: Tensor) -> Tensor:
    return WrongGradient.apply(x, positions)


def layouts_mixed(x: Tensor, positions: Tensor, frequencies: Tensor | None = None) -> Tensor:
    """Tables for neighbors, and halves that rotate."""
    f = inverse(x.shape[-1]) if frequencies is None else frequencies
    angles = (positions[..., None].float() * f).repeat_interleave(2, -1)
    return x * angles.cos() + rotate_half(x) * angles.sin()


def layouts_mixed_otherwise(x: Tensor, positions: Tensor) -> Tensor:
    """Tables for halves, and neighbors that rotate."""
    angles = positions[..., None].float() * inverse(x.shape[-1])
    angles = torch.cat((angles, angles), -1)
    return x * angles.cos() + rotate_neighbors(x) * angles.sin()


def with_signs(x: Tensor, positions: Tensor, first: int, second: int) -> Tensor:
    """rotate_half with other signs than -1 and 1."""
    a, b = x.chunk(2, -1)
    angles = torch.cat((positions[..., None].float() * inverse(x.shape[-1]),) * 2, -1)
    return x * angles.cos() + torch.cat((first * b, second * a), -1) * angles.sin()


def overwritten_half(x: Tensor, positions: Tensor, second_first: bool = False) -> Tensor:
    """In place, in a copy: one half is written before the other is computed."""
    angles, half = positions[..., None].float() * inverse(x.shape[-1]), x.shape[-1] // 2
    cos, sin, y = angles.cos(), angles.sin(), x.clone()
    halves = [slice(None, half), slice(half, None)]
    signs = [-1, 1]
    for one in (1, 0) if second_first else (0, 1):
        mine, other = y[..., halves[one]].clone(), y[..., halves[1 - one]].clone()
        y[..., halves[one]] = mine * cos + signs[one] * other * sin
    return y


def rounded_tables(x: Tensor, positions: Tensor, dtype: torch.dtype = torch.float16) -> Tensor:
    """Exact angles; cos and sin are rounded, and used with float32 vectors."""
    angles = positions[..., None].float() * inverse(x.shape[-1])
    cos, sin = (torch.cat((t, t), -1).to(dtype).float() for t in (angles.cos(), angles.sin()))
    return x * cos + rotate_half(x) * sin
