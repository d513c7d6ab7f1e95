"""DTensors: what several processes share rotates as the complete tensor does, bit for bit.

These fail if a process takes rows of the tables that belong to another, if gradients are lost, or
if a tensor is taken whose pairs are divided or whose parts are yet to be added.
"""

import pytest
import torch
import torch.distributed as dist
from in_processes import run
from refusals import check_refused

from ropewalk import RotaryEmbedding, RotarySpec, rotate


@pytest.mark.slow
@pytest.mark.parametrize(("world", "name"), [(4, "compare"), (2, "train")])
def test_parts_rotate_as_complete_tensors(world, name):
    run(world, f"sharded_ropes:{name}")


@pytest.fixture
def mesh():
    """A mesh of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_rows_are_cached_for_a_part_too(mesh):
    """Fails if each call of a sharded model computes its tables again."""
    from torch.distributed.tensor import DTensor, Replicate

    rope, x = RotaryEmbedding(RotarySpec(8)), torch.randn(2, 4, 5, 8)
    y = rope.rotate(DTensor.from_local(x, mesh, (Replicate(),)))
    assert len(rope._tables.cached_rows(None)[0]) == 8
    assert torch.equal(y.full_tensor(), rope.rotate(x))


def test_pairs_are_never_divided(mesh):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    cos, sin = RotaryEmbedding(RotarySpec(8)).tables(torch.arange(5))
    plain = torch.randn(2, 4, 5, 8)

    def of(*placement):
        return DTensor.from_local(plain, mesh, placement)

    def rotated(x, out=None):
        return rotate(x, cos, sin, pairing="half", out=out)

    for placement in (Replicate(), Shard(0), Shard(1), Shard(2)):
        y = rotated(of(placement))
        assert y.placements == (placement,)
        assert torch.equal(y.full_tensor(), rotated(plain))
    whole, apart = "x must be replicated, or sharded by batch, heads", "and be a DTensor if x is"
    check_refused(
        ValueError,
        (lambda: rotated(of(Shard(3))), whole),
        (lambda: rotated(of(Partial())), whole),
        (lambda: rotated(plain, of(Replicate())), apart),
        (lambda: rotated(of(Replicate()), plain.clone()), apart),
    )
