"""`rerotate`: move cached keys from one rope to another."""

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
