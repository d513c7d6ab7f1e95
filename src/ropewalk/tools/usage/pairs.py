"""The pairs of a head's dimensions: their norms, and pairs that do not rotate.

Axes: B batch, H heads, S sequence, D head_dim, R rotary_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.rotary.pairing import Pairing
from ropewalk.rotary.spec import RotarySpec


@dataclass(frozen=True)
class Rope:
    """The rope of one layer, at the length that its rule needs (None: frequencies are fixed)."""

    spec: RotarySpec
    length: int | None = None

    @classmethod
    def at(cls, spec: RotarySpec, length: int) -> Rope:
        """Return a rope at a length, which counts only if frequencies depend on it."""
        return cls(spec, length if spec.needs_length else None)

    @property
    def order(self) -> Tensor:
        """The indices `(R/2)` of the pairs, from the fastest to the slowest."""
        frequencies = self.spec.inverse_frequencies(self.length).abs()
        return frequencies.argsort(descending=True, stable=True)

    @property
    def wavelengths(self) -> Tensor:
        """Positions per full turn `(R/2)`, increasing; inf if a pair does not rotate."""
        return self.spec.wavelengths(self.length)[self.order]

    @property
    def amplitude(self) -> float:
        """The factor of cos and sin."""
        return self.spec.amplitude_at(self.length)

    def rotating(self, fraction: float) -> int:
        """Return how many pairs rotate under p-RoPE: int(p · R / 2), as `scaling.Proportional` has.

        They are fewer if the rope itself has pairs that do not rotate.
        """
        own = int((self.spec.inverse_frequencies(self.length) != 0).sum())
        return min(own, int(fraction * self.spec.rotary_dim // 2))

    def stopped(self, fraction: float) -> Tensor:
        """Return which pairs p-RoPE does not rotate, the slowest: a mask `(R/2)`.

        Source: Barbero et al. 2024, arXiv 2410.06205.
        """
        mask = torch.zeros(self.spec.pairs, dtype=torch.bool)
        mask[self.order[self.rotating(fraction) :]] = True
        return mask


def pair_norms(x: Tensor, spec: RotarySpec) -> Tensor:
    """Return the root mean square norm of each head's pairs `(H, R/2)`, over all tokens.

    x `(B, H, S, D)` before rotation. Pairs are in the order of the spec; the fastest comes first
    unless the spec has axes of its own (`Rope.order`).
    """
    norms: Tensor = pair_squares(x, spec).mean((0, 2)).sqrt()
    return norms


def pair_squares(x: Tensor, spec: RotarySpec) -> Tensor:
    """Return the squared norm of each pair `(B, H, S, R/2)`, float64, of x before rotation."""
    x = x.cpu() if x.device.type == "mps" else x  # Apple's GPUs have no float64
    return split_pairs(x.double(), spec, spec.pairing).square().sum(-1)


def split_pairs(x: Tensor, spec: RotarySpec, pairing: Pairing) -> Tensor:
    """Return the pairs `(…, R/2, 2)` of x `(…, D)`, or of its rotary part alone `(…, R)`."""
    rotary = x.narrow(-1, _start(x, spec), spec.rotary_dim)
    blocks = rotary.split(spec.blocks or (spec.rotary_dim,), -1)
    if pairing == "half":
        return torch.cat([block.unflatten(-1, (2, -1)).mT for block in blocks], -2)
    return torch.cat([block.unflatten(-1, (-1, 2)) for block in blocks], -2)


def without_rotation(before: Tensor, after: Tensor, rope: Rope, stopped: Tensor) -> Tensor:
    """Return rotated vectors in which some pairs do not rotate, as if their frequency were 0.

    before, after: `(…, D)` or `(…, R)`, before and after rotation. stopped: `(R/2)`, boolean. Such
    a pair still has the amplitude, the factor of cos and sin.
    """
    if not bool(stopped.any()):
        return after
    spec = rope.spec
    still = split_pairs(before, spec, spec.pairing) * rope.amplitude
    rotated = split_pairs(after, spec, spec.write_pairing)
    mixed = torch.where(stopped.to(after.device)[:, None], still.to(after.dtype), rotated)
    sizes = [size // 2 for size in spec.blocks or (spec.rotary_dim,)]
    half = spec.write_pairing == "half"
    joined = [(pairs.mT if half else pairs).flatten(-2) for pairs in mixed.split(sizes, -2)]
    start = _start(after, spec)
    end = start + spec.rotary_dim
    return torch.cat([after[..., :start], *joined, after[..., end:]], -1)


def _start(x: Tensor, spec: RotarySpec) -> int:
    """Return the first rotary dimension of x, which may be the rotary part alone."""
    if x.shape[-1] == spec.head_dim:
        return spec.start
    if x.shape[-1] == spec.rotary_dim:
        return 0
    raise ValueError(
        f"q and k must have heads of {spec.head_dim} dimensions, or the {spec.rotary_dim} that "
        f"rotate, got {x.shape[-1]}"
    )
