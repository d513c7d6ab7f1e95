"""A rope goes wherever its model goes: casts, meta, copies, transforms, compilers, exports.

These fail when a place where modules are put changes what a rope returns, leaves something behind
in it that spoils later calls, or builds a table that is too big; when a size that has become
symbolic breaks a graph (a message formed of it, a test for an int), when graphs are compiled anew
length after length, when an exported program answers for another length or offset than it is
called with, and when its range of lengths is cut short.
"""

import copy
import io
import pickle
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from ropewalk import (
    LearnedRotaryEmbedding,
    RotaryEmbedding,
    RotarySpec,
    XPosEmbedding,
    axes,
    rotate,
    scaling,
)
from ropewalk.rotary.tables import RotaryTables

L = 32
LONGROPE = scaling.LongRoPE((1.0, 1.1, 1.5, 2.0), (1.0, 2.0, 6.0, 16.0), L, factor=8.0)
NAMED = {
    "plain": RotarySpec(8),
    "partial, loud yarn": RotarySpec(12, 8, scaling=scaling.YaRN(16.0, 64), amplitude=1.5),
    "deepseek": RotarySpec(12, start=4, pairing="interleaved", write_pairing="half"),
    "m-rope": RotarySpec(8, axes=axes.sectioned((2, 1, 1))),
    "blocks": RotarySpec(8, axes=axes.axial((2, 2)), blocks=(4, 4)),
    "coordinates": RotarySpec(8, theta=100.0, axes=axes.axial((2, 2)), continuous=True),
    "longrope": RotarySpec(8, scaling=LONGROPE),
    "dynamic": RotarySpec(8, scaling=scaling.DynamicNTK(2.0, L)),
}
SPECS = [pytest.param(spec, id=name) for name, spec in NAMED.items()]


def queries_and_keys(spec: RotarySpec, count: int, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, count, spec.head_dim, dtype=dtype), torch.randn(
        2, 2, count, spec.head_dim, dtype=dtype
    )


def same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


# Casts, copies, devices


class Layer(nn.Module):
    """A model's attention, as far as a rope sees it."""

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        self.projection = nn.Linear(spec.head_dim, spec.head_dim, bias=False)
        self.rope = RotaryEmbedding(spec)


def saved(layer: nn.Module) -> nn.Module:
    whole = io.BytesIO()
    torch.save(layer, whole)
    whole.seek(0)
    return torch.load(whole, weights_only=False)


def emptied(layer: Layer) -> nn.Module:
    with torch.device("meta"):
        layer = Layer(layer.rope.spec)
    return layer.to_empty(device="cpu")


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "change",
    [
        nn.Module.half,
        nn.Module.bfloat16,
        nn.Module.double,
        nn.Module.eval,
        nn.Module.share_memory,
        lambda layer: layer.to(torch.float16),
        lambda layer: layer.to("cpu", torch.bfloat16),
        lambda layer: layer.to(memory_format=torch.channels_last),
        lambda layer: layer.requires_grad_(False),
        lambda layer: layer.to("meta").to_empty(device="cpu"),
        emptied,
        copy.copy,
        copy.deepcopy,
        lambda layer: pickle.loads(pickle.dumps(layer)),
        saved,
    ],
)
def test_what_is_done_to_a_model_leaves_its_rope_alone(spec, change):
    layer, (q, k) = Layer(spec), queries_and_keys(spec, 70)
    expected = RotaryEmbedding(spec)(q, k, length=100)
    assert same(layer.rope(q, k, length=100), expected)  # rows are cached before the change
    rope = change(layer).rope
    assert same(rope(q, k, length=100), expected)
    assert same(rope(q, k, offset=3, length=100), RotaryEmbedding(spec)(q, k, offset=3, length=100))


