"""Contenders: ropewalk, ropewalk without its kernels, and the formula under a compiler.

A contender makes, for a case, a function that rotates q and k; other libraries' contenders are in
`peers`. Everything that can be computed before is: a call does the work of one layer of a model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ropewalk.bench.workloads import GRADIENT, IN_PLACE, NEW, THETA, WITH_TABLES, Case
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.reference import Layout, rotate_reference
from ropewalk.rotary.rotate import rotate
from ropewalk.rotary.spec import Pairing, RotarySpec

RotateFunction: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

OURS = "ropewalk"
WITHOUT_KERNEL = "ropewalk without its kernel"
COMPILED = "the formula, torch.compile"


@dataclass(frozen=True)
class Rotation:
    """A rotation of q and k, the pairs it rotates, and the axis of the sequence."""

    rotate: RotateFunction
    pairing: Pairing = "half"
    seq_dim: int = -2


@dataclass(frozen=True)
class Contender:
    """A name and the function that makes its rotation for a case, or None if it lacks that form.

    `make` raises ImportError if its library is not installed, Absent if it cannot run here.
    """

    name: str
    make: Callable[[Case], Rotation | None]
    package: str | None = None


class Absent(Exception):  # noqa: N818 - a missing library is no error
    """The reason why a contender cannot run here."""


def ropewalk(case: Case) -> Rotation:
    """Rotate with `rope(q, k)`, as a model calls it, with cached tables; in place with `out=`."""
    rope = RotaryEmbedding(RotarySpec(case.workload.head_dim, theta=THETA, pairing="half"))
    if case.form != IN_PLACE:
        return Rotation(partial(rope, offset=case.workload.first))
    cos, sin = rope.tables(case.workload.positions(case.device))

    def in_place(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (
            rotate(q, cos, sin, pairing="half", out=q),
            rotate(k, cos, sin, pairing="half", out=k),
        )

    return Rotation(in_place)


def ropewalk_tables_ready(case: Case) -> Rotation | None:
    """Rotate with `rotate` on tables computed once for all layers."""
    if case.form != WITH_TABLES:
        return None
    rope = RotaryEmbedding(RotarySpec(case.workload.head_dim, theta=THETA, pairing="half"))
    cos, sin = rope.tables(case.workload.positions(case.device))

    def apply(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rotate(q, cos, sin, pairing="half"), rotate(k, cos, sin, pairing="half")

    return Rotation(apply)


def ropewalk_without_kernel(case: Case) -> Rotation | None:
    """Make the same calls as without an installed kernel: the reference, in torch."""
    if not kernel_serves(case.device):
        return None
    rotation, switches = ropewalk(case).rotate, _switches()

    def in_torch(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        kept = [switch.AVAILABLE for switch in switches]
        for switch in switches:
            switch.AVAILABLE = False
        try:
            return rotation(q, k)
        finally:
            for switch, available in zip(switches, kept, strict=True):
                switch.AVAILABLE = available

    return Rotation(in_torch)


def compiled(case: Case) -> Rotation | None:
    """Compile the reference, q and k in one graph, on tables computed before."""
    if case.form not in (NEW, GRADIENT):
        return None
    rope = RotaryEmbedding(RotarySpec(case.workload.head_dim, theta=THETA, pairing="half"))
    cos, sin = rope.tables(case.workload.positions(case.device))

    layout = Layout.of("half")

    def formula(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rotate_reference(q, cos, sin, layout), rotate_reference(k, cos, sin, layout)

    return Rotation(torch.compile(formula, dynamic=False))


def kernel_serves(device: torch.device) -> bool:
    """Return whether ropewalk has a kernel for this device, installed here."""
    kernel = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
    return any(
        switch.__name__.endswith(f".{kernel}") and switch.AVAILABLE for switch in _switches()
    )


def _switches() -> list[Any]:
    """Return the modules of ropewalk's kernels; each reads its AVAILABLE at every call."""
    names = [f"ropewalk.rotary.kernels.{name}" for name in ("cpu", "gpu")]
    return [importlib.import_module(name) for name in names if find_spec(name) is not None]


CONTENDERS = (
    Contender(OURS, ropewalk),
    Contender(f"{OURS}, tables ready", ropewalk_tables_ready),
    Contender(WITHOUT_KERNEL, ropewalk_without_kernel),
)
WITH_COMPILER = Contender(COMPILED, compiled)
