"""A rope within a compiled or exported model: whatever calls follow one another, as uncompiled.

Fails when a size that has become symbolic breaks a graph (a message formed of it, a test for an
int), when graphs are compiled anew length after length, when an exported program answers for
another length or offset than it is called with, and when its range of lengths is cut short.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
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

L = 32
LONGROPE = scaling.LongRoPE((1.0, 1.1, 1.5, 2.0), (1.0, 2.0, 6.0, 16.0), L, factor=8.0)
SPECS = {
    "plain": RotarySpec(8),
    "m-rope": RotarySpec(8, axes=axes.sectioned((2, 1, 1))),
    "blocks": RotarySpec(8, axes=axes.axial((2, 2)), blocks=(4, 4)),
    "partial, loud yarn": RotarySpec(12, 8, scaling=scaling.YaRN(16.0, 64), amplitude=1.5),
    "longrope": RotarySpec(8, scaling=LONGROPE),
    "dynamic": RotarySpec(8, scaling=scaling.DynamicNTK(2.0, L)),
}
KINDS = ("counted", "offset", "positions", "rows", "keys")
LENGTH = 64
#: Graphs of one kind of call: of the first sizes, of any, and of what was marked.
MOST_MARKED = 3


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


@pytest.mark.slow  # each compiles for many seconds
@pytest.mark.parametrize("name", ["plain", "m-rope", "longrope", "dynamic", "learned", "xpos"])
def test_any_sequence_of_calls_is_answered_as_uncompiled(name, recompiling):
    others = {"learned": LearnedRotaryEmbedding, "xpos": XPosEmbedding}
    rope = others[name](SPECS["plain"]) if name in others else RotaryEmbedding(SPECS[name])

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
        assert counter.frame_count <= MOST_MARKED * len({kind for kind, *_ in sequence})

    check()
    torch._dynamo.reset()


def test_a_dynamic_length_wants_positions_that_are_dynamic_too():
    """Static positions fix the length; torch refuses that of a plain product by a table as well."""
    rope = RotaryEmbedding(SPECS["plain"])
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


# One kind of call, at several lengths


def queries_and_keys(spec: RotarySpec, count: int, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, count, spec.head_dim, dtype=dtype), torch.randn(
        2, 2, count, spec.head_dim, dtype=dtype
    )


def same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def compiled():
    """Compiles without code generation, and counts graphs: what recompiles, recompiles anywhere."""
    torch._dynamo.reset()

    def compile(function, fullgraph=True):
        counter = CompileCounter()
        return torch.compile(function, backend=counter, fullgraph=fullgraph), counter

    yield compile
    torch._dynamo.reset()


COUNTS = (7, 9, 33, 1_000)
MOST = 2  # one graph for the first length, one for all lengths


@pytest.mark.parametrize("spec", [SPECS["plain"], SPECS["blocks"]])
def test_compiled_once_for_all_lengths_and_offsets(spec, compiled):
    rope = RotaryEmbedding(spec)
    prefill, counter = compiled(lambda q, k: rope(q, k))
    decode, steps = compiled(lambda q, k, offset: rope(q, k, offset=offset))
    for count in COUNTS:
        q, k = queries_and_keys(spec, count)
        assert same(prefill(q, k), rope(q, k))
    q, k = queries_and_keys(spec, 1)
    for offset in (5, 6, 16_384, 10_000_000):
        assert same(decode(q, k, offset), rope(q, k, offset=offset))
    assert counter.frame_count <= MOST
    assert steps.frame_count <= MOST


@pytest.mark.parametrize("kind", ["positions", "rows", "keys"])
@pytest.mark.parametrize("spec", [SPECS["plain"], SPECS["m-rope"]])
def test_compiled_once_with_positions(spec, kind, compiled):
    rope = RotaryEmbedding(spec)
    fast, counter = compiled(lambda *given: rope(*given))
    for count in COUNTS:
        q, k = queries_and_keys(spec, count)
        front = (spec.axis_count,) * (spec.axis_count > 1)
        where = torch.randint(0, 2**31, (*front, 2, count) if kind == "rows" else (*front, count))
        given = (q, k[:, :, :-1], where, where[..., :-1]) if kind == "keys" else (q, k, where)
        assert same(fast(*given), rope(*given))
    assert counter.frame_count <= MOST


def test_longrope_compiles_once_for_each_side_of_its_length(compiled):
    spec = SPECS["longrope"]
    rope = RotaryEmbedding(spec)
    fast, counter = compiled(lambda q, k, length: rope(q, k, length=length))
    for count in (7, 9, 12, 31, 32, 33, 60, 100, 20, 1_000):
        q, k = queries_and_keys(spec, count)
        assert same(fast(q, k, count), rope(q, k, length=count))
    assert counter.frame_count <= MOST + 1


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("spec", [SPECS["longrope"], SPECS["dynamic"]], ids=["longrope", "dynamic"])
def test_lengths_that_differ_in_the_batch_and_dynamic_rules_are_one_graph(spec, each, compiled):
    """Their frequencies are an operator's: no graph break, and no graph for each length."""
    rope = RotaryEmbedding(spec)
    fast, counter = compiled(lambda q, k, length: rope(q, k, length=length))
    graphs = []
    for count in (7, 9, 12, 33, 60, 100, 110, 120, 130, 140):
        q, k = queries_and_keys(spec, count)
        length = torch.tensor([count, 2 * count]) if each else count
        assert same(fast(q, k, length), rope(q, k, length=length))
        graphs.append(counter.frame_count)
    assert graphs[-1] == graphs[4]


