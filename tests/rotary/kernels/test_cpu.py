"""The kernel in C against the reference in torch, bit by bit, in every layout that it takes.

These fail when the kernel reads or writes another element than the reference does, rounds
otherwise, loses a subnormal, an infinity or a NaN, computes in place what may not be, breaks in a
forked process, or is asked for what it cannot do.
"""

import importlib.util
import itertools
import multiprocessing
import shutil
import sys

import pytest
import torch
from encoding_cases import recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, rotate
from ropewalk.rotary.kernels import cpu, operator
from ropewalk.rotary.reference import Layout, rotate_reference

pytestmark = pytest.mark.skipif(
    not cpu.AVAILABLE, reason="needs the C extension: install ropewalk where there is a compiler"
)

PAIRINGS = ["half", "interleaved"]
BOTH = list(itertools.product(PAIRINGS, PAIRINGS))
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

# Views whose rows are whole, as they come about: of (B, H, S, D) unless they say otherwise.
VIEWS = {
    "contiguous": lambda b, h, s, d: torch.randn(b, h, s, d),
    "transposed": lambda b, h, s, d: torch.randn(b, s, h, d).transpose(1, 2),
    "slice of fused qkv": lambda b, h, s, d: torch.randn(b, s, 3, h, d)[:, :, 1].transpose(1, 2),
    "part of a cache": lambda b, h, s, d: torch.randn(b, h, s + 5, d)[:, :, 2 : s + 2],
    "expanded": lambda b, h, s, d: torch.randn(1, h, s, d).expand(b, -1, -1, -1),
    "every second head": lambda b, h, s, d: torch.randn(b, 2 * h, s, d)[:, ::2],
}


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit, but for which NaN it is."""
    return torch.equal(a.nan_to_num(nan=12345.0), b.nan_to_num(nan=12345.0))


def tables(length: int, pairs: int, batch: int | None = None) -> tuple[Tensor, Tensor]:
    angles = torch.randn(*(() if batch is None else (batch,)), length, pairs)
    return 1.25 * angles.cos(), 1.25 * angles.sin()


@pytest.fixture
def both_ways(monkeypatch):
    """A function's result by the kernel, and by the reference; fails if the kernel was not used."""
    calls = []
    kernel = cpu.rotate

    def counted(*arguments):
        calls.append(arguments)
        kernel(*arguments)

    def run(form):
        monkeypatch.setattr(cpu, "rotate", counted)
        calls.clear()
        fast = form()
        assert calls, "the kernel was not asked"
        monkeypatch.setattr(operator, "_kernel_serves", lambda *_: False)
        plain = form()
        monkeypatch.undo()
        return fast, plain

    return run


@pytest.fixture(scope="module")
def reads_attributes(tmp_path_factory):
    """A second copy of the extension, loaded where torch has no table of functions."""
    loaded = sys.modules[cpu._rotate.__module__].__file__
    path = shutil.copy(loaded, tmp_path_factory.mktemp("copy"))
    spec = importlib.util.spec_from_file_location("_rotate", path)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(torch.Tensor, "__dlpack_c_exchange_api__", raising=False)
        extension = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extension)
        read = recorded(patch, Tensor, "data_ptr")
        extension.rotate((X,), None, TABLE, TABLE, 0, LAYOUT, 2, 1)
    assert read
    return extension


@pytest.fixture(params=["functions", "attributes"])
def reading(request, monkeypatch):
    """How tensors are read: by torch's table of functions, or, before 2.10, by attributes.

    Fails if one way of reading gives another tensor than the other.
    """
    if request.param == "attributes":
        extension = request.getfixturevalue("reads_attributes")
        monkeypatch.setattr(cpu, "_rotate", extension.rotate)


