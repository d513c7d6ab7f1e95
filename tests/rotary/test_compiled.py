"""A rope within a compiled or exported model: whatever calls follow one another, as uncompiled.

Fails when a size that has become symbolic breaks a graph (a message formed of it, a test for an
int), when graphs are compiled anew length after length, when an exported program answers for
another length or offset than it is called with, and when its range of lengths is cut short.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from ropewalk import (
    LearnedRotaryEmbedding,
    RotaryEmbedding,
    RotarySpec,
    XPosEmbedding,
    axes,
    scaling,
)

LONGROPE = scaling.LongRoPE((1.0, 1.5, 2.0, 3.0), (4.0, 5.0, 6.0, 7.0), 16, factor=4.0)
SPECS = {
    "plain": RotarySpec(8),
    "m-rope": RotarySpec(8, axes=axes.sectioned((2, 1, 1))),
    "longrope": RotarySpec(8, scaling=LONGROPE),
    "dynamic": RotarySpec(8, scaling=scaling.DynamicNTK(2.0, 16)),
}
ROPES = {
    **{name: RotaryEmbedding(spec) for name, spec in SPECS.items()},
    "learned": LearnedRotaryEmbedding(RotarySpec(8)),
    "xpos": XPosEmbedding(RotarySpec(8)),
}
KINDS = ("counted", "offset", "positions", "rows", "keys")
LENGTH = 64
#: Graphs of one kind of call: of the first sizes, of any, and of what was marked.
MOST = 3


def call(rope, kind: str, q: Tensor, k: Tensor, where: int | Tensor | None, length: int):
    given = {"length": length} if rope.spec.needs_length else {}
    if kind == "counted":
        return rope(q, k, **given)
    if kind == "offset":
        return rope(q, k, offset=where, **given)
    if kind == "keys":
        return rope(q, k[:, :, :-1], positions=where, key_positions=where[..., :-1], **given)
    return rope(q, k, where, **given)


def arguments(rope, kind: str, count: int, offset: int):
    q, k = torch.randn(3, 4, count, 8), torch.randn(3, 2, count, 8)
    if kind == "counted":
        return q, k, None
    if kind == "offset":
        return q, k, offset
    where = offset + torch.arange(count)
    if kind == "rows":
        where = where + torch.arange(3)[:, None]
    if rope.spec.axis_count > 1:
        where = where.expand(rope.spec.axis_count, *where.shape)
    return q, k, where


calls = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(2, 20), st.integers(0, 30), st.booleans(),
        st.integers(50, LENGTH),
    ),
    min_size=2, max_size=10,
)  # fmt: skip


@pytest.fixture
def recompiling():
    """Let dynamo compile as often as it wants: how often is what is counted."""
    with torch._dynamo.config.patch(recompile_limit=100, accumulated_recompile_limit=1000):
        yield


SLOW = {
    "m-rope",
    "longrope",
    "xpos",
    "learned",
    "dynamic",
}  # each compiles for many seconds; the others share their code


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in ROPES]
)
def test_any_sequence_of_calls_is_answered_as_uncompiled(name, recompiling):
    rope = ROPES[name]

    @settings(max_examples=3, deadline=None, derandomize=True)
    @given(calls)
    def check(sequence):
        torch._dynamo.reset()
        counter = CompileCounter()
        fast = torch.compile(call, backend=counter, fullgraph=True)
        for kind, count, offset, marked, length in sequence:
            if kind == "keys" and name in ("xpos", "learned"):
                kind = "positions"
            q, k, where = arguments(rope, kind, count, offset)
            if marked:
                for x in (q, k):
                    torch._dynamo.maybe_mark_dynamic(x, 2)
            ours = fast(rope, kind, q, k, where, length)
            theirs = call(rope, kind, q, k, where, length)
            for x, y in zip(ours, theirs, strict=True):
                torch.testing.assert_close(x, y, rtol=0, atol=1e-6)
        assert counter.frame_count <= MOST * len({kind for kind, *_ in sequence})

    check()
    torch._dynamo.reset()


def test_a_dynamic_length_wants_positions_that_are_dynamic_too():
    """Static positions fix the length; torch refuses that of a plain product by a table as well."""
    rope = ROPES["plain"]
    q, k, positions = arguments(rope, "positions", 12, 0)
    for x in (q, k):
        torch._dynamo.mark_dynamic(x, 2)
    table = torch.ones(12, q.shape[-1])
    for called in (lambda: q * table, lambda: rope(q, k, positions)):
        torch._dynamo.reset()
        with pytest.raises(ConstraintViolationError, match="as dynamic but your code specialized"):
            torch.compile(called, backend="eager", fullgraph=True)()
    torch._dynamo.mark_dynamic(positions, positions.ndim - 1)
    torch._dynamo.reset()
    found = torch.compile(lambda: rope(q, k, positions), backend="eager", fullgraph=True)()
    torch.testing.assert_close(found, rope(q, k, positions), rtol=0, atol=1e-6)
    torch._dynamo.reset()