def test_moves_and_gradients_compile(compiled):
    spec = SPECS["partial, loud yarn"]
    rope = RotaryEmbedding(spec)

    def moved(k: Tensor, by: Tensor) -> Tensor:
        return rope.unrotate(rope.shift(k, by), offset=3) + rope.shift(k, 2)

    fast, counter = compiled(moved)
    for count in COUNTS:
        k, by = queries_and_keys(spec, count)[1].requires_grad_(), torch.randint(0, 99, (count,))
        rotated = fast(k, by)
        assert torch.equal(rotated, moved(k, by))
        (ours,), (theirs,) = (torch.autograd.grad(y.sum(), k) for y in (rotated, moved(k, by)))
        assert torch.equal(ours, theirs)
    assert counter.frame_count <= MOST


@pytest.mark.slow
def test_generated_code_is_as_exact(compiled):
    """Integers wrap in C++ as they do here, at 2^31 too."""
    rope = RotaryEmbedding(RotarySpec(8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of torch.jit.script
        fast = torch.compile(lambda q, k, offset: rope(q, k, offset=offset), fullgraph=True)
        for offset in (0, 7, 10_000_000, 2**31 - 9):
            q, k = queries_and_keys(rope.spec, 9)
            for ours, theirs in zip(fast(q, k, offset), rope(q, k, offset=offset), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


class Prefill(nn.Module):
    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        self.rope = RotaryEmbedding(spec)

    def forward(self, q: Tensor, k: Tensor, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.rope(q, k, where, length=2**31)


@pytest.mark.parametrize(
    ("name", "given", "strict"),
    [
        ("plain", "counted", True),
        ("plain", "positions", False),
        ("m-rope", "positions", True),
        ("m-rope", "counted", False),
        ("longrope", "counted", True),
        ("longrope", "positions", False),
    ],
)
def test_exported_with_any_length(name, given, strict):
    """The range is not cut short at the rows that are cached otherwise."""
    spec = SPECS[name]
    model, count = Prefill(spec), torch.export.Dim("S", min=2, max=1_000_000)
    front = (spec.axis_count,) * (spec.axis_count > 1)

    def arguments(count: int) -> tuple[Tensor, ...]:
        q, k = queries_and_keys(spec, count)
        where = torch.randint(0, 2**31, (*front, count))
        return (q, k, where) if given == "positions" else (q, k)

    dynamic = [{2: count}, {2: count}, {len(front): count}]
    example = arguments(6)
    program = torch.export.export(
        model, example, dynamic_shapes=tuple(dynamic[: len(example)]), strict=strict
    )
    for there in (5, 6, 300):
        example = arguments(there)
        assert same(program.module()(*example), model(*example))


WITHIN = {
    "grad": lambda f, x, t: torch.func.grad(lambda y: (f(y) ** 2 * t).sum())(x),
    "vmap": lambda f, x, t: torch.func.vmap(f)(x),
    "jvp": lambda f, x, t: torch.func.jvp(f, (x,), (t,))[1],
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("transform", WITHIN)
def test_transforms_within_a_compiled_function(transform):
    """An operator there has no forward derivative, and gave zeros without an error."""
    rope = RotaryEmbedding(RotarySpec(8))
    x, t = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)

    def whole(x: Tensor, t: Tensor) -> Tensor:
        return WITHIN[transform](rope.rotate, x, t)

    fast = torch.compile(whole, backend="aot_eager")
    torch.testing.assert_close(fast(x, t), whole(x, t))
