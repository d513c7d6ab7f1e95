"""Cached keys taken from one rope to another."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import Length


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
    """Rotate keys that were rotated by one rope at these positions as another rope rotates them.

    So that a cache survives the crossing of LongRoPE's original length (`old` and `new` the same,
    lengths on both sides of it), a dynamic rule's next length, or a change of rule. Formed in
    float32, or float64 if k is, and rounded once.
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
