"""Contenders: ropewalk, ropewalk without its kernels, the formula compiled, and other libraries.

A contender makes, for a case, a function that rotates q and k. Everything that can be computed
before is: a call does the work of one layer of a model. Other libraries are called as their own
models or READMEs call them. Each is imported when it is made, so a library that is not installed is
only reported as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
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
TRANSFORMERS = "transformers"
MODULES = {  # package: the module that is called
    "transformers": "transformers.models.llama.modeling_llama",
    "rotary-embedding-torch": "rotary_embedding_torch",
    "x-transformers": "x_transformers.x_transformers",
    "torchtune": "torchtune.modules",
    "liger-kernel": "liger_kernel.transformers.rope",
    "flash-attn": "flash_attn.layers.rotary",
}


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
    if case.form != IN_PLACE:
        return Rotation(partial(_rope(case), offset=case.workload.first))
    cos, sin = _rope(case).tables(case.workload.positions(case.device))
    turn = partial(rotate, cos=cos, sin=sin, pairing="half")
    return Rotation(lambda q, k: (turn(q, out=q), turn(k, out=k)))


def ropewalk_tables_ready(case: Case) -> Rotation | None:
    """Rotate with `rotate` on tables computed once for all layers."""
    if case.form != WITH_TABLES:
        return None
    cos, sin = _rope(case).tables(case.workload.positions(case.device))
    turn = partial(rotate, cos=cos, sin=sin, pairing="half")
    return Rotation(lambda q, k: (turn(q), turn(k)))


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
    cos, sin = _rope(case).tables(case.workload.positions(case.device))
    layout = Layout.of("half")

    def formula(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rotate_reference(q, cos, sin, layout), rotate_reference(k, cos, sin, layout)

    return Rotation(torch.compile(formula, dynamic=False))


def _rope(case: Case) -> RotaryEmbedding:
    return RotaryEmbedding(RotarySpec(case.workload.head_dim, theta=THETA, pairing="half"))


def kernel_serves(device: torch.device) -> bool:
    """Return whether ropewalk has a kernel for this device, installed here."""
    kernel = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
    return any(
        switch.__name__.endswith(f".{kernel}") and switch.AVAILABLE for switch in _switches()
    )


def _switches() -> list[Any]:
    """Return the modules of ropewalk's kernels; each reads its AVAILABLE at every call."""
    names = [f"ropewalk.rotary.kernels.{name}" for name in ("cpu", "gpu")]
    return [import_module(name) for name in names if find_spec(name) is not None]


def transformers(case: Case, *, ready: bool = False) -> Rotation | None:
    """Llama's apply_rotary_pos_emb; its module makes cos and sin before (decode: in the call).

    ready: in decode alone, with the tables that a model computes once for all its layers.
    """
    if case.form == IN_PLACE or (ready and case.form != WITH_TABLES):
        return None
    llama = import_module(MODULES["transformers"])
    config = llama.LlamaConfig(
        hidden_size=case.workload.head_dim,
        num_attention_heads=1,
        num_hidden_layers=1,
        rope_theta=THETA,
    )
    apply, rope = llama.apply_rotary_pos_emb, llama.LlamaRotaryEmbedding(config).to(case.device)
    like = torch.empty(0, dtype=case.dtype, device=case.device)
    positions = case.workload.positions(case.device)[None]
    if case.form == WITH_TABLES and not ready:
        return Rotation(lambda q, k: apply(q, k, *rope(like, positions)))
    cos, sin = rope(like, positions)
    return Rotation(lambda q, k: apply(q, k, cos, sin))


def rotary_embedding_torch(case: Case) -> Rotation | None:
    """rotate_queries_or_keys, which caches the angles if positions start at 0."""
    if case.form == IN_PLACE:
        return None
    source = import_module(MODULES["rotary-embedding-torch"])
    rope = source.RotaryEmbedding(case.workload.head_dim, theta=THETA).to(case.device)
    apply, first = rope.rotate_queries_or_keys, case.workload.first
    return Rotation(lambda q, k: (apply(q, offset=first), apply(k, offset=first)), "interleaved")


