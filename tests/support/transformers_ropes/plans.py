"""How to feed q and k to an attention: what its projections must return."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .hollow import Feed

QUERY = ("q_proj", "query", "linear_q", "to_q", "q", "q_b_proj")
KEY = ("k_proj", "key", "linear_k", "to_k", "k")
FUSED = ("qkv", "qkv_proj", "Wqkv", "query_key_value")
NO_ROPE = re.compile("Mamba|Lightning|LinearAtt|Delta|Conv|Indexer|Mixer|Compressor|QFormer")


# Factors that undo the scale these classes apply to q between projection and rotation.
UNSCALED = {
    "EsmSelfAttention": lambda D: D**0.5,
    "EvollaSaProtSelfAttention": lambda D: D**0.5,
}


class Measured(Exception):  # noqa: N818 – not an error: it reports the shape that a projection returns
    """Raised by a feed that has nothing to return."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__(shape)
        self.shape = shape


class Fed:
    """The results of the projections in the current run: q (1, H, S, D) and k (1, K, S, D)."""

    q: Tensor | None = None
    k: Tensor | None = None

    def feed(self, answer: Callable[[Tensor, Tensor], Tensor]) -> Feed:
        """The feed that returns (S, ·), made of q and k, in the expected shape."""

        def give(shape: tuple[int, ...]) -> Tensor:
            if self.q is None or self.k is None:
                raise Measured(shape)
            made = answer(self.q, self.k)
            if made.shape[0] != math.prod(shape[:-1]):  # an encoder's states, with the same weights
                return torch.zeros(shape)
            return made.reshape(shape).clone()

        return give


@dataclass
class Plan:
    """How one attention is fed, and the shape of its heads."""

    attention: nn.Module
    feeds: dict[nn.Module, Feed]
    heads: int
    kv_heads: int
    head_dim: int


def flat(x: Tensor) -> Tensor:
    """(1, H, S, D) → (S, H·D), as a projection returns it."""
    return x[0].transpose(0, 1).flatten(1)


def linear(module: nn.Module, names: tuple[str, ...]) -> nn.Linear | None:
    """The first of the named projections that the module has."""
    for name in names:
        found = getattr(module, name, None)
        found = getattr(found, "linear", found)  # mimi and its kin wrap it
        if isinstance(found, nn.Linear):
            return found
    return None


def number(module: object, *names: str) -> int | None:
    """The first of these attributes that is an integer."""
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def query_heads(attention: nn.Module) -> int | None:
    names = ("num_heads", "num_attention_heads", "heads", "n_heads")
    return number(attention, *names) or number(getattr(attention, "config", None), *names)


def head_width(attention: nn.Module) -> int | None:
    names = ("head_dim", "attention_head_size", "head_size")
    return number(attention, *names) or number(getattr(attention, "config", None), "head_dim")


