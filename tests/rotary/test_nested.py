"""Nested tensors of layout torch.jagged: each row rotates as it does alone, bit for bit.

These fail if a row begins at the position of another, or if the result has other rows.
"""

import pytest
import torch
from torch.nested import nested_tensor_from_jagged as nest

from ropewalk import LearnedRotaryEmbedding, RotaryEmbedding, RotarySpec, axes

ROPE = RotaryEmbedding(RotarySpec(16, rotary_dim=8, write_pairing="interleaved"))
PLANE = RotaryEmbedding(RotarySpec(16, axes=axes.axial((4, 4))))
BEGINS, LENGTHS, SHORTER = (torch.tensor(x) for x in ([0, 3, 3, 8, 9], [3, 0, 5, 1], [2, 0, 4, 1]))
OWN = torch.arange(9).flip(0)
CASES = {  # rope, positions of all tokens, offset
    "offset": (ROPE, None, 4),
    "positions": (ROPE, OWN, 0),
    "shorter rows": (ROPE, OWN, 0),
    "plane": (PLANE, None, 1),
    "positions in the plane": (PLANE, torch.stack((OWN, OWN + 5)), 0),
    "learned": (LearnedRotaryEmbedding(ROPE.spec, heads=2), None, 0),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch's compiler reads
@pytest.mark.parametrize("seq_dim", [-2, -3])
@pytest.mark.parametrize("case", [*CASES, pytest.param("compiled", marks=pytest.mark.slow)])
def test_rows_rotate_as_they_do_alone(case, seq_dim):
    rope, positions, offset = CASES.get(case, CASES["offset"])
    held = SHORTER if case == "shorter rows" else None

    def call(q, k):
        q, k = (nest(x, BEGINS, held).transpose(1, 4 + seq_dim) for x in (q, k))
        given = nest(positions, BEGINS, held) if positions is OWN else positions
        rotated = (
            *rope(q, k, given, offset=offset, seq_dim=seq_dim),
            rope.shift(q, 3, None, seq_dim),
        )
        assert [y.shape for y in rotated] == [q.shape, k.shape, q.shape]
        return [y.transpose(1, 4 + seq_dim).values() for y in rotated]

    values = [torch.randn(9, heads, 16, requires_grad=True) for heads in (4, 2)]
    found = (torch.compile(call, backend="aot_eager") if case == "compiled" else call)(*values)
    weights = [torch.randn_like(x) for x in found]
    found += torch.autograd.grad(found, values, weights)
    for begin, length in zip(BEGINS, LENGTHS if held is None else held, strict=False):
        row = slice(begin, begin + length)
        q, k = (x[None, row].detach().requires_grad_() for x in values)
        own = None if positions is None else positions[..., row]
        alone = *rope(q, k, own, None, offset, None, -3), rope.shift(q, 3, None, -3)
        alone += torch.autograd.grad(alone, (q, k), [w[None, row] for w in weights])
        for x, y in zip(alone, found, strict=True):
            assert torch.equal(x[0], y[row])