# Rows of switches, in which any two of up to ten have all four combinations of values.
PAIRWISE = [[row in on for on in itertools.combinations(range(1, 6), 3)] for row in range(6)]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_reference_bit_by_bit(both_ways, view, dtype):
    x = _retyped(VIEWS[view](2, 3, 37, 40), dtype)
    for read, write, part, at_start, batched, adjoint, *_ in PAIRWISE:
        cos, sin = tables(37, 11 if part else 17, 2 if batched else None)
        pairings = {"pairing": PAIRINGS[read], "write_pairing": PAIRINGS[write]}
        start = 0 if at_start else 6
        fast, plain = both_ways(
            lambda: rotate(x, cos, sin, **pairings, start=start, adjoint=adjoint)  # noqa: B023
        )
        assert same(fast, plain)
        assert fast.dtype == dtype


def _retyped(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers and strides in another dtype."""
    if x.dtype == dtype:
        return x
    empty = torch.empty_strided(x.shape, x.stride(), dtype=dtype)
    if any(stride == 0 for stride in x.stride()):
        return x[:1].to(dtype).expand_as(x)
    return empty.copy_(x)


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 0, 5, 8), (2, 3, 0, 8)])
@pytest.mark.parametrize("seq_dim", [-2, -3])
def test_axes_may_be_absent_empty_or_in_the_other_order(shape, seq_dim):
    if len(shape) < -seq_dim:
        return
    x = torch.randn(shape)
    cos, sin = tables(shape[seq_dim], 4)
    expected = rotate_reference(x, cos, sin, Layout.of("half", seq_dim=seq_dim))
    assert torch.equal(rotate(x, cos, sin, pairing="half", seq_dim=seq_dim), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_in_place_touches_what_rotates_and_nothing_else(dtype, pairing):
    whole = torch.randn(2, 3, 9, 50).to(dtype)
    x, before = whole[:, 1:, 2:8, :40], whole.clone()
    cos, sin = tables(6, 15)
    expected = rotate(x.clone(), cos, sin, pairing=pairing, start=4)
    assert rotate(x, cos, sin, pairing=pairing, start=4, out=x) is x
    assert torch.equal(x, expected)
    before[:, 1:, 2:8, :40] = expected
    assert torch.equal(whole, before)


def test_another_pairing_is_not_written_over_what_is_still_to_be_read():
    x, (cos, sin) = torch.randn(1, 2, 5, 12), tables(5, 6)
    expected = rotate(x.clone(), cos, sin, pairing="interleaved", write_pairing="half")
    rotate(x, cos, sin, pairing="interleaved", write_pairing="half", out=x)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_16_bits_is_read_and_rounded_right(dtype):
    """By the identity, and by the halving that makes ties and subnormals."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(dtype).reshape(1, -1, 64)
    for amplitude in (1.0, 0.5, 1.0 + 2**-9, 3.0, 2.0**-14):
        cos = torch.full((x.shape[1], 32), amplitude)
        sin = torch.zeros_like(cos)
        expected = (x.float() * amplitude - 0 * x.float().roll(32, -1)).to(dtype)
        for pairing in PAIRINGS:
            found = rotate(x, cos, sin, pairing=pairing)
            finite = found.isfinite() & expected.isfinite()  # 0 * inf is NaN in both
            assert torch.equal(found[finite], expected[finite])
            assert same(found, rotate_reference(x, cos, sin, Layout.of(pairing)))


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 200), st.integers(1, 40), st.data())
@settings(max_examples=60)
def test_any_shape_by_any_number_of_threads(batch, heads, length, pairs, data):
    dtype, pairing = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(PAIRINGS))
    x, (cos, sin) = torch.randn(batch, heads, length, 2 * pairs).to(dtype), tables(length, pairs)
    out = torch.full_like(x, 7)
    of_dtype = [t.double() if dtype == torch.float64 else t for t in (cos, sin)]
    shared = data.draw(st.integers(1, 300)), data.draw(st.sampled_from([1, 1000, 1 << 17]))
    assert cpu._rotate((x,), (out,), *of_dtype, 0, Layout.of(pairing), *shared)[0] is out
    assert torch.equal(out, rotate_reference(x, cos, sin, Layout.of(pairing)))