def apart(attention: nn.Module, fed: Fed) -> Plan | None:
    """Separate projections of q and k."""
    q_linear, k_linear = linear(attention, QUERY), linear(attention, KEY)
    if q_linear is None or k_linear is None:
        return None
    D = head_width(attention) or q_linear.out_features // query_heads(attention)
    H, K = q_linear.out_features // D, k_linear.out_features // D
    out = linear(attention, ("o_proj", "out_proj"))
    gated = out is not None and 2 * out.in_features == q_linear.out_features

    factor = UNSCALED.get(type(attention).__name__, lambda D: 1.0)(D)
    if type(attention).__name__ == "TimesFm2_5Attention":  # it scales q by weights: make that 1
        weight = math.log(math.expm1(D**0.5 / 1.442695041))
        attention.scaling = nn.Parameter(torch.full((D,), weight), requires_grad=False)

    def answer(q: Tensor, k: Tensor) -> Tensor:
        q = q * factor
        return flat(torch.cat((q, torch.zeros_like(q)), -1) if gated else q)

    feeds = {q_linear: fed.feed(answer), k_linear: fed.feed(lambda q, k: flat(k))}
    return Plan(attention, feeds, H // 2 if gated else H, K, D)


def fused(attention: nn.Module, fed: Fed) -> Plan | None:
    """One projection, with q, k and v one after the other or by head (GPT-NeoX and similar)."""
    qkv = linear(attention, FUSED)
    H = query_heads(attention)
    if qkv is None or H is None:
        return None
    config = getattr(attention, "config", None)
    K = number(attention, "num_key_value_heads", "num_kv_heads") or number(
        config, "num_key_value_heads", "num_kv_heads"
    )
    if number(config, "multi_query") is None and getattr(config, "multi_query", False):
        K = 1  # Falcon
    D = head_width(attention) or qkv.out_features // (H + 2 * (K or H))
    if K is None or qkv.out_features != (H + 2 * K) * D:
        K = H
    by_head = qkv is getattr(attention, "query_key_value", None) and K == H

    def answer(q: Tensor, k: Tensor) -> Tensor:
        if by_head:
            return flat(torch.cat((q, k, k), -1))
        return torch.cat((flat(q), flat(k), flat(k)), -1)

    return Plan(attention, {qkv: fed.feed(answer)}, H, K, D)


def latent(attention: nn.Module, fed: Fed) -> Plan | None:
    """Latent attention (MLA): a head is its part without rotation, then the rotated part."""
    compressed = linear(attention, ("kv_a_proj_with_mqa",))
    expanded = linear(attention, ("kv_b_proj",))
    q_linear = linear(attention, ("q_b_proj", "q_proj", "q_gate_proj"))
    if compressed is None or expanded is None or q_linear is None:
        return None
    v, nope = (number(attention, n) for n in ("v_head_dim", "qk_nope_head_dim"))
    rope = compressed.out_features - expanded.in_features
    H = expanded.out_features // (nope + v)
    D = nope + rope

    def whole_q(q: Tensor, k: Tensor) -> Tensor:
        heads = q[0].transpose(0, 1)  # (S, H, D), perhaps with a gate
        gate = heads.new_zeros(*heads.shape[:2], q_linear.out_features // H - D)
        return torch.cat((heads, gate), -1)

    def rotary_part_k(q: Tensor, k: Tensor) -> Tensor:
        rotary_part = k[0, 0, :, nope:]
        plain_part = rotary_part.new_zeros(len(rotary_part), expanded.in_features)
        return torch.cat((plain_part, rotary_part), -1)

    def plain_k(q: Tensor, k: Tensor) -> Tensor:
        plain = k[0, 0, :, None, :nope].expand(-1, H, -1)
        return torch.cat((plain, plain.new_zeros(len(plain), H, v)), -1)

    feeds = {
        q_linear: fed.feed(whole_q),
        compressed: fed.feed(rotary_part_k),
        expanded: fed.feed(plain_k),
    }
    indexer = getattr(attention, "indexer", None)
    if isinstance(indexer, nn.Module):  # it selects keys; one index is always valid
        feeds[indexer] = lambda shape: torch.zeros(*shape[:-1], 1, dtype=torch.long)
    return Plan(attention, feeds, H, 1, D)


def shared(attention: nn.Module, fed: Fed) -> Plan | None:
    """DeepSeek-V4: one head is both key and value; its compressed keys are left out."""
    kv, q_linear = linear(attention, ("kv_proj",)), linear(attention, ("q_b_proj",))
    if kv is None or q_linear is None or not hasattr(attention, "compressor"):
        return None
    attention.compressor = None
    feeds = {
        q_linear: fed.feed(lambda q, k: flat(q)),
        kv: fed.feed(lambda q, k: flat(k)),
    }
    return Plan(attention, feeds, query_heads(attention), 1, attention.head_dim)


def expert_queries(attention: nn.Module, fed: Fed) -> Plan | None:
    """JetMoe: queries come from experts, keys and values from one projection."""
    kv, experts = linear(attention, ("kv_proj",)), getattr(attention, "experts", None)
    if kv is None or not hasattr(experts, "map"):
        return None
    queries = fed.feed(lambda q, k: flat(q))
    H, D = attention.num_heads, attention.head_dim
    experts.map = lambda hidden: (queries((*hidden.shape[:-1], H * D)), None, None)
    attention.top_k = 1  # how often it repeats the keys
    feeds = {kv: fed.feed(lambda q, k: torch.cat((flat(k), flat(k)), -1))}
    return Plan(attention, feeds, H, attention.num_key_value_heads, D)


def convolved(attention: nn.Module, fed: Fed) -> Plan | None:
    """Zaya: a module mixes q and k before they rotate; it is bypassed."""
    mix, norm = getattr(attention, "qkv_proj", None), getattr(attention, "qk_norm", None)
    if not isinstance(mix, nn.Module) or norm is None or not hasattr(mix, "conv_qk_grouped"):
        return None
    H, K, D = attention.num_attention_heads, attention.num_key_value_heads, attention.head_dim

    def answer(shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        if fed.q is None or fed.k is None:
            raise Measured(shape)
        return fed.q.transpose(1, 2), fed.k.transpose(1, 2), fed.k.transpose(1, 2)

    return Plan(attention, {mix: answer, norm: lambda shape: answer(shape)[:2]}, H, K, D)


def split_in_four(attention: nn.Module, fed: Fed) -> Plan | None:
    """CodeGen: q, v, k in each of four parts, one per accelerator used in training."""
    if type(attention).__name__ != "CodeGenAttention":
        return None
    H, D = attention.num_attention_heads, attention.head_dim

    def answer(q: Tensor, k: Tensor) -> Tensor:
        quarters = [flat(x).unflatten(-1, (4, -1)) for x in (q, k, k)]
        return torch.cat(quarters, -1)

    return Plan(attention, {attention.qkv_proj: fed.feed(answer)}, H, H, D)


PLANS = (latent, shared, expert_queries, convolved, split_in_four, apart, fused)


def plan_for(layer: nn.Module, fed: Fed) -> Plan | None:
    """The plan for the first attention in a layer."""
    for module in layer.modules():
        if NO_ROPE.search(type(module).__name__):
            continue
        for plan in PLANS:
            found = plan(module, fed)
            if found is not None:
                beside = getattr(layer, "mamba", None)
                if isinstance(beside, nn.Module):  # Falcon-H1's: slow and irrelevant here
                    found.feeds[beside] = torch.zeros
                return found
    return None