@pytest.mark.parametrize("spec", SPECS)
def test_autocast_changes_nothing(spec):
    q, k = queries_and_keys(spec, 70)
    expected = RotaryEmbedding(spec)(q, k, length=100)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(RotaryEmbedding(spec)(q, k, length=100), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_a_state_dict_has_nothing_of_the_rope(spec):
    layer = Layer(spec)
    layer.rope(*queries_and_keys(spec, 70), length=100)
    assert [*layer.state_dict()] == ["projection.weight"]
    layer.load_state_dict(Layer(spec).state_dict(), strict=True)
    assert not [*layer.rope.parameters(), *layer.rope.buffers()]


def test_a_decode_far_out_builds_no_big_table(monkeypatch):
    """At 10,000,000 one row; where positions are given, as many rows as there are positions."""
    formed = []
    form = RotaryTables._build_tables

    def counted(self, *arguments):
        tables = form(self, *arguments)
        formed.append(tables[0].numel())
        return tables

    monkeypatch.setattr(RotaryTables, "_build_tables", counted)
    rope, (q, k) = RotaryEmbedding(RotarySpec(8)), queries_and_keys(RotarySpec(8), 1)
    rope(q, k, offset=10_000_000)
    rope(q, k, torch.tensor([10_000_000]))
    rope(q, k, torch.tensor([[10_000_000], [7]]))
    rope.shift(k, 10_000_000)
    assert formed == [4, 4, 8, 4]
    assert rope._tables.cached_rows(None) is None
    rope(q, k, offset=100)
    assert [table.shape for table in rope._tables.cached_rows(None)] == [(128, 4)] * 2


def test_x_without_a_batch_takes_positions_with_one():
    rope, x = RotaryEmbedding(RotarySpec(8)), torch.randn(5, 8)
    assert torch.equal(rope.rotate(x, torch.arange(5)[None]), rope.rotate(x))
    heads = torch.randn(5, 2, 8)
    ours = rope.rotate(heads, torch.arange(5)[None], seq_dim=-3)
    assert torch.equal(ours, rope.rotate(heads, seq_dim=-3))


# Modes and transforms, and what they leave behind


@pytest.mark.parametrize("spec", SPECS)
def test_rows_formed_in_inference_mode_serve_training(spec):
    rope, (q, k) = RotaryEmbedding(spec), queries_and_keys(spec, 7)
    with torch.inference_mode():
        rope(q, k, length=7)
    q.requires_grad_()
    rope(q, k, length=7)[0].sum().backward()
    expected = RotaryEmbedding(spec)
    clean = q.detach().clone().requires_grad_()
    expected(clean, k, length=7)[0].sum().backward()
    assert torch.equal(q.grad, clean.grad)


@pytest.mark.parametrize("first", ["real", "fake"])
@pytest.mark.parametrize("spec", SPECS)
def test_fake_tensors_and_real_ones_do_not_meet(spec, first):
    """Memory is planned by a run on fake tensors, whose device is the real one."""
    rope, (q, k) = RotaryEmbedding(spec), queries_and_keys(spec, 7)
    expected = RotaryEmbedding(spec)(q, k, length=7)
    if first == "real":
        rope(q, k, length=7)
    with FakeTensorMode() as mode:
        rotated = rope(mode.from_tensor(q), mode.from_tensor(k), length=7)
    assert [t.shape for t in rotated] == [q.shape, k.shape]
    assert same(rope(q, k, length=7), expected)


def gradient(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.grad(lambda x: rope.rotate(x, length=7).pow(3).sum())(x)


def per_sample(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: gradient(rope, row))(x)


def twice(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.grad(lambda x: gradient(rope, x).sum())(x)


def jacobian(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.jacrev(lambda x: rope.rotate(x, length=7))(x[0, 0])


def functional(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.functionalize(lambda x: rope.rotate(x, length=7))(x)


def traced(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return make_fx(lambda x: rope.rotate(x, length=7), tracing_mode="symbolic")(x)(x)


def forward_mode(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own: it uses torch.jit.script
        return torch.func.jvp(lambda x: rope.rotate(x, length=7), (x,), (x,))[1]


TRANSFORMS = [gradient, per_sample, twice, jacobian, functional, traced, forward_mode]


@pytest.mark.parametrize("second", TRANSFORMS)
def test_no_transform_leaves_its_tensors_behind_for_another(second):
    """Rows cached inside `torch.func.grad` are of that level, and dead with it."""
    spec, x = RotarySpec(8), torch.randn(2, 3, 7, 8)
    rotated, expected = RotaryEmbedding(spec).rotate(x), second(RotaryEmbedding(spec), x)
    for first in TRANSFORMS:
        used = RotaryEmbedding(spec)
        first(used, x)
        assert torch.equal(second(used, x), expected), first
        assert torch.equal(used.rotate(x), rotated), first


@pytest.mark.parametrize("spec", SPECS)
def test_transforms_are_right(spec):
    rope = RotaryEmbedding(spec)
    x = torch.randn(2, 3, 7, spec.head_dim, dtype=torch.float64)
    rotated = rope.rotate(x, length=7)
    for transform in (functional, forward_mode):  # before rows are cached
        first = transform(RotaryEmbedding(spec), x)
        torch.testing.assert_close(first, rotated, rtol=0, atol=1e-12)
    assert torch.equal(torch.vmap(lambda row: rope.rotate(row, length=7))(x), rotated)
    # The rotation is linear: its derivative in any direction is the rotation of that direction.
    torch.testing.assert_close(forward_mode(rope, x), rotated, rtol=0, atol=1e-12)
    matrix = torch.func.jacrev(lambda row: rope.rotate(row, length=7))(x[0, 0])
    product = torch.einsum("sdte,te->sd", matrix, x[0, 0])
    torch.testing.assert_close(product, rotated[0, 0], rtol=0, atol=1e-12)
    clean = x.clone().requires_grad_()
    rope.rotate(clean, length=7).pow(3).sum().backward()
    torch.testing.assert_close(gradient(rope, x), clean.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_vmap_runs_over_positions_too(spec):
    rope = RotaryEmbedding(spec)
    x = torch.randn(3, 2, 5, spec.head_dim)
    front = (spec.axis_count,) * (spec.axis_count > 1)
    where = torch.randint(0, 99, (*front, 3, 5))
    each = torch.vmap(lambda row, p: rope.rotate(row, p, length=99), (0, len(front)))(x, where)
    torch.testing.assert_close(each, rope.rotate(x, where, length=99), rtol=0, atol=0)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("write_pairing", ["half", "interleaved"])
def test_second_derivatives_and_those_of_the_tables(pairing, write_pairing):
    """Learned frequencies need gradients of cos and sin, of which the product is bilinear."""
    x = torch.randn(2, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    cos, sin = torch.randn(2, 2, 3, 2, dtype=torch.float64).unbind()
    cos.requires_grad_(), sin.requires_grad_()

    def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return rotate(x, cos, sin, pairing=pairing, write_pairing=write_pairing, start=1)

    assert torch.autograd.gradcheck(rotated, (x, cos, sin), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(rotated, (x, cos, sin))


# Within a compiled or exported model: whatever calls follow one another, as uncompiled

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
    rope = others[name](NAMED["plain"]) if name in others else RotaryEmbedding(NAMED[name])

    def check(sequence):
        torch._dynamo.reset()
        counter = CompileCounter()
        fast = torch.compile(call, backend=counter, fullgraph=True)
        for kind, count, offset, marked, length in sequence:
            q, k, where = arguments(rope, kind, count, offset)
            if marked:
                for x in (q, k):
                    torch._dynamo.maybe_mark_dynamic(x, 2)
            ours = fast(rope, kind, q, k, where, length)
            theirs = call(rope, kind, q, k, where, length)
            for x, y in zip(ours, theirs, strict=True):
                torch.testing.assert_close(x, y, rtol=0, atol=1e-6)
        assert counter.frame_count <= MOST_MARKED * len({kind for kind, *_ in sequence})

    if name == "plain":
        settings(max_examples=2, deadline=None, derandomize=True)(given(calls)(check))()
    else:  # the widest kinds, one at two lengths: "plain" has all, and the checks are the same
        kinds = enumerate(("offset", "rows", "offset"))
        check([(kind, 3 + 2 * n, n, n % 2 == 1, LENGTH) for n, kind in kinds])
    torch._dynamo.reset()


def test_a_dynamic_length_wants_positions_that_are_dynamic_too():
    """Static positions fix the length; torch refuses that of a plain product by a table as well."""
    rope = RotaryEmbedding(NAMED["plain"])
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


@pytest.mark.parametrize(
    "spec", [NAMED["plain"], pytest.param(NAMED["blocks"], marks=pytest.mark.slow)]
)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("plain", "rows"), ("plain", "keys"), ("m-rope", "keys")]
)
def test_compiled_once_with_positions(name, kind, compiled):
    spec = NAMED[name]
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
    spec = NAMED["longrope"]
    rope = RotaryEmbedding(spec)
    fast, counter = compiled(lambda q, k, length: rope(q, k, length=length))
    for count in (7, 9, 12, 31, 32, 33, 60, 100, 20, 1_000):
        q, k = queries_and_keys(spec, count)
        assert same(fast(q, k, count), rope(q, k, length=count))
    assert counter.frame_count <= MOST + 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "each"), [("longrope", True), ("dynamic", False)])
def test_lengths_that_differ_in_the_batch_and_dynamic_rules_are_one_graph(name, each, compiled):
    """Their frequencies are an operator's: no graph break, and no graph for each length."""
    spec = NAMED[name]
    rope = RotaryEmbedding(spec)
    fast, counter = compiled(lambda q, k, length: rope(q, k, length=length))
    graphs = []
    for count in (7, 9, 12, 33, 60, 100, 110, 120, 130, 140):
        q, k = queries_and_keys(spec, count)
        length = torch.tensor([count, 2 * count]) if each else count
        assert same(fast(q, k, length), rope(q, k, length=length))
        graphs.append(counter.frame_count)
    assert graphs[-1] == graphs[4]


@pytest.mark.slow
def test_moves_and_gradients_compile(compiled):
    spec = NAMED["partial, loud yarn"]
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given", "strict"),
    [
        ("plain", "counted", True),
        ("m-rope", "positions", True),
        ("m-rope", "counted", False),
        ("longrope", "positions", False),
    ],
)
def test_exported_with_any_length(name, given, strict):
    """The range is not cut short at the rows that are cached otherwise."""
    spec = NAMED[name]
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


@pytest.mark.slow
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
