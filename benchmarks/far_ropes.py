"""The ropes whose exactness is measured: ours, copied formulas, other libraries'.

Each function makes a rope from a theta, or returns None if it does not support that theta. A
`dtype` is the one to which a model that holds the rope was cast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

import torch
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec
from ropewalk.bench.contenders import MODULES

HEAD_DIM = 128
FARTHEST = 2**31 - 1
LARGEST_TABLE = 131_072  # positions, for libraries whose tables start at 0
PEERS = ("transformers", "rotary-embedding-torch", "x-transformers", "torchtune")

Tables = tuple[Tensor, Tensor]  # cos and sin, (S, R/2)


@dataclass(frozen=True)
class Rope:
    """A rope to measure: its cos and sin at positions (S,), and its rotation of (1, H, S, D)."""

    tables: Callable[[Tensor], Tables]
    rotate: Callable[[Tensor, Tensor], Tensor]  # x, positions
    pairing: str
    max_positions: int = FARTHEST + 1


def ropewalk(theta: float, dtype: torch.dtype = torch.float32) -> Rope:
    """Ours."""
    rope = RotaryEmbedding(RotarySpec(HEAD_DIM, theta=theta)).to(dtype)
    return Rope(rope.tables, lambda x, positions: rope.rotate(x, positions), "half")


def float64_product(theta: float) -> Rope:
    """The product in float64, and cos and sin rounded to float32."""

    def tables(positions: Tensor) -> Tables:
        exponents = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
        angle = positions.double()[:, None] * theta**-exponents
        return angle.cos().float(), angle.sin().float()

    return with_tables(tables, "half")


def llama_written_out(
    theta: float, buffer: torch.dtype = torch.float32, tables: torch.dtype = torch.float32
) -> Rope:
    """The formulas of `llama`, without transformers."""
    inv_freq = float32_frequencies(theta).to(buffer).float()

    def of(positions: Tensor) -> Tables:
        angle = positions[:, None].float() * inv_freq
        return angle.cos().to(tables), angle.sin().to(tables)

    return with_tables(of, "half")


def llama(
    theta: float, buffer: torch.dtype = torch.float32, tables: torch.dtype = torch.float32
) -> Rope:
    """transformers' LlamaRotaryEmbedding in a model cast to `buffer`, given q of dtype `tables`."""
    if installed("transformers") is None:
        return llama_written_out(theta, buffer, tables)
    source = import_module(MODULES["transformers"])
    config = source.LlamaConfig(
        vocab_size=8,
        hidden_size=HEAD_DIM,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        rope_theta=theta,
    )
    rope = source.LlamaModel(config).to(buffer).rotary_emb
    like = torch.empty(0, dtype=tables)

    def of(positions: Tensor) -> Tables:
        cos, sin = (t[0, :, : HEAD_DIM // 2] for t in rope(like, positions[None]))
        return cos, sin

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        rotated, _ = source.apply_rotary_pos_emb(x, x, *rope(like, positions[None]))
        return rotated

    return Rope(of, rotate, "half")


def llama_bfloat16_tables(theta: float) -> Rope:
    """A model loaded in bfloat16: frequencies stay float32, cos and sin are in q's dtype."""
    return llama(theta, tables=torch.bfloat16)


def llama_bfloat16_buffer(theta: float) -> Rope:
    """The same after `model.bfloat16()`, which casts the buffer of frequencies too."""
    return llama(theta, torch.bfloat16, torch.bfloat16)


def bfloat16_positions(theta: float) -> Rope:
    """Positions in the dtype of the frequencies, after `.bfloat16()`: as in x-transformers."""
    inv_freq = float32_frequencies(theta).bfloat16()

    def tables(positions: Tensor) -> Tables:
        angle = positions.bfloat16()[:, None] * inv_freq
        return angle.cos(), angle.sin()

    return with_tables(tables, "half")


def gptj(theta: float) -> Rope | None:
    """GPT-J's create_sinusoidal_positions, copied: its own table would start from 0."""
    if theta != 10_000:
        return None  # its theta is always 10,000
    inv_freq = 1.0 / (10_000 ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.int64) / HEAD_DIM))

    def tables(positions: Tensor) -> Tables:
        angle = positions.float()[:, None] * inv_freq
        return angle.cos(), angle.sin()

    return with_tables(tables, "interleaved")


