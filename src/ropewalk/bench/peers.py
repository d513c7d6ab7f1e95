"""Other libraries' rotations, called as their own models or READMEs call them.

Each is imported when it is made, so a library that is not installed is only reported as absent.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ropewalk.bench.contenders import Absent, Contender, Rotation
from ropewalk.bench.workloads import IN_PLACE, THETA, WITH_TABLES, Case
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.spec import RotarySpec

TRANSFORMERS = "transformers"


def transformers(case: Case) -> Rotation | None:
    """Llama's apply_rotary_pos_emb; its module makes cos and sin before (decode: in the call)."""
    if case.form == IN_PLACE:
        return None
    apply, tables = _llama(case)
    if case.form == WITH_TABLES:
        return Rotation(lambda q, k: apply(q, k, *tables()))
    return Rotation(_with(apply, *tables()))


def transformers_tables_ready(case: Case) -> Rotation | None:
    """The same in decode, with the tables that a model computes once for all its layers."""
    if case.form != WITH_TABLES:
        return None
    apply, tables = _llama(case)
    return Rotation(_with(apply, *tables()))


def _llama(case: Case) -> tuple[Any, Any]:
    """Return its function of q, k, cos and sin, and one that computes these in the dtype of q."""
    llama = import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=case.workload.head_dim,
        num_attention_heads=1,
        num_hidden_layers=1,
        rope_theta=THETA,
    )
    rope = llama.LlamaRotaryEmbedding(config).to(case.device)
    like = torch.empty(0, dtype=case.dtype, device=case.device)
    positions = case.workload.positions(case.device)[None]
    return llama.apply_rotary_pos_emb, lambda: rope(like, positions)


def _with(apply: Any, cos: Tensor, sin: Tensor) -> Any:
    return lambda q, k: apply(q, k, cos, sin)


def rotary_embedding_torch(case: Case) -> Rotation | None:
    """rotate_queries_or_keys, which caches the angles if positions start at 0."""
    if case.form == IN_PLACE:
        return None
    source = import_module("rotary_embedding_torch")
    rope = source.RotaryEmbedding(case.workload.head_dim, theta=THETA).to(case.device)
    apply, first = rope.rotate_queries_or_keys, case.workload.first
    return Rotation(lambda q, k: (apply(q, offset=first), apply(k, offset=first)), "interleaved")


def x_transformers(case: Case) -> Rotation | None:
    """apply_rotary_pos_emb; its module computes the angles before (decode: in the call)."""
    if case.form == IN_PLACE:
        return None
    source = import_module("x_transformers.x_transformers")
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
    source = import_module("torchtune.modules")
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
    apply = import_module("liger_kernel.transformers.rope").liger_rotary_pos_emb
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
    apply = import_module("flash_attn.layers.rotary").apply_rotary_emb
    cos, sin = _tables(case, first=0)
    how = {"inplace": case.form == IN_PLACE, "seqlen_offsets": case.workload.first}
    return Rotation(lambda q, k: (apply(q, cos, sin, **how), apply(k, cos, sin, **how)), seq_dim=-3)


def _needs_gpu(module: str, case: Case) -> None:
    if find_spec(module) is None:
        raise ImportError(f"No module named {module!r}", name=module)
    if case.device.type != "cuda":
        raise Absent(f"needs a GPU, and this is measured on {case.device}")


def _tables(case: Case, first: int) -> tuple[Tensor, Tensor]:
    rope = RotaryEmbedding(RotarySpec(case.workload.head_dim, theta=THETA))
    end = case.workload.first + case.workload.length
    cos, sin = rope.tables(torch.arange(first, end, device=case.device))
    return cos.to(case.dtype), sin.to(case.dtype)


PEERS = (
    Contender(TRANSFORMERS, transformers, "transformers"),
    Contender(f"{TRANSFORMERS}, tables ready", transformers_tables_ready, "transformers"),
    Contender("rotary-embedding-torch", rotary_embedding_torch, "rotary-embedding-torch"),
    Contender("torchtune", torchtune, "torchtune"),
    Contender("x-transformers", x_transformers, "x-transformers"),
    Contender("Liger", liger, "liger-kernel"),
    Contender("flash-attn", flash_attn, "flash-attn"),
)