@given(st.integers(0, 2**31), st.sampled_from([16, 24, 48]), st.booleans())
@settings(max_examples=15)
def test_any_bits_in_x_and_in_the_tables(seed, pairs, adjoint):
    """Subnormals, infinities and NaN of any payload, alone or together in one vector."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**31), 2**31, (3, 7, 2 * pairs), generator=generator)
    cos, sin = (
        torch.randint(-(2**31), 2**31, (2, 7, pairs), generator=generator).int().view(torch.float32)
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = bits.short().view(dtype) if dtype.itemsize == 2 else bits.int().view(dtype)
        for pairing in PAIRINGS:
            for table in ((cos, sin), (cos.cos(), cos.sin()), (cos * 2**-60, sin * 2**-60)):
                found = rotate(x, *table, pairing=pairing, adjoint=adjoint)
                expected = rotate_reference(x, *table, Layout.of(pairing, adjoint=adjoint))
                assert same(found, expected)
                assert torch.equal(
                    found.signbit() | found.isnan(), expected.signbit() | found.isnan()
                )


def test_numbers_held_as_their_negatives_are_read_as_they_are():
    z = torch.randn(1, 2, 5, 8, dtype=torch.complex64)
    x, angles = z.conj().imag, torch.randn(5, 4, dtype=torch.complex64)
    cos, sin = angles.conj().imag, angles.imag
    assert x.is_neg()
    assert cos.is_neg()
    expected = rotate_reference(x, cos, sin, Layout.of("half"))
    assert torch.equal(rotate(x, cos, sin, pairing="half"), expected)
    rotate(x, cos, sin, pairing="half", out=x)
    assert torch.equal(x, expected)


def test_rows_that_are_not_whole_go_the_other_way():
    x, (cos, sin) = torch.randn(1, 2, 8, 5).transpose(-1, -2), tables(5, 4)
    assert not cpu.serves(x)
    expected = rotate_reference(x, cos, sin, Layout.of("half"))
    assert torch.equal(rotate(x, cos, sin, pairing="half"), expected)
    cos, sin = (t.T.contiguous().T for t in (cos, sin))
    assert torch.equal(rotate(x.contiguous(), cos, sin, pairing="half"), expected)


@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (2, 5, 4), (1, 5, 4), (2, 1, 4)])
def test_cos_and_sin_may_lie_each_in_its_own_way(shape):
    x = torch.randn(2, 3, shape[-2], 8)
    sin = torch.randn(shape)
    for cos in (torch.randn(*shape[:-1], 9)[..., 2:6], torch.randn(shape[-1:]).expand(shape)):
        expected = rotate_reference(x, cos, sin, Layout.of("half"))
        assert torch.equal(rotate(x, cos, sin, pairing="half"), expected)


# Gradients


@pytest.mark.parametrize(("pairing", "write"), BOTH)
def test_gradients_of_any_order(pairing, write):
    rope = RotaryEmbedding(
        RotarySpec(10, rotary_dim=6, pairing=pairing, write_pairing=write, start=2)
    )
    q = torch.randn(1, 2, 2, 10, dtype=torch.float64, requires_grad=True)
    k = torch.randn(1, 1, 2, 10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, k: rope(q, k, offset=5), (q, k))
    assert torch.autograd.gradgradcheck(lambda q, k: rope(q, k, offset=5), (q, k))


def test_training_keeps_neither_queries_nor_keys():
    q = torch.randn(1, 2, 50, 8, requires_grad=True)
    k = torch.randn(1, 2, 50, 8, requires_grad=True)
    rope, kept = RotaryEmbedding(RotarySpec(8)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        rope(q, k)
    assert set(kept) == {(50, 4)}  # tables alone


def test_one_of_the_pair_may_need_a_gradient():
    q, k = torch.randn(1, 2, 5, 8, requires_grad=True), torch.randn(1, 1, 5, 8)
    turned_q, turned_k = RotaryEmbedding(RotarySpec(8))(q, k)
    turned_q.sum().backward()
    assert q.grad is not None
    assert not torch.equal(turned_k, k)


@pytest.mark.slow
def test_the_operator_is_what_torch_expects_of_one():
    """torch's own checks: schema, fake tensors, gradients, ahead-of-time tracing."""
    x, (cos, sin) = torch.randn(2, 3, 5, 8, requires_grad=True), tables(5, 4)
    y = torch.randn(2, 1, 5, 8, requires_grad=True)
    arguments = ([x, y], cos, sin, False, False, 0, -2, False)
    torch.library.opcheck(torch.ops.ropewalk.rotate.default, arguments)
    plain = ([x.detach().clone()], cos, sin, False, False, 0, -2, False)
    torch.library.opcheck(torch.ops.ropewalk.rotate_.default, plain)


