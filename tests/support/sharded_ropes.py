"""Ropes on DTensors that several processes share, compared with those on complete tensors."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import init_device_mesh as new_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, SequenceParallel, parallelize_module
from torch.testing import assert_close

from ropewalk import LearnedRotaryEmbedding, RotaryEmbedding, RotarySpec, XPosEmbedding, rotate
from ropewalk.rotary.kernels.operator import whole

ROPE = RotaryEmbedding(RotarySpec(16, rotary_dim=8, write_pairing="interleaved"))
LEARNED, XPOS = LearnedRotaryEmbedding(ROPE.spec, heads=2), XPosEmbedding(ROPE.spec)
POSITIONS = None, torch.arange(7).flip(0), torch.arange(21).view(3, 7)
TABLES = ROPE.tables(POSITIONS[2])
PLACES = (  # of q and k on 2·2 processes; parts are unequal, and some are empty
    ((Shard(0), Shard(1)), (Shard(0), Replicate())),
    ((Shard(0), Shard(0)), (Replicate(), Replicate())),
    ((Shard(2), Shard(2)), (Shard(2), Shard(1))),
    ((Shard(1), Shard(1)), (Shard(1), Shard(0))),
)


def numbers(*shape):
    return torch.arange(math.prod(shape)).sin().view(shape)


def share(x, mesh, placements):
    return distribute_tensor(x, mesh, placements, src_data_rank=None)


def outcome(call, inputs, *others, parameters=()):
    """Return the results of a call, and the gradients of a weighted sum of them."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    results, total = call(*inputs, *others), 0
    for y in results:
        weights = numbers(*y.shape).to(y.dtype)
        if isinstance(y, DTensor):
            weights = share(weights, y.device_mesh, y.placements)
        total = total + whole((y * weights).sum())
    return *results, *torch.autograd.grad(total, [*inputs, *parameters])


def check(mesh, rope, seq_dim, places, positions, gather=False, compiled=False):
    """Raise unless results and gradients of q and k are the same, bit for bit."""
    call = partial(rope, seq_dim=seq_dim)
    own = [*rope.parameters()]
    inputs = [numbers(3, *((n, 7) if seq_dim == -2 else (7, n)), 16) for n in (6, 2)]
    expected = outcome(call, inputs, positions, parameters=own)
    if gather:
        positions = share(positions, mesh, (Replicate(), Shard(positions.ndim - 1)))
    if compiled:
        call = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
    parts = [share(x, mesh, p) for x, p in zip(inputs, places, strict=True)]
    found = outcome(call, parts, positions, parameters=own)
    assert tuple(y.placements for y in found[:2]) == places
    for x, y in zip(expected[:4], found[:4], strict=True):
        assert torch.equal(whole(y), x)
    assert_close(found[4:], expected[4:])  # of parameters: sums in another order


def compare():
    mesh = new_mesh("cpu", (2, 2))
    for i in range(4):
        check(mesh, ROPE, -2 - i % 2, PLACES[i], POSITIONS[i % 3])
    for rope, i in (LEARNED, 0), (LEARNED, 3), (XPOS, 1), (ROPE, 0), (ROPE, 2):
        check(mesh, rope, -3 + i % 2, PLACES[i], POSITIONS[1 + i % 2], gather=True)
    x = numbers(3, 6, 7, 16)
    out = part = share(x, mesh, PLACES[2][0])
    moved = ROPE.shift(ROPE.unrotate(x, POSITIONS[2]), 3)
    assert torch.equal(whole(ROPE.shift(ROPE.unrotate(part, POSITIONS[2]), 3)), moved)
    turned = part.transpose(1, 2)
    assert ROPE.rotate(turned, seq_dim=-3).stride() == x.transpose(1, 2).stride()
    assert rotate(part, *TABLES, pairing="half", out=out) is out
    tables = [share(table, mesh, PLACES[1][0]) for table in TABLES]
    again = [rotate(z, *tables, pairing="half") for z in (x, share(x, mesh, PLACES[0][0]))]
    for y in (out, *again):
        assert torch.equal(whole(y), rotate(x, *TABLES, pairing="half"))
    rule = " must be replicated, or sharded by batch, heads or sequence"
    with pytest.raises(ValueError, match=f"q{rule}.*Shard.dim=3.*; call q.redistribute"):
        ROPE(share(x, mesh, (Shard(0), Shard(3))), out)
    with pytest.raises(ValueError, match=f"k{rule}.*Partial.sum.*; call k.redistribute"):
        ROPE(out, DTensor.from_local(x, mesh, (Replicate(), Partial())))
    with pytest.raises(ValueError, match="be a DTensor if x is one, got"):
        rotate(out, *TABLES, pairing="half", out=x)


def train():
    """Do what torchtitan's models with normalized q and k do before attention; then compile."""
    mesh = new_mesh("cpu", (2,))
    alone = nn.ModuleDict(
        {name: nn.Linear(32, 64, bias=False) for name in ("wq", "wk")}
        | {name: nn.RMSNorm(16) for name in ("q_norm", "k_norm")}
    ).double()
    norm, linear = SequenceParallel(sequence_dim=2), ColwiseParallel(use_local_output=False)
    plan = {"wq": linear, "wk": linear, "q_norm": norm, "k_norm": norm}
    shared = parallelize_module(copy.deepcopy(alone), mesh, plan)

    def attend(x, model):
        q, k = (model[name](x).unflatten(-1, (-1, 16)) for name in ("wq", "wk"))
        return ROPE(model["q_norm"](q), model["k_norm"](k), seq_dim=-3)

    x = [numbers(2, 5, 32).double()]
    expected = outcome(attend, x, alone, parameters=[*alone.parameters()])
    found = outcome(attend, x, shared, parameters=[*shared.parameters()])
    assert found[0].placements == (Shard(2),)
    for y, other in zip(found, expected, strict=True):
        assert_close(whole(y), other)
    check(mesh, ROPE, -2, ((Shard(2),),) * 2, None, compiled=True)
