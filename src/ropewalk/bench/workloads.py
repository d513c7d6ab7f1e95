"""What is rotated, and the limit of a rotation: copying, which moves the same bytes.

A workload has the sizes of q and k and their positions; it is rotated in one of several forms.
Axes: B batch, H query heads, K key heads, S sequence, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from ropewalk.bench.clock import Run

THETA = 10_000.0

# The forms. Only rows of one form are compared with each other, and each form has its own limit.
NEW = "into new memory"
IN_PLACE = "in place"
GRADIENT = "forward and backward"
WITH_TABLES = "into new memory, tables included"


@dataclass(frozen=True)
class Workload:
    """The work of one call: q (B, H, S, D) and k (B, K, S, D) at positions first, first + 1, …"""

    name: str
    forms: tuple[str, ...]
    batch: int
    heads: int
    key_heads: int
    length: int
    head_dim: int
    first: int = 0

    def q(self, seq_dim: int = -2) -> tuple[int, ...]:
        """Return the shape of q, (B, S, H, D) with seq_dim=-3."""
        return self._shape(self.heads, seq_dim)

    def k(self, seq_dim: int = -2) -> tuple[int, ...]:
        """Return the shape of k."""
        return self._shape(self.key_heads, seq_dim)

    def positions(self, device: torch.device | str = "cpu") -> Tensor:
        """Return the positions (S,), integers."""
        return torch.arange(self.first, self.first + self.length, device=device)

    def bytes_moved(self, form: str, dtype: torch.dtype) -> int:
        """Return the bytes of q and k (and of gradients), read once and written once."""
        elements = prod(self.q()) + prod(self.k())
        return 2 * elements * dtype.itemsize * (2 if form == GRADIENT else 1)

    def _shape(self, heads: int, seq_dim: int) -> tuple[int, ...]:
        middle = (heads, self.length) if seq_dim == -2 else (self.length, heads)
        return (self.batch, *middle, self.head_dim)


# Heads as in Llama 3 8B. A decode is at 5,000, not at a power of two, where positions that a
# library rounds to bfloat16 would be right by luck.
WORKLOADS = {
    "prefill": (Workload("prefill", (NEW, IN_PLACE), 1, 32, 8, 4096, 128),),
    "training": (Workload("training", (GRADIENT,), 1, 32, 8, 2048, 128),),
    "decode": tuple(
        Workload(f"decode, batch {batch}", (WITH_TABLES,), batch, 32, 8, 1, 128, first=5_000)
        for batch in (1, 64)
    ),
}


@dataclass(frozen=True)
class Case:
    """The work of one table; contenders are made for it."""

    workload: Workload
    form: str
    dtype: torch.dtype
    device: torch.device

    def tensors(self, seq_dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return random q and k that all rows of a table share: clone them before writing."""
        return _tensors(self, seq_dim, seed)


@lru_cache(maxsize=4)  # of one table: q and k and their gradients, in both orders of axes
def _tensors(case: Case, seq_dim: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = case.workload.q(seq_dim), case.workload.k(seq_dim)
    q, k = (torch.randn(shape, generator=generator).to(case.device, case.dtype) for shape in shapes)
    return q, k


COPIES = {IN_PLACE: "copy_ into existing memory", GRADIENT: "clone, both ways"}


def copying(case: Case) -> Run:
    """Return a call that copies the q and k of this case, and their gradients if it has them."""
    tensors: list[Tensor] = list(case.tensors(-2))
    if case.form == IN_PLACE:
        pairs = [(torch.empty_like(x).copy_(x), x) for x in tensors]  # pages touched once
        return lambda: [there.copy_(x) for there, x in pairs]
    if case.form == GRADIENT:
        tensors += case.tensors(-2, seed=1)
    return lambda: [x.clone() for x in tensors]