# Where it runs


def _rotated_by_threads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    cpu._rotate((x,), (out,), cos, sin, 0, LAYOUT, 4, 4096)
    return out


def _in_a_child(queue, x: Tensor, cos: Tensor, sin: Tensor, expected: Tensor) -> None:
    torch.set_num_threads(1)  # torch's own threads do not survive; DataLoader's workers do so too
    found = _rotated_by_threads(x, cos, sin)
    queue.put(found.numpy().tobytes() == expected.numpy().tobytes())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_works_in_a_process_forked_after_threads_have_run():
    x, (cos, sin) = torch.randn(2, 4, 512, 64), tables(512, 32)
    expected = _rotated_by_threads(x, cos, sin)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue, x, cos, sin, expected), daemon=True)
    child.start()
    assert queue.get(timeout=60)
    child.join()


def test_without_the_extension_the_reference_serves(monkeypatch):
    x, (cos, sin) = torch.randn(2, 3, 5, 8), tables(5, 4)
    fast = rotate(x, cos, sin, pairing="half")
    monkeypatch.setattr(cpu, "AVAILABLE", False)
    monkeypatch.setattr(cpu, "_rotate", None)
    assert torch.equal(rotate(x, cos, sin, pairing="half"), fast)


LAYOUT = Layout.of("half")
X, TABLE = torch.randn(2, 3, 5, 8), torch.randn(5, 4)

THREE = TABLE[None].repeat(3, 1, 1)

REFUSED = [
    ("x",),
    1,
    (X,) * 5,
    (X, X[:, :, :4]),
    (X.long(),),
    (X.mT.contiguous().mT,),
    (X.to_sparse(),),
    (X[None],),
    (X[0, 0, 0],),
    (X.to("meta"),),
    (X.double(),),
]
REFUSED_TABLES = [
    (TABLE, TABLE, 1, LAYOUT),
    (TABLE, TABLE, -1, LAYOUT),
    (TABLE, TABLE, 2**70, LAYOUT),
    (TABLE, TABLE[:4], 0, LAYOUT),
    (TABLE, TABLE.double(), 0, LAYOUT),
    (THREE, THREE, 0, LAYOUT),
    (TABLE[0], TABLE[0], 0, LAYOUT),
    (TABLE, TABLE, 0, (False, False, 1, -2, False)),
    (TABLE, TABLE, 0, (False, False, -1, -2, False)),
    (TABLE, TABLE, 0, (False, False, 0, -1, False)),
    (TABLE, TABLE, 0, (False, False, 0)),
    (TABLE, TABLE, 0, "half"),
]


@pytest.mark.usefixtures("reading")
def test_the_extension_leaves_alone_what_it_cannot_take():
    def refused(xs, *arguments, outs=None):
        return cpu._rotate(xs, outs, *arguments, 2, 1) is None

    assert not refused((X,), TABLE, TABLE, 0, LAYOUT)
    assert all(refused(xs, TABLE, TABLE, 0, LAYOUT) for xs in REFUSED)
    assert all(refused((X,), *arguments) for arguments in REFUSED_TABLES)
    assert refused((X,), TABLE, TABLE, 0, LAYOUT, outs=(X[:1],))
    with pytest.raises(TypeError):
        cpu._rotate(X)