def meta(theta: float) -> Rope:
    """Meta's precompute_freqs_cis and apply_rotary_emb, copied for any positions."""
    freqs = float32_frequencies(theta)

    def freqs_cis(positions: Tensor) -> Tensor:
        outer = torch.outer(positions.float(), freqs)
        return torch.polar(torch.ones_like(outer), outer)

    def tables(positions: Tensor) -> Tables:
        cis = freqs_cis(positions)
        return cis.real, cis.imag

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * freqs_cis(positions)).flatten(-2).type_as(x)

    return Rope(tables, rotate, "interleaved")


def rotary_embedding_torch(theta: float, dtype: torch.dtype = torch.float32) -> Rope:
    """lucidrains' rotary-embedding-torch; its parts by hand if positions are not contiguous."""
    source = import_module(MODULES["rotary-embedding-torch"])
    rope = source.RotaryEmbedding(HEAD_DIM, theta=theta).to(dtype)

    def tables(positions: Tensor) -> Tables:
        angle = rope(positions)[:, ::2].detach()
        return angle.cos(), angle.sin()

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        if torch.equal(positions, torch.arange(len(positions)) + positions[0]):
            return rope.rotate_queries_or_keys(x, offset=int(positions[0])).detach()
        return source.apply_rotary_emb(rope(positions.to(x.dtype)), x).detach()

    return Rope(tables, rotate, "interleaved")


def x_transformers(theta: float, dtype: torch.dtype = torch.float32) -> Rope:
    """lucidrains' x-transformers."""
    source = import_module(MODULES["x-transformers"])
    rope = source.RotaryEmbedding(HEAD_DIM, base=theta).to(dtype)

    def tables(positions: Tensor) -> Tables:
        angle = rope(positions)[0][0, :, ::2]
        return angle.cos(), angle.sin()

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        return source.apply_rotary_pos_emb(x, rope(positions)[0])

    return Rope(tables, rotate, "interleaved")


def torchtune(theta: float, dtype: torch.dtype = torch.float32) -> Rope:
    """torchtune's RotaryPositionalEmbeddings, whose table starts from 0."""
    source = import_module(MODULES["torchtune"])
    rope = source.RotaryPositionalEmbeddings(HEAD_DIM, LARGEST_TABLE, int(theta)).to(dtype)

    def tables(positions: Tensor) -> Tables:
        cos, sin = rope.cache[positions].unbind(-1)
        return cos, sin

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        return rope(x.transpose(1, 2), input_pos=positions[None]).transpose(1, 2)

    return Rope(tables, rotate, "interleaved", LARGEST_TABLE)


ROPES: dict[str, Callable[[float], Rope | None]] = {
    "ropewalk": ropewalk,
    "float64 product": float64_product,
    "transformers, Llama": llama,
    "GPT-J": gptj,
    "Meta, freqs_cis": meta,
    "rotary-embedding-torch": rotary_embedding_torch,
    "x-transformers": x_transformers,
    "torchtune": torchtune,
    "Llama, bfloat16 tables": llama_bfloat16_tables,
    "Llama, .bfloat16()": llama_bfloat16_buffer,
    "bfloat16 positions": bfloat16_positions,
}
DRAWN = (  # the other float32 ropes have the same line as transformers
    "ropewalk",
    "transformers, Llama",
    "float64 product",
    "Llama, bfloat16 tables",
    "Llama, .bfloat16()",
)


def with_tables(tables: Callable[[Tensor], Tables], pairing: str) -> Rope:
    """Return a rope of tables that rotates in the dtype to which x and the tables promote."""
    return Rope(tables, lambda x, positions: rotated(x, *tables(positions), pairing), pairing)


def float32_frequencies(theta: float) -> Tensor:
    """The frequencies in float32, as most libraries compute them."""
    return 1.0 / (theta ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))


def installed(library: str) -> str | None:
    """Return the version of a library that is installed and can be imported, or None."""
    try:
        import_module(MODULES[library])
        return version(library)
    except Exception:  # with unexpected versions of others, an import may fail in any way
        return None


def rotated(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Rotate x (..., S, D), in the dtype to which all arguments promote (RoFormer, eq. 34)."""
    if pairing == "half":
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).flatten(-2)
