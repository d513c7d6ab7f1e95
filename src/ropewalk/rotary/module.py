"""`RotaryEmbedding` applies a spec to queries and keys; `rerotate` moves keys to another rope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ropewalk.checks import check_bool, named_fields, shown
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.reference import Layout
from ropewalk.rotary.rotate import check_device, sequence_length
from ropewalk.rotary.shape_checks import (
    check_same_batch,
    check_same_length,
    check_serves,
    check_tensor,
    check_within_int64,
    tokens,
)
from ropewalk.rotary.spec import ELSEWHERE, RotarySpec
from ropewalk.rotary.tables import Length, RopeTables, RotaryTables, Tables, apply_tables


@named_fields(ELSEWHERE, RotarySpec)
class RotaryEmbedding(nn.Module):
    """Module that rotates queries and keys by their positions, as `spec` says.

    For integer positions up to ±2^31, the errors of cos and sin are at most 1e-7 times the
    amplitude, whatever the dtype of q and k. Farther on, the angle's error is at most
    |position| · 2^-65 turns: 4e-7 radians at position 2^41, 2e-4 at 2^50. (Positions that are Unix
    times in milliseconds are below 2^41.) If the spec has `continuous`, positions may be floats,
    and angles are float64 products. The module has no parameters and no buffers, so `.half()`,
    `to_empty` and state dicts do not change it.

    For contiguous positions, cos and sin are usually rows of a cached table. It grows in powers of
    two to at most 16,384 rows. With R rotated dimensions a row has 4·R bytes, so a table has at
    most 8 MiB if R = 128. A module caches at most two tables on each device: a scaling rule that
    depends on `length` has several sets of frequencies, and the two latest are kept. A call that
    includes position 16,384 or a later one computes its own rows: a decode at position 10,000,000
    computes one row. Cached and computed rows are equal.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec
        >>> rope = RotaryEmbedding(RotarySpec(head_dim=64))
        >>> q, k = torch.randn(2, 8, 16, 64), torch.randn(2, 2, 16, 64)  # 8 heads, 2 key heads
        >>> rotated_q, rotated_k = rope(q, k)  # positions 0 .. 15
        >>> rotated_q.shape, rotated_k.shape
        (torch.Size([2, 8, 16, 64]), torch.Size([2, 2, 16, 64]))

        In decoding, the last token alone is rotated at offset 15, with the same result as above:

        >>> _, next_k = rope(q[:, :, 15:], k[:, :, 15:], offset=15)
        >>> torch.equal(next_k, rotated_k[:, :, 15:])
        True
    """

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        self._cached_tables = RotaryTables(spec)
        self.spec = spec
        self._layout = Layout.of(spec.pairing, spec.write_pairing, spec.start)

    @classmethod
    def from_config(
        cls,
        config: str | PathLike[str] | Mapping[str, Any],
        layer: int = 0,
        stack: str | None = None,
        pairing: str | None = None,
    ) -> RotaryEmbedding:
        """Return the rope of one layer of a config.json, read by `ModelSpec.from_config`.

        config: what `ModelSpec.from_config` takes.
        stack: of the layers; None: the text stack, or the first of a model without text.
        The rope does not include two factors of the layer's scores: `LayerSpec.softmax_factor`
        (DeepSeek) and `LayerSpec.query_temperature` (Llama 4, Ministral 3).
        """
        from ropewalk.rotary.model_spec import ModelSpec  # late: a rope alone needs no configs

        rope = ModelSpec.from_config(config, pairing=pairing).layer(layer, stack).rope
        if rope is None:
            raise ValueError(
                f"layer must be one that has a rope, got {layer}, which has none (NoPE): "
                f"do not rotate its q and k"
            )
        return cls(rope)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, S, D) and k (B, K, T, D); with seq_dim=-3, (B, S, H, D) and (B, T, K, D).

        positions: integers (S,) or (B, S); (A, S) or (A, B, S) if the spec has several axes.
            Floats too if the spec is `continuous`.
        key_positions: the positions of k, with T in place of S (default: those of q).
        offset: without positions, q (and k) are at offset, offset + 1, ...
        length: the number of tokens of the complete sequence, cached ones too, if the scaling rule
            depends on it: an int or (B,). An int must be greater than the last position, unless
            all longer sequences have the same frequencies (LongRoPE beyond its original length).
            This is not checked for `positions` on a GPU (a check would have to wait for the GPU),
            nor under torch.compile.

        DTensors: q and k may be sharded by batch, heads or sequence; plain positions and lengths
        are those of the complete tensors. Nested tensors of layout torch.jagged, (B, j, H, D) with
        seq_dim=-3 or (B, H, j, D): each row is at offset, offset + 1, ..., or at positions (B, j)
        with q's offsets, or (T,) for all tokens. torch compiles only those without `lengths`.

        H and K may differ (GQA), and so may S and T if key_positions are given. Returns rotated q
        and k, with their shapes and dtypes. Raises ValueError or TypeError that names the argument,
        what it must be, and the value it got.
        """
        if positions is None and key_positions is None:
            both = self._fast_path(q, k, offset, length, seq_dim)
            if both is not None:
                return both[0], both[1]
        source = self._tables
        check_tensor("q", q, "positions", None, seq_dim, self.spec)
        check_tensor("k", k, "positions", None, seq_dim, self.spec)
        check_same_batch(q, k)
        if key_positions is None:
            check_same_length(q, k, seq_dim)
            check_device("k", k, "q", q)  # both use the same tables
            check_tensor("k", k, "positions", positions, seq_dim, self.spec)
        tables = source.for_tensor(q, positions, offset, length, seq_dim, name="q")
        if key_positions is None:
            q, k = apply_tables(self.spec, tables, q, k, seq_dim=seq_dim)
            return q, k
        k_tables = source.for_tensor(
            k, key_positions, 0, length, seq_dim, name="k", positions_name="key_positions"
        )
        (q,) = apply_tables(self.spec, tables, q, seq_dim=seq_dim)
        (k,) = apply_tables(self.spec, k_tables, k, seq_dim=seq_dim)
        return q, k

    if TYPE_CHECKING:  # torch says Any
        __call__: Callable[..., tuple[Tensor, Tensor]]

    def rotate(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> Tensor:
        """Rotate q or k alone; the arguments are those of `forward`."""
        tables = self._tables.for_tensor(x, positions, offset, length, seq_dim)
        return apply_tables(self.spec, tables, x, seq_dim=seq_dim)[0]

    def unrotate(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> Tensor:
        """Invert `rotate`: return x as it was before it was rotated at these positions."""
        source = self._tables
        cos, sin = source.for_tensor(x, positions, offset, length, seq_dim)
        squared = source.amplitude(length, x.device) ** 2
        tables = cos / squared, sin / squared
        return apply_tables(self.spec, tables, x, seq_dim=seq_dim, adjoint=True)[0]

    def shift(
        self, k: Tensor, by: int | Tensor, length: Length = None, seq_dim: int = -2
    ) -> Tensor:
        """Move rotated keys to other positions: rotate each key by `by` more positions.

        by: each key's new position minus its old one: an int, or integers (S,) or (B, S); (A, S) or
        (A, B, S) if the spec has several axes. length: the one with which the keys
        were rotated. The amplitude is not applied again.
        """
        if isinstance(by, (int, torch.SymInt)):
            check_within_int64("by", by)
            size = (self.spec.axis_count,) * (self.spec.axis_count > 1)
            sequence_length("k", k, seq_dim)
            by = torch.full((*size, tokens(k).shape[seq_dim]), by, device=k.device)
        source = self._tables
        cos, sin = source.for_tensor(
            k, by, 0, length, seq_dim, name="k", positions_name="by", distances=True
        )
        amplitude = source.amplitude(length, k.device)
        tables = cos / amplitude, sin / amplitude
        written = self.spec.write_pairing
        return apply_tables(self.spec, tables, k, seq_dim=seq_dim, pairing=written)[0]

    def tables(
        self, positions: Tensor, length: Length = None, *, extrapolate: bool = False
    ) -> Tables:
        """Return cos and sin at positions (S,) or (B, S), amplitude included: float32 (…, S, R/2).

        R is the number of dimensions that rotate. If the spec has several axes, positions are
        (A, S) or (A, B, S). extrapolate: allow positions beyond `length`, with the frequencies of
        `length`.
        """
        check_bool("extrapolate", extrapolate)
        tables = self._tables.at(positions, length)
        if not extrapolate:
            check_serves(length, self.spec, None, positions)
        return tables

    @property
    def _tables(self) -> RopeTables:
        return self._cached_tables

    def _fast_path(
        self, q: Tensor, k: Tensor, offset: int, length: Length, seq_dim: int
    ) -> Sequence[Tensor] | None:
        """Rotate q and k by cached rows, in one call.

        For a single decoded token, the checks of the usual path take longer than the rotation.
        Fast path; returns None, without side effects, when the checked path is needed.
        """
        if torch.compiler.is_compiling():  # a compiler would guard on which rows are cached
            return None
        if type(offset) is not int or isinstance(length, Tensor) or self.spec.blocks is not None:
            return None
        rows = self._tables.cached_rows(length)
        if rows is None or type(q) not in operator.PLAIN or type(k) not in operator.PLAIN:
            return None
        width = (self.spec.head_dim,)
        try:
            if q.shape[-1:] != width or k.shape[-1:] != width or q.shape[0] != k.shape[0]:
                return None
        except RuntimeError:  # a strided nested tensor has no shape
            return None
        if self.spec.needs_length and length is not None and offset + q.shape[seq_dim] > length:
            return None
        layout = self._layout if seq_dim == -2 else self._layout._replace(seq_dim=seq_dim)
        return operator.dispatch_rows((q, k), *rows, offset, layout)

    def extra_repr(self) -> str:
        return str(self.spec)


def rerotate(
    k: Tensor,
    positions: Tensor,
    old: RotarySpec,
    new: RotarySpec,
    *,
    old_length: Length = None,
    new_length: Length = None,
    seq_dim: int = -2,
) -> Tensor:
    """Return keys as `new` rotates them, from keys that `old` rotated at the same positions.

    A cache then stays valid when a sequence crosses LongRoPE's original length (`old` and `new` are
    the same, with a length on each side of it), when a dynamic rule's length grows, or when the
    rule changes. Computed in float32, or float64 if k is, and rounded once.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, rerotate, scaling
        >>> spec = RotarySpec(head_dim=64, scaling=scaling.DynamicNTK(2.0, original_length=16))
        >>> k, positions = torch.randn(1, 2, 16, 64), torch.arange(16)
        >>> rope = RotaryEmbedding(spec)
        >>> cached = rope.rotate(k, positions, length=16)
        >>> moved = rerotate(cached, positions, spec, spec, old_length=16, new_length=32)
        >>> torch.allclose(moved, rope.rotate(k, positions, length=32), atol=1e-5)
        True
    """
    for name, spec in (("old", old), ("new", new)):
        if not isinstance(spec, RotarySpec):
            raise TypeError(
                f"{name} must be a RotarySpec, got {shown(spec)}; pass a module's .spec"
            )
    if (old.head_dim, old.rotary_dim, old.start) != (new.head_dim, new.rotary_dim, new.start):
        raise ValueError(
            f"new must rotate the same dimensions as old: head_dim, rotary_dim and start of "
            f"{(old.head_dim, old.rotary_dim, old.start)}, "
            f"got {(new.head_dim, new.rotary_dim, new.start)}"
        )
    wide = k.to(torch.promote_types(k.dtype, torch.float32))
    plain = RotaryEmbedding(old).unrotate(wide, positions, length=old_length, seq_dim=seq_dim)
    rotated = RotaryEmbedding(new).rotate(plain, positions, length=new_length, seq_dim=seq_dim)
    return rotated.to(k.dtype)