def test_the_operator_called_by_itself_refuses_tables_for_another_length():
    with pytest.raises(ValueError, match="a row for each position"):
        torch.ops.ropewalk.rotate([X], TABLE[:3], TABLE[:3], *LAYOUT)


# By rows that are kept


@pytest.fixture
def at_once(monkeypatch):
    """Whether the last call was one call of the kernel, q and k by kept rows."""
    answers, whole = [], cpu.rotate_by_rows

    def noted(*arguments):
        answers.append(whole(*arguments))
        return answers[-1]

    monkeypatch.setattr(cpu, "rotate_by_rows", noted)
    return lambda: bool(answers) and answers.pop() is not None


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seq_dim", [-2, -3])
@pytest.mark.parametrize(("pairing", "write"), BOTH)
def test_at_once_equals_the_formula(at_once, dtype, seq_dim, pairing, write):
    spec = RotarySpec(20, rotary_dim=16, pairing=pairing, write_pairing=write, start=2)
    rope = RotaryEmbedding(spec)
    rope(torch.randn(1, 1, 64, 20), torch.randn(1, 1, 64, 20))  # keeps 64 rows
    for offset, length in ((0, 1), (63, 1), (7, 5), (0, 64)):
        q, k = (torch.randn(2, heads, length, 20).to(dtype) for heads in (4, 2))
        if seq_dim == -3:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        found = rope(q, k, offset=offset, seq_dim=seq_dim)
        assert at_once() is (dtype != torch.float64)  # whose tables are formed by conversion
        cos, sin = rope.tables(torch.arange(offset, offset + length))
        for x, y in zip((q, k), found, strict=True):
            assert torch.equal(
                y, rotate_reference(x, cos, sin, Layout.of(pairing, write, 2, seq_dim))
            )
            assert y.stride() == torch.empty_like(x).stride()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch.func itself
def test_at_once_is_left_to_whoever_must_know_of_the_call(at_once):
    rope = RotaryEmbedding(RotarySpec(8))
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    expected = rope(q, k)
    rope(q, k)
    assert at_once()

    leaf = q.clone().requires_grad_()
    assert rope(leaf, k)[0].requires_grad
    assert not at_once()
    with torch.no_grad():
        rope(leaf, k)
    assert at_once()

    _, derivative = torch.func.jvp(lambda q: rope(q, k)[0], (q,), (q,))
    assert torch.equal(derivative, expected[0])
    doubled = torch.func.vmap(lambda q: rope(q[None], k)[0][0])(q)
    assert torch.equal(doubled, expected[0])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        assert torch.autograd.forward_ad.unpack_dual(rope(dual, k)[0]).tangent is not None

    class Like(Tensor):
        pass

    assert type(rope(q.as_subclass(Like), k)[0]) is Like
    assert torch.equal(rope(torch._neg_view(q), k)[0], -expected[0])
    assert not at_once()


@pytest.mark.filterwarnings("ignore")  # tracing is deprecated
def test_a_traced_rope_rotates_other_tensors_too():
    rope = RotaryEmbedding(RotarySpec(8))
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    rope(q, k)
    traced = torch.jit.trace(lambda q, k: rope(q, k), (q, k), check_trace=False)
    assert all(map(torch.equal, traced(2 * q, k), rope(2 * q, k)))


MISTAKES = [
    lambda rope, q, k: rope(q[..., :6], k),
    lambda rope, q, k: rope(q, k[..., :6]),
    lambda rope, q, k: rope(torch.cat((q, q), -1), k),
    lambda rope, q, k: rope(q, torch.cat((k, k), -1)),
    lambda rope, q, k: rope(q, k[:, :, :2]),
    lambda rope, q, k: rope(q, k, offset=True),
    lambda rope, q, k: rope(q, k, seq_dim=-1),
    lambda rope, q, k: rope(q, k, seq_dim="S"),
    lambda rope, q, k: rope(q.long(), k),
    lambda rope, q, k: rope(None, k),
    lambda rope, q, k: rope(q, k, length=0),
]


