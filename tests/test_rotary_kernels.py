"""The kernel in C against the reference in torch, bit by bit, in every layout that it takes.

These fail when the kernel reads or writes another element than the reference does, rounds
otherwise, loses a subnormal, an infinity or a NaN, computes in place what may not be, breaks in a
forked process, or is asked for what it cannot do.
"""

import itertools
import multiprocessing
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, rotate
from ropewalk.rotary.kernels import cpu, operator
from ropewalk.rotary.reference import turned

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


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("pairing", "write"), BOTH)
def test_equals_the_reference_bit_by_bit(both_ways, view, dtype, pairing, write):
    x = VIEWS[view](2, 3, 37, 40).to(dtype) if view == "contiguous" else VIEWS[view](2, 3, 37, 40)
    x = x if x.dtype == dtype else _retyped(x, dtype)
    for start, pairs, batch, adjoint in itertools.product((0, 6), (17, 11), (None, 2), (0, 1)):
        cos, sin = tables(37, pairs, batch)
        layout = {"pairing": pairing, "write_pairing": write, "start": start}
        fast, plain = both_ways(lambda: rotate(x, cos, sin, adjoint=bool(adjoint), **layout))  # noqa: B023
        assert same(fast, plain)
        assert fast.dtype == dtype


def _retyped(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers and strides in another dtype."""
    empty = torch.empty_strided(x.shape, x.stride(), dtype=dtype)
    if any(stride == 0 for stride in x.stride()):
        return x[:1].to(dtype).expand_as(x)
    return empty.copy_(x)


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 0, 5, 8), (2, 3, 0, 8)])
@pytest.mark.parametrize("seq_dim", [-2, -3])
def test_axes_may_be_absent_empty_or_in_the_other_order(shape, seq_dim):
    if len(shape) < -seq_dim:
        return
    x = torch.randn(shape)
    cos, sin = tables(shape[seq_dim], 4)
    expected = turned(x, cos, sin, "half", "half", 0, seq_dim, False)
    assert torch.equal(rotate(x, cos, sin, pairing="half", seq_dim=seq_dim), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_in_place_touches_what_turns_and_nothing_else(dtype, pairing):
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


def test_what_stands_for_several_rows_is_not_turned_in_place():
    x, (cos, sin) = torch.randn(1, 1, 5, 8).expand(1, 3, 5, 8), tables(5, 4)
    with pytest.raises(RuntimeError, match="single memory location"):
        rotate(x, cos, sin, pairing="half", out=x)


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
            assert same(found, turned(x, cos, sin, pairing, pairing, 0, -2, False))


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 200), st.integers(1, 40), st.data())
@settings(max_examples=60)
def test_any_shape_by_any_number_of_threads(batch, heads, length, pairs, data):
    dtype, pairing = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(PAIRINGS))
    x, (cos, sin) = torch.randn(batch, heads, length, 2 * pairs).to(dtype), tables(length, pairs)
    out = torch.full_like(x, 7)
    layout = (pairing == "interleaved",) * 2
    described = (*cpu._described(x, out, *_of(dtype, cos, sin), -2), 0, pairs, cpu.DTYPES[dtype])
    cpu._rotate(data.draw(st.integers(1, 300)), (*described, *layout, False))
    assert torch.equal(out, turned(x, cos, sin, pairing, pairing, 0, -2, False))


KEPT: list[Tensor] = []


def _of(dtype: torch.dtype, *given: Tensor) -> list[Tensor]:
    """Tables in the arithmetic of this dtype, kept while the kernel reads them."""
    KEPT[:] = [t.double() if dtype == torch.float64 else t for t in given]
    return KEPT


def test_numbers_held_as_their_negatives_are_read_as_they_are():
    z = torch.randn(1, 2, 5, 8, dtype=torch.complex64)
    x, angles = z.conj().imag, torch.randn(5, 4, dtype=torch.complex64)
    cos, sin = angles.conj().imag, angles.imag
    assert x.is_neg()
    assert cos.is_neg()
    expected = turned(x, cos, sin, "half", "half", 0, -2, False)
    assert torch.equal(rotate(x, cos, sin, pairing="half"), expected)
    rotate(x, cos, sin, pairing="half", out=x)
    assert torch.equal(x, expected)


def test_rows_that_are_not_whole_go_the_other_way():
    x, (cos, sin) = torch.randn(1, 2, 8, 5).transpose(-1, -2), tables(5, 4)
    assert not cpu.serves(x)
    expected = turned(x, cos, sin, "half", "half", 0, -2, False)
    assert torch.equal(rotate(x, cos, sin, pairing="half"), expected)
    cos, sin = (t.T.contiguous().T for t in (cos, sin))
    assert torch.equal(rotate(x.contiguous(), cos, sin, pairing="half"), expected)


# Gradients


@pytest.mark.parametrize(("pairing", "write"), BOTH)
def test_gradients_of_any_order(pairing, write):
    rope = RotaryEmbedding(
        RotarySpec(10, rotary_dim=6, pairing=pairing, write_pairing=write, start=2)
    )
    q = torch.randn(2, 4, 3, 10, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 2, 3, 10, dtype=torch.float64, requires_grad=True)
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
    described = cpu._described(x, out, cos, sin, -2)
    cpu._rotate(4, (*described, 0, cos.shape[-1], 0, False, False, False))
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


@pytest.mark.parametrize("wrong", [(), ((),), ((1, 2),), ("x",), ((*range(22), "x"),)])
def test_the_extension_refuses_what_it_cannot_read(wrong):
    with pytest.raises((TypeError, ValueError)):
        cpu._rotate(1, *wrong)