def x_transformers(case: Case) -> Rotation | None:
    """apply_rotary_pos_emb; its module computes the angles before (decode: in the call)."""
    if case.form == IN_PLACE:
        return None
    source = import_module(MODULES["x-transformers"])
    rope = source.RotaryEmbedding(case.workload.head_dim, base=THETA).to(case.device)
    apply, positions = source.apply_rotary_pos_emb, case.workload.positions(case.device)
    ready = None if case.form == WITH_TABLES else rope(positions)[0]

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        freqs = rope(positions)[0] if ready is None else ready
        return apply(q, freqs), apply(k, freqs)

    return Rotation(rotate, "interleaved")


def torchtune(case: Case) -> Rotation | None:
    """RotaryPositionalEmbeddings, which computes its table of all positions at the start."""
    if case.form == IN_PLACE:
        return None
    source = import_module(MODULES["torchtune"])
    work = case.workload
    rope = source.RotaryPositionalEmbeddings(
        work.head_dim, max_seq_len=work.first + work.length, base=int(THETA)
    ).to(case.device)
    at = work.positions(case.device)[None] if work.first else None
    return Rotation(lambda q, k: (rope(q, input_pos=at), rope(k, input_pos=at)), "interleaved", -3)


def liger(case: Case) -> Rotation | None:
    """liger_rotary_pos_emb: in place on the layout of a model's projections, else on a copy."""
    _needs_gpu("liger_kernel", case)
    if case.form == WITH_TABLES:
        return None
    apply = import_module(MODULES["liger-kernel"]).liger_rotary_pos_emb
    cos, sin = (torch.cat((t, t), dim=-1)[None] for t in _tables(case, case.workload.first))
    if case.form != IN_PLACE:
        return Rotation(lambda q, k: apply(q, k, cos, sin))

    def in_place(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = apply(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        return q.transpose(1, 2), k.transpose(1, 2)

    return Rotation(in_place, seq_dim=-3)


def flash_attn(case: Case) -> Rotation:
    """flash-attn's apply_rotary_emb, on a table of all positions from 0, in the dtype of q."""
    _needs_gpu("flash_attn", case)
    apply = import_module(MODULES["flash-attn"]).apply_rotary_emb
    cos, sin = _tables(case, first=0)
    how = {"inplace": case.form == IN_PLACE, "seqlen_offsets": case.workload.first}
    return Rotation(lambda q, k: (apply(q, cos, sin, **how), apply(k, cos, sin, **how)), seq_dim=-3)


def _needs_gpu(module: str, case: Case) -> None:
    if find_spec(module) is None:
        raise ImportError(f"No module named {module!r}", name=module)
    if case.device.type != "cuda":
        raise Absent(f"needs a GPU, and this is measured on {case.device}")


def _tables(case: Case, first: int) -> tuple[Tensor, Tensor]:
    end = case.workload.first + case.workload.length
    cos, sin = _rope(case).tables(torch.arange(first, end, device=case.device))
    return cos.to(case.dtype), sin.to(case.dtype)


CONTENDERS = (
    Contender(OURS, ropewalk),
    Contender(f"{OURS}, tables ready", ropewalk_tables_ready),
    Contender(WITHOUT_KERNEL, ropewalk_without_kernel),
)
WITH_COMPILER = Contender(COMPILED, compiled)
PEERS = (
    Contender(TRANSFORMERS, transformers, "transformers"),
    Contender(f"{TRANSFORMERS}, tables ready", partial(transformers, ready=True), "transformers"),
    Contender("rotary-embedding-torch", rotary_embedding_torch, "rotary-embedding-torch"),
    Contender("torchtune", torchtune, "torchtune"),
    Contender("x-transformers", x_transformers, "x-transformers"),
    Contender("Liger", liger, "liger-kernel"),
    Contender("flash-attn", flash_attn, "flash-attn"),
)