def test_a_mistake_is_named_alike_before_and_after_rows_are_kept():
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    for mistake in MISTAKES:
        rope, answers = RotaryEmbedding(RotarySpec(8)), []
        for _ in range(2):
            with pytest.raises((TypeError, ValueError)) as error:
                mistake(rope, q, k)
            answers.append((error.type, str(error.value)))
            rope(q, k)
        assert answers[0] == answers[1]


@pytest.mark.parametrize("available", [True, False])
def test_autograd_hears_of_rotation_in_place(available, monkeypatch):
    """Fails if a gradient is computed from what was kept and then rotated: it would be wrong."""
    if not available:
        monkeypatch.setattr(cpu, "AVAILABLE", False)
    cos, sin = RotaryEmbedding(RotarySpec(head_dim=8)).tables(torch.arange(4))
    kept = torch.randn(1, 2, 4, 8, requires_grad=True).exp()  # its gradient needs its own result
    with torch.no_grad():
        rotate(kept, cos, sin, pairing="half", out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_rotation_in_place_serves_inference_mode():
    """Fails if tensors that have no version are asked for one."""
    cos, sin = RotaryEmbedding(RotarySpec(head_dim=8)).tables(torch.arange(4))
    with torch.inference_mode():
        x = torch.randn(1, 2, 4, 8)
        expected = rotate(x, cos, sin, pairing="half")
        assert torch.equal(rotate(x, cos, sin, pairing="half", out=x), expected)


# In the last, the second axis begins within what the third and fourth reach together.
OVERLAPPING = [(0, 8, 4, 1), (0, 0, 8, 1), (32, 8, 8, 1), (64, 32, 1, 1), (0, 30, 8, 1)]


@pytest.mark.parametrize("strides", OVERLAPPING)
def test_out_that_overlaps_itself_is_refused(strides):
    """Fails if elements are rotated twice, or in an order that decides what they become."""
    cos, sin = RotaryEmbedding(RotarySpec(head_dim=8)).tables(torch.arange(4))
    x = torch.randn(128).as_strided((1, 2, 4, 8), strides)
    before = x.clone()
    with pytest.raises(ValueError, match="a memory cell for each of its elements"):
        rotate(x, cos, sin, pairing="half", out=x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("shape", [(1, 2, 4, 8), (2, 0, 4, 8), (1, 1, 4, 8)])
def test_out_may_have_a_stride_of_zero_where_nothing_shares_memory(shape):
    """Fails if an axis of size 1, or one of a tensor without elements, is called an overlap."""
    cos, sin = RotaryEmbedding(RotarySpec(head_dim=8)).tables(torch.arange(4))
    x = torch.randn(64).as_strided(shape, (0, 32 if shape[1] > 1 else 0, 8, 1))
    expected = rotate(x.clone(), cos, sin, pairing="half")
    assert torch.equal(rotate(x, cos, sin, pairing="half", out=x), expected)


@given(
    order=st.permutations(range(4)), cut=st.booleans(), sizes=st.tuples(*[st.integers(0, 3)] * 2)
)
def test_out_in_any_order_of_axes_is_rotated(order, cut, sizes):
    """Fails if a layout without overlap is taken for one with it: transposed, sliced, empty."""
    cos, sin = RotaryEmbedding(RotarySpec(head_dim=8)).tables(torch.arange(4))
    shape = (*sizes, 4, 8)
    held = torch.randn(*(shape[axis] * (1 + cut) for axis in order))
    x = held.permute(*(list(order).index(axis) for axis in range(4)))
    x = x[tuple(slice(0, size) for size in shape)]
    expected = rotate(x.clone(), cos, sin, pairing="half")
    assert torch.equal(rotate(x, cos, sin, pairing="half", out=x), expected)
